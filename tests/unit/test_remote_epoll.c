/* SPDX-License-Identifier: Apache-2.0 */
/* An epoll instance with connections of other hosts: one bell is registered for all of them, and
 * wakes for each. */
#include <signal.h>
#include <sys/epoll.h>

#include "unit/test.h"

#include "readiness/epoll.h"
#include "readiness/ready.h"
#include "unit/conn_pair.h"

#define MANY 12 /* more than one link has places for */

__attribute__((constructor)) static void be_across(void)
{
	setenv("VD_TEST_REMOTE", "5", 0);
}

struct waiter {
	int ep, n;
	struct epoll_event ev[4];
	pthread_t thread;
	_Atomic bool done;
};

static void *wait_in_instance(void *arg)
{
	struct waiter *w = arg;

	w->n = ready_epoll_wait(w->ep, w->ev, 4, NULL, NULL);
	atomic_store(&w->done, true);
	return NULL;
}

static void waiter_start(struct waiter *w, int ep)
{
	struct instance *in = instance_at(ep);

	*w = (struct waiter){.ep = ep};
	REQUIRE(pthread_create(&w->thread, NULL, wait_in_instance, w) == 0);
	while (!instance_sleepers(in))
		usleep(100);
	usleep(2000); /* it spins first: then it is in the kernel */
}

/* Nobody but the waiter polls the links. */
static void send_alone(int fd)
{
	struct iovec iov = {"x", 1};

	REQUIRE(tx_enter(fd_sock(fd), fd) == SOCK_DIRECT);
	REQUIRE(tx_send(fd_sock(fd), fd, &iov, 1, 0) == 1);
}

static void add(int ep, int fd)
{
	struct epoll_event ev = {.events = EPOLLIN, .data.fd = fd};

	REQUIRE(ready_epoll_ctl(ep, EPOLL_CTL_ADD, fd, &ev) == 0);
}

static void wakes_for(int ep, const struct pair *p)
{
	struct waiter w;
	char byte;

	waiter_start(&w, ep);
	CHECK(!atomic_load(&w.done));
	send_alone(p->a);
	REQUIRE(pthread_join(w.thread, NULL) == 0);
	CHECK_EQ(w.n, 1);
	CHECK_EQ(w.ev[0].data.fd, p->b);
	CHECK_EQ(w.ev[0].events, EPOLLIN);
	CHECK_EQ(st_recv(p->b, &byte, 1, 0), 1);
}

/* Descriptors that the kernel watches for the instance. */
static int watched(int ep)
{
	char path[64], line[256];
	FILE *f;
	int n = 0;

	snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", ep);
	f = fopen(path, "r");
	REQUIRE(f);
	while (fgets(line, sizeof(line), f))
		n += strncmp(line, "tfd:", 4) == 0;
	fclose(f);
	return n;
}

static int instance_open(void)
{
	static bool ready;

	if (!ready)
		ready_init();
	ready = true;
	return ready_epoll_create(epoll_create1(EPOLL_CLOEXEC));
}

static void instance_end(int ep)
{
	ready_closing(ep);
	close(ep);
}

static void leave(const struct pair *p)
{
	ready_closing(p->b);
	pair_close(p);
}

/* The TCP descriptor and the own bell of each, and the one bell. */
STREAM_TEST(one_bell_wakes_for_each)
{
	struct pair p[MANY];
	int ep = instance_open();

	for (int i = 0; i < MANY; i++) {
		p[i] = pair_open_up();
		add(ep, p[i].b);
	}
	CHECK_EQ(watched(ep), 2 * MANY + 1);
	for (int round = 0; round < 3; round++)
		for (int i = 0; i < MANY; i++)
			wakes_for(ep, &p[i]);
	/* Whoever came first leaves first. */
	for (int i = 0; i < MANY; i++) {
		wakes_for(ep, &p[i]);
		leave(&p[i]);
		if (i + 1 < MANY)
			wakes_for(ep, &p[i + 1]);
	}
	/* The one bell goes with the last. */
	CHECK_EQ(watched(ep), 0);
	instance_end(ep);
}

