/* SPDX-License-Identifier: Apache-2.0 */
/* What a program has set of SO_LINGER, while an exec under way has it set otherwise. */
#include <sys/socket.h>

#include "base/atomic.h"
#include "base/real.h"
#include "conn/conn.h"
#include "conn/linger.h"
#include "conn/switch.h"

/* What the program itself has set of SO_LINGER, until an exec is over. Of more than these it stays. */
#define LINGERS_MOST 16
static struct {
	struct sock *_Atomic of;
	struct linger was;
} lingers[LINGERS_MOST];

static bool keep(struct sock *s, const struct linger *was)
{
	for (int i = 0; i < LINGERS_MOST; i++) {
		struct sock *none = NULL;
		if (!atomic_compare_exchange_strong(&lingers[i].of, &none, s))
			continue;
		lingers[i].was = *was;
		return true;
	}
	return false;
}

static struct linger kept(const struct sock *s)
{
	for (int i = 0; i < LINGERS_MOST; i++)
		if (atomic_load(&lingers[i].of) == s)
			return lingers[i].was;
	return (struct linger){.l_onoff = 0};
}

bool linger_keep(struct sock *s, int fd)
{
	struct linger was;
	socklen_t len = sizeof(was);
	if (REAL(getsockopt)(fd, SOL_SOCKET, SO_LINGER, &was, &len) < 0)
		return false;
	/* It resets anyway, by the program's own wish, or by another thread's exec. */
	if (was.l_onoff && was.l_linger == 0)
		return false;
	if ((was.l_onoff || was.l_linger) && !keep(s, &was))
		return false;
	seen_add(s->slot, SEEN_LINGERS);
	return true;
}

void linger_put_back(struct sock *s, int fd)
{
	const struct linger was = kept(s);
	const struct linger on = {.l_onoff = 1, .l_linger = was.l_linger};
	if (!(atomic_fetch_and(&s->slot->seen, ~(uint32_t)SEEN_LINGERS) & SEEN_LINGERS))
		return;
	/* The kernel keeps the seconds of one that is off, and does not take them. */
	if (was.l_linger)
		REAL(setsockopt)(fd, SOL_SOCKET, SO_LINGER, &on, sizeof(on));
	if (!was.l_onoff)
		REAL(setsockopt)(fd, SOL_SOCKET, SO_LINGER, &was, sizeof(was));
}

void linger_forget(void)
{
	for (int i = 0; i < LINGERS_MOST; i++)
		atomic_store(&lingers[i].of, NULL);
}

/* Those that somebody else is known to get, or may get, are not lost. */
static bool leaves_unread(struct sock *s)
{
	uint32_t rewinding = load_relaxed(&s->slot->rewinding);
	if (rewinding == REWINDING_KEPT)
		return false;
	if (rx_is_down(s))
		return load_relaxed(&s->in->down_at) != load_relaxed(&s->in->consumed);
	return rewinding != REWINDING_ASKED && ring_unread(s->in);
}

void linger_reset_unread(struct sock *s, int fd)
{
	const struct linger reset = {.l_onoff = 1, .l_linger = 0};
	if (gate_state(&s->slot->gate_rx) == GATE_RING &&
	    !(seen_of(s->slot) & SEEN_BROKEN) && leaves_unread(s))
		REAL(setsockopt)(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
}

void linger_leave_to_exec(struct sock *s, int fd)
{
	if (leaves_unread(s) && slot_is_held_alone(s->slot, BUT_LEAVING) &&
	    linger_keep(s, fd))
		linger_reset_unread(s, fd);
}
