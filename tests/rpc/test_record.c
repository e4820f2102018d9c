/* SPDX-License-Identifier: Apache-2.0 */
/* Records, over a connection that gives and takes as few bytes as it likes; and what lies. */
#include "rpc/record.h"

#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "rpc/engine.h"
#include "unit/test.h"

/* ---- a connection in memory ---- */

static struct {
	char *bytes;
	size_t len, at, room;
	unsigned sends, send_most, receive_most; /* 0: all at once */
	int fails;				 /* the errno of the next send */
	int interrupts, waits[4]; /* so many receives are cut; what each was to wait */
} wire;

static uint32_t seed = 1;

static uint32_t any(uint32_t below)
{
	seed = seed * 1664525u + 1013904223u;
	return (seed >> 8) % below;
}

static void wire_put(const void *from, size_t n)
{
	if (wire.len + n > wire.room) {
		wire.room = (wire.len + n) * 2;
		wire.bytes = realloc(wire.bytes, wire.room);
	}
	memcpy(wire.bytes + wire.len, from, n);
	wire.len += n;
}

static ssize_t wire_send(int fd, const struct iovec *iov, int count, int flags)
{
	size_t most = wire.send_most ? any(wire.send_most) + 1 : SIZE_MAX, done = 0;
	int fails = wire.fails;

	(void)fd, (void)flags;
	wire.fails = 0;
	if (fails)
		return -fails;
	wire.sends++;
	for (int i = 0; i < count && done < most; i++) {
		size_t n = iov[i].iov_len < most - done ? iov[i].iov_len : most - done;

		wire_put(iov[i].iov_base, n);
		done += n;
	}
	return (ssize_t)done;
}

static ssize_t wire_recv(int fd, void *buf, size_t len, int timeout_ms)
{
	size_t most = wire.receive_most ? any(wire.receive_most) + 1 : SIZE_MAX;
	size_t n = wire.len - wire.at;

	(void)fd;
	if (wire.interrupts > 0) {
		wire.waits[--wire.interrupts] = timeout_ms;
		usleep(30000);
		return -EINTR;
	}
	if (n == 0)
		return timeout_ms ? 0 : -ETIME;
	n = n < len ? n : len;
	n = n < most ? n : most;
	memcpy(buf, wire.bytes + wire.at, n);
	wire.at += n;
	return (ssize_t)n;
}

static const struct door fake = {.send = wire_send, .recv_within = wire_recv};
const struct door *engine = &fake;

static void wire_reset(unsigned send_most, unsigned receive_most)
{
	wire.len = wire.at = wire.sends = 0;
	wire.send_most = send_most;
	wire.receive_most = receive_most;
}

static uint32_t word_at(size_t at)
{
	uint32_t word;

	memcpy(&word, wire.bytes + at, sizeof(word));
	return ntohl(word);
}

/* Whole records, each of fragments that are not empty. Returns how many. */
static unsigned count_records(void)
{
	unsigned records = 0;
	size_t at = 0;

	while (at < wire.len) {
		uint32_t word = word_at(at);

		CHECK((word & 0x7fffffff) > 0);
		at += 4 + (word & 0x7fffffff);
		records += word >> 31;
	}
	CHECK(at == wire.len);
	return records;
}

/* ---- libtirpc, as the module has it ---- */

static bool
	was_given; /* the last bytes that were decoded went to memory that was there */

static bool_t bytes_of_libtirpc(XDR *xdrs, char **bytes, u_int *len, u_int most)
{
	static bool_t (*real)(XDR *, char **, u_int *, u_int);

	if (!real)
		real = (bool_t(*)(XDR *, char **, u_int *, u_int))dlvsym(
			RTLD_NEXT, "xdr_bytes", "TIRPC_0.3.0");
	was_given = xdrs->x_op == XDR_DECODE && *bytes;
	return real(xdrs, bytes, len, most);
}

const struct tirpc *tirpc(void)
{
	static const struct tirpc it = {.xdr_bytes = bytes_of_libtirpc};

	return &it;
}

/* ---- what goes in comes out ---- */

struct item {
	u_int len;
	char *bytes;
	int number;
};

