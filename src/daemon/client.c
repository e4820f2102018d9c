/* SPDX-License-Identifier: Apache-2.0 */
/* The processes of this host: each has one connection, and says who it is by it. */
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "daemon/daemon.h"

#define MESSAGES_AT_ONCE 16

struct relay_client *client_of(struct relay *r, struct relay_ref ref)
{
	struct relay_client *c = &r->client[ref.index];

	return c->fd >= 0 && c->turn == ref.turn && !c->ended ? c : NULL;
}

static bool send_to(struct relay *r, struct relay_ref ref, const struct local_message *m,
		    size_t hello_bytes)
{
	struct relay_client *c = client_of(r, ref);
	size_t bytes = LOCAL_HEAD_BYTES + hello_bytes;

	if (!c)
		return false;
	if (send(c->fd, m, bytes, MSG_DONTWAIT | MSG_NOSIGNAL) == (ssize_t)bytes)
		return true;
	if (errno == EAGAIN)
		notice(r, "process %d of user %u does not read its answers: ended",
		       (int)c->owner.pid, c->owner.uid);
	client_end(r, ref.index);
	return false;
}

static void done_of(struct local_message *m, uint32_t id, enum local_status status,
		    uint32_t wait_ms)
{
	memset(m, 0, LOCAL_HEAD_BYTES);
	m->version = LOCAL_PROTOCOL;
	m->type = LOCAL_DONE;
	m->status = (uint8_t)status;
	m->id = id;
	m->wait_ms = wait_ms;
}

void client_done(struct relay *r, struct relay_ref ref, uint32_t id,
		 enum local_status status, uint32_t wait_ms,
		 const struct wire_answer *answer)
{
	struct local_message m;
	size_t hello_bytes = 0;

	done_of(&m, id, status, wait_ms);
	if (answer) {
		m.uid = answer->uid;
		hello_bytes = answer->hello_bytes;
		memcpy(m.hello, answer->hello, hello_bytes);
	}
	send_to(r, ref, &m, hello_bytes);
}

void client_probed(struct relay *r, struct relay_ref ref, uint32_t id,
		   enum local_status status, uint32_t wait_ms,
		   const struct relay_link *about)
{
	struct local_probed said = {0};
	struct local_message m;

	done_of(&m, id, status, wait_ms);
	m.type = LOCAL_PROBED;
	if (about) {
		m.local = about->self;
		m.peer = about->other;
	}
	if (about && (status == LOCAL_UNREACHABLE || status == LOCAL_KEY)) {
		said.cause = about->cause;
		said.error = (uint32_t)about->error;
	}
	memcpy(m.hello, &said, sizeof(said));
	send_to(r, ref, &m, sizeof(said));
}

bool client_asked(struct relay *r, struct relay_ref ref, uint32_t id,
		  const struct relay_publication *p, const struct wire_question *q)
{
	struct local_message m;

	memset(&m, 0, LOCAL_HEAD_BYTES);
	m.version = LOCAL_PROTOCOL;
	m.type = LOCAL_ASKED;
	m.id = id;
	m.local = p->local;
	m.peer = p->peer;
	m.uid = q->uid;
	memcpy(m.hello, q->hello, q->hello_bytes);
	r->client[ref.index].asked++;
	return send_to(r, ref, &m, q->hello_bytes);
}

void client_close(struct relay *r, int fd, bool rights)
{
	if (rights)
		closer_take(r, fd);
	else
		close(fd);
}

void client_end(struct relay *r, uint32_t index)
{
	struct relay_client *c = &r->client[index];
	bool stays;

	/* A child may have the socket, too, and hang: to close it here does not end the watch then. */
	loop_unwatch(r, c->fd);
	stays = c->near && near_client_end(r, (struct relay_ref){index, c->turn});
	if (!stays) {
		client_close(r, c->fd, c->rights);
		c->fd = -1;
		r->clients--;
	}
	c->turn++;
	publish_remove_all(r, index);
	pending_client_gone(r, index);
	asked_client_gone(r, index);
	near_remove_all(r, index);
}

/* ---- new ones ---- */

static void turn_away(struct relay *r, int fd, const struct relay_listener *by,
		      enum local_status status, uint32_t wait_ms)
{
	struct local_message m;

	done_of(&m, 0, status, wait_ms);
	send(fd, &m, LOCAL_HEAD_BYTES, MSG_DONTWAIT | MSG_NOSIGNAL);
	client_close(r, fd, by->rights);
}

