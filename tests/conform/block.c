/* SPDX-License-Identifier: Apache-2.0 */
/* Conformance: each call that can block, and each thing that can end its sleep. */
#include <errno.h>
#include <fcntl.h>
#ifdef __GLIBC__
#include <gnu/libc-version.h>
#endif
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "conform/block.h"

#define MOST 64

static struct seat seats[MOST];
static size_t used;
static _Atomic int signals;
static _Atomic bool ending; /* they happen, but writers go on while they can */

static void on_signal(int sig)
{
	(void)sig;
	signals++;
}

static void catch_signal(int flags)
{
	struct sigaction act = {.sa_handler = on_signal, .sa_flags = flags};
	NEED(sigaction(SIGUSR1, &act, NULL) == 0);
	signal(SIGPIPE, SIG_IGN);
}

static void seat_cancelled(void *arg)
{
	struct seat *s = arg;
	s->gone = true;
	s->back = true;
}

static bool fill_again(struct seat *s)
{
	int state;
	if (s->begun || s->call->role != WRITER || s->result <= 0)
		return false;
	if (!s->call->polls)
		s->filled++;
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
	/* The connection may end in the midst of it: that is what the call would have been told. */
	bool over = !ending && !seat_fill(s) && !s->call->polls;
	if (over)
		s->result = -1;
	pthread_setcancelstate(state, NULL);
	return !over;
}

/* Before anything has happened, the kernel may have made some more room. */
static bool found_room(struct seat *s)
{
	s->fills = true; /* before the look at begun: see all_begun */
	bool found = fill_again(s);
	s->fills = false;
	return found;
}

static void seat_main(void *arg)
{
	struct seat *s = arg;
	pthread_cleanup_push(seat_cancelled, s);
	do
		s->result = s->call->run(s);
	while (found_room(s));
	s->error = errno;
	s->back = true;
	pthread_cleanup_pop(0);
}

static void wait_all_asleep(void)
{
	pid_t tids[MOST];
	size_t n = 0;
	for (size_t i = 0; i < used; i++)
		if (!seats[i].back)
			tids[n++] = seats[i].worker.tid;
	wait_crowd_asleep(tids, n);
}

#define ALL    ((1u << READER) | (1u << WRITER) | (1u << ACCEPTOR))
#define ENDS   ((1u << READER) | (1u << WRITER))
#define MOVERS 8  /* beside roles: not the calls that report readiness */
#define CANCEL 16 /* nor those that libc itself leaves in disorder, or ends */
#define STRIKE 32 /* nor those that libc itself begins anew */

static bool libc_is(const char *least)
{
#ifdef __GLIBC__
	return strverscmp(gnu_get_libc_version(), least) >= 0;
#else
	return strcmp(least, "2.41") == 0;
#endif
}

/* dprintf goes on at EINTR since glibc 2.37. As musl's, the signal by which glibc cancels comes to every thread since 2.41. */
static bool is_left_out(const struct call *call, unsigned roles)
{
	return ((roles & MOVERS) && call->polls) ||
	       ((roles & CANCEL) &&
		(call->untidy || (call->deaf && call->polls && libc_is("2.41")))) ||
	       ((roles & STRIKE) && call->untidy && libc_is("2.37"));
}

static void open_all(enum stage stage, unsigned roles)
{
	used = 0;
	for (size_t i = 0; i < block_calls_count; i++) {
		const struct call *call = &block_calls[i];
		if ((roles & (1u << call->role)) && !is_left_out(call, roles))
			seat_open(&seats[used++], call, stage);
		NEED(used < MOST);
	}
	ending = false;
}

static void all_begun(bool begun)
{
	for (size_t i = 0; i < used; i++)
		seats[i].begun = begun;
	/* One that has not seen it yet counts what it fills, before its seat is drained. */
	for (size_t i = 0; i < used; i++)
		while (seats[i].fills)
			sched_yield();
}

