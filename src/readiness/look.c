/* SPDX-License-Identifier: Apache-2.0 */
/* Deadlines, and the spin that precedes a sleep. */
#include "base/atomic.h"
#include "readiness/look.h"

#include <string.h>

#include "base/sigsafe.h"
#include "conn/peer_hint.h"
#include "settings/config.h"

/* After this many spins in vain the next LOOK_SKIP waits sleep at once. */
#define LOOK_FAILURES 4
#define LOOK_SKIP     64
/* Between two questions to the kernel during a spin: a question costs 0.2 us. */
#define LOOK_ASK_NS 5000
/* Pauses of 25 ns between two looks at the clock. */
#define LOOK_CLOCK_TURNS 8

static _Thread_local struct {
	uint32_t failed, skip;
} history __attribute__((tls_model("initial-exec")));

uint32_t look_level_holding(struct sock *s, int fd, uint32_t want)
{
	uint32_t bits = POLLNVAL;

	crit_enter(); /* no handler jumps away with the hold */
	if (sock_hold(s, fd)) {
		bits = look_level_asking(s, fd, want);
		sock_unhold(s);
	}
	crit_leave();
	return bits;
}

uint64_t look_deadline(const struct timespec *timeout)
{
	uint64_t now, end;

	if (!timeout)
		return LOOK_FOREVER;
	if (!timeout->tv_sec && !timeout->tv_nsec)
		return LOOK_NOW;
	now = clock_now_ns();
	if ((uint64_t)timeout->tv_sec > (LOOK_FOREVER - now) / 1000000000u - 1)
		return LOOK_FOREVER;
	end = now + (uint64_t)timeout->tv_sec * 1000000000u;
	return end + (uint64_t)timeout->tv_nsec;
}

uint64_t look_sooner(uint64_t deadline, uint64_t nap_ns)
{
	uint64_t end;

	if (nap_ns == UINT64_MAX)
		return deadline;
	end = clock_now_ns() + nap_ns;
	return end < deadline ? end : deadline;
}

const struct timespec *look_remaining(uint64_t deadline, struct timespec *ts)
{
	uint64_t now, left = 0;

	if (deadline == LOOK_FOREVER)
		return NULL;
	if (deadline != LOOK_NOW) {
		now = clock_now_ns();
		left = deadline > now ? deadline - now : 0;
	}
	ts->tv_sec = (time_t)(left / 1000000000u);
	ts->tv_nsec = (long)(left % 1000000000u);
	return ts;
}

void look_spin_begin(struct look_spin *w, uint64_t deadline)
{
	const struct config *cfg = config_get();
	uint64_t now;

	memset(w, 0, sizeof(*w));
	if (!cfg->spin_ns || deadline == LOOK_NOW)
		return;
	if (!cfg->spin_fixed && history.skip) {
		history.skip--;
		return;
	}
	now = clock_now_ns();
	w->end_ns = now + cfg->spin_ns;
	if (w->end_ns > deadline)
		w->end_ns = deadline;
	w->ask_ns = now + LOOK_ASK_NS;
	w->on = w->end_ns > now;
}

bool look_spin_turn(struct look_spin *w, bool *ask)
{
	uint64_t now;

	*ask = false;
	if (!w->on)
		return false;
	__builtin_ia32_pause();
	if (++w->turns % LOOK_CLOCK_TURNS)
		return true;
	now = clock_now_ns();
	if (now >= w->ask_ns) {
		w->ask_ns = now + LOOK_ASK_NS;
		*ask = true;
	}
	return now < w->end_ns;
}

void look_spin_end(struct look_spin *w, bool found)
{
	if (!w->on)
		return;
	w->on = false;
	if (found) {
		history.failed = 0;
	} else if (++history.failed >= LOOK_FAILURES) {
		history.failed = 0;
		history.skip = LOOK_SKIP;
	}
}

bool look_spin_useful(struct sock *s)
{
	uint32_t peer;

	wait_tell_cpu(s);
	if (config_get()->spin_fixed)
		return true;
	/* Relaxed: a hint. 0 is "not told". */
	peer = load_relaxed(&s->in->tx_cpu);
	return !wait_is_in_the_way(s, peer);
}

/* Connections of few threads are seen by the first of them. */
#define CROWD_LOOKS 4

/* The peer has not gone to sleep, or has been woken since. Relaxed, all: hints. */
static bool is_at_work(struct sock *s)
{
	uint32_t armed = load_relaxed(&s->out->rx_armed);

	return armed == 0 || armed == load_relaxed(&s->slot->tx.rung);
}

bool look_crowd_add(struct look_crowd *c, struct sock *s)
{
	uint32_t thread, i = 0;

	c->useful = c->useful || look_spin_useful(s);
	c->looked++;
	if (!c->counts)
		return !c->useful && c->looked < CROWD_LOOKS;
	if (is_at_work(s)) {
		thread = load_relaxed(&s->in->tx_cpu) & TOLD_THREAD;
		while (i < c->threads && c->thread[i] != thread)
			i++;
		if (i == c->threads)
			c->thread[c->threads++] = thread;
	}
	if (c->threads > wait_processors)
		return false;
	return c->looked < CROWD_LOOKS || c->threads * 2 > c->looked;
}

bool look_crowd_end(const struct look_crowd *c)
{
	bool crowd = c->counts && c->threads > wait_processors;

	wait_know_self(crowd);
	return c->useful && (!crowd || config_get()->spin_fixed);
}
