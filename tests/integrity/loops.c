/* SPDX-License-Identifier: Apache-2.0 */
/* Many connections moved by one event loop: poll, select, or epoll with each trigger. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/select.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "integrity.h"

struct loop {
	enum mode mode;
	struct conn **conns;
	unsigned count;
	_Atomic unsigned open;
	int epfd;
	int stop;  /* eventfd, readable once all is done */
	int timer; /* or -1 */
	uint64_t rng;
	pthread_mutex_t lock[CONNS_MAX];
};

static void rx_step(struct conn *c, bool edge)
{
	enum moved m = half_recv(&c->rx);
	if (m == MOVED_AGAIN)
		c->in_ready = false;
	/* As nginx does it: a short read means that the queue is empty, unless the end
	 * of the stream was announced. */
	if (m == MOVED_SHORT && edge && !c->hangup && chance(&c->rng, 2))
		c->in_ready = false;
	if (m == MOVED_EOF || m == MOVED_DEAD || rx_complete(&c->rx)) {
		c->rx.done = true;
		c->rx.state->phase = m == MOVED_DEAD ? DIR_DEAD : DIR_ENDED;
	}
}

static void tx_step(struct conn *c)
{
	enum moved m = c->tx.off == c->tx.total ? MOVED : half_send(&c->tx);
	if (m == MOVED_AGAIN)
		c->out_ready = false;
	if (m == MOVED_SHORT && chance(&c->rng, 2))
		c->out_ready = false;
	if (m == MOVED_DEAD) {
		c->tx.done = true;
		c->tx.state->phase = DIR_DEAD;
	} else if (c->tx.off == c->tx.total || conn_aborts(c)) {
		tx_finish(c);
		c->tx.done = true;
		c->tx.state->phase = DIR_ENDED;
	}
}

static bool conn_finished(const struct conn *c)
{
	return (c->tx.done && c->rx.done) || (conn_aborts(c) && c->tx.done);
}

static void finish(struct loop *l, struct conn *c)
{
	if (l->epfd >= 0 && c->registered &&
	    epoll_ctl(l->epfd, EPOLL_CTL_DEL, c->rx.fd, NULL))
		fail_at(&c->rx, "EPOLL_CTL_DEL: %s", strerror(errno));
	c->closed = true;
	conn_close(c);
	if (--l->open == 0 && write(l->stop, &(uint64_t){1}, 8) != 8)
		fail_at(&c->rx, "eventfd: %s", strerror(errno));
}

/* Some input and output on a connection that is ready. */
static void serve(struct loop *l, struct conn *c)
{
	unsigned steps = 1 + rnd(&c->rng) % 6;
	while (steps-- > 0 && !conn_finished(c)) {
		bool in = c->in_ready && !c->rx.done;
		bool out = c->out_ready && !c->tx.done;
		if (!in && !out)
			break;
		if (in && (!out || chance(&c->rng, 2)))
			rx_step(c, l->mode == MODE_ET);
		else
			tx_step(c);
	}
	if (conn_finished(c))
		finish(l, c);
}

static unsigned wants(const struct conn *c)
{
	return (c->rx.done ? 0 : POLLIN) | (c->tx.done ? 0 : POLLOUT);
}

static void note_events(struct conn *c, uint32_t events)
{
	if (events & (EPOLLIN | EPOLLHUP | EPOLLERR | EPOLLRDHUP))
		c->in_ready = true;
	if (events & (EPOLLOUT | EPOLLHUP | EPOLLERR))
		c->out_ready = true;
	if (events & (EPOLLHUP | EPOLLERR | EPOLLRDHUP))
		c->hangup = true;
	note(&c->rx, "events %#x", events);
}

/* A level-triggered loop changes the number of a socket now and then. */
static void renumber(struct conn *c)
{
	if (!chance(&c->rng, 500))
		return;
	int fd = dup(c->rx.fd);
	if (fd < 0)
		fail_at(&c->rx, "dup: %s", strerror(errno));
	int old = c->rx.fd;
	note(&c->rx, "dup %d to %d", old, fd);
	c->rx.fd = c->tx.fd = fd;
	c->state->fd = fd;
	if (close(old) != 0)
		fail_at(&c->rx, "close: %s", strerror(errno));
}

