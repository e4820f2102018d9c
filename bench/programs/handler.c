/* SPDX-License-Identifier: Apache-2.0 */
/* Messages there and back, received by the thread that asks, or by a handler thread that hands them over. */
/* usage: handler tcp|unix TURNS BYTES single|thread */
#include <pthread.h>
#include <stdint.h>

#include "local.h"

/* What a handler has received and the thread that waits has not taken. */
struct handed {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	int fd, is_there;
	size_t size;
	uint8_t *room;
};

static void *handle(void *arg)
{
	struct handed *h = arg;

	for (;;) {
		uint8_t *room = h->room;
		ssize_t n = 0;

		for (size_t got = 0; got < h->size; got += (size_t)n) {
			n = read(h->fd, room + got, h->size - got);
			if (n <= 0) /* the end */
				return NULL;
		}
		pthread_mutex_lock(&h->lock);
		h->is_there = 1;
		pthread_cond_signal(&h->changed);
		while (h->is_there)
			pthread_cond_wait(&h->changed, &h->lock);
		pthread_mutex_unlock(&h->lock);
	}
}

static void wait_handed(struct handed *h, void *to)
{
	pthread_mutex_lock(&h->lock);
	while (!h->is_there)
		pthread_cond_wait(&h->changed, &h->lock);
	memcpy(to, h->room, h->size);
	h->is_there = 0;
	pthread_cond_signal(&h->changed);
	pthread_mutex_unlock(&h->lock);
}

/* One end: sends first, or answers first. Its sum is over what it has received. */
static unsigned long talk(int fd, long turns, size_t size, int threaded, int first)
{
	struct handed h = {.lock = PTHREAD_MUTEX_INITIALIZER,
			   .changed = PTHREAD_COND_INITIALIZER,
			   .fd = fd,
			   .size = size,
			   .room = malloc(size)};
	uint8_t *message = calloc(1, size);
	unsigned long sum = 0;
	pthread_t thread;

	NEED(h.room && message);
	NEED(!threaded || pthread_create(&thread, NULL, handle, &h) == 0);
	for (long i = 0; i < turns; i++) {
		if (first) {
			message[0] = (uint8_t)i;
			put_all(fd, message, size);
		}
		if (threaded)
			wait_handed(&h, message);
		else
			get_all(fd, message, size);
		sum = sum * 31 + message[0];
		if (!first)
			put_all(fd, message, size);
	}
	shutdown(fd, SHUT_WR);
	NEED(!threaded || pthread_join(thread, NULL) == 0);
	return sum;
}

int main(int argc, char **argv)
{
	struct place p;
	unsigned long sum;
	int fd, threaded;
	long turns;
	size_t size;
	double began;
	pid_t pid;

	NEED(argc == 5 && (turns = atol(argv[2])) > 0 &&
	     (size = (size_t)atol(argv[3])) > 0);
	threaded = !strcmp(argv[4], "thread");
	NEED(threaded || !strcmp(argv[4], "single"));
	p = place_open(argv[1]);
	pid = fork();
	NEED(pid >= 0);
	if (pid == 0) {
		talk(place_accept(&p), turns, size, threaded, 0);
		exit(0);
	}
	fd = place_connect(&p);
	began = now_s();
	sum = talk(fd, turns, size, threaded, 1);
	tell(now_s() - began, sum);
	children_end(1);
	return 0;
}