static bool_t xdr_item(XDR *xdrs, struct item *item)
{
	return xdr_int(xdrs, &item->number) &&
	       xdr_bytes(xdrs, &item->bytes, &item->len, ~0u) &&
	       xdr_int(xdrs, &item->number);
}

static struct item item_of(u_int len)
{
	struct item item = {len, malloc(len + 1), (int)len ^ 0x5aa5};

	for (u_int i = 0; i < len; i++)
		item.bytes[i] = (char)any(256);
	return item;
}

static void encode(struct record *r, struct item *item, bool now)
{
	r->xdrs.x_op = XDR_ENCODE;
	CHECK(xdr_item(&r->xdrs, item));
	CHECK(record_end(r, now));
}

static void decode(struct record *r, const struct item *item)
{
	struct item got = {0, NULL, 0};

	r->xdrs.x_op = XDR_DECODE;
	CHECK(record_skip(r));
	CHECK(xdr_item(&r->xdrs, &got));
	CHECK(got.len == item->len && got.number == item->number);
	CHECK(got.len == 0 || !memcmp(got.bytes, item->bytes, got.len));
	free(got.bytes);
}

static void round_trip(size_t out_bytes, unsigned send_most, unsigned receive_most,
		       bool kept)
{
	static const u_int sizes[] = {0,     1,	    3,	   4,	  5,	 91,	92,
				      93,    3988,  3989,  16383, 16384, 16385, 16388,
				      65520, 65524, 65528, 65532, 65536, 100003};
	enum { COUNT = sizeof(sizes) / sizeof(sizes[0]) };
	struct item items[COUNT];
	struct record r;

	wire_reset(send_most, receive_most);
	CHECK(record_init(&r, 3, out_bytes, 4096));
	r.out_is_kept = kept;
	r.timeout_ms = 1;
	for (int i = 0; i < COUNT; i++) {
		items[i] = item_of(sizes[i]);
		encode(&r, &items[i], i % 3 == 2 || i == COUNT - 1);
	}
	CHECK(count_records() == COUNT);
	for (int i = 0; i < COUNT; i++) {
		decode(&r, &items[i]);
		CHECK(record_has_more(&r) == (r.in_at != r.in_end));
		free(items[i].bytes);
	}
	CHECK(wire.at == wire.len && r.fault == RECORD_FINE);
	record_finish(&r);
}

TEST(round_trips)
{
	static const size_t sizes[] = {100, 101, 103, 4000, 65536};

	for (int i = 0; i < 5; i++) {
		round_trip(sizes[i], 0, 0, false);
		round_trip(sizes[i], 0, 0, true);
		round_trip(sizes[i], 700, 900, false);
		round_trip(sizes[i], 5, 5, true);
	}
}

TEST(small_call_is_one_send)
{
	struct item item = item_of(40);
	struct record r;

	wire_reset(0, 0);
	CHECK(record_init(&r, 3, 65536, 65536));
	encode(&r, &item, true);
	CHECK(wire.sends == 1 && word_at(0) == (0x80000000u | (wire.len - 4)));
	free(item.bytes);
	record_finish(&r);
}

TEST(batched_records_wait)
{
	struct item item = item_of(40);
	struct record r;

	wire_reset(0, 0);
	CHECK(record_init(&r, 3, 65536, 65536));
	for (int i = 0; i < 10; i++)
		encode(&r, &item, false);
	CHECK(wire.sends == 0);
	encode(&r, &item, true);
	CHECK(wire.sends == 1 && count_records() == 11);
	free(item.bytes);
	record_finish(&r);
}

/* No fragment is empty, wherever the buffer ends: some services refuse these. */
TEST(no_fragment_is_empty)
{
	struct item item = item_of(0);
	char *bytes = calloc(1, 40000);
	struct record r;

	wire_reset(0, 0);
	CHECK(record_init(&r, 3, 101, 4096));
	for (int i = 0; i < 20; i++)
		encode(&r, &item, false);
	r.xdrs.x_op = XDR_ENCODE;
	CHECK(XDR_PUTBYTES(&r.xdrs, bytes, 40000) && record_end(&r, true));
	CHECK(XDR_PUTBYTES(&r.xdrs, bytes, 97) && record_end(&r, true));
	CHECK(count_records() == 22);
	free(item.bytes);
	free(bytes);
	record_finish(&r);
}

