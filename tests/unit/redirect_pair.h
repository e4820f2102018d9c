/* SPDX-License-Identifier: Apache-2.0 */
/* For tests of bytes that go past the ring between two hosts: a connection on which they do. */
#ifndef VD_TESTS_UNIT_REDIRECT_PAIR_H
#define VD_TESTS_UNIT_REDIRECT_PAIR_H

#include "unit/conn_pair.h"

enum { LEAST = 1000 };
#ifndef REDIRECT_LEAST
#define REDIRECT_LEAST "1000"
#endif

__attribute__((constructor)) static void be_across(void)
{
	setenv("VD_TEST_REMOTE", "5", 0);
	setenv("VIADUCT_REDIRECT", REDIRECT_LEAST, 1);
}

#ifdef __SANITIZE_THREAD__
/*
 * An offer is withdrawn in a handler, and a link beside is given up, by the device's library, which
 * frees: nothing that allocates can have been interrupted. And what a thread does while it is
 * cancelled, under its locks, the runtime takes for unlocked.
 */
__attribute__((visibility("default"))) const char *__tsan_default_suppressions(void);
const char *__tsan_default_suppressions(void)
{
	return "signal:op_drop\nsignal:link_destroy\nrace:leave_hold\nrace:leave_lent\n";
}
#endif

PAIR_FN uint64_t redirects(void)
{
	return atomic_load(&report_now.redirects);
}

PAIR_FN struct peer *handle(int fd)
{
	struct sock *s = fd_sock(fd);

	REQUIRE(s);
	return peer_of(s);
}

/* What fd's end may write to, of what its peer has offered. */
PAIR_FN enum grant_state grant_of(int fd)
{
	struct across_guard g = across_enter();
	enum grant_state state = handle(fd)->grant.state;

	across_leave(g);
	return state;
}

/* A receive that has offered its memory to `from`, and sleeps. */
PAIR_FN void offer(struct call *c, int from)
{
	call_start(c, call_recv);
	while (grant_of(from) != GRANT_OPEN && !atomic_load(&c->done)) {
		across_settle();
		usleep(100);
	}
}

/* The link beside the first one takes a moment. */
PAIR_FN struct pair open_redirected(void)
{
	struct pair p = pair_open_up();
	uint8_t buf[LEAST];

	for (uint64_t at = 0, before = redirects(); redirects() == before; at += LEAST) {
		struct call c = {
			.fd = p.b, .buf = buf, .len = LEAST, .flags = MSG_WAITALL};

		call_start(&c, call_recv);
		put(p.a, at, LEAST, 1);
		CHECK_EQ(call_end(&c), LEAST);
		CHECK(flow_is(buf, LEAST, at, 1));
		usleep(1000);
	}
	across_settle();
	return p;
}

/* The link beside is there: it takes a moment, after a failure, too. */
PAIR_FN void until_beside(const struct pair *p)
{
	bool up = false;

	while (!up) {
		struct across_guard g = across_enter();

		up = bulk_is_up(handle(p->a)->link);
		across_leave(g);
		across_settle();
		usleep(200);
	}
}

PAIR_FN struct pair open_beside(void)
{
	struct pair p = pair_open_up();

	bulk_retry_ms = 2;
	until_beside(&p);
	return p;
}

/* As the hooks do before a handler of the program runs, which may never come back. */
PAIR_FN void handler(int sig, siginfo_t *info, void *context)
{
	if (crit_defer(sig, info, context))
		return;
	if (peer_offering)
		across_offer_end(false);
	if (peer_lending)
		across_lend_end();
	crit_note_handler(false);
}

#endif