/* What is deleted stays for its next ADD, until it wakes somebody: then it wakes nobody again. */
STREAM_TEST(what_is_deleted_wakes_but_once)
{
	struct pair p = pair_open_up(), q = pair_open_up();
	int ep = instance_open();
	struct waiter w;
	char byte;

	add(ep, p.b);
	add(ep, q.b);
	REQUIRE(ready_epoll_ctl(ep, EPOLL_CTL_DEL, p.b, NULL) == 0);
	CHECK_EQ(watched(ep), 5);
	/* The other one still has the bell. */
	wakes_for(ep, &q);
	REQUIRE(ready_epoll_ctl(ep, EPOLL_CTL_DEL, q.b, NULL) == 0);
	waiter_start(&w, ep);
	send_alone(p.a);
	while (watched(ep) > 0)
		usleep(100);
	CHECK(!atomic_load(&w.done));
	CHECK_EQ(st_recv(p.b, &byte, 1, 0), 1);
	/* Into the very sleep. */
	add(ep, p.b);
	send_alone(p.a);
	REQUIRE(pthread_join(w.thread, NULL) == 0);
	CHECK_EQ(w.n, 1);
	CHECK_EQ(w.ev[0].data.fd, p.b);
	CHECK_EQ(st_recv(p.b, &byte, 1, 0), 1);
	add(ep, q.b);
	wakes_for(ep, &q);
	wakes_for(ep, &p);
	leave(&p);
	wakes_for(ep, &q);
	leave(&q);
	CHECK_EQ(watched(ep), 0);
	instance_end(ep);
}

/* Each instance has a registration of its own, whatever happens to the other. */
STREAM_TEST(two_instances_hear_one_bell)
{
	struct pair p = pair_open_up(), q = pair_open_up();
	int one = instance_open(), two = instance_open();

	add(one, p.b);
	add(two, q.b);
	for (int i = 0; i < 3; i++) {
		wakes_for(one, &p);
		wakes_for(two, &q);
	}
	REQUIRE(ready_epoll_ctl(one, EPOLL_CTL_DEL, p.b, NULL) == 0);
	instance_end(one);
	wakes_for(two, &q);
	add(two, p.b);
	wakes_for(two, &p);
	leave(&p);
	wakes_for(two, &q);
	leave(&q);
	instance_end(two);
}

static void nothing(int sig)
{
	(void)sig;
}

/* Whoever waits for edges does what the peer asks for, though it is no edge. */
static void leaves_for_tcp(uint32_t events)
{
	struct pair p = pair_open_up();
	struct sock *s = fd_sock(p.b);
	struct epoll_event ev = {.events = events, .data.fd = p.b}, told;
	int ep = instance_open(), turns = 6000;
	const struct timespec none = {0, 0};
	struct waiter w;

	REQUIRE(ready_epoll_ctl(ep, EPOLL_CTL_ADD, p.b, &ev) == 0);
	ready_epoll_wait(ep, &told, 1, &none, NULL);
	waiter_start(&w, ep);
	sock_down(fd_sock(p.a), p.a, VD_REASON_PEER_ASKED);
	while (atomic_load(&s->slot->phase) < SLOT_LEAVING && turns-- > 0)
		usleep(10000);
	CHECK(turns > 0);
	while (!atomic_load(&w.done)) {
		pthread_kill(w.thread, SIGUSR1);
		usleep(1000);
	}
	REQUIRE(pthread_join(w.thread, NULL) == 0);
	leave(&p);
	instance_end(ep);
}

STREAM_TEST(who_waits_for_edges_serves_the_peer)
{
	const struct sigaction act = {.sa_handler = nothing};

	REQUIRE(sigaction(SIGUSR1, &act, NULL) == 0);
	for (int i = 0; i < 3; i++) {
		leaves_for_tcp(EPOLLIN | EPOLLET);
		leaves_for_tcp(EPOLLIN | EPOLLOUT | EPOLLET);
		leaves_for_tcp(EPOLLOUT | EPOLLET);
	}
}