static void poll_loop(struct loop *l)
{
	struct pollfd fds[CONNS_MAX + 1];
	struct conn *of[CONNS_MAX];
	while (l->open > 0) {
		unsigned n = 0;
		for (unsigned i = 0; i < l->count; i++) {
			struct conn *c = l->conns[i];
			if (c->closed)
				continue;
			renumber(c);
			of[n] = c;
			fds[n++] = (struct pollfd){c->rx.fd, (short)wants(c), 0};
		}
		fds[n] = (struct pollfd){l->stop, POLLIN, 0};
		int r = poll(fds, n + 1, -1);
		if (r < 0 && errno != EINTR)
			fail_at(&of[0]->rx, "poll: %s", strerror(errno));
		for (unsigned i = 0; r > 0 && i < n; i++) {
			if (!fds[i].revents)
				continue;
			if (fds[i].revents & POLLNVAL)
				fail_at(&of[i]->rx, "POLLNVAL");
			note_events(of[i], fds[i].revents);
			serve(l, of[i]);
			of[i]->in_ready = of[i]->out_ready = false;
		}
	}
}

static int fill_sets(struct loop *l, fd_set *in, fd_set *out)
{
	int top = l->stop;
	FD_ZERO(in);
	FD_ZERO(out);
	FD_SET(l->stop, in);
	for (unsigned i = 0; i < l->count; i++) {
		struct conn *c = l->conns[i];
		if (c->closed)
			continue;
		renumber(c);
		if (c->rx.fd >= FD_SETSIZE)
			fail_at(&c->rx, "descriptor %d is too high for select", c->rx.fd);
		if (!c->rx.done)
			FD_SET(c->rx.fd, in);
		if (!c->tx.done)
			FD_SET(c->rx.fd, out);
		if (c->rx.fd > top)
			top = c->rx.fd;
	}
	return top + 1;
}

static void select_loop(struct loop *l)
{
	fd_set in, out;
	while (l->open > 0) {
		int top = fill_sets(l, &in, &out);
		int r = select(top, &in, &out, NULL, NULL);
		if (r < 0 && errno != EINTR)
			fail_at(&l->conns[0]->rx, "select: %s", strerror(errno));
		for (unsigned i = 0; r > 0 && i < l->count; i++) {
			struct conn *c = l->conns[i];
			if (c->closed)
				continue;
			unsigned events = (FD_ISSET(c->rx.fd, &in) ? POLLIN : 0) |
					  (FD_ISSET(c->rx.fd, &out) ? POLLOUT : 0);
			if (!events)
				continue;
			note_events(c, events);
			serve(l, c);
			c->in_ready = c->out_ready = false;
		}
	}
}

static uint32_t trigger(const struct loop *l)
{
	if (l->mode == MODE_ET)
		return EPOLLET | EPOLLRDHUP;
	return l->mode == MODE_ONESHOT ? EPOLLONESHOT : 0;
}

static void change(struct loop *l, struct conn *c, int op)
{
	struct epoll_event ev = {.events = wants(c) | trigger(l), .data.ptr = c};
	if (epoll_ctl(l->epfd, op, c->rx.fd, &ev) != 0)
		fail_at(&c->rx, "epoll_ctl: %s", strerror(errno));
	c->registered = true;
}

static void epoll_serve(struct loop *l, struct conn *c)
{
	unsigned before = wants(c);
	serve(l, c);
	if (c->closed)
		return;
	if (l->mode != MODE_ET)
		c->in_ready = c->out_ready = false;
	if (l->mode == MODE_ONESHOT ||
	    (wants(c) != before && (l->mode == MODE_LT || chance(&c->rng, 2))))
		change(l, c, EPOLL_CTL_MOD);
}

