/* SPDX-License-Identifier: Apache-2.0 */
/* One end of a connection in a scene: how it waits, and moves bytes to where the scene wants. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <unistd.h>

#include "events.h"

const char *const scene_names[SCENES] = {"talk", "stream", "dup", "duo", "mmsg", "hand"};

static enum scene pick_scene(uint64_t *rng, int theme)
{
	static const unsigned upto[SCENES] = {50, 75, 87, 92, 97, 100};
	unsigned dice = rnd(rng) % 100, scene = 0;
	if (theme >= 0 && theme < SCENES)
		return theme;
	while (dice >= upto[scene])
		scene++;
	return scene;
}

/* Some directions have a few bytes, which come all at once. */
static uint64_t pick_rest(uint64_t *rng, uint64_t most)
{
	return rnd(rng) % (chance(rng, 3) ? 200 : most);
}

void play_make(struct play *p, unsigned index, unsigned step, int theme)
{
	uint64_t rng = seed_of(30, index | step << 8, 0);
	unsigned dice;
	*p = (struct play){.index = index, .step = step};
	p->scene = pick_scene(&rng, theme);
	p->turns = rnd(&rng) % (chance(&rng, 3) ? 4 : chance(&rng, 4) ? 200 : 40);
	p->ask = 1 + rnd(&rng) % (chance(&rng, 4) ? 6000 : 100);
	p->answer = 1 + rnd(&rng) % (chance(&rng, 4) ? 6000 : 100);
	p->closer = chance(&rng, 4) ? SERVER : CLIENT;
	p->late = chance(&rng, 2);
	p->meddlers = 1 + rnd(&rng) % 3;
	dice = rnd(&rng) % 12;
	if (p->scene == SCENE_TALK) {
		p->bye = dice < 7    ? BYE_HALF
			 : dice < 9  ? BYE_SHUT_CLOSE
			 : dice < 11 ? BYE_CLOSE
				     : BYE_ABORT;
		if (p->bye == BYE_HALF && chance(&rng, 2))
			p->rest[!p->closer] = rnd(&rng) % 3000;
	} else if (p->scene == SCENE_STREAM || p->scene == SCENE_DUP) {
		/* Few are more than buffers take, so that senders sleep. */
		uint64_t most = p->scene == SCENE_DUP ? 60000
				: chance(&rng, 12)    ? 6u << 20
						      : 400000;
		p->rest[CLIENT] = pick_rest(&rng, most);
		p->rest[SERVER] = pick_rest(&rng, most);
		if (chance(&rng, 2))
			p->turns /= 8;
	}
}

static void half_init(struct half *h, struct end *e, struct dir_state *state,
		      enum side from)
{
	struct conn *c = &e->c;
	h->conn = c;
	h->state = state;
	h->rng = seed_of(32 + from, e->play.index | e->play.step << 8, c->side);
	h->key = seed_of(36, e->play.index | e->play.step << 8, from);
	h->total = c->plan.total[from];
	h->small = e->play.scene == SCENE_DUP;
	h->splice_from = chance(&h->rng, 8) ? rnd(&h->rng) % 4 : rnd(&h->rng) % 400;
	h->plain = e->play.scene == SCENE_MMSG;
	h->fd = -1;
	state->off = state->ops = 0;
	state->phase = DIR_MOVING;
}

static enum mode pick_mode(uint64_t *rng)
{
	static const enum mode modes[] = {MODE_THREADS, MODE_THREADS, MODE_THREADS,
					  MODE_POLL,	MODE_SELECT,  MODE_LT,
					  MODE_ET,	MODE_ET,      MODE_ET,
					  MODE_ONESHOT, MODE_ONESHOT};
	return modes[rnd(rng) % (sizeof modes / sizeof *modes)];
}

void end_init(struct end *e, const struct play *p, enum side side)
{
	struct conn *c = &e->c;
	memset(e, 0, sizeof *e);
	e->play = *p;
	c->index = p->index;
	c->step = p->step;
	c->side = side;
	c->scene = scene_names[p->scene];
	c->state = &sh->conn[side][p->index];
	c->rng = seed_of(31, p->index | p->step << 8, side);
	c->plan.total[CLIENT] = (uint64_t)p->turns * p->ask + p->rest[CLIENT];
	c->plan.total[SERVER] = (uint64_t)p->turns * p->answer + p->rest[SERVER];
	c->plan.ending = p->bye == BYE_ABORT ? END_ABORT : END_SHUT;
	c->plan.closer = p->closer;
	c->plan.cut = c->plan.total[p->closer];
	c->mode = pick_mode(&c->rng);
	if (p->scene >= SCENE_DUO)
		c->mode = MODE_THREADS;
	c->state->mode = c->mode;
	half_init(&c->tx, e, &c->state->tx, side);
	half_init(&c->rx, e, &c->state->rx, !side);
	e->in.epfd = e->out.epfd = e->fd = -1;
	e->begin_at = chance(&c->rng, 2) ? 0 : rnd(&c->rng) % (p->turns + 1);
}

/* ---- waiting ---- */

