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

	return c->fd >= 0 && c->turn == ref.turn ? c : NULL;
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

bool client_met(struct relay *r, struct relay_ref ref, uint32_t id, uint32_t uid,
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
		return false;
	done_of(&m, id, LOCAL_OK, 0);
	m.type = LOCAL_MET;
	m.uid = uid;
	memcpy(m.hello, met, sizeof(*met));
	memcpy(CMSG_DATA(&control.head), fds, NEAR_MET_FDS * sizeof(int));
	if (sendmsg(c->fd, &msg, MSG_DONTWAIT | MSG_NOSIGNAL) == (ssize_t)iov.iov_len)
		return true;
	client_end(r, ref.index);
	return false;
}

void client_end(struct relay *r, uint32_t index)
{
	struct relay_client *c = &r->client[index];

	close(c->fd);
	c->fd = -1;
	c->turn++;
	r->clients--;
	publish_remove_all(r, index);
	pending_client_gone(r, index);
	asked_client_gone(r, index);
	near_remove_all(r, index);
}

/* ---- new ones ---- */

static void turn_away(int fd, enum local_status status, uint32_t wait_ms)
{
	struct local_message m;

	done_of(&m, 0, status, wait_ms);
	send(fd, &m, LOCAL_HEAD_BYTES, MSG_DONTWAIT | MSG_NOSIGNAL);
	close(fd);
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

static bool may_come(struct relay *r, int fd, struct owner *owner, int *slot)
{
	if (owner_of_peer(fd, owner) < 0) {
		close(fd);
		return false;
	}
	if (!bucket_take_uid(&r->by_uid, owner->uid, r->now_ms)) {
		turn_away(fd, LOCAL_RATE, RELAY_RETRY_MS);
		return false;
	}
	*slot = slot_for(r, owner->uid);
	if (*slot >= 0)
		return true;
	notice(r, "process %d of user %u is turned away: too many processes",
	       (int)owner->pid, owner->uid);
	turn_away(fd, LOCAL_FULL, RELAY_RETRY_MS);
	return false;
}

void client_admit(struct relay *r, int fd, bool near)
{
	struct relay_client *c;
	struct owner owner;
	int slot;

	if (!may_come(r, fd, &owner, &slot))
		return;
	c = &r->client[slot];
	if (loop_watch(r, fd, RELAY_CLIENT, (uint32_t)slot, c->turn, false, true) < 0) {
		close(fd);
		return;
	}
	owner_learn_program(&owner);
	c->fd = fd;
	c->owner = owner;
	c->pending = c->asked = 0;
	c->first = -1;
	c->near = near;
	r->clients++;
	log_debug("process %d (%s) of user %u has come", (int)owner.pid, owner.exe,
		  owner.uid);
}

/* ---- what they say ---- */

static struct settings_party party_of(const struct owner *o)
{
	return (struct settings_party){.uid = o->uid,
				       .exe = o->program_known ? o->exe : NULL,
				       .argv0 = o->program_known ? o->argv0 : NULL};
}

static enum local_status judge(struct relay *r, const struct relay_client *c,
			       const struct local_message *m, uint64_t *cookie)
{
	const struct owner *o = &c->owner;
	struct settings_party party = party_of(o);

	if (!local_ends_fit(&m->local, &m->peer))
		return LOCAL_ADDRESS;
	if (!settings_allow(&r->settings, &party, &m->local, &m->peer))
		return LOCAL_RULE;
	return owner_check(o, &m->local, &m->peer, cookie);
}

static void say_denied(struct relay *r, const struct relay_client *c,
		       const struct local_message *m, enum local_status status)
{
	char local[LOCAL_END_TEXT_BYTES], peer[LOCAL_END_TEXT_BYTES];

	notice(r, "process %d (%s) of user %u, %s -> %s: denied: %s", (int)c->owner.pid,
	       c->owner.exe, c->owner.uid, local_end_text(&m->local, local),
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
	struct settings_party party = party_of(&c->owner);

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
		say_denied(r, c, m, status);
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
	if (m->type == LOCAL_MEET) { /* it has its own socket */
		client_done(r, ref, m->id, LOCAL_NETNS, 0, NULL);
		return;
	}
	status = judge(r, c, m, &cookie);
	if (status != LOCAL_OK)
		say_denied(r, c, m, status);
	else if (m->type == LOCAL_PUBLISH)
		status = publish_add(r, ref.index, m, hello_bytes, cookie);
	else {
		pending_add(r, ref, m, hello_bytes);
		return;
	}
	client_done(r, ref, m->id, status, 0, NULL);
}

static void refuse(struct relay *r, struct relay_ref ref, const struct local_message *m,
		   size_t bytes, enum local_status status)
{
	const struct owner *o = &r->client[ref.index].owner;

	notice(r, "process %d (%s) of user %u is ended: %s", (int)o->pid, o->exe, o->uid,
	       local_status_text(status));
	client_done(r, ref, bytes >= 8 ? m->id : 0, status, 0, NULL);
	if (client_of(r, ref))
		client_end(r, ref.index);
}

/* ---- those that come by the socket for namespaces ---- */

static enum local_status judge_near(struct relay *r, const struct relay_client *c,
				    const struct local_message *m, int fds[NEAR_FDS],
				    unsigned count, struct near_place *place)
{
	struct settings_party party = party_of(&c->owner);

	if (!bucket_take_uid(&r->by_uid, c->owner.uid, r->now_ms))
		return LOCAL_RATE;
	if (!local_ends_fit(&m->local, &m->peer))
		return LOCAL_ADDRESS;
	if (!settings_allow(&r->settings, &party, &m->local, &m->peer))
		return LOCAL_RULE;
	return count == NEAR_FDS ? near_place_take(&c->owner, m, fds, place)
				 : LOCAL_NETNS;
}

static void meet(struct relay *r, struct relay_ref ref, const struct local_message *m,
		 int fds[NEAR_FDS], unsigned count)
{
	const struct relay_client *c = &r->client[ref.index];
	struct near_place place;
	struct relay_ref added;
	enum local_status status = judge_near(r, c, m, fds, count, &place);
	uint32_t wait_ms = 0;

	if (status == LOCAL_OK) {
		status = near_add(r, ref, m, &place, &added);
		if (status != LOCAL_OK)
			near_place_close(&place);
	} else if (status != LOCAL_RATE) {
		say_denied(r, c, m, status);
	}
	if (status == LOCAL_RATE || status == LOCAL_FULL)
		wait_ms = status == LOCAL_RATE ? RELAY_RETRY_MS : RELAY_NEAR_FULL_MS;
	client_done(r, ref, m->id, status, wait_ms, NULL);
	if (status == LOCAL_OK)
		near_try(r, added);
}

void client_take_near(struct relay *r, struct relay_ref ref)
{
	const struct owner *o = &r->client[ref.index].owner;
	struct local_message m;
	int fds[NEAR_FDS];
	unsigned count;
	ssize_t n = near_mail_take(r->client[ref.index].fd, o->uid, &m, fds, &count);
	enum local_status status;

	if (n == -EAGAIN || n == -EINTR)
		return;
	if (n <= 0) {
		if (n < 0)
			notice(r, "process %d (%s) of user %u is ended: %s", (int)o->pid,
			       o->exe, o->uid, strerror((int)-n));
		client_end(r, ref.index);
		return;
	}
	status = local_check(&m, (size_t)n, true);
	if (status == LOCAL_OK && m.type != LOCAL_MEET && m.type != LOCAL_WITHDRAW)
		status = LOCAL_MALFORMED;
	if (status != LOCAL_OK) {
		refuse(r, ref, &m, (size_t)n, status);
	} else if (m.type == LOCAL_MEET) {
		meet(r, ref, &m, fds, count);
	} else {
		near_withdraw(r, ref.index, &m.local, &m.peer);
		client_done(r, ref, m.id, LOCAL_OK, 0, NULL);
	}
	for (unsigned i = 0; i < count; i++)
		if (fds[i] >= 0)
			close(fds[i]);
}

void client_ready(struct relay *r, struct relay_ref ref)
{
	struct local_message m;

	for (int i = 0; i < MESSAGES_AT_ONCE && client_of(r, ref); i++) {
		enum local_status status;
		ssize_t n;

		if (r->client[ref.index].near) {
			client_take_near(r, ref);
			return;
		}
		n = recv(r->client[ref.index].fd, &m, sizeof(m),
			 MSG_DONTWAIT | MSG_TRUNC);
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
			refuse(r, ref, &m, (size_t)n, status);
	}
}