/* Edge trigger: what was not used up yet is served without a new event. */
static bool serve_left(struct loop *l)
{
	bool left = false;
	for (unsigned i = 0; l->mode == MODE_ET && i < l->count; i++) {
		struct conn *c = l->conns[i];
		if (!c->closed &&
		    ((c->in_ready && !c->rx.done) || (c->out_ready && !c->tx.done)))
			epoll_serve(l, c);
		left |= !c->closed &&
			((c->in_ready && !c->rx.done) || (c->out_ready && !c->tx.done));
	}
	return left;
}

static void take_event(struct loop *l, const struct epoll_event *ev)
{
	struct conn *c = ev->data.ptr;
	if (!c) {
		uint64_t ticks;
		if (l->timer >= 0 && read(l->timer, &ticks, sizeof ticks) < 0 &&
		    errno != EAGAIN && errno != EINTR)
			abort();
		return;
	}
	pthread_mutex_lock(&l->lock[c->index]);
	if (!c->closed) {
		note_events(c, ev->events);
		epoll_serve(l, c);
	}
	pthread_mutex_unlock(&l->lock[c->index]);
}

static void *epoll_loop(void *arg)
{
	struct loop *l = arg;
	struct epoll_event events[16];
	bool left = false;
	while (l->open > 0) {
		int r = epoll_wait(l->epfd, events, l->count < 4 ? 2 : 16, left ? 0 : -1);
		if (r < 0 && errno != EINTR)
			fail_at(&l->conns[0]->rx, "epoll_wait: %s", strerror(errno));
		if (r == 0 && !left)
			fail_at(&l->conns[0]->rx,
				"epoll_wait returned 0 without timeout");
		for (int i = 0; i < r; i++)
			take_event(l, &events[i]);
		left = serve_left(l);
	}
	return NULL;
}

static void add_timer(struct loop *l)
{
	struct itimerspec spec = {{0, 70000000}, {0, 70000000}};
	if (!chance(&l->rng, 3))
		return;
	l->timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
	if (l->timer < 0 || timerfd_settime(l->timer, 0, &spec, NULL) != 0)
		abort();
	struct epoll_event ev = {.events = EPOLLIN};
	epoll_ctl(l->epfd, EPOLL_CTL_ADD, l->timer, &ev);
}

static void epoll_run(struct loop *l)
{
	pthread_t second;
	struct epoll_event ev = {.events = EPOLLIN};
	l->epfd = epoll_create1(EPOLL_CLOEXEC);
	if (l->epfd < 0)
		abort();
	epoll_ctl(l->epfd, EPOLL_CTL_ADD, l->stop, &ev);
	add_timer(l);
	for (unsigned i = 0; i < l->count; i++)
		change(l, l->conns[i], EPOLL_CTL_ADD);
	if (l->mode == MODE_ONESHOT && pthread_create(&second, NULL, epoll_loop, l) != 0)
		abort();
	epoll_loop(l);
	if (l->mode == MODE_ONESHOT)
		pthread_join(second, NULL);
	if (l->timer >= 0)
		close(l->timer);
	close(l->epfd);
}

void loop_run(enum mode mode, struct conn **conns, unsigned count, uint64_t rng)
{
	struct loop *l = calloc(1, sizeof *l);
	if (!l)
		abort();
	*l = (struct loop){.mode = mode, .conns = conns, .count = count, .open = count};
	l->epfd = l->timer = -1;
	l->rng = rng;
	l->stop = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	for (unsigned i = 0; i < CONNS_MAX; i++)
		pthread_mutex_init(&l->lock[i], NULL);
	for (unsigned i = 0; i < count; i++) {
		struct conn *c = conns[i];
		if (fcntl(c->rx.fd, F_SETFL, fcntl(c->rx.fd, F_GETFL) | O_NONBLOCK) != 0)
			fail_at(&c->rx, "O_NONBLOCK: %s", strerror(errno));
		c->rx.state->phase = c->tx.state->phase = DIR_MOVING;
	}
	if (mode == MODE_POLL)
		poll_loop(l);
	else if (mode == MODE_SELECT)
		select_loop(l);
	else
		epoll_run(l);
	close(l->stop);
	free(l);
}