/* A thread for each call of these roles, all of them asleep. */
static void sit_down(enum stage stage, unsigned roles, void (*before)(struct seat *))
{
	open_all(stage, roles);
	for (size_t i = 0; i < used; i++) {
		if (before)
			before(&seats[i]);
		worker_start(&seats[i].worker, seat_main, &seats[i]);
	}
	wait_all_asleep();
	/* TCP acknowledges what a writer filled up to 200 ms late, and then it has room once more. */
	usleep(250000);
	wait_all_asleep();
	all_begun(true);
}

static void say_seat(struct seat *s)
{
	errno = s->error;
	if (s->gone)
		say("%s: cancelled", s->call->name);
	else if (s->call->role == ACCEPTOR && !s->call->polls && s->result >= 0)
		say("%s: accepted", s->call->name);
	else
		say_result(s->call->name, s->result);
	if (s->call->polls && s->events && !s->gone)
		say("%s: %s", s->call->name, poll_names(s->events));
}

/* glibc before 2.41 may end a thread whose call has just moved its byte, where room came at that
 * moment: on kernel TCP, too. No byte of the pattern is 0, as that one is. */
static void skip_stray(int fd)
{
	char first;
	NEED(recv(fd, &first, 1, MSG_PEEK) == 1);
	if (first == 0)
		recv_all(fd, &first, 1);
}

/* What is left of the connection works, and no byte is lost or comes twice. */
static void use_again(struct seat *s)
{
	bool strays = s->gone && s->call->role == WRITER && !s->call->polls;
	bool moved = s->result > 0 && !s->gone && !s->call->polls && !s->call->keeps;
	char text[8];
	if (s->call->role == ACCEPTOR)
		return;
	if (s->call->role == READER && s->fed) {
		size_t took = moved ? (size_t)s->result : 0;
		recv_all(s->fd, text, s->fed - took);
		NEED(!memcmp(text, &"bytes"[took], s -> fed - took));
	} else if (s->call->role == WRITER) {
		s->filled += moved ? 1 : 0;
		seat_feed(s);
	}
	NEED(strays || (recv(s->p.c, text, 1, MSG_DONTWAIT) < 0 && errno == EAGAIN));
	NEED(recv(s->fd, text, 1, MSG_DONTWAIT) < 0 && errno == EAGAIN);
	send_pattern(s->p.c, 3, 700);
	send_pattern(s->fd, 9, 700);
	recv_pattern(s->fd, 3, 700);
	if (strays)
		skip_stray(s->p.c);
	recv_pattern(s->p.c, 9, 700);
}

static void stand_up(void (*after)(struct seat *))
{
	for (size_t i = 0; i < used; i++) {
		struct seat *s = &seats[i];
		worker_join(&s->worker);
		say_seat(s);
		if (after)
			after(s);
		if (s->call->role == ACCEPTOR && !s->call->polls && s->result > 0)
			close((int)s->result);
		seat_close(s);
	}
}

#define ALL  ((1u << READER) | (1u << WRITER) | (1u << ACCEPTOR))
#define ENDS ((1u << READER) | (1u << WRITER))

static void feed_all(void)
{
	for (size_t i = 0; i < used; i++)
		seat_feed(&seats[i]);
}

static void fed(enum stage stage)
{
	sit_down(stage, ALL, NULL);
	feed_all();
	stand_up(use_again);
}

CASE(block_fed_cold, ANYWAY)
{
	fed(COLD);
}

CASE(block_fed_warm, DIRECT)
{
	fed(WARM);
}

CASE(block_fed_bounced, DIRECT)
{
	fed(BOUNCED);
}

/* The switch comes while they sleep, from either end. */
static void switched(bool own)
{
	sit_down(WARM, ENDS, NULL);
	for (size_t i = 0; i < used; i++)
		bounce(own ? seats[i].fd : seats[i].p.c);
	feed_all();
	stand_up(use_again);
}

CASE(block_switched_by_sleeper, DIRECT)
{
	switched(true);
}

CASE(block_switched_by_peer, DIRECT)
{
	switched(false);
}

/* ---- signals ---- */

