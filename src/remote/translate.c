/* SPDX-License-Identifier: Apache-2.0 */
/* Asks viaductd how the kernel rewrites the addresses of a connection, where it does not tell us. */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fds.h"
#include "base/kernel.h"
#include "base/log.h"
#include "base/sections.h"
#include "daemon_client/local.h"
#include "remote/near.h"
#include "remote/parts.h"
#include "remote/presence.h"
#include "remote/translate.h"
#include "rendezvous/socket_cache.h"

/*
 * docs/rendezvous.md, "Rewritten addresses". Questions are named by the cookies of their sockets, and an answer is
 * as good as its socket: it stays until the place is needed. The line is one of its own, since an older daemon
 * hangs up on whoever asks this.
 */
enum {
	BUCKETS = 64,
	BUCKET_PLACES = 8,
	PATIENCE_MS = 5000, /* for an answer, a daemon that is started anew included */
	TOO_OLD_MS =
		60000, /* before a daemon that knew no such question is asked again */
};

enum state {
	FREE,
	WANTED, /* to be asked */
	ASKED,
	SAID
};

struct question {
	enum state state;
	uint32_t id;
	uint64_t cookie;
	uint64_t since_ms, not_before_ms;
	struct name_tuple own;
	enum tcp_role role;
	bool is_told; /* SAID: */
	struct meet_told told;
};

static struct question questions[BUCKETS][BUCKET_PLACES];
static int line = -1;
static uint64_t line_netns, tried_ms, too_old_ms;
static uid_t line_user;
static unsigned asked_now;
static uint32_t last_id;

/* ---- the line ---- */

static void lose_line(void)
{
	if (line >= 0)
		fds_close(line);
	line = -1;
	for (int i = 0; asked_now > 0 && i < BUCKETS * BUCKET_PLACES; i++)
		if (questions[0][i].state == ASKED)
			questions[0][i].state = WANTED;
	asked_now = 0;
}

static int open_line(uint64_t netns)
{
	int fd, r;

	if (!presence_retry(&tried_ms))
		return -EAGAIN;
	/* viaductd takes the connection to be where this socket is. */
	fd = kept_socket(AF_UNIX, SOCK_SEQPACKET, 0, netns);
	if (fd < 0)
		return fd;
	r = presence_connect(fd, near_socket);
	if (r < 0) {
		fds_close(fd);
		return r;
	}
	line = fd;
	line_netns = netns;
	line_user = kernel_geteuid();
	tried_ms = 0;
	return 0;
}

/* A line by which this question can be asked. viaductd knows the process as it was when it connected. */
static int need_line(uint64_t netns)
{
	if (line >= 0 && (line_netns != netns || line_user != kernel_geteuid())) {
		if (line_netns != netns && asked_now > 0)
			return -EAGAIN;
		lose_line();
	}
	return line >= 0 ? 0 : open_line(netns);
}

static int say(const struct question *q)
{
	bool connected = q->role == TCP_ROLE_CONNECTED;
	const struct local_translate t = {.cookie = q->cookie, .accepted = !connected};
	struct local_message m;
	long n;

	memset(&m, 0, LOCAL_HEAD_BYTES);
	m.version = LOCAL_PROTOCOL;
	m.type = LOCAL_TRANSLATE;
	m.id = q->id;
	m.local = connected ? q->own.client : q->own.server;
	m.peer = connected ? q->own.server : q->own.client;
	memcpy(m.hello, &t, sizeof(t));
	n = kernel_call6(SYS_sendto, line, (long)&m, LOCAL_HEAD_BYTES + sizeof(t),
			 MSG_DONTWAIT | MSG_NOSIGNAL, 0, 0);
	return n < 0 ? (int)n : 0;
}

static void ask(struct question *q, uint64_t netns)
{
	uint64_t now = clock_coarse_ms();
	int r;

	if (now < q->not_before_ms)
		return;
	r = need_line(netns);
	if (r == 0) {
		q->id = ++last_id;
		r = say(q);
		if (r < 0 && r != -EAGAIN)
			lose_line();
	}
	if (r < 0)
		return;
	q->state = ASKED;
	asked_now++;
}

/* ---- what is answered ---- */

static struct question *by_id(uint32_t id)
{
	for (int i = 0; i < BUCKETS * BUCKET_PLACES; i++)
		if (questions[0][i].state == ASKED && questions[0][i].id == id)
			return &questions[0][i];
	return NULL;
}

