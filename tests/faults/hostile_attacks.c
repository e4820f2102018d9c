/* SPDX-License-Identifier: Apache-2.0 */
/* The lies: one function each, told after as much of the truth as the table says. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "hostile.h"
#include "meet/name.h"

#define FAR (1ull << 40)

static void truth(struct hostile *h)
{
	(void)h;
}

/* ---- before the meeting is complete ---- */

static void several_echoes(struct hostile *h)
{
	for (int i = 0; i < 64; i++)
		echo_tcp(h);
}

static void publish_and_leave(struct hostile *h)
{
	if (h->role == TCP_ROLE_CONNECTED)
		while (meet_publish(h->fd, &h->name) == 0)
			echo_tcp(h);
	raise(SIGKILL);
}

static void publish_and_never_collect(struct hostile *h)
{
	if (h->role == TCP_ROLE_CONNECTED)
		while (meet_publish(h->fd, &h->name) == 0)
			echo_tcp(h);
	several_echoes(h);
}

static void offer_and_leave(struct hostile *h)
{
	while (h->role == TCP_ROLE_ACCEPTED && meet_offer(h->fd, &h->seg) == 0)
		echo_tcp(h);
	raise(SIGKILL);
}

/* A connection to the victim's name; -1 when it has none. */
static int visit(struct hostile *h)
{
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	struct sockaddr_un name;
	struct name_tuple t;
	socklen_t len;

	if (name_of_connection(h->fd, h->role, &t) != 0)
		die("hostile: addresses");
	len = name_address(&t, &name);
	if (connect(fd, (struct sockaddr *)&name, len) == 0)
		return fd;
	close(fd);
	return -1;
}

static void visit_in_silence(struct hostile *h)
{
	while (h->role == TCP_ROLE_ACCEPTED && visit(h) < 0)
		echo_tcp(h);
	several_echoes(h);
}

static void visit_with_rubbish(struct hostile *h)
{
	int fd;

	while (h->role == TCP_ROLE_ACCEPTED && (fd = visit(h)) < 0)
		echo_tcp(h);
	if (h->role == TCP_ROLE_ACCEPTED && send(fd, "rubbish", 7, MSG_NOSIGNAL) != 7)
		die("hostile: rubbish");
	several_echoes(h);
}

static void shake_hands_wrongly(struct hostile *h)
{
	atomic_store(&h->seg.wire->handshake, UINT32_MAX);
	several_echoes(h);
}

/* ---- cursors and moves between areas ---- */

static void produce_far(struct hostile *h)
{
	atomic_store(&h->out->produced, h->produced + FAR);
	ring_bell(h);
	wait_for_end(h);
}

static void produce_a_little_too_far(struct hostile *h)
{
	atomic_store(&h->out->produced, h->produced + WIRE_AREA0_BYTES + 1);
	ring_bell(h);
	wait_for_end(h);
}

static void produce_backwards(struct hostile *h)
{
	atomic_store(&h->out->produced, h->produced - 1);
	ring_bell(h);
}

/* The victim believes its credit until it runs out. */
static void consume_far(struct hostile *h)
{
	atomic_store(&h->in->consumed, FAR);
	for (int i = 0; i < 64; i++) {
		uint64_t before = h->produced;
		say_ring(h, 4096);
		while (atomic_load(&h->out->consumed) == before)
			if (recv(h->fd, &(char){0}, 1, MSG_DONTWAIT) >= 0 ||
			    errno != EAGAIN)
				return;
	}
	wait_for_end(h);
}

static void turn_to(struct hostile *h, int area_byte, uint32_t turns, uint64_t at)
{
	for (size_t i = 0; i < sizeof(h->out->turn_at) / sizeof(uint64_t); i++)
		memcpy((char *)&h->out->turn_at + i * sizeof(at), &at, sizeof(at));
	memset((void *)&h->out->turn_area, area_byte, sizeof(h->out->turn_area));
	atomic_store(&h->out->turn_seq, turns);
	atomic_store(&h->out->produced, h->produced + 1);
	ring_bell(h);
	wait_for_end(h);
}

static void turn_to_no_area(struct hostile *h)
{
	turn_to(h, 0xff, 1, h->produced);
}

static void turn_too_often(struct hostile *h)
{
	turn_to(h, 0, 1000, h->produced);
}

