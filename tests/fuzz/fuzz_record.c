/* SPDX-License-Identifier: Apache-2.0 */
/* What a peer sends of remote procedure calls: rpc/record.c, decoded as a service and as a client do it. */
#include "rpc/record.h"

#include <errno.h>

#include "fuzz/fuzz.h"
#include "rpc/engine.h"

/* Of one argument; with longer ones it would be libtirpc's memory that is tried. */
#define ARGUMENT_MOST (1u << 20)
#define MESSAGES_MOST 64

/* ---- a connection that brings the input, and then its end ---- */

static struct {
	uint8_t bytes[FUZZ_MAX];
	size_t len, at;
	uint32_t chance; /* 0: as much as there is room for */
} wire;

/* What has been received is overwritten: a peer may write its ring whenever it likes. */
static ssize_t wire_recv(int fd, void *buf, size_t len, int timeout_ms)
{
	size_t n = wire.len - wire.at;

	(void)fd, (void)timeout_ms;
	n = n < len ? n : len;
	if (wire.chance && n) {
		wire.chance = wire.chance * 1664525u + 1013904223u;
		n = 1 + (wire.chance >> 8) % (n < 40 ? n : 40);
	}
	memcpy(buf, wire.bytes + wire.at, n);
	memset(wire.bytes + wire.at, 0xa5, n);
	wire.at += n;
	return (ssize_t)n;
}

static const struct door door = {.recv_within = wire_recv};
const struct door *engine = &door;

/* ---- what came of it ---- */

struct verdict {
	uint64_t sum;
	unsigned messages;
};

static void add(struct verdict *v, const void *bytes, size_t len)
{
	for (size_t i = 0; i < len; i++)
		v->sum = (v->sum ^ ((const uint8_t *)bytes)[i]) * 0x100000001b3u;
}

static void add_number(struct verdict *v, uint64_t n)
{
	add(v, &n, sizeof(n));
}

static bool_t xdr_argument(XDR *xdrs, struct verdict *v)
{
	char *bytes = NULL;
	u_int len = 0;
	bool_t good = xdr_bytes(xdrs, &bytes, &len, ARGUMENT_MOST);
	int32_t *words;
	int number = 0;

	if (good)
		add(v, bytes, len);
	xdrs->x_op = XDR_FREE;
	xdr_bytes(xdrs, &bytes, &len, ARGUMENT_MOST);
	xdrs->x_op = XDR_DECODE;
	if (!good)
		return FALSE;
	/* Whether these can be had at once is a matter of how the bytes came. */
	words = xdr_inline(xdrs, 4);
	if (words)
		add_number(v, (uint32_t)IXDR_GET_LONG(words));
	else if (xdr_int(xdrs, &number))
		add_number(v, (uint32_t)number);
	return TRUE;
}

static bool take_call(struct record *r, struct verdict *v)
{
	char credentials[2 * MAX_AUTH_BYTES];
	struct rpc_msg msg = {.rm_xid = 0};

	msg.rm_call.cb_cred.oa_base = credentials;
	msg.rm_call.cb_verf.oa_base = credentials + MAX_AUTH_BYTES;
	r->xdrs.x_op = XDR_DECODE;
	record_skip(r);
	if (!xdr_callmsg(&r->xdrs, &msg))
		return false;
	add_number(v, msg.rm_xid);
	add_number(v, msg.rm_call.cb_proc);
	add(v, credentials, msg.rm_call.cb_cred.oa_length);
	add_number(v, (uint64_t)xdr_argument(&r->xdrs, v));
	return true;
}

static bool take_answer(struct record *r, struct verdict *v)
{
	struct rpc_msg msg = {.rm_xid = 0};
	bool good;

	msg.acpted_rply.ar_results.proc = (xdrproc_t)xdr_argument;
	msg.acpted_rply.ar_results.where = (caddr_t)v;
	r->xdrs.x_op = XDR_DECODE;
	if (!record_skip(r))
		return false;
	good = xdr_replymsg(&r->xdrs, &msg);
	add_number(v, good ? msg.rm_xid : 1);
	if (msg.rm_reply.rp_stat == MSG_ACCEPTED && msg.acpted_rply.ar_verf.oa_base) {
		r->xdrs.x_op = XDR_FREE;
		xdr_opaque_auth(&r->xdrs, &msg.acpted_rply.ar_verf);
	}
	return r->fault == RECORD_FINE;
}

static struct verdict judge(const uint8_t *data, size_t size, uint32_t chance)
{
	bool serves = size && data[0] & 1;
	struct verdict v = {0};
	struct record r;

	wire.len = size > 1 ? size - 1 : 0;
	wire.at = 0;
	wire.chance = chance;
	if (wire.len)
		memcpy(wire.bytes, data + 1, wire.len);
	FUZZ_CHECK(record_init(&r, 0, 4000, chance ? 400 : 16384));
	while (v.messages < MESSAGES_MOST &&
	       (serves ? take_call(&r, &v) : take_answer(&r, &v))) {
		v.messages++;
		FUZZ_CHECK(r.in_at <= r.in_end && r.in_end <= r.in_size);
	}
	record_finish(&r);
	return v;
}

/* ---- inputs ---- */

#define LAST 0x80000000u

static const uint32_t calls[] = {1, LAST | 52, 7, 0, 2, 0x20000099, 1, 1,
				 0, 0,	       0, 0, 4, 0x61626364, 5};
static const uint32_t cut[] = {1,	   8, 7, 0, LAST | 44,	2, 0x20000099, 1, 1, 0,
			       0,	   0, 0, 4, 0x61626364, 5, LAST | 44,  8, 0, 2,
			       0x20000099, 1, 0, 0, 0,		0, 0,	       0};
static const uint32_t known[] = {1, LAST | 72, 9, 0, 2, 0x20000099, 1, 1, 1,	      20,
				 5, 0,	       1, 2, 0, 0,	    0, 4, 0x61626364, 5};
static const uint32_t answers[] = {0, LAST | 36,  7, 1,		0, 0,	       0, 0,
				   4, 0x61626364, 6, LAST | 44, 8, 1,	       0, 3,
				   8, 1,	  2, 0,		4, 0x61626364, 6};
static const uint32_t refused[] = {0,	      LAST | 20, 7, 1, 1, 1, 5,
				   LAST | 24, 8,	 1, 1, 0, 3, 4};

static const struct {
	const uint32_t *words;
	size_t count;
} seeds[] = {
#define SEED(words)                                                                      \
	{                                                                                \
		words, sizeof(words) / sizeof((words)[0])                                \
	}
	SEED(calls), SEED(cut), SEED(known), SEED(answers), SEED(refused),
};

/* The first word is a byte, which says who decodes. */
size_t fuzz_seed(unsigned n, uint8_t out[FUZZ_MAX])
{
	if (n >= sizeof(seeds) / sizeof(seeds[0]))
		return 0;
	out[0] = (uint8_t)seeds[n].words[0];
	for (size_t i = 1; i < seeds[n].count; i++) {
		uint32_t word = htonl(seeds[n].words[i]);

		memcpy(out + 1 + 4 * (i - 1), &word, sizeof(word));
	}
	return 1 + 4 * (seeds[n].count - 1);
}

/* However the bytes come, the same is decoded. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct verdict whole, pieces;

	if (size > FUZZ_MAX)
		return 0;
	whole = judge(data, size, 0);
	pieces = judge(data, size, (uint32_t)size * 2 + 1);
	FUZZ_CHECK(whole.messages == pieces.messages && whole.sum == pieces.sum);
	return 0;
}