static void strike_all(void)
{
	for (size_t i = 0; i < used; i++) {
		int before = signals;
		if (!seats[i].back)
			pthread_kill(seats[i].worker.thread, SIGUSR1);
		while (signals == before && !seats[i].back)
			usleep(50);
	}
}

/* Until they come back: a writer may have found room just then, and sleeps again. */
static void strike_until_back(bool only_polls)
{
	for (size_t i = 0; i < used; i++)
		seats[i].begun = only_polls && !seats[i].call->polls;
	for (size_t i = 0; i < used; i++)
		for (; !seats[i].begun && !seats[i].back; usleep(1000))
			pthread_kill(seats[i].worker.thread, SIGUSR1);
}

static void interrupted(enum stage stage)
{
	catch_signal(0);
	sit_down(stage, ALL | STRIKE, NULL);
	strike_until_back(false);
	stand_up(use_again);
}

CASE(block_interrupted_cold, ANYWAY)
{
	interrupted(COLD);
}

CASE(block_interrupted_warm, DIRECT)
{
	interrupted(WARM);
}

CASE(block_interrupted_bounced, DIRECT)
{
	interrupted(BOUNCED);
}

/* Only calls that report readiness come back; the others go on, and get what comes. */
static void restarted(enum stage stage)
{
	catch_signal(SA_RESTART);
	sit_down(stage, ALL, NULL);
	strike_until_back(true);
	for (int i = 0; i < 2; i++) {
		strike_all();
		wait_all_asleep();
	}
	feed_all();
	stand_up(NULL);
}

CASE(block_restarted_cold, ANYWAY)
{
	restarted(COLD);
}

CASE(block_restarted_warm, DIRECT)
{
	restarted(WARM);
}

static void set_times(struct seat *s, struct timeval tv)
{
	int name = s->call->role == WRITER ? SO_SNDTIMEO : SO_RCVTIMEO;
	NEED(setsockopt(s->fd, SOL_SOCKET, name, &tv, sizeof tv) == 0);
}

static void set_long(struct seat *s)
{
	set_times(s, (struct timeval){30, 0});
}

static void set_short(struct seat *s)
{
	set_times(s, (struct timeval){0, 150000});
}

/* With a timeout of the socket's, a call is never begun again. */
CASE(block_interrupted_with_timeout, DIRECT)
{
	catch_signal(SA_RESTART);
	sit_down(WARM, ALL | STRIKE, set_long);
	strike_until_back(false);
	stand_up(use_again);
}

static void timed_out(enum stage stage)
{
	sit_down(stage, ALL | MOVERS, set_short);
	all_begun(false); /* room that is found late is filled as well */
	stand_up(use_again);
}

CASE(block_timed_out_cold, ANYWAY)
{
	timed_out(COLD);
}

CASE(block_timed_out_warm, DIRECT)
{
	timed_out(WARM);
}

CASE(block_timed_out_bounced, DIRECT)
{
	timed_out(BOUNCED);
}

/* ---- cancellation ---- */

static void cancelled(enum stage stage)
{
	sit_down(stage, ALL | CANCEL, NULL);
	for (size_t i = 0; i < used; i++)
		seats[i].begun = seats[i].call->deaf;
	for (size_t i = 0; i < used; i++) {
		NEED(pthread_cancel(seats[i].worker.thread) == 0);
		if (seats[i].call->deaf)
			seat_feed(&seats[i]);
	}
	stand_up(use_again);
}

CASE(block_cancelled_cold, ANYWAY)
{
	cancelled(COLD);
}

CASE(block_cancelled_warm, DIRECT)
{
	cancelled(WARM);
}

CASE(block_cancelled_bounced, DIRECT)
{
	cancelled(BOUNCED);
}

static void pending_main(void *arg)
{
	struct seat *s = arg;
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
	pthread_cancel(pthread_self());
	pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, NULL);
	seat_main(s);
}