static void turn_far_away(struct hostile *h)
{
	turn_to(h, 0xff, 1, FAR);
}

/* ---- the switch ---- */

/* Instead of the true mark. */
static void mark(struct hostile *h, int64_t off)
{
	uint64_t written;

	while (atomic_load(&h->out->ready_epoch) != 1)
		echo_tcp(h);
	if (tcp_written(h->fd, h->role, &written) != 0)
		die("hostile: written");
	atomic_store(&h->out->up_at, written + (uint64_t)off);
	atomic_store(&h->out->up_epoch, 1);
	say_ring(h, 1);
}

static void mark_behind(struct hostile *h)
{
	mark(h, -1);
	wait_for_end(h);
}

static void mark_far(struct hostile *h)
{
	mark(h, (int64_t)FAR);
	wait_for_end(h);
}

/* The bytes before the mark never come: our end is the end. */
static void mark_ahead(struct hostile *h)
{
	mark(h, 100);
}

static void up_unasked(struct hostile *h)
{
	atomic_store(&h->out->up_at, 0);
	atomic_store(&h->out->up_epoch, 1000);
	ring_bell(h);
	several_echoes(h);
}

static void down_far(struct hostile *h)
{
	atomic_store(&h->out->down_at, h->produced + FAR);
	atomic_store(&h->out->down_epoch, 1);
	ring_bell(h);
	wait_for_end(h);
}

static void down_behind(struct hostile *h)
{
	atomic_store(&h->out->down_at, 0);
	atomic_store(&h->out->down_epoch, 1);
	ring_bell(h);
	wait_for_end(h);
}

static void ready_far(struct hostile *h)
{
	atomic_store(&h->in->ready_epoch, 1000);
	several_echoes(h);
}

static void want_down(struct hostile *h)
{
	for (int i = 0; i < 100; i++) {
		atomic_store(&h->in->want_down, (uint32_t)i);
		say_ring(h, 1);
	}
}

static void fin_without_end(struct hostile *h)
{
	atomic_store(&h->out->fin, 1);
	say_ring(h, 10);
}

static void fin_in_between(struct hostile *h)
{
	say_ring(h, 10);
	atomic_store(&h->out->fin, UINT32_MAX);
	shutdown(h->fd, SHUT_WR);
	say_ring(h, 10);
}

static void hold_for_ever(struct hostile *h)
{
	atomic_store(&h->out->held_at, h->produced + FAR);
	atomic_store(&h->out->held_since_ms, 1);
	ring_bell(h);
	wait_for_end(h);
}

static void bypass(struct hostile *h)
{
	if (send(h->fd, "past the mark", 13, MSG_NOSIGNAL) != 13)
		die("hostile: bypass");
	ring_bell(h);
}

static void bypass_and_stay(struct hostile *h)
{
	bypass(h);
	wait_for_end(h);
}

/* ---- memory and doorbells ---- */

static void punch_hole(struct hostile *h)
{
	if (fallocate(h->seg.memfd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0,
		      (off_t)WIRE_TOTAL_BYTES) != 0)
		die("hostile: punch");
	for (int i = 0; i < 100; i++)
		ring_bell(h);
}

static void truncate_memory(struct hostile *h)
{
	if (ftruncate(h->seg.memfd, 0) == 0)
		die("hostile: the memory is not sealed");
	for (int i = 0; i < 100; i++)
		say_ring(h, 1);
}

