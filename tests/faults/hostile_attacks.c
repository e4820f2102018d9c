/* SPDX-License-Identifier: Apache-2.0 */
/* The lies: one function each, told after as much of the truth as the table says. */
#include <errno.h>
#include <fcntl.h>
#include <linux/netlink.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/endpoint.h"
#include "hostile.h"
#include "rendezvous/farbell.h"
#include "rendezvous/name.h"

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
	while (h->role == TCP_ROLE_ACCEPTED && meet_offer(h->fd, NULL, &h->seg) == 0)
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

/* Each echo has to ring for us. Not less would fill a bell that nobody answers. */
static void be_rung(struct hostile *h, int times)
{
	for (int i = 0; i < times; i++) {
		uint64_t before = atomic_load(&h->in->produced);

		atomic_store(&h->in->rx_armed, 77 + (uint32_t)i);
		say_ring(h, 1);
		while (atomic_load(&h->in->produced) == before)
			if (poll(&(struct pollfd){.fd = h->fd, .events = POLLRDHUP}, 1,
				 0) != 0)
				die("hostile: no echo in the ring");
	}
}

/* Our bell is full, and we have done what we can for a ring to block. Between processes of
 * one user it does, for good: there the peer could as well send SIGSTOP. */
static void stop_ringer(struct hostile *h)
{
	blocking(h->seg.far_bell);
	be_rung(h, 1000);
}

static void bell_hangs_up(struct hostile *h)
{
	close(h->seg.far_bell);
	h->seg.far_bell = -1;
	/* The victim sleeps, and cannot be rung for. */
	atomic_store(&h->in->rx_armed, 77);
	atomic_store(&h->out->fin, 1);
}

static void bell_turns_away(struct hostile *h)
{
	be_rung(h, 10);
	if (farbell_connect(h->seg.far_bell, farbell_port(h->seg.far_bell)) != 0)
		die("hostile: connect the bell");
	atomic_store(&h->in->rx_armed, 7777);
	for (int i = 0; i < 1000; i++)
		ring_bell(h);
	if (shutdown(h->seg.far_bell, SHUT_RDWR) == 0)
		die("hostile: netlink can be shut down by now");
}

/* Before the victim that accepted reads it. */
static void name_a_bell(struct hostile *h, uint32_t port)
{
	__atomic_store_n(&h->seg.wire->connector_port, port, __ATOMIC_RELAXED);
	several_echoes(h);
}

static void name_no_bell(struct hostile *h)
{
	name_a_bell(h, 0);
}

static void name_nobodys_bell(struct hostile *h)
{
	name_a_bell(h, UINT32_MAX);
}

static void name_the_victims_bell(struct hostile *h)
{
	struct sockaddr_nl peer;
	socklen_t len = sizeof(peer);

	if (getpeername(h->seg.far_bell, (struct sockaddr *)&peer, &len) != 0)
		die("hostile: the victim's bell");
	name_a_bell(h, peer.nl_pid);
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
	{"none-before", "eof", BEFORE, several_echoes, ANYBODY},
	{"none-attached", "any", ATTACHED, truth, ANYBODY},
	{"none-raised", "any", RAISED, truth, ANYBODY},
	{"none-both", "any", BOTH, truth, ANYBODY},
	{"publish-and-leave", "any", BEFORE, publish_and_leave, ANYBODY},
	{"publish-and-never-collect", "any", BEFORE, publish_and_never_collect, ANYBODY},
	{"offer-and-leave", "any", BEFORE, offer_and_leave, ANYBODY},
	{"visit-in-silence", "eof", BEFORE, visit_in_silence, ANYBODY},
	{"visit-with-rubbish", "eof", BEFORE, visit_with_rubbish, ANYBODY},
	{"shake-hands-wrongly", "any", ATTACHED, shake_hands_wrongly, ANYBODY},
	{"produce-far", "reset", RAISED, produce_far, ANYBODY},
	{"produce-a-little-too-far", "reset", RAISED, produce_a_little_too_far, ANYBODY},
	{"produce-backwards", "any", RAISED, produce_backwards, ANYBODY},
	{"produce-far-both", "reset", BOTH, produce_far, ANYBODY},
	{"consume-far", "reset", BOTH, consume_far, ANYBODY},
	{"turn-to-no-area", "reset", RAISED, turn_to_no_area, ANYBODY},
	{"turn-too-often", "reset", RAISED, turn_too_often, ANYBODY},
	{"turn-far-away", "reset", RAISED, turn_far_away, ANYBODY},
	{"mark-behind", "reset", ATTACHED, mark_behind, ANYBODY},
	{"mark-far", "reset", ATTACHED, mark_far, ANYBODY},
	{"mark-ahead", "reset", ATTACHED, mark_ahead, ANYBODY},
	{"up-unasked", "any", ATTACHED, up_unasked, ANYBODY},
	{"down-far", "reset", RAISED, down_far, ANYBODY},
	{"down-behind", "reset", RAISED, down_behind, ANYBODY},
	{"ready-far", "any", ATTACHED, ready_far, ANYBODY},
	{"want-down", "any", BOTH, want_down, ANYBODY},
	{"fin-without-end", "any", RAISED, fin_without_end, ANYBODY},
	{"fin-in-between", "any", RAISED, fin_in_between, ANYBODY},
	{"hold-for-ever", "reset", RAISED, hold_for_ever, ANYBODY},
	{"bypass", "reset", RAISED, bypass, ANYBODY},
	{"bypass-and-stay", "reset", RAISED, bypass_and_stay, ANYBODY},
	{"punch-hole", "any", BOTH, punch_hole, ANYBODY},
	{"truncate", "any", BOTH, truncate_memory, ANYBODY},
	{"scribble-attached", "any", ATTACHED, scribble, ANYBODY},
	{"scribble-raised", "any", RAISED, scribble, ANYBODY},
	{"scribble-both", "any", BOTH, scribble, ANYBODY},
	{"flood-bell", "any", BOTH, flood_bell, ANYBODY},
	{"stop-ringer", "any", BOTH, stop_ringer, OTHER_USER},
	{"bell-hangs-up", "any", BOTH, bell_hangs_up, OTHER_USER},
	{"bell-turns-away", "any", BOTH, bell_turns_away, OTHER_USER},
	{"name-no-bell", "any", ATTACHED, name_no_bell, OTHER_USER},
	{"name-nobodys-bell", "any", ATTACHED, name_nobodys_bell, OTHER_USER},
	{"name-the-victims-bell", "any", ATTACHED, name_the_victims_bell, OTHER_USER},
	{"steal-bell", "any", BOTH, steal_bell, OWN_USER},
	{"die-in-silence", "any", BOTH, die_in_silence, ANYBODY},
	{NULL, NULL, BEFORE, NULL, ANYBODY},
};