TEST(inline_stays_in_the_record)
{
	struct item item = item_of(0);
	struct record r;

	wire_reset(0, 0);
	CHECK(record_init(&r, 3, 4000, 4096));
	encode(&r, &item, false);
	encode(&r, &item, true);
	r.xdrs.x_op = XDR_DECODE;
	CHECK(record_skip(&r) && xdr_int(&r.xdrs, &item.number));
	CHECK(!XDR_INLINE(&r.xdrs, 12) && XDR_INLINE(&r.xdrs, 8));
	CHECK(!XDR_INLINE(&r.xdrs, 4) && !xdr_int(&r.xdrs, &item.number));
	free(item.bytes);
	record_finish(&r);
}

/* What fits into the buffer goes as one fragment; longer ones are cut, but seldom. */
TEST(fits_into_one_fragment)
{
	char *bytes = calloc(1, 1 << 20);
	struct record r;

	for (u_int len = 60000; len < 65528; len += 8) {
		wire_reset(0, 0);
		CHECK(record_init(&r, 3, 65536, 4096));
		r.xdrs.x_op = XDR_ENCODE;
		CHECK(XDR_PUTBYTES(&r.xdrs, bytes, 4) &&
		      XDR_PUTBYTES(&r.xdrs, bytes, len));
		CHECK(record_end(&r, true));
		CHECK(wire.sends == 1 && word_at(0) == (0x80000000u | (len + 4)));
		record_finish(&r);
	}
	wire_reset(0, 0);
	CHECK(record_init(&r, 3, 65536, 4096));
	r.xdrs.x_op = XDR_ENCODE;
	CHECK(XDR_PUTBYTES(&r.xdrs, bytes, 1 << 20) && record_end(&r, true));
	CHECK(wire.sends == 2 && count_records() == 1);
	record_finish(&r);
	free(bytes);
}

/* As RPCSEC_GSS wraps: leaves room for a length, encodes, goes back, and looks at it all. */
TEST(goes_back_in_what_is_kept)
{
	struct item item = item_of(200000);
	struct record r;
	u_int begin, end, len;

	wire_reset(0, 0);
	CHECK(record_init(&r, 3, 4000, 4096));
	r.timeout_ms = 1;
	r.out_is_kept = true;
	r.xdrs.x_op = XDR_ENCODE;
	begin = XDR_GETPOS(&r.xdrs);
	CHECK(XDR_SETPOS(&r.xdrs, begin + 4));
	CHECK(xdr_item(&r.xdrs, &item));
	end = XDR_GETPOS(&r.xdrs);
	len = end - begin - 4;
	CHECK(XDR_SETPOS(&r.xdrs, begin + 4));
	CHECK(XDR_INLINE(&r.xdrs, len) != NULL);
	CHECK(XDR_SETPOS(&r.xdrs, begin));
	CHECK(xdr_u_int(&r.xdrs, &len));
	CHECK(XDR_SETPOS(&r.xdrs, end));
	CHECK(record_end(&r, true) && count_records() == 1);
	r.xdrs.x_op = XDR_DECODE;
	CHECK(record_skip(&r) && xdr_u_int(&r.xdrs, &end) && end == len);
	free(item.bytes);
	record_finish(&r);
}

/* ---- the peer ends, is late, or lies ---- */

TEST(rest_of_a_record_is_passed)
{
	struct item one = item_of(50000), two = item_of(10);
	struct record r;
	int number;

	wire_reset(0, 0);
	CHECK(record_init(&r, 3, 4000, 4096));
	r.timeout_ms = 1;
	encode(&r, &one, true);
	encode(&r, &two, true);
	r.xdrs.x_op = XDR_DECODE;
	CHECK(record_skip(&r) && xdr_int(&r.xdrs, &number) && number == one.number);
	decode(&r, &two);
	CHECK(!record_has_more(&r));
	free(one.bytes);
	free(two.bytes);
	record_finish(&r);
}

