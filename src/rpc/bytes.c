/* SPDX-License-Identifier: Apache-2.0 */
/* Memory for long arguments, which libtirpc would clear before it is received into. */
#include <stdlib.h>

#include "rpc/engine.h"
#include "rpc/record.h"

/* From here on clearing costs about a third of what the copy does. */
#define LONG_BYTES 16384u

/* The program wants memory for bytes that come from a stream of ours. */
static char *room(XDR *xdrs, u_int most)
{
	uint32_t len;

	if (!record_next_word(xdrs, &len) || len < LONG_BYTES || len > most)
		return NULL;
	return malloc(len);
}

/*
 * libtirpc's decoding goes into memory that it is given, as into its own. All of that has been
 * received when it succeeds; else the program gets none. The length is judged by libtirpc, too, from
 * the same private memory.
 */
RPC_EXPORT bool_t xdr_bytes(XDR *xdrs, char **bytes, u_int *len, u_int most)
{
	char *given = NULL;
	bool_t done;

	if (xdrs->x_op == XDR_DECODE && !*bytes)
		*bytes = given = room(xdrs, most);
	done = tirpc()->xdr_bytes(xdrs, bytes, len, most);
	if (given && !done) {
		free(given);
		*bytes = NULL;
	}
	return done;
}