static uint32_t pick_extra(uint64_t *rng, enum mode mode)
{
	static const uint32_t extras[] = {0, 0, EPOLLRDHUP, EPOLLPRI, EPOLLOUT};
	return extras[rnd(rng) % (mode == MODE_ET ? 5 : 4)];
}

static void control(struct end *e, struct waiter *w, int op, int fd, bool out)
{
	static const uint32_t triggers[MODES] = {
		[MODE_ET] = EPOLLET, [MODE_ONESHOT] = EPOLLONESHOT};
	struct epoll_event ev = {.data.ptr = w};
	ev.events = triggers[e->c.mode] | (out ? EPOLLOUT : EPOLLIN | e->extra);
	if (out && e->c.mode == MODE_ET)
		ev.events |= EPOLLIN | e->extra;
	if (op == EPOLL_CTL_MOD && ev.events == w->mask && !w->fired)
		return;
	w->mask = ev.events;
	w->fired = false;
	if (epoll_ctl(w->epfd, op, fd, &ev) != 0)
		fail_at(&e->c.rx, "epoll_ctl: %s", strerror(errno));
}

/* From now on it waits as its mode does; before, by poll. */
static void waiter_begin(struct end *e, struct waiter *w, int fd, bool out)
{
	if (e->c.mode < MODE_LT || w->epfd >= 0)
		return;
	w->epfd = epoll_create1(EPOLL_CLOEXEC);
	if (w->epfd < 0)
		fail_at(&e->c.rx, "epoll_create1: %s", strerror(errno));
	control(e, w, EPOLL_CTL_ADD, fd, out);
}

static void wait_select(const struct half *h, bool out)
{
	fd_set set;
	FD_ZERO(&set);
	FD_SET(h->fd, &set);
	if (select(h->fd + 1, out ? NULL : &set, out ? &set : NULL, NULL, NULL) < 0 &&
	    errno != EINTR)
		fail_at(h, "select: %s", strerror(errno));
}

static void wait_poll(const struct half *h, bool out)
{
	struct pollfd p = {h->fd, out ? POLLOUT : POLLIN, 0};
	if (poll(&p, 1, -1) < 0 && errno != EINTR)
		fail_at(h, "poll: %s", strerror(errno));
	if (p.revents & POLLNVAL)
		fail_at(h, "POLLNVAL");
}

static void wait_ready(struct end *e, struct waiter *w, struct half *h, bool out)
{
	struct epoll_event ev;
	note(h, "waits to %s", out ? "send" : "receive");
	if (w->epfd < 0) {
		if (e->c.mode == MODE_SELECT && h->fd < FD_SETSIZE)
			wait_select(h, out);
		else
			wait_poll(h, out);
		return;
	}
	control(e, w, EPOLL_CTL_MOD, h->fd, out);
	int r = epoll_wait(w->epfd, &ev, 1, -1);
	if (r == 0 || (r < 0 && errno != EINTR))
		fail_at(h, "epoll_wait: %d, %s", r, strerror(errno));
	if (r == 1) {
		w->fired = e->c.mode == MODE_ONESHOT;
		note(h, "events %#x", ev.events);
	}
}

/* ---- moving ---- */

void dawdle(struct end *e)
{
	if (chance(&e->c.rng, 12))
		usleep(rnd(&e->c.rng) % 3000);
	else if (chance(&e->c.rng, 80))
		usleep(rnd(&e->c.rng) % 25000);
}

void may_fail(const struct half *h, const char *what)
{
	if (may_die(h->conn) &&
	    (errno == ECONNRESET || errno == EPIPE || errno == ENOTCONN))
		return;
	fail_at(h, "%s: %s", what, strerror(errno));
}

static void check_blocks(const struct half *h)
{
	if (h->blocking)
		fail_at(h, "EAGAIN on a blocking socket");
}

bool send_until(struct end *e, struct waiter *w, uint64_t off)
{
	struct half *h = &e->c.tx;
	for (h->until = off; h->off < off;) {
		enum moved m = half_send(h);
		if (m == MOVED_DEAD)
			return false;
		if (m == MOVED_AGAIN) {
			check_blocks(h);
			waiter_begin(e, w, h->fd, w == &e->out);
			wait_ready(e, w, h, true);
		}
	}
	return true;
}

/* Level-triggered loops ask first, and others when they have met EAGAIN. */
static enum moved recv_step(struct end *e)
{
	struct half *h = &e->c.rx;
	bool asks_first = e->c.mode == MODE_POLL || e->c.mode == MODE_LT;
	if (asks_first)
		wait_ready(e, &e->in, h, false);
	enum moved m = half_recv(h);
	if (m != MOVED_AGAIN)
		return m;
	check_blocks(h);
	if (!asks_first)
		wait_ready(e, &e->in, h, false);
	return m;
}

bool recv_until(struct end *e, uint64_t off)
{
	struct half *h = &e->c.rx;
	for (h->until = off; h->off < off;) {
		enum moved m = recv_step(e);
		if (m == MOVED_EOF || m == MOVED_DEAD)
			return false;
	}
	return true;
}