TEST(end_and_time)
{
	struct record r;
	int number;

	wire_reset(0, 0);
	CHECK(record_init(&r, 3, 4000, 4096));
	r.xdrs.x_op = XDR_DECODE;
	CHECK(record_skip(&r) && !xdr_int(&r.xdrs, &number));
	CHECK(r.fault == RECORD_TIMED_OUT);
	r.timeout_ms = 1;
	CHECK(!xdr_int(&r.xdrs, &number));
	CHECK(r.fault == RECORD_CANT_RECV && r.error == ECONNRESET);
	wire.fails = EPIPE;
	r.xdrs.x_op = XDR_ENCODE;
	CHECK(xdr_int(&r.xdrs, &number) && !record_end(&r, true));
	CHECK(r.fault == RECORD_CANT_SEND && r.error == EPIPE);
	record_finish(&r);
}

/* libtirpc blocks signals during a call: none makes it wait longer, or fail. A service's wait begins anew. */
TEST(signals_amid)
{
	struct record r;
	int number = 7;

	wire_reset(0, 0);
	CHECK(record_init(&r, 3, 4000, 4096));
	r.is_calls = true;
	wire.fails = EINTR;
	r.xdrs.x_op = XDR_ENCODE;
	CHECK(xdr_int(&r.xdrs, &number) && record_end(&r, true));
	r.xdrs.x_op = XDR_DECODE;
	r.timeout_ms = 100000;
	wire.interrupts = 3;
	CHECK(record_skip(&r) && xdr_int(&r.xdrs, &number) && number == 7);
	CHECK(wire.waits[2] == 100000 && wire.waits[1] < wire.waits[2] &&
	      wire.waits[0] < wire.waits[1]);
	r.timeout_ms = 20;
	wire.interrupts = 2;
	CHECK(record_skip(&r) && !xdr_int(&r.xdrs, &number) && wire.waits[0] == 0);
	r.is_calls = false;
	wire.interrupts = 2;
	CHECK(!xdr_int(&r.xdrs, &number) && wire.waits[0] == 20);
	wire.fails = EINTR;
	r.xdrs.x_op = XDR_ENCODE;
	CHECK(xdr_int(&r.xdrs, &number) && !record_end(&r, true));
	CHECK(r.fault == RECORD_CANT_SEND && r.error == EINTR);
	record_finish(&r);
}

/* Long ones come to memory that nobody has cleared; none of it is left where they do not. */
TEST(long_bytes_come_to_new_memory)
{
	static const struct {
		u_int len, most;
		bool given, done;
	} cases[] = {{100, ~0u, false, true},
		     {16380, ~0u, false, true},
		     {16384, ~0u, true, true},
		     {70000, 70000, true, true},
		     {70000, 69999, false, false}};
	char *bytes, *own = malloc(70000), area[40];
	XDR other;

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct item item = item_of(cases[i].len);
		struct record r;
		u_int len = 0;

		bytes = NULL;
		wire_reset(0, 0);
		CHECK(record_init(&r, 3, 65536, 4096));
		r.timeout_ms = 1;
		encode(&r, &item, true);
		r.xdrs.x_op = XDR_DECODE;
		CHECK(record_skip(&r) && xdr_int(&r.xdrs, &item.number));
		CHECK(xdr_bytes(&r.xdrs, &bytes, &len, cases[i].most) == cases[i].done);
		CHECK(was_given == cases[i].given);
		CHECK(!bytes == !cases[i].done);
		CHECK(!bytes || !memcmp(bytes, item.bytes, len));
		free(bytes);
		free(item.bytes);
		record_finish(&r);
	}
	/* Memory of the program's own, and a stream that is none of ours. */
	struct item item = item_of(70000), got = {0, own, 0};
	struct record r;

	wire_reset(0, 0);
	CHECK(record_init(&r, 3, 65536, 4096));
	encode(&r, &item, true);
	r.xdrs.x_op = XDR_DECODE;
	CHECK(record_skip(&r) && xdr_item(&r.xdrs, &got));
	CHECK(got.bytes == own && !memcmp(own, item.bytes, 70000));
	memset(area, 0xff, sizeof(area));
	xdrmem_create(&other, area, sizeof(area), XDR_DECODE);
	bytes = NULL;
	CHECK(!xdr_bytes(&other, &bytes, &got.len, ~0u - 7) && !was_given && !bytes);
	free(item.bytes);
	free(own);
	record_finish(&r);
}