static void take_answer(struct question *q, const struct local_message *m)
{
	bool connected = q->role == TCP_ROLE_CONNECTED;
	struct local_translated t;

	asked_now--;
	if (m->status == LOCAL_RATE || m->status == LOCAL_FULL) {
		q->state = WANTED;
		q->not_before_ms =
			clock_coarse_ms() + (m->wait_ms ? m->wait_ms : RETRY_MS);
		return;
	}
	q->state = SAID;
	q->is_told = m->status == LOCAL_OK;
	if (!q->is_told) {
		log_debug("viaductd does not tell how addresses are rewritten: %s",
			  local_status_text(m->status));
		return;
	}
	memcpy(&t, m->hello, sizeof(t));
	q->told.cookie = t.cookie;
	q->told.tuple = q->own;
	q->told.tuple.client = connected ? m->peer : m->local;
	q->told.tuple.server = connected ? m->local : m->peer;
}

/* It does not know the question, or turns us away. */
static void take_done(const struct local_message *m)
{
	if (m->status == LOCAL_MALFORMED || m->status == LOCAL_VERSION) {
		log_debug("viaductd is of another version: it does not tell how "
			  "addresses are rewritten");
		too_old_ms = clock_coarse_ms() + TOO_OLD_MS;
	}
	tried_ms = clock_coarse_ms();
	lose_line();
}

static void hear(void)
{
	while (line >= 0) {
		struct local_message m;
		struct question *q;
		long n = kernel_call6(SYS_recvfrom, line, (long)&m, sizeof(m),
				      MSG_DONTWAIT | MSG_TRUNC, 0, 0);

		if (n == -EAGAIN || n == -EINTR)
			return;
		if (n <= 0 || (size_t)n > sizeof(m) ||
		    local_check(&m, (size_t)n, false) != LOCAL_OK) {
			log_debug("viaductd has ended the line for addresses");
			lose_line();
		} else if (m.type == LOCAL_DONE) {
			take_done(&m);
		} else if (m.type == LOCAL_TRANSLATED && (q = by_id(m.id))) {
			take_answer(q, &m);
		}
	}
}

/* ---- questions ---- */

static struct question *bucket_of(uint64_t cookie)
{
	return questions[cookie % BUCKETS];
}

static struct question *find(uint64_t cookie)
{
	struct question *b = bucket_of(cookie);

	for (int i = 0; i < BUCKET_PLACES; i++)
		if (b[i].state != FREE && b[i].cookie == cookie)
			return &b[i];
	return NULL;
}

/* One that is free; else that of the oldest question, which its connection may not need any more. */
static struct question *take(uint64_t cookie)
{
	struct question *b = bucket_of(cookie), *oldest = b;

	for (int i = 0; i < BUCKET_PLACES; i++) {
		if (b[i].state == FREE)
			return &b[i];
		if (b[i].since_ms < oldest->since_ms)
			oldest = &b[i];
	}
	if (oldest->state == ASKED)
		asked_now--;
	return oldest;
}

static enum meet_word word_of(struct question *q, uint64_t netns, struct meet_told *out)
{
	uint64_t now = clock_coarse_ms();

	if (q->state != SAID && (now - q->since_ms > PATIENCE_MS || now < too_old_ms)) {
		asked_now -= q->state == ASKED;
		q->state = SAID;
		q->is_told = false;
	}
	if (q->state == WANTED)
		ask(q, netns);
	if (q->state != SAID)
		return MEET_ASKED;
	if (q->is_told)
		*out = q->told;
	return q->is_told ? MEET_TOLD : MEET_UNTOLD;
}

static enum meet_word tell(uint64_t cookie, const struct name_tuple *own,
			   enum tcp_role role, uint64_t netns, bool ask_it,
			   struct meet_told *out)
{
	struct question *q;

	hear();
	q = find(cookie);
	if (!q && ask_it && clock_coarse_ms() >= too_old_ms) {
		q = take(cookie);
		*q = (struct question){.state = WANTED,
				       .cookie = cookie,
				       .since_ms = clock_coarse_ms(),
				       .own = *own,
				       .role = role};
	}
	return q ? word_of(q, netns, out) : MEET_UNTOLD;
}

enum meet_word translate_tell(int fd, const struct name_tuple *own, enum tcp_role role,
			      uint64_t netns, bool ask_it, struct meet_told *out)
{
	struct across_guard g;
	enum meet_word word;
	uint64_t cookie;

	if (!near_is_here() || tcp_cookie(fd, &cookie) < 0)
		return MEET_UNTOLD;
	g = across_enter();
	word = tell(cookie, own, role, netns, ask_it, out);
	across_leave(g);
	return word;
}

FORK_CODE void translate_forked(void)
{
	/* viaductd knows the parent by it. */
	if (line >= 0)
		lose_line();
}
