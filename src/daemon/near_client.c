/* SPDX-License-Identifier: Apache-2.0 */
/* The processes that come by the socket for namespaces: what they say is judged before it is taken. */
#include <errno.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <termios.h>
#include <unistd.h>

#include "daemon/near_helper.h"
#include "daemon/translator.h"

/*
 * Messages may have descriptors. So each is looked at where it lies, in the socket, which installs none. A
 * MEET waits there until a child takes it. Whoever sends another with descriptors is ended, and what is
 * unread goes with its socket: closer.c.
 */

/* The message that was looked at, and has no descriptors. */
static void discard(const struct relay_client *c)
{
	char byte;

	while (recv(c->fd, &byte, sizeof(byte), MSG_DONTWAIT) < 0 && errno == EINTR)
		;
}

/* It is not read until the next tick: the others are. */
static void put_off(struct relay *r, struct relay_client *c)
{
	loop_unwatch(r, c->fd);
	c->waits = true;
	r->near_waiting++;
}

static void read_on(struct relay *r, struct relay_ref ref)
{
	struct relay_client *c = client_of(r, ref);

	if (c && loop_watch(r, c->fd, RELAY_CLIENT, ref.index, ref.turn, false, true) < 0)
		client_end(r, ref.index);
}

/* ---- a MEET ---- */

static enum local_status judge(struct relay *r, const struct relay_client *c,
			       const struct local_message *m)
{
	struct settings_party party = client_party(c);

	if (!local_ends_fit(&m->local, &m->peer))
		return LOCAL_ADDRESS;
	return settings_allow(&r->settings, &party, &m->local, &m->peer) ? LOCAL_OK
									 : LOCAL_RULE;
}

static void answer(struct relay *r, struct relay_ref ref, const struct local_message *m,
		   enum local_status status)
{
	uint32_t wait_ms = status == LOCAL_FULL ? RELAY_NEAR_FULL_MS : 0;

	if (status != LOCAL_OK && status != LOCAL_FULL)
		client_denied(r, &r->client[ref.index], m, status);
	client_done(r, ref, m->id, status, wait_ms, NULL);
}

/* Beyond the rate it waits, since nobody but a child is to let go of what it shows; and takes no child from
 * others. */
static void meet(struct relay *r, struct relay_ref ref)
{
	const struct near_order order = {.kind = ORDER_TAKE};
	struct relay_client *c = &r->client[ref.index];
	enum near_room room = bucket_has_uid(&r->by_uid, c->owner.uid, r->now_ms)
				      ? near_helper_room(r, ref)
				      : NEAR_ROOM_LATER;

	if (room == NEAR_NO_ROOM) {
		notice(r,
		       "process %d (%s) of user %u is ended: too much of what this "
		       "user has shown hangs",
		       (int)c->owner.pid, c->owner.program, c->owner.uid);
		client_end(r, ref.index);
	} else if (room == NEAR_ROOM &&
		   bucket_take_uid(&r->by_uid, c->owner.uid, r->now_ms) &&
		   near_helper_order(r, ref, &order, -1)) {
		loop_unwatch(r, c->fd); /* until it has been taken */
	} else {
		put_off(r, c);
	}
}

void near_taken(struct relay *r, struct relay_ref ref, int result,
		const struct local_message *m, enum local_status status,
		struct near_place *place)
{
	struct relay_client *c = client_of(r, ref);
	struct relay_ref added;

	if (c && result <= 0)
		notice(r, "process %d (%s) of user %u is ended: %s", (int)c->owner.pid,
		       c->owner.program, c->owner.uid,
		       result == -EBADF ? "other descriptors than are due"
		       : result < 0	? strerror(-result)
					: "it has gone");
	if (c && result <= 0)
		client_end(r, ref.index);
	c = client_of(r, ref);
	if (c &&
	    (local_check(m, (size_t)result, true) != LOCAL_OK || m->type != LOCAL_MEET))
		status = LOCAL_MALFORMED;
	else if (c && status == LOCAL_OK)
		status = judge(r, c, m);
	if (c && status == LOCAL_OK)
		status = near_add(r, ref, m, place, &added);
	if (place && (!c || status != LOCAL_OK))
		near_place_close(place);
	if (!c)
		return;
	answer(r, ref, m, status);
	read_on(r, ref);
	if (status == LOCAL_OK)
		near_try(r, added);
}

/* ---- a TRANSLATE ---- */

void near_client_translated(struct relay *r, const struct translate_report *report)
{
	struct relay_client *c = client_of(r, report->client);
	struct local_translated said = {report->cookie};
	struct local_message m;
	size_t bytes = LOCAL_HEAD_BYTES;

	if (!c)
		return;
	memset(&m, 0, LOCAL_HEAD_BYTES);
	m.version = LOCAL_PROTOCOL;
	m.type = LOCAL_TRANSLATED;
	m.status = (uint8_t)report->status;
	m.id = report->id;
	if (report->status == LOCAL_OK) {
		m.local = report->local;
		m.peer = report->peer;
		memcpy(m.hello, &said, sizeof(said));
		bytes += sizeof(said);
	} else if (report->status == LOCAL_RATE || report->status == LOCAL_FULL) {
		m.wait_ms = RELAY_RETRY_MS;
	}
	if (send(c->fd, &m, bytes, MSG_DONTWAIT | MSG_NOSIGNAL) != (ssize_t)bytes)
		client_end(r, report->client.index);
	else if (c->translates)
		read_on(r, report->client);
	c->translates = false;
}

