/* SPDX-License-Identifier: Apache-2.0 */
/* The scenes that play on one connection: talk, stream and dup, mmsg. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "events.h"

/* ---- talk ---- */

static void bye(struct end *e)
{
	dawdle(e);
	if (e->play.bye <= BYE_SHUT_CLOSE)
		shut(e);
	if (e->play.bye == BYE_HALF && recv_until(e, e->c.rx.total))
		recv_end(e);
}

static void bye_told(struct end *e)
{
	if (!recv_end(e) || e->play.bye != BYE_HALF)
		return;
	dawdle(e);
	send_until(e, &e->in, e->c.tx.total);
}

bool scene_talk(struct end *e)
{
	if (turns(e)) {
		if (e->play.closer == e->c.side)
			bye(e);
		else
			bye_told(e);
	}
	end_close(e);
	return true;
}

/* ---- stream and dup ---- */

static void *send_rest(void *arg)
{
	struct end *e = arg;
	struct half *h = &e->c.tx;
	target_begin();
	bool alive = send_until(e, &e->out, h->total);
	while (alive && e->play.late && e->c.side == CLIENT &&
	       e->c.rx.state->off < e->c.rx.total && !sh->killed)
		usleep(300);
	if (alive)
		shut(e);
	h->done = true;
	target_end();
	calls_done();
	return NULL;
}

static pthread_t start(struct end *e, void *(*run)(void *))
{
	pthread_t t;
	int error = pthread_create(&t, NULL, run, e);
	if (error)
		fail_at(&e->c.tx, "pthread_create: %s", strerror(error));
	return t;
}

static void own_number(struct half *h)
{
	h->fd = fcntl(h->fd, F_DUPFD_CLOEXEC, 0);
	if (h->fd < 0)
		fail_at(h, "dup: %s", strerror(errno));
}

static bool meddles(const struct end *e)
{
	return e->play.scene == SCENE_DUP && (e->play.meddlers >> e->c.side & 1);
}

bool scene_stream(struct end *e)
{
	pthread_t sender, meddler = {0};
	if (!turns(e)) {
		end_close(e);
		return true;
	}
	if (e->play.scene == SCENE_DUP || chance(&e->c.rng, 3))
		own_number(&e->c.tx);
	if (e->in.epfd < 0 && chance(&e->c.rng, 3))
		own_number(&e->c.rx);
	sender = start(e, send_rest);
	if (meddles(e))
		meddler = start(e, meddle);
	if (recv_until(e, e->c.rx.total))
		recv_end(e);
	e->c.rx.done = true;
	pthread_join(sender, NULL);
	e->quit = true;
	if (meddles(e))
		pthread_join(meddler, NULL);
	end_close(e);
	return true;
}

/* ---- mmsg ---- */

#define FIRST  100
#define SECOND 100
#define BULK   (3u << 20)

struct stab {
	pthread_t victim;
	_Atomic bool over;
};

/* A signal a millisecond, until the call has ended. */
static void *stab(void *arg)
{
	struct stab *s = arg;
	while (!s->over) {
		usleep(1000);
		pthread_kill(s->victim, SIGUSR1);
	}
	return NULL;
}

/* Bytes to OFF, where the first call is a recvmmsg of two that waits for the second. */
static bool cut_call(struct end *e, uint64_t off)
{
	static _Thread_local uint8_t buf[2 * FIRST];
	struct half *h = &e->c.rx;
	struct stab s = {.victim = pthread_self()};
	pthread_t t;
	bool alive = hear(e, SAID_READY);
	if (!alive || pthread_create(&t, NULL, stab, &s) != 0)
		return false;
	ssize_t r = recv_mmsg(h, buf, sizeof buf, 0, 2);
	int saved = errno;
	s.over = true;
	pthread_join(t, NULL);
	h->cut = true;
	errno = saved;
	if (r < 0 && errno != EINTR)
		may_fail(h, "recvmmsg");
	if (r > 0)
		h->state->off = h->off += r;
	return recv_until(e, off);
}

/* A sendmmsg of more than there is room for, whose receiver reads when it has been cut. */
static bool cut_send(struct end *e, uint64_t off)
{
	struct half *h = &e->c.tx;
	struct stab s = {.victim = pthread_self()};
	size_t len = off - h->off;
	uint8_t *buf = malloc(len);
	pthread_t t;
	if (!buf || pthread_create(&t, NULL, stab, &s) != 0)
		fail_at(h, "sendmmsg: no memory");
	stream_fill(h->key, h->off, buf, len);
	ssize_t r = send_mmsg(h, buf, len, MSG_NOSIGNAL);
	int saved = errno;
	s.over = true;
	pthread_join(t, NULL);
	free(buf);
	errno = saved;
	if (r < 0 && errno != EINTR && errno != EAGAIN && errno != 512)
		may_fail(h, "sendmmsg");
	if (r > 0)
		h->state->off = h->off += r;
	say(e, SAID_SENT_CUT);
	return send_until(e, &e->in, off);
}

