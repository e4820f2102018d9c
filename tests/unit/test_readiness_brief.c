/* SPDX-License-Identifier: Apache-2.0 */
/* Reads that look a moment before they say "nothing there", while another thread sleeps in epoll. */
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <sys/epoll.h>
#include <time.h>

#include "unit/test.h"

#include "conn/brief.h"
#include "readiness/epoll.h"
#include "unit/readiness_pair.h"

#define TURNS  5000
#define LATE_S 60

struct poller {
	pthread_t thread;
	sem_t told;
	int ep;
	_Atomic bool stop;
};

static void *poll_on(void *arg)
{
	struct poller *p = arg;
	const struct timespec nap = {.tv_nsec = 300000000};
	struct epoll_event ev[4];

	while (!atomic_load(&p->stop)) {
		int n = ready_epoll_wait(p->ep, ev, 4, &nap, NULL);

		for (int i = 0; i < n; i++)
			if (ev[i].events & EPOLLIN)
				sem_post(&p->told);
	}
	return NULL;
}

static void poller_start(struct poller *p, int fd)
{
	struct epoll_event ev = {.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET};

	p->ep = ready_epoll_create(epoll_create1(EPOLL_CLOEXEC));
	REQUIRE(ready_epoll_ctl(p->ep, EPOLL_CTL_ADD, fd, &ev) == 0);
	sem_init(&p->told, 0, 0);
	atomic_store(&p->stop, false);
	REQUIRE(pthread_create(&p->thread, NULL, poll_on, p) == 0);
}

static void poller_end(struct poller *p)
{
	atomic_store(&p->stop, true);
	pthread_join(p->thread, NULL);
	ready_closing(p->ep);
	close(p->ep);
}

static bool is_told(struct poller *p)
{
	struct timespec until;

	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += LATE_S;
	return sem_timedwait(&p->told, &until) == 0;
}

static void nonblock(int fd)
{
	fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
	store_relaxed(&fd_sock(fd)->slot->nonblock, 1);
}

/* As a call of Go's. */
static ssize_t read_briefly(int fd, char *buf, size_t len, unsigned *looks)
{
	struct sock *s = fd_sock(fd);
	bool looked = brief_look(s, len);
	ssize_t n = pair_recv(fd, buf, len, 0);

	*looks += looked;
	if (looked)
		brief_end(s);
	return n;
}

struct peer_end {
	int fd;
	bool bursts; /* more than one read takes */
};

static void *answer(void *arg)
{
	struct peer_end *e = arg;
	char buf[64];
	unsigned seed = 1;
	ssize_t n;

	while ((n = pair_recv(e->fd, buf, sizeof(buf), 0)) > 0) {
		seed = seed * 1103515245u + 12345u;
		for (unsigned i = seed >> 23; i > 0; i--)
			__builtin_ia32_pause();
		pair_send(e->fd, buf, e->bursts ? 9 : (size_t)n, 0);
	}
	return NULL;
}

/* Reads `all` bytes. Where there are none it waits until the poller has been told. */
static bool read_all(int fd, struct poller *p, size_t all, unsigned *looks)
{
	char buf[8];
	size_t got = 0;

	while (got < all) {
		size_t want = all - got < 4 ? all - got : 4;
		ssize_t n = read_briefly(fd, buf, want, looks);

		if (n == -EAGAIN && !is_told(p))
			return false;
		if (n != -EAGAIN && n <= 0)
			return false;
		got += n > 0 ? (size_t)n : 0;
	}
	return true;
}

/* Looks always, whatever they have found, and wherever the threads run. */
static struct sock_pair open_raised(void)
{
	setenv("VIADUCT_SPIN", "20", 1);
	return pair_raised();
}

static void exchange(bool bursts)
{
	struct sock_pair p = open_raised();
	struct peer_end end = {.fd = p.c, .bursts = bursts};
	struct poller poller;
	pthread_t thread;
	unsigned looks = 0;
	bool all = true;

	nonblock(p.s);
	poller_start(&poller, p.s);
	REQUIRE(pthread_create(&thread, NULL, answer, &end) == 0);
	for (int i = 0; i < TURNS && all; i++) {
		REQUIRE(pair_send(p.s, "1234", 4, 0) == 4);
		all = read_all(p.s, &poller, bursts ? 9 : 4, &looks);
	}
	CHECK(all);
	printf("%u looks have found something\n", looks);
	CHECK_EQ(sock_shutdown(fd_sock(p.s), p.s, SHUT_WR), 0);
	pthread_join(thread, NULL);
	poller_end(&poller);
	pair_close(p);
}

/* Whoever is told that nothing is there is told of what comes. */
TEST(nothing_there_is_followed_by_an_edge)
{
	exchange(false);
}

TEST(the_rest_is_an_edge)
{
	exchange(true);
}

/* One look, and all that it leaves behind it: nobody reads after it. */
TEST(what_a_look_has_found_is_told_to_sleepers)
{
	struct sock_pair p = open_raised();
	struct peer_end end = {.fd = p.c};
	struct poller poller;
	pthread_t thread;
	struct sock *s = fd_sock(p.s);
	char byte[4];

	nonblock(p.s);
	poller_start(&poller, p.s);
	REQUIRE(pthread_create(&thread, NULL, answer, &end) == 0);
	for (int i = 0; i < TURNS; i++) {
		bool looked;

		while (sem_trywait(&poller.told) == 0)
			;
		REQUIRE(pair_send(p.s, "12", 2, 0) == 2);
		looked = brief_look(s, 2);
		if (looked) {
			brief_end(s);
			CHECK(is_told(&poller));
		}
		while (pair_recv(p.s, byte, 2, 0) == -EAGAIN)
			__builtin_ia32_pause();
	}
	CHECK_EQ(sock_shutdown(fd_sock(p.s), p.s, SHUT_WR), 0);
	pthread_join(thread, NULL);
	poller_end(&poller);
	pair_close(p);
}
