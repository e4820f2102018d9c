/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers that become others of their connection, and one that is now one connection, now
 * another: threads use them meanwhile. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "events.h"

#define AT_ONCE 16

static int number(const struct end *e, uint64_t *rng)
{
	const int fds[] = {e->fd, e->c.tx.fd, e->c.rx.fd};
	return fds[rnd(rng) % 3];
}

/* One number takes the place of another of the connection, which may be itself. */
static void replace(struct end *e, uint64_t *rng, unsigned variant)
{
	int to = number(e, rng), from = number(e, rng), copy = -1, r;
	if (variant > 0) {
		from = copy = fcntl(from, F_DUPFD_CLOEXEC, 0);
		if (copy < 0)
			fail_at(&e->c.tx, "dup: %s", strerror(errno));
	}
	if (variant == 1)
		r = dup3(from, to, O_CLOEXEC);
	else
		r = variant == 3 ? to : dup2(from, to);
	if (r != to)
		fail_at(&e->c.tx, "dup2(%d, %d): %d, %s", from, to, r, strerror(errno));
	if (copy >= 0)
		close(copy);
	if (variant < 3)
		count(COUNT_DUP2_SAME);
}

void *meddle(void *arg)
{
	struct end *e = arg;
	uint64_t rng = seed_of(33, e->play.index | e->play.step << 8, e->c.side);
	unsigned variant = rnd(&rng) % 5;
	for (unsigned n = 1; !e->quit; n++) {
		replace(e, &rng, variant == 4 ? rnd(&rng) % 4 : variant);
		if (n % AT_ONCE == 0)
			usleep(50);
	}
	return NULL;
}

/* ---- duo ---- */

#define MESSAGES_MOST 20000

struct message {
	uint64_t number, proof;
};

struct duo {
	struct end *ends[2];
	int either; /* the client's third number */
	uint64_t key;
	_Atomic bool over;
	_Atomic uint8_t *got; /* how often each message came: the server's */
	_Atomic uint64_t torn;
};

static struct message message(const struct duo *d, uint64_t number)
{
	return (struct message){number, mix(number ^ d->key)};
}

/* A short count is right where the number was replaced: then the rest goes nowhere. */
static void *write_messages(void *arg)
{
	struct duo *d = arg;
	struct end *e = d->ends[0];
	struct pair_state *pair = &sh->pair[e->play.index];
	unsigned most = 1000 + e->play.ask * 3 % MESSAGES_MOST;
	for (uint64_t n = 0; n < most; n++) {
		struct message m = message(d, n);
		ssize_t r = write(d->either, &m, sizeof m);
		if (r < 0 && sh->killed)
			break;
		if (r <= 0)
			fail_at(&e->c.tx, "message %lu: %zd, %s", n, r, strerror(errno));
		pair->shorts += r < (ssize_t)sizeof m;
		pair->sent = n + 1;
		e->c.tx.state->off += r;
	}
	d->over = true;
	return NULL;
}

static void client_of_duo(struct duo *d)
{
	struct half *h = &d->ends[0]->c.tx;
	pthread_t writer;
	d->either = fcntl(h->fd, F_DUPFD_CLOEXEC, 0);
	if (d->either < 0 || pthread_create(&writer, NULL, write_messages, d) != 0)
		fail_at(h, "duo: %s", strerror(errno));
	for (unsigned n = 1; !d->over; n++) {
		if (dup2(d->ends[n & 1]->c.tx.fd, d->either) != d->either)
			fail_at(h, "dup2: %s", strerror(errno));
		count(COUNT_DUP2_OTHER);
		if (n % AT_ONCE == 0)
			usleep(50);
	}
	pthread_join(writer, NULL);
	close(d->either);
	say(d->ends[0], SAID_SENT);
	for (int i = 0; i < 2; i++)
		shut(d->ends[i]);
	for (int i = 0; i < 2; i++)
		recv_end(d->ends[i]);
}

/* Takes whole messages, and skips what a short count has left of one. Returns what is used. */
static size_t take_messages(struct duo *d, struct end *e, const uint8_t *buf, size_t len)
{
	size_t at = 0, skipped = 0;
	while (at + sizeof(struct message) <= len) {
		struct message m;
		memcpy(&m, buf + at, sizeof m);
		if (m.proof != mix(m.number ^ d->key)) {
			if (++skipped >= sizeof m)
				fail_at(&e->c.rx, "no message where one should be");
			at++;
			continue;
		}
		d->torn += skipped > 0;
		skipped = 0;
		if (m.number >= MESSAGES_MOST + 1000 || d->got[m.number]++)
			fail_at(&e->c.rx, "message %lu came again", m.number);
		at += sizeof m;
	}
	return at - skipped;
}

static void read_messages(struct duo *d, struct end *e)
{
	struct half *h = &e->c.rx;
	uint8_t buf[16384];
	size_t have = 0;
	for (;;) {
		ssize_t r = read(h->fd, buf + have, sizeof buf - have);
		if (r < 0 && errno == EINTR)
			continue;
		if (r < 0)
			may_fail(h, "read");
		if (r <= 0)
			break;
		have += r;
		h->state->off = h->off += r;
		size_t used = take_messages(d, e, buf, have);
		memmove(buf, buf + used, have -= used);
	}
	d->torn += have > 0;
}

static void *read_second(void *arg)
{
	struct duo *d = arg;
	read_messages(d, d->ends[1]);
	return NULL;
}

static void server_of_duo(struct duo *d)
{
	struct end *e = d->ends[0];
	struct pair_state *pair = &sh->pair[e->play.index];
	uint64_t missing = 0;
	pthread_t second;
	d->got = calloc(1, MESSAGES_MOST + 1000);
	if (!d->got || pthread_create(&second, NULL, read_second, d) != 0)
		fail_at(&e->c.rx, "duo: %s", strerror(errno));
	read_messages(d, e);
	pthread_join(second, NULL);
	if (!sh->killed && hear(e, SAID_SENT)) {
		for (uint64_t n = 0; n < pair->sent; n++)
			missing += !d->got[n];
		if (missing > pair->shorts || d->torn > pair->shorts)
			fail_at(&e->c.rx,
				"of %lu messages %lu are missing, %lu torn: %lu writes "
				"were short",
				pair->sent, missing, d->torn, pair->shorts);
	}
	free((void *)d->got);
}

bool scene_duo(struct end *e)
{
	struct end *other = malloc(sizeof *other);
	struct pair_state *pair = &sh->pair[e->play.index];
	struct duo d = {.ends = {e, other}};
	bool open = other && end_open(other, e->worker, &e->play);
	d.key = seed_of(34, e->play.index | e->play.step << 8, 0);
	if (e->c.side == CLIENT)
		pair->sent = pair->shorts = 0;
	if (open) {
		other->c.tx.key = mix(other->c.tx.key);
		other->c.rx.key = mix(other->c.rx.key);
	}
	if (open && turns(e) && turns(other)) {
		if (e->c.side == CLIENT)
			client_of_duo(&d);
		else
			server_of_duo(&d);
	}
	if (open)
		end_close(other);
	free(other);
	end_close(e);
	return open;
}
