/* SPDX-License-Identifier: Apache-2.0 */
/* poll and select from inside: counts, deadlines, and what is left behind after a wait. */
#include <sys/resource.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/eventfd.h>

#include "unit/test.h"

#include "base/fds.h"
#include "conn/peer_hint.h"
#include "readiness/look.h"
#include "unit/readiness_pair.h"

TEST(deadlines)
{
	const struct timespec zero = {0}, long_time = {INT64_MAX, 999999999};
	const struct timespec second = {1, 500000000}, bad = {0, 1000000000},
			      minus = {-1, 0};
	struct timespec left;
	uint64_t now = clock_now_ns();

	CHECK_EQ(look_deadline(NULL), LOOK_FOREVER);
	CHECK_EQ(look_deadline(&zero), LOOK_NOW);
	CHECK_EQ(look_deadline(&long_time), LOOK_FOREVER);
	CHECK(look_deadline(&second) >= now + 1500000000);
	CHECK(look_remaining(LOOK_FOREVER, &left) == NULL);
	CHECK(look_remaining(LOOK_NOW, &left) == &left);
	CHECK_EQ(left.tv_sec + left.tv_nsec, 0);
	CHECK(look_remaining(now, &left) == &left);
	CHECK_EQ(left.tv_sec + left.tv_nsec, 0);
	CHECK(look_remaining(now + 3600 * 1000000000ull, &left) == &left);
	CHECK(left.tv_sec <= 3600 && left.tv_sec >= 0 && left.tv_nsec < 1000000000);
	CHECK(!look_timeout_valid(&bad));
	CHECK(!look_timeout_valid(&minus));
	CHECK(look_timeout_valid(NULL));
}

static uint32_t gate_count(int fd)
{
	return atomic_load(&fd_sock(fd)->slot->gate_rx) & GATE_COUNT_MASK;
}

static int poll_ms(struct pollfd *p, nfds_t n, int ms)
{
	struct timespec ts = {ms / 1000, ms % 1000 * 1000000l};

	return ready_poll(p, n, &ts, NULL);
}

/* A wait before the upgrade is counted while it lasts, and not after it. */
TEST(waits_leave_no_trace)
{
	struct sock_pair p = pair_make();
	struct pollfd f[3] = {{.fd = p.s, .events = POLLIN},
			      {.fd = p.s, .events = POLLRDHUP},
			      {.fd = p.c, .events = POLLIN}};
	struct slot *sl = fd_sock(p.s)->slot;

	CHECK(ready_poll_concerns(f, 3));
	CHECK_EQ(poll_ms(f, 3, 1), 0);
	CHECK_EQ(gate_count(p.s), 0);
	CHECK_EQ(gate_count(p.c), 0);
	pair_raise(p);
	/* A look that does not wait arms nothing. */
	uint32_t arms = atomic_load(&sl->rx_arm);
	for (int i = 0; i < 100; i++)
		CHECK_EQ(poll_ms(f, 3, 0), 0);
	CHECK_EQ(atomic_load(&sl->rx_arm), arms);
	CHECK_EQ(poll_ms(f, 3, 1), 0);
	CHECK_EQ(atomic_load(&sl->rx_arm), arms + 1);
	CHECK_EQ(atomic_load(&sl->sleepers_rx), 0);
	CHECK_EQ(atomic_load(&sl->sleepers_tx), 0);
	CHECK_EQ(atomic_load(&fd_sock(p.s)->sleepers), 0);
	CHECK_EQ(atomic_load(&fd_sock(p.s)->in->rx_armed), 0);
	CHECK_EQ(pair_send(p.c, "x", 1, 0), 1);
	CHECK_EQ(poll_ms(f, 3, 10000), 1);
	CHECK_EQ(f[0].revents, POLLIN);
	CHECK_EQ(f[1].revents, 0);
	CHECK_EQ(f[2].revents, 0);
	pair_close(p);
}

/* Also one that answers at once: else the end goes to TCP when it is nonblocking, and finds nothing. */
TEST(a_poll_of_the_ring_is_a_wait_that_is_seen)
{
	struct sock_pair p = pair_make();
	struct pollfd f = {.fd = p.s, .events = POLLIN};
	_Atomic uint32_t *ever = &fd_sock(p.s)->slot->ever;

	pair_raise(p);
	for (int ms = 0; ms < 2; ms++) {
		for (int there = 0; there < 2; there++) {
			atomic_fetch_and(ever, ~(uint32_t)EVER_WAITED);
			if (there)
				CHECK_EQ(pair_send(p.c, "x", 1, 0), 1);
			CHECK_EQ(poll_ms(&f, 1, ms * 10), there);
			CHECK(atomic_load(ever) & EVER_WAITED);
		}
		CHECK_EQ(pair_recv(p.s, &(char){0}, 1, 0), 1);
	}
	pair_close(p);
}

