/* SPDX-License-Identifier: Apache-2.0 */
/* An XDR stream of records on a connection: RFC 5531, section 11, in large fragments. */
#ifndef VD_RPC_RECORD_H
#define VD_RPC_RECORD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <rpc/rpc.h>

/* What has stopped a stream. */
enum record_fault { RECORD_FINE, RECORD_TIMED_OUT, RECORD_CANT_RECV, RECORD_CANT_SEND };

/*
 * One thread at a time uses a stream. The bytes of a message are received into private memory, so
 * that the peer cannot change them while they are decoded.
 */
struct record {
	XDR xdrs; /* for the program's XDR routines; x_op says which way */
	int fd;
	int timeout_ms; /* of each wait for bytes; negative: for ever */
	bool is_calls; /* a client's: libtirpc blocks all signals during a call, so that none cuts a wait */
	enum record_fault fault;
	int error; /* an errno: why bytes could not be received or sent */

	/* Out: whole fragments, then the header and the bytes of the one at hand. */
	char *out;
	size_t out_size, out_end, out_header;
	bool out_is_cut; /* a part of the record at hand has been sent */
	bool out_is_kept; /* a record is sent as a whole: RPCSEC_GSS goes back in what it has encoded */

	/* In: what has been received and not yet been decoded. */
	char *in;
	size_t in_size, in_at, in_end;
	uint32_t
		in_left; /* bytes of the fragment at hand that are still to come, or to decode */
	bool in_is_last; /* the fragment at hand is the record's last */
	uint64_t in_taken;
};

/* Buffers of so many bytes. False: out of memory. */
bool record_init(struct record *r, int fd, size_t out_bytes, size_t in_bytes);
void record_finish(struct record *r);

/* The next word of a stream that is decoded, if it is one of these and the word has been received: it
 * stays there. */
bool record_next_word(const XDR *xdrs, uint32_t *word);

/* Ends the record that has been encoded. `now`: sends it, and all before it. */
bool record_end(struct record *r, bool now);
/* Passes what is left of the record at hand, which may have to come first: the next bytes are those
 * of the next one. */
bool record_skip(struct record *r);
/* The same, and says whether bytes of a next record have been received. */
bool record_has_more(struct record *r);

#endif