static void scribble(struct hostile *h)
{
	uint32_t *words = (uint32_t *)h->seg.wire;

	srandom(1);
	for (int i = 0; i < 200000; i++) {
		size_t at = (size_t)random() % (WIRE_HEADER_BYTES / 4);
		uint32_t value = i % 3 ? (uint32_t)random() : (uint32_t)random() % 4;
		__atomic_store_n(&words[at], value, __ATOMIC_RELAXED);
		if (i % 64 == 0)
			ring_bell(h);
		if (i % 4096 == 0 && send(h->fd, "x", 1, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
			return;
	}
}

static void flood_bell(struct hostile *h)
{
	for (int i = 0; i < 100000; i++)
		ring_bell(h);
	say_ring(h, 10);
}

static void blocking(int fd)
{
	if (fcntl(fd, F_SETFL, O_RDWR) != 0)
		die("hostile: F_SETFL");
}

/*
 * Our bell is full, and blocks whoever rings it. Not withstood: an eventfd has no write
 * that cannot block, and its flags belong to both ends. The identity checks bound it: only
 * the TCP peer's own user can do it.
 */
static void stop_ringer(struct hostile *h)
{
	const uint64_t most = UINT64_MAX - 1;

	blocking(h->seg.bell);
	uint64_t got;
	fcntl(h->seg.bell, F_SETFL, O_RDWR | O_NONBLOCK);
	while (read(h->seg.bell, &got, sizeof(got)) > 0)
		;
	if (write(h->seg.bell, &most, sizeof(most)) != sizeof(most))
		die("hostile: fill");
	blocking(h->seg.bell);
	atomic_store(&h->in->rx_armed, 77);
	say_ring(h, 1);
}

/* The victim's bell rings, and is empty when the victim comes to answer it. */
static void steal_bell(struct hostile *h)
{
	uint64_t got;

	blocking(h->seg.peer_bell);
	for (int i = 0; i < 20000; i++) {
		ring_bell(h);
		if (i % 2 == 0)
			fcntl(h->seg.peer_bell, F_SETFL, O_RDWR | O_NONBLOCK);
		if (i % 2 == 0 && read(h->seg.peer_bell, &got, sizeof(got)) < 0 &&
		    errno != EAGAIN)
			die("hostile: steal");
		if (i % 2 == 0)
			blocking(h->seg.peer_bell);
	}
}

static void die_in_silence(struct hostile *h)
{
	say_ring(h, 100);
	raise(SIGKILL);
}

const struct attack attacks[] = {
	{"none-before", "eof", BEFORE, several_echoes},
	{"none-attached", "any", ATTACHED, truth},
	{"none-raised", "any", RAISED, truth},
	{"none-both", "any", BOTH, truth},
	{"publish-and-leave", "any", BEFORE, publish_and_leave},
	{"publish-and-never-collect", "any", BEFORE, publish_and_never_collect},
	{"offer-and-leave", "any", BEFORE, offer_and_leave},
	{"visit-in-silence", "eof", BEFORE, visit_in_silence},
	{"visit-with-rubbish", "eof", BEFORE, visit_with_rubbish},
	{"shake-hands-wrongly", "any", ATTACHED, shake_hands_wrongly},
	{"produce-far", "reset", RAISED, produce_far},
	{"produce-a-little-too-far", "reset", RAISED, produce_a_little_too_far},
	{"produce-backwards", "any", RAISED, produce_backwards},
	{"produce-far-both", "reset", BOTH, produce_far},
	{"consume-far", "reset", BOTH, consume_far},
	{"turn-to-no-area", "reset", RAISED, turn_to_no_area},
	{"turn-too-often", "reset", RAISED, turn_too_often},
	{"turn-far-away", "reset", RAISED, turn_far_away},
	{"mark-behind", "reset", ATTACHED, mark_behind},
	{"mark-far", "reset", ATTACHED, mark_far},
	{"mark-ahead", "reset", ATTACHED, mark_ahead},
	{"up-unasked", "any", ATTACHED, up_unasked},
	{"down-far", "reset", RAISED, down_far},
	{"down-behind", "reset", RAISED, down_behind},
	{"ready-far", "any", ATTACHED, ready_far},
	{"want-down", "any", BOTH, want_down},
	{"fin-without-end", "any", RAISED, fin_without_end},
	{"fin-in-between", "any", RAISED, fin_in_between},
	{"hold-for-ever", "reset", RAISED, hold_for_ever},
	{"bypass", "reset", RAISED, bypass},
	{"bypass-and-stay", "reset", RAISED, bypass_and_stay},
	{"punch-hole", "any", BOTH, punch_hole},
	{"truncate", "any", BOTH, truncate_memory},
	{"scribble-attached", "any", ATTACHED, scribble},
	{"scribble-raised", "any", RAISED, scribble},
	{"scribble-both", "any", BOTH, scribble},
	{"flood-bell", "any", BOTH, flood_bell},
	{"stop-ringer", "open", BOTH, stop_ringer},
	{"steal-bell", "any", BOTH, steal_bell},
	{"die-in-silence", "any", BOTH, die_in_silence},
	{NULL, NULL, BEFORE, NULL},
};