TEST(kernel_only_sets_do_not_concern_us)
{
	int bell = eventfd(0, EFD_CLOEXEC);
	struct pollfd f[2] = {{.fd = bell, .events = POLLIN}, {.fd = -1}};

	sock_pair_init();
	CHECK(!ready_poll_concerns(f, 2));
	CHECK_EQ(poll_ms(f, 2, 0), 0);
	CHECK_EQ(eventfd_write(bell, 1), 0);
	CHECK_EQ(poll_ms(f, 2, 0), 1);
	CHECK_EQ(f[0].revents, POLLIN);
	close(bell);
}

/* A set larger than fd_set, as the kernel allows. */
TEST(select_with_large_sets)
{
	enum { TOP = 3000 };
	unsigned long r[TOP / 64 + 1] = {0}, w[TOP / 64 + 1] = {0};
	const struct timespec zero = {0}, soon = {10, 0};
	struct rlimit lim;
	struct sock_pair p;
	int high;

	REQUIRE(getrlimit(RLIMIT_NOFILE, &lim) == 0);
	if (lim.rlim_max < TOP)
		SKIP("fewer than 3000 descriptors are allowed");
	if (lim.rlim_cur < TOP) {
		lim.rlim_cur = TOP;
		REQUIRE(setrlimit(RLIMIT_NOFILE, &lim) == 0);
	}
	p = pair_raised();
	high = fcntl(p.s, F_DUPFD_CLOEXEC, 2900);
	REQUIRE(high >= 0);
	fd_duplicated(p.s, high);
	r[high / 64] = w[high / 64] = 1ul << (high % 64);
	CHECK_EQ(ready_select(TOP, (fd_set *)r, NULL, NULL, &zero, NULL), 0);
	CHECK_EQ(r[high / 64], 0);
	CHECK_EQ(pair_send(p.c, "x", 1, 0), 1);
	r[high / 64] = 1ul << (high % 64);
	CHECK_EQ(ready_select(TOP, (fd_set *)r, (fd_set *)w, NULL, &soon, NULL), 2);
	CHECK_EQ(r[high / 64], 1ul << (high % 64));
	CHECK_EQ(w[high / 64], 1ul << (high % 64));
	CHECK_EQ(ready_select(high, (fd_set *)r, (fd_set *)w, NULL, &zero, NULL), 0);
	pair_close_fd(high);
	pair_close(p);
}

#define CROWD 40

struct crowd {
	struct sock_pair pair[CROWD];
	struct pollfd fds[2 * CROWD];
	int kept[3]; /* descriptors of ours: before, after a few calls, after many */
};

static void crowd_poll(struct crowd *c, nfds_t n, int calls)
{
	for (int i = 0; i < calls; i++)
		CHECK_EQ(poll_ms(c->fds, n, 0), 0);
}

static void *crowd_thread(void *arg)
{
	struct crowd *c = arg;
	int at = 6;

	c->kept[0] = fds_count();
	crowd_poll(c, 2 * CROWD, 4);
	c->kept[1] = fds_count();
	crowd_poll(c, 2 * CROWD, 40);
	c->kept[2] = fds_count();
	/* What is not asked about is not told, and what is, at once. */
	CHECK_EQ(pair_send(c->pair[at / 2].s, "x", 1, 0), 1);
	CHECK_EQ(poll_ms(c->fds, 2 * CROWD, 10000), 1);
	CHECK_EQ(c->fds[at].revents, POLLIN);
	c->fds[at].events = POLLPRI;
	CHECK_EQ(poll_ms(c->fds, 2 * CROWD, 1), 0);
	c->fds[at].events = POLLIN;
	c->fds[at + 1].events = POLLIN | POLLOUT;
	CHECK_EQ(poll_ms(c->fds, 2 * CROWD, 10000), 2);
	CHECK_EQ(c->fds[at + 1].revents, POLLOUT);
	return NULL;
}

/* After some calls with the same large set it is kept, in one descriptor of the thread's. */
TEST(large_sets_are_kept)
{
	static struct crowd c;
	pthread_t thread;

	if (fds_limit() < 4096)
		SKIP("fewer than 4096 descriptors are allowed");
	sock_pair_init();
	for (int i = 0; i < CROWD; i++) {
		c.pair[i] = pair_raised();
		c.fds[2 * i] = (struct pollfd){.fd = c.pair[i].c, .events = POLLIN};
		c.fds[2 * i + 1] = (struct pollfd){.fd = c.pair[i].s, .events = POLLIN};
	}
	crowd_poll(&c, CROWD, 100);
	REQUIRE(pthread_create(&thread, NULL, crowd_thread, &c) == 0);
	pthread_join(thread, NULL);
	CHECK_EQ(c.kept[1], c.kept[0]);
	CHECK_EQ(c.kept[2], c.kept[0] + 1);
	CHECK_EQ(fds_count(), c.kept[0]);
	for (int i = 0; i < CROWD; i++) {
		CHECK_EQ(atomic_load(&fd_sock(c.pair[i].c)->slot->sleepers_rx), 0);
		CHECK(!fd_sock(c.pair[i].c)->regs);
		pair_close(c.pair[i]);
	}
}