static void lie(const uint32_t *words, size_t count)
{
	wire_reset(0, 0);
	for (size_t i = 0; i < count; i++)
		wire_put(&(uint32_t){htonl(words[i])}, 4);
}

TEST(marks_that_lie)
{
	static const uint32_t empty[] = {0, 0, 0x80000004, 7};
	static const uint32_t huge[] = {0xffffffff, 1};
	static const uint32_t beyond[] = {0x80000008, 5, 1000};
	static const uint32_t far_beyond[] = {0x80000008, 5, 100000};
	struct record r;
	char *bytes = NULL;
	u_int len = 0;
	int number;

	CHECK(record_init(&r, 3, 4000, 4096));
	r.timeout_ms = 1;
	r.xdrs.x_op = XDR_DECODE;
	lie(empty, 4);
	CHECK(record_skip(&r) && !xdr_int(&r.xdrs, &number) && r.fault == RECORD_FINE);
	record_finish(&r);

	CHECK(record_init(&r, 3, 4000, 4096));
	r.timeout_ms = 1;
	r.xdrs.x_op = XDR_DECODE;
	lie(huge, 2);
	CHECK(record_skip(&r) && xdr_int(&r.xdrs, &number) && number == 1);
	CHECK(!record_skip(&r) && r.fault == RECORD_CANT_RECV);
	record_finish(&r);

	CHECK(record_init(&r, 3, 4000, 4096));
	r.timeout_ms = 1;
	r.xdrs.x_op = XDR_DECODE;
	lie(beyond, 3);
	CHECK(record_skip(&r) && xdr_int(&r.xdrs, &number) && number == 5);
	CHECK(!xdr_bytes(&r.xdrs, &bytes, &len, 2000) && r.fault == RECORD_FINE);
	free(bytes);
	record_finish(&r);

	CHECK(record_init(&r, 3, 4000, 4096));
	r.timeout_ms = 1;
	r.xdrs.x_op = XDR_DECODE;
	lie(far_beyond, 3);
	bytes = NULL;
	CHECK(record_skip(&r) && xdr_int(&r.xdrs, &number));
	CHECK(!xdr_bytes(&r.xdrs, &bytes, &len, 200000) && was_given && !bytes);
	record_finish(&r);
}

/* Whatever comes, nothing is read or written where it must not be: for a sanitizer to see. */
TEST(any_bytes)
{
	for (int i = 0; i < 3000; i++) {
		struct rpc_msg msg;
		struct record r;
		char area[800];

		wire_reset(0, any(2) ? 0 : 50);
		for (unsigned n = any(60); n > 0; n--) {
			uint32_t word = any(3) ? any(9) : any(1u << 24) * 257u;

			if (any(4) == 0)
				word = 0x80000000u | any(80);
			wire_put(&(uint32_t){htonl(word)}, 4 - (any(40) == 0));
		}
		CHECK(record_init(&r, 3, 100, 100 + any(100)));
		r.timeout_ms = 1;
		r.xdrs.x_op = XDR_DECODE;
		for (int j = 0; j < 5 && r.fault == RECORD_FINE; j++) {
			u_int at = XDR_GETPOS(&r.xdrs);

			memset(&msg, 0, sizeof(msg));
			msg.rm_call.cb_cred.oa_base = area;
			msg.rm_call.cb_verf.oa_base = area + MAX_AUTH_BYTES;
			record_skip(&r);
			xdr_callmsg(&r.xdrs, &msg);
			XDR_SETPOS(&r.xdrs, any(2) ? at : any(300));
			int32_t *inside = XDR_INLINE(&r.xdrs, any(40));
			if (inside)
				memcpy(area, inside, 0);
			record_has_more(&r);
		}
		record_finish(&r);
	}
}
