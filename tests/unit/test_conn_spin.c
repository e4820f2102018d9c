/* SPDX-License-Identifier: Apache-2.0 */
/* Spins before a sleep: what ends one, what counts as in vain, and when none is made. */
#include "unit/test.h"

#include "base/clock.h"
#include "settings/config.h"
#include "unit/conn_pair.h"

/* All the memory there will be has been looked at: only TCP says that this is the end. */
STREAM_TEST(a_spin_ends_with_the_peers_close)
{
	struct config *config = (struct config *)config_get();
	const struct config saved = *config;
	struct pair p = pair_open_up();
	char byte;
	struct call c = {.fd = p.b, .buf = &byte, .len = 1};
	config->spin_ns = UINT32_MAX; /* four seconds */
	config->spin_fixed = true;
	atomic_store(&fd_sock(p.b)->spin_failed, 0);
	REQUIRE(pthread_create(&c.thread, NULL, call_recv, &c) == 0);
	usleep(10000);
	st_close(p.a);
	CHECK_EQ(call_end(&c), 0);
	CHECK_EQ(atomic_load(&fd_sock(p.b)->spin_failed), 0);
	*config = saved;
	st_close(p.b);
}

STREAM_TEST(a_close_says_nothing_about_spinning)
{
	struct pair p = pair_open_up();
	struct sock *s = fd_sock(p.b);
	atomic_store(&s->in->tx_cpu, 0); /* the same as ours */
	atomic_store(&s->spin_failed, 0);
	atomic_store(&s->spin_skip, 0);
	CHECK(!wait_spin(s, EPOLLIN));
	CHECK_EQ(atomic_load(&s->spin_failed), 1);
	st_close(p.a);
	CHECK(!wait_spin(s, EPOLLIN));
	CHECK_EQ(atomic_load(&s->spin_failed), 1);
	st_close(p.b);
}

static int (*clock_was)(clockid_t clock, struct timespec *t);
static _Atomic uint32_t clock_asked;

static int count_clock(clockid_t clock, struct timespec *t)
{
	if (clock == CLOCK_MONOTONIC)
		atomic_fetch_add(&clock_asked, 1);
	return clock_was(clock, t);
}

/* Which is a system call on some machines. */
STREAM_TEST(a_spin_in_vain_hardly_asks_for_the_time)
{
	struct config *config = (struct config *)config_get();
	const struct config saved = *config;
	struct pair p = pair_open_up();
	config->spin_ns = 100000000;
	config->spin_fixed = true;
	clock_was = clock_read;
	clock_read = count_clock;
	CHECK(!wait_spin(fd_sock(p.b), EPOLLIN));
	clock_read = clock_was;
	CHECK(atomic_load(&clock_asked) >= 2);
	CHECK(atomic_load(&clock_asked) <= 20);
	*config = saved;
	st_close(p.a);
	st_close(p.b);
}
