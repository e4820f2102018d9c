/* SPDX-License-Identifier: Apache-2.0 */
/* An epoll instance with connections of other hosts: one bell is registered for all of them, and
 * wakes for each. */
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
	CHECK_EQ(watched(ep), 1);
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