/* One byte to and fro, TURNS times: the connection comes up, or not yet. */
static bool bytes_to_and_fro(struct end *e, unsigned turns)
{
	struct half *in = &e->c.rx, *out = &e->c.tx;
	bool first = e->c.side == CLIENT;
	for (unsigned i = 0; i < turns; i++)
		if ((first && !send_until(e, &e->in, out->off + 1)) ||
		    !recv_until(e, in->off + 1) ||
		    (!first && !send_until(e, &e->in, out->off + 1)))
			return false;
	return true;
}

/* Two messages in one call, or all bytes with MSG_WAITALL: none ends before its time. */
static bool whole_call(struct end *e)
{
	static _Thread_local uint8_t buf[FIRST + SECOND];
	struct half *h = &e->c.rx;
	bool two = chance(&e->c.rng, 2);
	int error;
	socklen_t len = sizeof error;
	note(h, two ? "two messages" : "all bytes");
	/* What the cut call has left in the kernel ends its own MSG_WAITALL early as well. */
	if (!two)
		getsockopt(h->fd, SOL_SOCKET, SO_ERROR, &error, &len);
	ssize_t r = two ? recv_mmsg(h, buf, sizeof buf, 0, 2)
			: recv(h->fd, buf, sizeof buf, MSG_WAITALL);
	if (r < 0 && errno != EINTR)
		may_fail(h, "receive");
	if (r <= 0)
		return r < 0 && recv_until(e, h->off + sizeof buf);
	if (!two && r < (ssize_t)sizeof buf && !opt.signals && !may_die(&e->c))
		fail_at(h, "MSG_WAITALL gave %zd of %zu bytes", r, sizeof buf);
	verify(h, h->off, buf, r);
	h->state->off = h->off += r;
	return recv_until(e, h->off + sizeof buf - r);
}

/* In one call, if it can be. */
static bool send_once(struct end *e, size_t len)
{
	uint8_t buf[FIRST + SECOND];
	struct half *h = &e->c.tx;
	uint64_t until = h->off + len;
	stream_fill(h->key, h->off, buf, len);
	ssize_t r = send(h->fd, buf, len, MSG_NOSIGNAL);
	if (r < 0 && errno != EINTR)
		may_fail(h, "send");
	if (r > 0)
		h->state->off = h->off += r;
	return send_until(e, &e->in, until);
}

static bool client_of_mmsg(struct end *e, unsigned before, unsigned after)
{
	if (!bytes_to_and_fro(e, before) || !send_once(e, FIRST))
		return false;
	say(e, SAID_READY);
	if (!hear(e, SAID_CUT) || !bytes_to_and_fro(e, after))
		return false;
	if (!send_once(e, FIRST))
		return false;
	usleep(rnd(&e->c.rng) % 30000);
	return send_once(e, SECOND) && (!e->play.late || cut_send(e, e->c.tx.total));
}

static bool server_of_mmsg(struct end *e, unsigned before, unsigned after)
{
	if (!bytes_to_and_fro(e, before) || !cut_call(e, before + FIRST))
		return false;
	say(e, SAID_CUT);
	if (!bytes_to_and_fro(e, after) || !whole_call(e))
		return false;
	/* Bounded: with SA_RESTART a full connection may be left only by reading. */
	for (int i = 0; e->play.late && i < PATIENCE && !said(e, SAID_SENT_CUT); i++)
		usleep(200);
	return recv_until(e, e->c.rx.total);
}

bool scene_mmsg(struct end *e)
{
	unsigned before = e->play.turns % 14, after = 1 + e->play.ask % 60;
	struct conn *c = &e->c;
	bool alive;
	c->plan.total[CLIENT] =
		before + FIRST + after + FIRST + SECOND + (e->play.late ? BULK : 0);
	c->plan.total[SERVER] = before + after;
	c->tx.total = c->plan.total[c->side];
	c->rx.total = c->plan.total[!c->side];
	setsockopt(e->fd, SOL_SOCKET, c->side == CLIENT ? SO_SNDBUF : SO_RCVBUF,
		   &(int){100000}, sizeof(int));
	alive = c->side == CLIENT ? client_of_mmsg(e, before, after)
				  : server_of_mmsg(e, before, after);
	if (alive) {
		shut(e);
		recv_end(e);
	}
	end_close(e);
	return true;
}
