/* SPDX-License-Identifier: Apache-2.0 */
/* One thread waits for everything, and hands it out. */
#include <errno.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <time.h>
#include <unistd.h>

#include "daemon/daemon.h"

#define EVENTS_AT_ONCE 64
#define INDEX_BITS     24

uint64_t loop_clock_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

int loop_watch(struct relay *r, int fd, enum relay_kind kind, uint32_t index,
	       uint32_t turn, bool write, bool is_new)
{
	struct epoll_event e = {.events = EPOLLIN | (write ? (uint32_t)EPOLLOUT : 0)};

	e.data.u64 = (uint64_t)turn << 32 | (uint64_t)kind << INDEX_BITS | index;
	return epoll_ctl(r->epoll, is_new ? EPOLL_CTL_ADD : EPOLL_CTL_MOD, fd, &e) < 0
		       ? -errno
		       : 0;
}

void loop_unwatch(struct relay *r, int fd)
{
	epoll_ctl(r->epoll, EPOLL_CTL_DEL, fd, NULL);
}

static void nothing(int signal)
{
	(void)signal;
}

int loop_watch_signals(struct relay *r)
{
	struct sigaction alarm = {.sa_handler = nothing},
			 ignore = {.sa_handler = SIG_IGN};
	sigset_t set;
	int fd;

	sigaction(SIGALRM, &alarm, NULL); /* closer_guard */
	sigaction(SIGPIPE, &ignore, NULL);
	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	if (sigprocmask(SIG_BLOCK, &set, NULL) < 0)
		return -errno;
	fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	return fd < 0 ? -errno : loop_watch(r, fd, RELAY_SIGNAL, 0, 0, false, true);
}

int loop_init(struct relay *r)
{
	r->now_ms = loop_clock_ms();
	r->epoll = epoll_create1(EPOLL_CLOEXEC);
	return r->epoll < 0 ? -errno : 0;
}

static void hand_out(struct relay *r, const struct epoll_event *e)
{
	uint32_t low = (uint32_t)e->data.u64;
	struct relay_ref ref = {low & ((1u << INDEX_BITS) - 1),
				(uint32_t)(e->data.u64 >> 32)};

	switch ((enum relay_kind)(low >> INDEX_BITS)) {
	case RELAY_LISTENER:
		listen_ready(r, ref.index);
		break;
	case RELAY_CLIENT:
		client_ready(r, ref);
		break;
	case RELAY_LINK:
		link_ready(r, ref, e->events & (EPOLLOUT | EPOLLERR | EPOLLHUP));
		break;
	case RELAY_NEAR_PROBE:
		near_ready(r, ref);
		break;
	case RELAY_NEAR_HELPER:
		near_helper_ready(r, ref);
		break;
	case RELAY_TRANSLATOR:
		translate_ready(r);
		break;
	case RELAY_SIGNAL:
		r->stop = true;
		break;
	}
}

static bool has_deadlines(const struct relay *r)
{
	bool paused = false;

	for (unsigned i = 0; i < r->listeners; i++)
		paused |= r->listener[i].paused;
	return paused || r->links || r->pending_now || r->asked_now || r->near_now ||
	       r->helpers || r->near_waiting || r->near_ended || r->translating ||
	       r->unclosed || r->closers || r->unlogged;
}

static void tick(struct relay *r)
{
	pending_tick(r);
	asked_tick(r);
	near_helper_tick(r);
	translate_tick(r);
	near_client_tick(r);
	closer_tick(r);
	near_tick(r);
	link_tick(r);
	listen_tick(r);
	notice_tick(r);
}

int loop_run(struct relay *r)
{
	struct epoll_event events[EVENTS_AT_ONCE];
	uint64_t next_ms = 0;

	while (!r->stop) {
		int timeout = has_deadlines(r) ? RELAY_TICK_MS : -1, n;

		n = epoll_wait(r->epoll, events, EVENTS_AT_ONCE, timeout);
		if (n < 0 && errno != EINTR)
			return -errno;
		r->now_ms = loop_clock_ms();
		for (int i = 0; i < n; i++)
			hand_out(r, &events[i]);
		if (r->now_ms >= next_ms) {
			tick(r);
			next_ms = r->now_ms + RELAY_TICK_MS;
		}
	}
	return 0;
}