/* One call, in which the thread sleeps, or does not: there is a byte that stays. */
static void few_poll(struct crowd *c, nfds_t n, int calls, bool sleeps)
{
	for (int i = 0; i < calls; i++)
		CHECK_EQ(poll_ms(c->fds, n, sleeps ? 1 : 10000), sleeps ? 0 : 1);
}

static void *few_thread(void *arg)
{
	struct crowd *c = arg;
	char byte;

	c->kept[0] = fds_count();
	few_poll(c, 8, 100, true);
	c->kept[1] = fds_count();
	few_poll(c, 8, 60, true);
	c->kept[2] = fds_count();
	CHECK_EQ(pair_send(c->pair[2].c, "x", 1, 0), 1);
	few_poll(c, 8, 20, false);
	CHECK_EQ(c->fds[5].revents, POLLIN);
	CHECK_EQ(fds_count(), c->kept[2]);
	few_poll(c, 8, 20, false);
	CHECK_EQ(c->fds[5].revents, POLLIN);
	CHECK_EQ(fds_count(), c->kept[0]);
	for (int i = 0; i < 4; i++)
		CHECK(!fd_sock(c->pair[i].s)->regs);
	CHECK_EQ(pair_recv(c->pair[2].s, &byte, 1, 0), 1);
	/* Too few are not, and end it as well. */
	few_poll(c, 3, 160, true);
	CHECK_EQ(fds_count(), c->kept[0]);
	few_poll(c, 8, 160, true);
	CHECK_EQ(fds_count(), c->kept[2]);
	few_poll(c, 3, 40, true);
	CHECK_EQ(fds_count(), c->kept[0]);
	return NULL;
}

/* A small one is kept while the thread sleeps on it. */
TEST(small_sets_are_kept_while_calls_sleep)
{
	static struct crowd c;
	pthread_t thread;

	if (fds_limit() < 4096)
		SKIP("fewer than 4096 descriptors are allowed");
	sock_pair_init();
	for (int i = 0; i < 4; i++) {
		c.pair[i] = pair_raised();
		c.fds[2 * i] = (struct pollfd){.fd = c.pair[i].c, .events = POLLIN};
		c.fds[2 * i + 1] = (struct pollfd){.fd = c.pair[i].s, .events = POLLIN};
	}
	REQUIRE(pthread_create(&thread, NULL, few_thread, &c) == 0);
	pthread_join(thread, NULL);
	CHECK_EQ(c.kept[1], c.kept[0]);
	CHECK_EQ(c.kept[2], c.kept[0] + 1);
	CHECK_EQ(fds_count(), c.kept[0]);
	for (int i = 0; i < 4; i++) {
		CHECK_EQ(atomic_load(&fd_sock(c.pair[i].c)->slot->sleepers_rx), 0);
		pair_close(c.pair[i]);
	}
}

/* Whether a wait for the clients' ends spins. */
static bool crowd_spins(const struct sock_pair *pair, int n)
{
	struct look_crowd c;

	look_crowd_begin(&c);
	look_crowd_of(&c, (uint64_t)n);
	for (int i = 0; i < n && look_crowd_add(&c, fd_sock(pair[i].c)); i++)
		;
	return look_crowd_end(&c);
}

/* Three threads at work on two processors leave none to spin on; and their peer tells them. */
TEST(a_crowd_is_not_spun_for)
{
	enum { N = 3, THREAD = 1 << TOLD_THREAD_SHIFT };
	struct sock_pair pair[N];
	struct sock *s[N], *peer;

	sock_pair_init();
	wait_processors = 2;
	for (int i = 0; i < N; i++) {
		pair[i] = pair_raised();
		s[i] = fd_sock(pair[i].c);
		/* As their threads tell it: each is another, on a processor elsewhere. */
		atomic_store(&s[i]->in->tx_cpu, (uint32_t)(i + 1) * THREAD | TOLD_CPU);
		atomic_store(&s[i]->out->rx_armed, 0);
	}
	peer = fd_sock(pair[0].s);
	CHECK(crowd_spins(pair, N - 1));
	CHECK(!crowd_spins(pair, N));
	CHECK(wait_self & TOLD_CROWD);
	wait_tell_cpu(s[0]);
	CHECK(atomic_load(&peer->in->tx_cpu) & TOLD_CROWD);
	CHECK(!look_spin_useful(peer));

	/* One sleeps; it is woken, and has not run yet. */
	atomic_store(&s[2]->out->rx_armed, 7);
	CHECK(crowd_spins(pair, N));
	CHECK(!(wait_self & TOLD_CROWD));
	atomic_store(&s[2]->slot->tx.rung, 7);
	CHECK(!crowd_spins(pair, N));
	/* Two of them are one thread. */
	atomic_store(&s[2]->in->tx_cpu, 2 * THREAD | TOLD_CPU);
	CHECK(crowd_spins(pair, N));
	wait_processors = LOOK_CROWD_MOST + 1;
	atomic_store(&s[2]->in->tx_cpu, 3 * THREAD | TOLD_CPU);
	CHECK(crowd_spins(pair, N));
	for (int i = 0; i < N; i++)
		pair_close(pair[i]);
}