static void translate(struct relay *r, struct relay_ref ref,
		      const struct local_message *m)
{
	struct translate_report none = {.client = ref, .id = m->id};
	struct relay_client *c = &r->client[ref.index];

	if (!translate_has_room(r)) {
		put_off(r, c);
		return;
	}
	discard(c);
	none.status = translate_ask(r, ref, m);
	if (none.status == LOCAL_OK) {
		loop_unwatch(r, c->fd); /* until it is answered */
		return;
	}
	if (none.status == LOCAL_RULE)
		client_denied(r, c, m, LOCAL_RULE);
	near_client_translated(r, &none);
}

/* ---- what they say ---- */

void near_client_ready(struct relay *r, struct relay_ref ref)
{
	struct relay_client *c = &r->client[ref.index];
	struct local_message m;
	enum local_status status;
	bool shows;
	ssize_t n = client_peek(c, &m, &shows);

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n <= 0) {
		client_end(r, ref.index);
		return;
	}
	status = local_check(&m, (size_t)n, true);
	if (status == LOCAL_OK && m.type != LOCAL_MEET &&
	    (shows || (m.type != LOCAL_WITHDRAW && m.type != LOCAL_TRANSLATE)))
		status = LOCAL_MALFORMED;
	if (status != LOCAL_OK) {
		if (!shows)
			discard(c); /* or an error comes before the answer */
		client_refuse(r, ref, &m, (size_t)n, status);
	} else if (m.type == LOCAL_MEET) {
		meet(r, ref);
	} else if (m.type == LOCAL_TRANSLATE) {
		translate(r, ref, &m);
	} else {
		discard(c);
		near_withdraw(r, ref.index, &m.local, &m.peer);
		client_done(r, ref, m.id, LOCAL_OK, 0, NULL);
	}
}

/* ---- what they are told ---- */

/*
 * A descriptor in a message that nobody reads counts as one of viaductd's user, of whom the kernel lets no
 * more than RLIMIT_NOFILE be under way. Nor does it help to hang up: they stay in the other end's socket.
 * So they are counted as long as they may lie there.
 */
static unsigned unread_of(struct relay_client *c)
{
	int left = 0;

	if (c->unread > 0 && ioctl(c->fd, TIOCOUTQ, &left) == 0 && left == 0)
		c->unread = 0;
	return c->unread;
}

bool near_client_reads(struct relay *r, struct relay_ref ref)
{
	const struct relay_client *one = &r->client[ref.index];
	struct share share = {.uid = one->owner.uid};
	unsigned all = 0;

	for (int i = 0; i < RELAY_CLIENTS; i++) {
		struct relay_client *c = &r->client[i];
		unsigned unread = c->fd >= 0 && c->near ? unread_of(c) : 0;

		all += unread;
		for (; unread > 0; unread--)
			share_count(&share, c->owner.uid);
	}
	return one->unread < RELAY_NEAR_UNREAD_CLIENT && all < RELAY_NEAR_UNREAD &&
	       share_is_left(&share, RELAY_NEAR_UNREAD_UID, RELAY_NEAR_UNREAD);
}

void near_client_met(struct relay *r, struct relay_ref ref, uint32_t id, uint32_t uid,
		     const struct local_met *met, const int fds[NEAR_MET_FDS])
{
	union {
		char bytes[CMSG_SPACE(NEAR_MET_FDS * sizeof(int))];
		struct cmsghdr head;
	} control = {.head = {.cmsg_len = CMSG_LEN(NEAR_MET_FDS * sizeof(int)),
			      .cmsg_level = SOL_SOCKET,
			      .cmsg_type = SCM_RIGHTS}};
	struct local_message m;
	struct iovec iov = {&m, LOCAL_HEAD_BYTES + sizeof(*met)};
	struct msghdr msg = {.msg_iov = &iov,
			     .msg_iovlen = 1,
			     .msg_control = control.bytes,
			     .msg_controllen = sizeof(control.bytes)};
	struct relay_client *c = client_of(r, ref);

	if (!c)
		return;
	memset(&m, 0, LOCAL_HEAD_BYTES);
	m.version = LOCAL_PROTOCOL;
	m.type = LOCAL_MET;
	m.id = id;
	m.uid = uid;
	memcpy(m.hello, met, sizeof(*met));
	memcpy(CMSG_DATA(&control.head), fds, NEAR_MET_FDS * sizeof(int));
	if (sendmsg(c->fd, &msg, MSG_DONTWAIT | MSG_NOSIGNAL) == (ssize_t)iov.iov_len) {
		c->unread++;
		return;
	}
	notice(r,
	       "process %d (%s) of user %u is ended: it cannot be told of its peer: %s",
	       (int)c->owner.pid, c->owner.program, c->owner.uid, strerror(errno));
	client_end(r, ref.index);
}

/* ---- the end ---- */

bool near_client_end(struct relay *r, struct relay_ref ref)
{
	struct relay_client *c = &r->client[ref.index];

	if (c->waits)
		r->near_waiting--;
	c->waits = false;
	near_helper_client_gone(r, ref);
	/* A child that hangs may have the socket, too. */
	shutdown(c->fd, SHUT_RDWR);
	if (unread_of(c) == 0)
		return false;
	c->ended = true;
	r->near_ended++;
	return true;
}

static void tick_one(struct relay *r, uint32_t index)
{
	struct relay_client *c = &r->client[index];

	if (c->ended && unread_of(c) == 0) {
		closer_take(r, c->fd);
		c->fd = -1;
		c->ended = false;
		r->clients--;
		r->near_ended--;
	} else if (c->waits) {
		c->waits = false;
		r->near_waiting--;
		read_on(r, (struct relay_ref){index, c->turn});
	}
}

void near_client_tick(struct relay *r)
{
	for (uint32_t i = 0;
	     (r->near_waiting > 0 || r->near_ended > 0) && i < RELAY_CLIENTS; i++)
		if (r->client[i].fd >= 0)
			tick_one(r, i);
}
