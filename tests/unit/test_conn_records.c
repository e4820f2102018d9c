/* SPDX-License-Identifier: Apache-2.0 */
/* Small blocking sends wait for all their room, so that threads' records stay whole. */
#include "unit/test.h"

#include "unit/conn_pair.h"

static void fill(int fd)
{
	static uint8_t buf[1 << 20];
	ssize_t n;
	while ((n = st_send(fd, buf, sizeof(buf), MSG_DONTWAIT)) > 0)
		;
	CHECK_EQ(n, -EAGAIN);
}

/* Of a new pair: room for `room` bytes in the last area, the only one that has bytes. Returns how many. */
static size_t leave_room(struct pair *p, uint8_t *sink, size_t room)
{
	size_t first = WIRE_DIR_DATA_BYTES - WIRE_AREA2_BYTES;
	fill(p->a);
	CHECK_EQ(st_recv(p->b, sink, first + room, MSG_WAITALL), first + room);
	return WIRE_AREA2_BYTES - room;
}

/* Threads send records: none is cut in two by another's. */
STREAM_TEST(a_record_waits_for_all_its_room)
{
	static uint8_t sink[WIRE_DIR_DATA_BYTES], data[4096];
	struct pair p = pair_open_up();
	struct call c = {.fd = p.a, .buf = data, .len = sizeof(data)};
	size_t at = leave_room(&p, sink, 100);
	memset(data, 'r', sizeof(data));
	call_start(&c, call_send);
	CHECK(!atomic_load(&c.done));
	CHECK_EQ(st_send(p.a, "held", 4, MSG_DONTWAIT | MSG_MORE), 4);
	CHECK_EQ(st_send(p.a, "x", 1, MSG_DONTWAIT), 1);
	CHECK_EQ(st_recv(p.b, sink, at + 5 + sizeof(data), MSG_WAITALL),
		 at + 5 + sizeof(data));
	CHECK_EQ(call_end(&c), sizeof(data));
	CHECK(memcmp(sink + at, "heldx", 5) == 0);
	CHECK(memcmp(sink + at + 5, data, sizeof(data)) == 0);
	pair_close(&p);
}

STREAM_TEST(a_record_that_is_late_has_sent_nothing)
{
	static uint8_t sink[WIRE_DIR_DATA_BYTES], data[4097];
	struct pair p = pair_open_up();
	size_t at = leave_room(&p, sink, 100);
	st_timeout(p.a, SO_SNDTIMEO, 30);
	/* What is held counts as unread before the wait: the peer may take it. */
	CHECK_EQ(st_send(p.a, "held", 4, MSG_MORE), 4);
	CHECK_EQ(st_send(p.a, data, 4096, 0), -EAGAIN);
	CHECK_EQ(st_recv(p.b, sink, at + 4, MSG_WAITALL), at + 4);
	CHECK_EQ(st_recv(p.b, sink, 1, MSG_DONTWAIT), -EAGAIN);
	pair_close(&p);
}

STREAM_TEST(others_send_what_there_is_room_for)
{
	static uint8_t sink[WIRE_DIR_DATA_BYTES], data[4097];
	for (int nonblocking = 0; nonblocking < 2; nonblocking++) {
		struct pair p = pair_open_up();
		size_t at = leave_room(&p, sink, 100), len = 4097 - nonblocking;
		st_timeout(p.a, SO_SNDTIMEO, 30);
		CHECK_EQ(st_send(p.a, data, len, nonblocking ? MSG_DONTWAIT : 0), 100);
		CHECK_EQ(st_recv(p.b, sink, at + 100, MSG_WAITALL), at + 100);
		pair_close(&p);
	}
}