/* A request that waits is obeyed by a call that need not block, and nothing is moved. */
static void cancel_pending(enum stage stage)
{
	open_all(stage, ALL | CANCEL);
	all_begun(true);
	for (size_t i = 0; i < used; i++) {
		struct seat *s = &seats[i];
		seat_feed(s);
		wait_events(s->fd, s->call->role == WRITER ? POLLOUT : POLLIN);
		worker_start(&s->worker, pending_main, s);
	}
	stand_up(use_again);
}

CASE(block_cancel_pending_cold, ANYWAY)
{
	cancel_pending(COLD);
}

CASE(block_cancel_pending_warm, DIRECT)
{
	cancel_pending(WARM);
}

/* ---- ends ---- */

static void ended(enum stage stage, unsigned roles, void (*end)(struct seat *))
{
	signal(SIGPIPE, SIG_IGN);
	sit_down(stage, roles, NULL);
	/* A writer that still finds room goes on until it learns of it. */
	ending = true;
	all_begun(false);
	for (size_t i = 0; i < used; i++)
		end(&seats[i]);
	stand_up(NULL);
}

static void peer_shuts(struct seat *s)
{
	NEED(shutdown(s->p.c, SHUT_WR) == 0);
}

static void peer_resets(struct seat *s)
{
	struct linger now = {1, 0};
	NEED(setsockopt(s->p.c, SOL_SOCKET, SO_LINGER, &now, sizeof now) == 0);
	NEED(close(s->p.c) == 0);
	s->p.c = -1;
}

static void peer_closes(struct seat *s)
{
	NEED(close(s->p.c) == 0);
	s->p.c = -1;
}

static void own_shuts(struct seat *s)
{
	NEED(shutdown(s->fd, s->call->role == WRITER ? SHUT_WR : SHUT_RD) == 0);
}

static void own_shuts_both(struct seat *s)
{
	NEED(shutdown(s->fd, SHUT_RDWR) == 0);
}

CASE(block_peer_shuts_cold, ANYWAY)
{
	ended(COLD, 1u << READER, peer_shuts);
}

CASE(block_peer_shuts_warm, DIRECT)
{
	ended(WARM, 1u << READER, peer_shuts);
}

CASE(block_peer_shuts_bounced, DIRECT)
{
	ended(BOUNCED, 1u << READER, peer_shuts);
}

CASE(block_peer_closes_cold, ANYWAY)
{
	ended(COLD, 1u << READER, peer_closes);
	ended(COLD, (1u << WRITER) | MOVERS, peer_closes);
}

CASE(block_peer_closes_warm, DIRECT)
{
	ended(WARM, 1u << READER, peer_closes);
	ended(WARM, (1u << WRITER) | MOVERS, peer_closes);
}

CASE(block_peer_closes_bounced, DIRECT)
{
	ended(BOUNCED, 1u << READER, peer_closes);
	ended(BOUNCED, (1u << WRITER) | MOVERS, peer_closes);
}

CASE(block_peer_resets_cold, ANYWAY)
{
	ended(COLD, 1u << READER, peer_resets);
	ended(COLD, (1u << WRITER) | MOVERS, peer_resets);
}

CASE(block_peer_resets_warm, DIRECT)
{
	ended(WARM, 1u << READER, peer_resets);
	ended(WARM, (1u << WRITER) | MOVERS, peer_resets);
}

CASE(block_peer_resets_bounced, DIRECT)
{
	ended(BOUNCED, 1u << READER, peer_resets);
	ended(BOUNCED, (1u << WRITER) | MOVERS, peer_resets);
}

CASE(block_shut_cold, ANYWAY)
{
	ended(COLD, 1u << READER, own_shuts);
	ended(COLD, (1u << WRITER) | MOVERS, own_shuts);
}

CASE(block_shut_warm, DIRECT)
{
	ended(WARM, 1u << READER, own_shuts);
	ended(WARM, (1u << WRITER) | MOVERS, own_shuts);
}

CASE(block_shut_both_warm, DIRECT)
{
	ended(WARM, 1u << READER, own_shuts_both);
	ended(WARM, ALL | MOVERS, own_shuts_both);
}