/* A free slot, where the user has not too many already; else -1. */
static int slot_for(const struct relay *r, uint32_t uid)
{
	struct share share = {.uid = uid};
	int slot = -1;

	for (int i = 0; i < RELAY_CLIENTS; i++) {
		if (r->client[i].fd < 0)
			slot = slot < 0 ? i : slot;
		else
			share_count(&share, r->client[i].owner.uid);
	}
	return share_is_left(&share, RELAY_CLIENTS_UID, RELAY_CLIENTS) ? slot : -1;
}

static bool may_come(struct relay *r, int fd, const struct relay_listener *by,
		     struct owner *owner, int *slot)
{
	if (owner_of_peer(fd, owner) < 0) {
		client_close(r, fd, by->rights);
		return false;
	}
	if (!bucket_take_uid(&r->by_uid, owner->uid, r->now_ms)) {
		turn_away(r, fd, by, LOCAL_RATE, RELAY_RETRY_MS);
		return false;
	}
	*slot = slot_for(r, owner->uid);
	if (*slot >= 0)
		return true;
	notice(r, "process %d of user %u is turned away: too many processes",
	       (int)owner->pid, owner->uid);
	turn_away(r, fd, by, LOCAL_FULL, RELAY_RETRY_MS);
	return false;
}

void client_admit(struct relay *r, int fd, const struct relay_listener *by)
{
	struct relay_client *c;
	struct owner owner;
	int slot;

	if (!may_come(r, fd, by, &owner, &slot))
		return;
	c = &r->client[slot];
	if (loop_watch(r, fd, RELAY_CLIENT, (uint32_t)slot, c->turn, false, true) < 0) {
		client_close(r, fd, by->rights);
		return;
	}
	owner_learn_program(&owner);
	c->fd = fd;
	c->owner = owner;
	c->pending = c->asked = 0;
	c->translates = false;
	c->first = -1;
	c->near = by->near;
	c->rights = by->rights;
	c->ended = c->waits = false;
	c->unread = 0;
	r->clients++;
	log_debug("process %d (%s) of user %u has come", (int)owner.pid, owner.program,
		  owner.uid);
}

/* ---- what they say ---- */

struct settings_party client_party(const struct relay_client *c)
{
	const struct owner *o = &c->owner;

	return (struct settings_party){.uid = o->uid,
				       .program = *o->program ? o->program : NULL};
}

static enum local_status judge(struct relay *r, const struct relay_client *c,
			       const struct local_message *m, uint64_t *cookie)
{
	const struct owner *o = &c->owner;
	struct settings_party party = client_party(c);

	if (!local_ends_fit(&m->local, &m->peer))
		return LOCAL_ADDRESS;
	if (!settings_allow(&r->settings, &party, &m->local, &m->peer))
		return LOCAL_RULE;
	return owner_check(o, &m->local, &m->peer, cookie);
}

void client_denied(struct relay *r, const struct relay_client *c,
		   const struct local_message *m, enum local_status status)
{
	char local[LOCAL_END_TEXT_BYTES], peer[LOCAL_END_TEXT_BYTES];

	notice(r, "process %d (%s) of user %u, %s -> %s: denied: %s", (int)c->owner.pid,
	       c->owner.program, c->owner.uid, local_end_text(&m->local, local),
	       local_end_text(&m->peer, peer), local_status_text(status));
}

static void withdraw(struct relay *r, struct relay_ref ref, const struct local_message *m)
{
	struct relay_publication *p = publish_find(r, &m->local, &m->peer);

	if (p && p->client == ref.index)
		publish_remove(r, p);
	client_done(r, ref, m->id, LOCAL_OK, 0, NULL);
}

/* No connection vouches for a probe: so there can be few, and of one host from all users. */
static enum local_status judge_probe(struct relay *r, const struct relay_client *c,
				     const struct local_message *m)
{
	struct settings_party party = client_party(c);

	if (!bucket_take_uid(&r->by_uid, c->owner.uid, r->now_ms) ||
	    !bucket_take_uid(&r->probes_by_uid, c->owner.uid, r->now_ms))
		return LOCAL_RATE;
	if (!local_addresses_fit(&m->local, &m->peer))
		return LOCAL_ADDRESS;
	if (!c->owner.same_netns)
		return LOCAL_NETNS;
	if (!settings_may_ask(&r->settings, &party, m->peer.addr))
		return LOCAL_RULE;
	return bucket_take_address(&r->probes_by_host, m->peer.addr, r->now_ms)
		       ? LOCAL_OK
		       : LOCAL_RATE;
}

