/* SPDX-License-Identifier: Apache-2.0 */
/* Conformance: a program that has as many mappings as it may (vm.max_map_count), or half as many. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <unistd.h>

#include "cases.h"

enum { PAIRS = 8, MANY = 80, PAGE = 4096, MOST = 200000 };

static long most_mappings(void)
{
	FILE *f = fopen("/proc/sys/vm/max_map_count", "r");
	long most = 0;
	if (!f || fscanf(f, "%ld", &most) != 1)
		skip("nobody says how many mappings there may be");
	fclose(f);
	if (most > MOST)
		skip("there may be too many mappings");
	return most;
}

struct region {
	char *at;
	size_t bytes;
};

/* Each page is a mapping: so many, or all that there may be. */
static struct region mappings_take(long count)
{
	struct region r = {.bytes = (size_t)count * PAGE};
	r.at = mmap(NULL, r.bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
		    -1, 0);
	NEED(r.at != MAP_FAILED);
	for (long i = 1; i < count; i += 2)
		if (mprotect(r.at + i * PAGE, PAGE, PROT_READ) != 0)
			break;
	return r;
}

static void say_heard(int epfd, struct pair p)
{
	struct epoll_event ev = {0};
	char buf[8];
	send_all(p.c, "query", 5);
	say("heard %d of %d", epoll_wait(epfd, &ev, 1, 5000), ev.data.fd == p.s);
	recv_all(p.s, buf, 5);
}

/* They are in their rings, or have not moved a byte. More than there is memory for from the beginning. */
static void register_without_any(bool warm)
{
	struct pair p[MANY];
	int epfd = epoll_create1(EPOLL_CLOEXEC), refused = 0;
	for (int i = 0; i < MANY; i++)
		p[i] = warm ? pair_warm_open() : pair_open();
	struct region r = mappings_take(most_mappings());
	for (int i = 0; i < MANY; i++) {
		struct epoll_event ev = {.events = EPOLLIN, .data.fd = p[i].s};
		refused += epoll_ctl(epfd, EPOLL_CTL_ADD, p[i].s, &ev) != 0;
	}
	NEED(munmap(r.at, r.bytes) == 0);
	say("refused %d", refused);
	for (int i = 0; i < MANY; i++) {
		struct epoll_event ev = {.events = EPOLLIN | EPOLLOUT, .data.fd = p[i].s};
		say_heard(epfd, p[i]);
		say_result("mod", epoll_ctl(epfd, EPOLL_CTL_MOD, p[i].s, &ev));
		say_result("del", epoll_ctl(epfd, EPOLL_CTL_DEL, p[i].s, NULL));
		pair_close(p[i]);
	}
}

CASE(mappings_for_no_registration, ANYWAY)
{
	register_without_any(false);
}

CASE(mappings_for_no_warm_registration, ANYWAY)
{
	register_without_any(true);
}

static void *nothing(void *arg)
{
	return arg;
}

/* Half are the program's. */
CASE(mappings_half, ON_TCP)
{
	struct region r = mappings_take(most_mappings() / 2 + 200);
	for (int i = 0; i < PAIRS; i++)
		pair_close(pair_warm_open());
	pthread_t thread;
	say("thread %d", pthread_create(&thread, NULL, nothing, NULL));
	NEED(pthread_join(thread, NULL) == 0 && munmap(r.at, r.bytes) == 0);
}