bool recv_end(struct end *e)
{
	static const enum count counts[MODES] = {[MODE_POLL] = COUNT_HALF_POLL,
						 [MODE_SELECT] = COUNT_HALF_POLL,
						 [MODE_LT] = COUNT_HALF_LT,
						 [MODE_ET] = COUNT_HALF_ET,
						 [MODE_ONESHOT] = COUNT_HALF_ONESHOT};
	struct half *h = &e->c.rx;
	enum moved m;
	h->until = 0;
	waiter_begin(e, &e->in, h->fd, false);
	do {
		m = recv_step(e);
	} while (m != MOVED_EOF && m != MOVED_DEAD);
	h->state->phase = m == MOVED_EOF ? DIR_ENDED : DIR_DEAD;
	if (m == MOVED_EOF && e->c.mode != MODE_THREADS)
		count(counts[e->c.mode]);
	return m == MOVED_EOF;
}

bool turns(struct end *e)
{
	const struct play *p = &e->play;
	bool asks = e->c.side == CLIENT;
	for (unsigned t = 1; t <= p->turns; t++) {
		uint64_t ask = (uint64_t)t * p->ask, answer = (uint64_t)t * p->answer;
		dawdle(e);
		if (t > e->begin_at)
			waiter_begin(e, &e->in, e->c.rx.fd, false);
		if (asks && !(send_until(e, &e->in, ask) && recv_until(e, answer)))
			return false;
		if (!asks && !(recv_until(e, ask) && send_until(e, &e->in, answer)))
			return false;
	}
	return true;
}

void shut(struct end *e)
{
	note(&e->c.tx, "shutdown");
	if (shutdown(e->c.tx.fd, SHUT_WR) != 0)
		may_fail(&e->c.tx, "shutdown");
	e->c.tx.state->phase = DIR_ENDED;
}

/* ---- opening and closing ---- */

static int accept_one(struct end *e, int listener)
{
	for (;;) {
		struct pollfd p = {listener, POLLIN, 0};
		if (poll(&p, 1, 50) <= 0) {
			if (sh->killed)
				return -1;
			continue;
		}
		int fd = accept4(listener, NULL, NULL,
				 chance(&e->c.rng, 2) ? SOCK_CLOEXEC : 0);
		if (fd >= 0)
			return fd;
		if (errno != EINTR)
			fail_at(&e->c.rx, "accept: %s", strerror(errno));
	}
}

static int client_opens(struct end *e)
{
	const struct pair_state *pair = &sh->pair[e->play.index];
	while (!pair->port && !sh->killed)
		usleep(200);
	int fd = pair->port ? connect_to(&e->c, pair->port) : -1;
	if (fd >= 0 && chance(&e->c.rng, 2))
		fcntl(fd, F_SETFD, FD_CLOEXEC);
	return fd;
}

bool end_open(struct end *e, const struct worker *w, const struct play *p)
{
	struct conn *c = &e->c;
	end_init(e, p, w->side);
	e->worker = w;
	int fd = w->side == CLIENT ? client_opens(e) : accept_one(e, w->listener);
	if (fd < 0)
		return false;
	e->fd = fd;
	conn_open(c, fd);
	e->extra = pick_extra(&c->rng, c->mode);
	c->tx.blocking = c->rx.blocking = c->mode == MODE_THREADS;
	if (c->mode != MODE_THREADS &&
	    fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK) != 0)
		fail_at(&c->rx, "O_NONBLOCK: %s", strerror(errno));
	return true;
}

void end_close(struct end *e)
{
	struct conn *c = &e->c;
	struct linger linger = {.l_onoff = 1};
	const int fds[] = {c->tx.fd, c->rx.fd, e->in.epfd, e->out.epfd};
	if (e->play.bye == BYE_ABORT && e->play.closer == c->side)
		setsockopt(e->fd, SOL_SOCKET, SO_LINGER, &linger, sizeof linger);
	note(&c->tx, "close");
	for (unsigned i = 0; i < 4; i++)
		if (fds[i] >= 0 && fds[i] != e->fd && close(fds[i]) != 0)
			fail_at(&c->tx, "close: %s", strerror(errno));
	if (e->fd >= 0 && close(e->fd) != 0)
		fail_at(&c->tx, "close: %s", strerror(errno));
	c->state->fd = -1;
	c->tx.state->phase = c->rx.state->phase = DIR_ENDED;
	sh->moved += c->rx.off;
}

/* ---- the other side's thread ---- */

void say(const struct end *e, enum said what)
{
	sh->pair[e->play.index].said[e->c.side] = (uint64_t)e->play.step << 8 | what;
}

bool said(const struct end *e, enum said what)
{
	const struct pair_state *pair = &sh->pair[e->play.index];
	return pair->said[!e->c.side] >= ((uint64_t)e->play.step << 8 | what);
}

bool hear(const struct end *e, enum said what)
{
	while (!said(e, what)) {
		if (sh->killed)
			return false;
		usleep(200);
	}
	return true;
}