static void probe(struct relay *r, struct relay_ref ref, const struct local_message *m)
{
	const struct relay_client *c = &r->client[ref.index];
	enum local_status status = judge_probe(r, c, m);

	if (status == LOCAL_OK) {
		pending_add(r, ref, m, 0);
		return;
	}
	if (status != LOCAL_RATE)
		client_denied(r, c, m, status);
	client_probed(r, ref, m->id, status,
		      status == LOCAL_RATE ? 1 + 1000 / RELAY_PROBES : 0, NULL);
}

static void take(struct relay *r, struct relay_ref ref, const struct local_message *m,
		 size_t hello_bytes)
{
	struct relay_client *c = &r->client[ref.index];
	enum local_status status;
	uint64_t cookie = 0;

	if (m->type == LOCAL_ANSWER) {
		if (c->asked > 0)
			c->asked--;
		/* To a question that is over by now: that happens. */
		if (!asked_answer(r, ref, m, hello_bytes))
			log_debug("an answer of process %d comes too late",
				  (int)c->owner.pid);
		return;
	}
	if (m->type == LOCAL_WITHDRAW) {
		withdraw(r, ref, m);
		return;
	}
	if (m->type == LOCAL_PROBE) {
		probe(r, ref, m);
		return;
	}
	if (!bucket_take_uid(&r->by_uid, c->owner.uid, r->now_ms)) {
		client_done(r, ref, m->id, LOCAL_RATE, 1 + 1000 / r->settings.rate_uid,
			    NULL);
		return;
	}
	if (m->type == LOCAL_MEET || m->type == LOCAL_TRANSLATE) { /* the other socket */
		client_done(r, ref, m->id, LOCAL_NETNS, 0, NULL);
		return;
	}
	status = judge(r, c, m, &cookie);
	if (status != LOCAL_OK)
		client_denied(r, c, m, status);
	else if (m->type == LOCAL_PUBLISH)
		status = publish_add(r, ref.index, m, hello_bytes, cookie);
	else {
		pending_add(r, ref, m, hello_bytes);
		return;
	}
	client_done(r, ref, m->id, status, 0, NULL);
}

void client_refuse(struct relay *r, struct relay_ref ref, const struct local_message *m,
		   size_t bytes, enum local_status status)
{
	const struct owner *o = &r->client[ref.index].owner;

	notice(r, "process %d (%s) of user %u is ended: %s", (int)o->pid, o->program,
	       o->uid, local_status_text(status));
	client_done(r, ref, bytes >= 8 ? m->id : 0, status, 0, NULL);
	if (client_of(r, ref))
		client_end(r, ref.index);
}

ssize_t client_peek(const struct relay_client *c, struct local_message *m, bool *shows)
{
	struct iovec iov = {m, sizeof(*m)};
	struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
	ssize_t n = recvmsg(c->fd, &msg, MSG_PEEK | MSG_DONTWAIT | MSG_TRUNC);

	*shows = n >= 0 && msg.msg_flags & MSG_CTRUNC;
	return n;
}

/* To take a message with descriptors is to let go of these: who sends one is ended. */
static ssize_t receive(const struct relay_client *c, struct local_message *m)
{
	bool shows = false;

	if (c->rights && client_peek(c, m, &shows) >= 0 && shows)
		return 0;
	return recv(c->fd, m, sizeof(*m), MSG_DONTWAIT | MSG_TRUNC);
}

void client_ready(struct relay *r, struct relay_ref ref)
{
	struct local_message m;

	if (client_of(r, ref) && r->client[ref.index].near) {
		near_client_ready(r, ref);
		return;
	}
	for (int i = 0; i < MESSAGES_AT_ONCE && client_of(r, ref); i++) {
		enum local_status status;
		ssize_t n = receive(&r->client[ref.index], &m);

		if (n < 0 && (errno == EAGAIN || errno == EINTR))
			return;
		if (n <= 0) {
			client_end(r, ref.index);
			return;
		}
		status = local_check(&m, (size_t)n, true);
		if (status == LOCAL_OK)
			take(r, ref, &m, (size_t)n - LOCAL_HEAD_BYTES);
		else
			client_refuse(r, ref, &m, (size_t)n, status);
	}
}
