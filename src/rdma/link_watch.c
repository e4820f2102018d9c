/* SPDX-License-Identifier: Apache-2.0 */
/* Gives up links whose devices do not say what has become of a write. */
#include <errno.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>

#include "base/clock.h"
#include "base/fds.h"
#include "base/kernel.h"
#include "base/low.h"
#include "rdma/fabric.h"

/* So many looks in a row without a completion: longer than any device takes to give up by itself
 * (verbs_link.c). */
#define SILENT_LOOKS 10
/* By so much the timer comes after the coarse clock, mostly: where a thread polls, it looks first. */
#define TIMER_LATER_MS 20

int link_watch_open(struct link_context *c)
{
	struct epoll_event e = {.events = EPOLLIN};
	int r;

	c->timer = LOW_MADE(fds_adopt, kernel_call4(SYS_timerfd_create, CLOCK_MONOTONIC,
						    TFD_CLOEXEC | TFD_NONBLOCK, 0, 0));
	if (c->timer < 0)
		return c->timer;
	r = (int)kernel_call4(SYS_epoll_ctl, c->fd, EPOLL_CTL_ADD, c->timer, (long)&e);
	if (r < 0)
		fds_close(c->timer);
	return r;
}

void link_watch_close(struct link_context *c)
{
	fds_close(c->timer);
}

/*
 * The timer goes by the exact clock, and wakes a thread that sleeps once alone. The coarse clock can be behind it for
 * as long as the processor that moves that clock does not run, as in a virtual machine: so it is not asked here.
 */
void link_watch_answer(struct link_context *c)
{
	uint64_t count;

	if (kernel_read(c->timer, &count, sizeof(count)) > 0 && !c->is_again)
		c->is_due = true;
}

static void set_timer(const struct link_context *c, uint64_t ms, long ns)
{
	const struct itimerspec in = {
		.it_value = {.tv_sec = (time_t)(ms / 1000),
			     .tv_nsec = (long)(ms % 1000) * 1000000 + ns}};

	kernel_call4(SYS_timerfd_settime, c->timer, 0, (long)&in, 0);
}

/* The descriptor wakes whoever sleeps; who polls looks at the clock. */
void link_watch_begin(struct link_context *c)
{
	if (c->is_watched)
		return;
	c->is_watched = true;
	c->is_due = false;
	c->look_ms = clock_coarse_ms() + c->limits.watch_ms;
	if (!c->is_again)
		set_timer(c, c->limits.watch_ms + TIMER_LATER_MS, 0);
}

/* When nothing is left the timer is for the look again. */
void link_again(struct link_context *c)
{
	c->is_again = true;
	set_timer(c, 0, 1);
}

static void end_again(struct link_context *c)
{
	uint64_t now = clock_coarse_ms();
	uint64_t left = c->look_ms > now ? c->look_ms - now : 0;

	c->is_again = false;
	set_timer(c, c->is_watched ? left + TIMER_LATER_MS : 0, 0);
}

/* With nothing under way a death is not noticed, so something is. */
static bool ask(struct link *l)
{
	struct link_context *c = l->context;

	return l->state == LINK_UP && c->expects && c->expects(l) && link_mark(l);
}

/* Where writes go on, the next one asks for its completion; where they rest, an empty one. */
static void ask_for_completion(struct link *l)
{
	if (l->posted == l->looked)
		link_mark(l);
	else
		l->is_asked = true;
	l->looked = l->posted;
}

/* True: there is to be another look. */
static bool look_at(struct link *l)
{
	bool moved = l->completed != l->watched;

	l->watched = l->completed;
	l->silent = moved ? 0 : (uint8_t)(l->silent + 1);
	if (l->state == LINK_FAILED || l->completed == l->posted) {
		l->silent = 0;
		return ask(l);
	}
	if (l->silent > SILENT_LOOKS)
		link_fail(l, LINK_PEER_DEAD);
	else
		ask_for_completion(l);
	return true;
}

void link_expect(struct link_context *c, bool (*expects)(const struct link *l))
{
	c->expects = expects;
}

void link_watch(struct link_context *c)
{
	bool more = false;

	if (c->is_again)
		end_again(c);
	if (!c->is_watched || (!c->is_due && clock_coarse_ms() < c->look_ms))
		return;
	for (uint32_t i = 0; i < c->limits.links; i++)
		if (c->slots[i])
			more |= look_at(c->slots[i]);
	c->is_watched = false;
	if (more)
		link_watch_begin(c);
}
