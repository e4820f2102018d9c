/* SPDX-License-Identifier: Apache-2.0 */
/* How often epoll_wait asks the kernel for one answer. */
#include "base/atomic.h"
#include "base/cleanup.h"
#include "base/scratch.h"
#include "base/sigsafe.h"
#include "readiness/epoll_call.h"

/* Questions more than one for one answer. */
#define ASK_ROUNDS 3

/* Adds to n events at ev. */
static int ask_into(struct call *c, struct epoll_event *raw, struct epoll_event *ev,
		    int n, int room)
{
	for (int i = 0; i < ASK_ROUNDS && n < room && n < RAW_EVENTS; i++) {
		uint64_t asking = c->asking;
		int more = call_ask(c, raw, room - n);

		if (more < 0)
			break;
		/* There may be more, which came before it. */
		if (more == room - n)
			c->asking = asking;
		more = instance_translate(c->in, raw, more, raw);
		n = order_fold(ev, n, raw, more);
		if (n == 0 || !instance_came(c->in, c->asking, c->asked))
			break;
	}
	return n;
}

static void give_back(void *raw)
{
	scratch_give(raw, RAW_EVENTS * sizeof(struct epoll_event));
}

/* Seldom so, and deep in a call, where the stack may be short. */
static APART int ask_more(struct call *c, struct epoll_event *ev, int n, int room)
{
	struct _pthread_cleanup_buffer cleanup;
	struct epoll_event *raw;

	crit_enter(); /* no handler jumps away with the memory */
	raw = scratch_take(RAW_EVENTS * sizeof(*raw));
	if (raw)
		_pthread_cleanup_push(&cleanup, give_back, raw);
	crit_leave();
	if (!raw)
		return n;
	n = ask_into(c, raw, ev, n, room);
	crit_enter();
	_pthread_cleanup_pop(&cleanup, 1);
	crit_leave();
	return n;
}

int call_ask_again(struct call *c, struct epoll_event *ev, int n, int room)
{
	room = call_room(room);
	if (n <= 0 || n >= room || n >= RAW_EVENTS ||
	    !instance_came(c->in, c->asking, c->asked))
		return n;
	return ask_more(c, ev, n, room);
}
