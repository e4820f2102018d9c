/* SPDX-License-Identifier: Apache-2.0 */
/* One end of a connection moved by two threads, or by a thread and a forked child. */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "integrity.h"

struct pair {
	pthread_t tx, rx;
};

static struct pair pairs[CONNS_MAX];

/* A thread that has its own descriptor changes its number now and then. */
static void renumber(struct half *h)
{
	if (h->fd == h->conn->state->fd || !chance(&h->rng, 400))
		return;
	int fd = dup(h->fd);
	if (fd < 0)
		fail_at(h, "dup: %s", strerror(errno));
	int old = h->fd;
	note(h, "dup %d to %d", old, fd);
	/* First the new one: a forked child may close what is named here. */
	h->fd = fd;
	if (close(old) != 0)
		fail_at(h, "close: %s", strerror(errno));
}

static void again(struct half *h)
{
	if (h->conn->mode != MODE_TIMEO)
		fail_at(h, "EAGAIN on a blocking socket");
	if (chance(&h->rng, 4))
		usleep(300);
}

/* The second of the two closes. */
static void half_finish(struct half *h)
{
	h->state->phase = DIR_ENDED;
	h->done = true;
	if (atomic_fetch_add(&h->conn->halves_done, 1) == 1)
		conn_close(h->conn);
}

static void *rx_thread(void *arg)
{
	struct half *h = arg;
	h->state->phase = DIR_MOVING;
	while (!rx_complete(h) && !h->conn->aborted) {
		renumber(h);
		enum moved m = half_recv(h);
		if (m == MOVED_AGAIN)
			again(h);
		if (m == MOVED_EOF || m == MOVED_DEAD)
			break;
	}
	half_finish(h);
	return NULL;
}

static bool tx_ended(const struct half *h)
{
	return h->off == h->total || conn_aborts(h->conn);
}

static bool tx_loop(struct half *h, uint64_t until)
{
	while (!tx_ended(h) && h->off < until) {
		renumber(h);
		enum moved m = half_send(h);
		if (m == MOVED_AGAIN)
			again(h);
		if (m == MOVED_DEAD)
			return false;
	}
	return true;
}

static void child_sends(struct half *h)
{
	side_close_others(h);
	note(h, "child %d took over", (int)getpid());
	if (tx_loop(h, UINT64_MAX))
		tx_finish(h->conn);
	h->state->phase = DIR_ENDED;
	_exit(0);
}

static void fork_sender(struct half *h)
{
	int status = 0;
	note(h, "fork");
	pid_t child = fork();
	if (child < 0)
		fail_at(h, "fork: %s", strerror(errno));
	if (child == 0)
		child_sends(h);
	while (waitpid(child, &status, 0) < 0)
		if (errno != EINTR)
			fail_at(h, "waitpid: %s", strerror(errno));
	if (status != 0)
		fail_at(h, "the child that sends ended with status %#x", status);
	if (conn_aborts(h->conn))
		h->conn->aborted = true;
}

static void *tx_thread(void *arg)
{
	struct half *h = arg;
	bool forks = h->conn->mode == MODE_FORK;
	h->state->phase = DIR_MOVING;
	if (!tx_loop(h, forks ? rnd(&h->rng) % (h->total + 1) : UINT64_MAX))
		forks = false;
	else if (forks)
		fork_sender(h);
	else
		tx_finish(h->conn);
	half_finish(h);
	return NULL;
}

static void own_descriptor(struct half *h)
{
	if (!chance(&h->rng, 2))
		return;
	int fd = dup(h->fd);
	if (fd < 0)
		fail_at(h, "dup: %s", strerror(errno));
	h->fd = fd;
}

static void set_timeouts(struct conn *c)
{
	struct timeval rcv = {.tv_usec = 1000 + (long)(rnd(&c->rng) % 40000)};
	struct timeval snd = {.tv_usec = 1000 + (long)(rnd(&c->rng) % 40000)};
	setsockopt(c->rx.fd, SOL_SOCKET, SO_RCVTIMEO, &rcv, sizeof rcv);
	setsockopt(c->tx.fd, SOL_SOCKET, SO_SNDTIMEO, &snd, sizeof snd);
}

void threads_start(struct conn *c)
{
	struct pair *p = &pairs[c->index];
	if (c->mode == MODE_TIMEO)
		set_timeouts(c);
	else
		c->tx.blocking = c->rx.blocking = true;
	c->started = true;
	own_descriptor(&c->tx);
	own_descriptor(&c->rx);
	if (pthread_create(&p->tx, NULL, tx_thread, &c->tx) != 0 ||
	    pthread_create(&p->rx, NULL, rx_thread, &c->rx) != 0)
		fail_at(&c->tx, "pthread_create failed");
}

void threads_join(struct conn *c)
{
	struct pair *p = &pairs[c->index];
	pthread_join(p->tx, NULL);
	pthread_join(p->rx, NULL);
}
