/* SPDX-License-Identifier: Apache-2.0 */
/* The table of links: made for a question, accepted from a host, ended, remembered. */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "daemon/address.h"
#include "daemon/daemon.h"

#define USER_TIMEOUT_MS	    10000
#define KERNEL_BUFFER_BYTES (64 << 10)
#define LINKS_OF_ONE_HOST   8
#define RETRY_KEY_MS	    10000

struct relay_link *link_of(struct relay *r, struct relay_ref ref)
{
	struct relay_link *l = &r->link[ref.index];

	return l->fd >= 0 && l->turn == ref.turn ? l : NULL;
}

struct relay_ref link_ref(const struct relay *r, const struct relay_link *l)
{
	return (struct relay_ref){(uint32_t)(l - r->link), l->turn};
}

static void forget(struct relay *r, struct relay_link *l)
{
	l->state = LINK_FREE;
	l->failures = 0;
	r->links--;
}

static uint64_t retry_after(const struct relay_link *l, enum local_status status)
{
	uint64_t wait = RELAY_RETRY_MAX_MS;

	if (l->failures < 6)
		wait = (uint64_t)RELAY_RETRY_MS << l->failures;
	return status == LOCAL_KEY && wait < RETRY_KEY_MS ? RETRY_KEY_MS : wait;
}

void link_end(struct relay *r, struct relay_link *l, enum local_status status)
{
	struct relay_ref ref = link_ref(r, l);
	uint32_t wait_ms = 0;

	if (!l->outgoing && l->state == LINK_SHAKING)
		r->strangers--;
	close(l->fd);
	l->fd = -1;
	l->turn++;
	session_finish(&l->session);
	if (l->outgoing && status != LOCAL_OK) {
		wait_ms = (uint32_t)retry_after(l, status);
		l->retry_ms = r->now_ms + wait_ms;
		l->status = (uint8_t)status;
		if (l->failures < 255)
			l->failures++;
		l->state = LINK_FAILED;
	} else {
		forget(r, l);
	}
	if (l->outgoing)
		pending_link_down(r, ref, status ? status : LOCAL_UNREACHABLE, wait_ms);
	else
		asked_link_gone(r, ref);
}

static bool is_about_keys(enum local_cause cause)
{
	return cause == LOCAL_CAUSE_REFUSES_KEY || cause == LOCAL_CAUSE_WRONG_KEY;
}

void link_lose(struct relay *r, struct relay_link *l, enum local_cause cause, int error)
{
	l->cause = (uint8_t)cause;
	l->error = error;
	link_end(r, l, is_about_keys(cause) ? LOCAL_KEY : LOCAL_UNREACHABLE);
}

/* What is dropped first to make room: failures, then what has not been used for longest. */
static bool is_worth_less(const struct relay_link *l, const struct relay_link *than)
{
	if (l->state != LINK_FAILED && (l->state != LINK_READY || l->waiting > 0))
		return false;
	if (!than)
		return true;
	if ((l->state == LINK_FAILED) != (than->state == LINK_FAILED))
		return l->state == LINK_FAILED;
	return l->used_ms < than->used_ms;
}

/* A free slot of the half, or NULL. */
static struct relay_link *take_slot(struct relay *r, bool outgoing)
{
	struct relay_link *from = &r->link[outgoing ? 0 : RELAY_LINKS], *least = NULL;

	for (struct relay_link *l = from; l < from + RELAY_LINKS; l++) {
		if (l->state == LINK_FREE)
			return l;
		if (is_worth_less(l, least))
			least = l;
	}
	if (least && least->state == LINK_FAILED)
		forget(r, least);
	else if (least)
		link_end(r, least, LOCAL_OK);
	return least;
}

static void prepare(struct relay *r, struct relay_link *l, int fd, bool outgoing)
{
	int on = 1, timeout = USER_TIMEOUT_MS, buffer = KERNEL_BUFFER_BYTES;

	/* What a peer does not read, or says too fast, stays small. */
	setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &buffer, sizeof(buffer));
	setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &buffer, sizeof(buffer));
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &timeout, sizeof(timeout));
	setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
	l->fd = fd;
	l->outgoing = outgoing;
	l->in_bytes = l->out_bytes = 0;
	l->wants_write = false;
	l->waiting = 0;
	l->cause = LOCAL_CAUSE_NONE;
	l->error = 0;
	l->born_ms = l->used_ms = r->now_ms;
	l->deadline_ms = r->now_ms + RELAY_SHAKE_MS;
}

/* ---- outgoing ---- */

/* From the address for which it is to speak, since the other daemon goes by that. */
static int begin_connect(const struct relay_link *l, uint16_t port)
{
	union address to, from;
	socklen_t to_len, from_len;
	struct name_end other = l->other, self = l->self;
	int fd, on = 1, r = 0;

	other.port = htons(port);
	self.port = 0;
	to_len = address_of_end(&other, &to);
	from_len = address_of_end(&self, &from);
	fd = socket(to.any.sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	if (l->bound) {
		setsockopt(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &on, sizeof(on));
		r = bind(fd, &from.any, from_len) < 0 ? -errno : 0;
	}
	if (r == 0 && connect(fd, &to.any, to_len) < 0 && errno != EINPROGRESS)
		r = -errno;
	if (r == 0)
		return fd;
	close(fd);
	return r;
}

static enum local_status open_link(struct relay *r, struct relay_link *l)
{
	uint32_t index = (uint32_t)(l - r->link);
	char peer[LOCAL_END_TEXT_BYTES];
	int fd = begin_connect(l, r->settings.port);

	if (fd >= 0 && loop_watch(r, fd, RELAY_LINK, index, l->turn, true, true) < 0) {
		close(fd);
		fd = -ENOMEM;
	}
	if (l->state == LINK_FREE)
		r->links++;
	if (fd >= 0) {
		l->state = LINK_CONNECTING;
		prepare(r, l, fd, true);
		l->wants_write = true;
		return LOCAL_OK;
	}
	l->outgoing = true;
	l->state = LINK_FAILED;
	l->used_ms = r->now_ms;
	l->status = LOCAL_UNREACHABLE;
	l->cause = LOCAL_CAUSE_CONNECT;
	l->error = -fd;
	l->retry_ms = r->now_ms + retry_after(l, LOCAL_UNREACHABLE);
	if (l->failures < 255)
		l->failures++;
	notice(r, "peer %s cannot be connected: %s", local_end_text(&l->other, peer),
	       strerror(-fd));
	return LOCAL_UNREACHABLE;
}

static struct relay_link *find(struct relay *r, const struct name_end *self, bool bound,
			       const uint8_t daemon[16])
{
	for (struct relay_link *l = r->link; l < r->link + RELAY_LINKS; l++)
		if (l->state != LINK_FREE && l->bound == bound &&
		    !memcmp(l->other.addr, daemon, 16) &&
		    (!bound || !memcmp(l->self.addr, self->addr, 16)) &&
		    (l->state != LINK_READY || r->now_ms - l->born_ms < RELAY_LIFE_MS))
			return l;
	return NULL;
}

enum local_status link_for(struct relay *r, const struct name_end *local,
			   const struct name_end *peer, bool at_once,
			   struct relay_link **out, uint32_t *wait_ms)
{
	uint8_t daemon[16];
	bool bound = !settings_daemon_of(&r->settings, peer->addr, daemon);
	struct relay_link *l = find(r, local, bound, daemon);
	enum local_status status = LOCAL_OK;

	*wait_ms = 0;
	*out = l;
	if (l && l->state == LINK_FAILED && r->now_ms < l->retry_ms && !at_once) {
		*wait_ms = (uint32_t)(l->retry_ms - r->now_ms);
		return (enum local_status)l->status;
	}
	if (!l) {
		l = take_slot(r, true);
		if (!l)
			return LOCAL_FULL;
		l->bound = bound;
		l->self = *local;
		l->other = *peer;
		memcpy(l->other.addr, daemon, sizeof(daemon));
		l->other.port = htons(r->settings.port);
	}
	if (l->state == LINK_FREE || l->state == LINK_FAILED)
		status = open_link(r, l);
	if (status != LOCAL_OK)
		*wait_ms = (uint32_t)(l->retry_ms - r->now_ms);
	l->used_ms = r->now_ms;
	*out = l;
	return status;
}

/* ---- incoming ---- */

/* May end the one that has taken longest to prove itself, to make room. */
static bool has_room(struct relay *r, const struct name_end *from)
{
	struct relay_link *oldest = NULL;
	unsigned strangers = 0, known = 0;

	for (struct relay_link *l = r->link + RELAY_LINKS; l < r->link + 2 * RELAY_LINKS;
	     l++) {
		bool same = l->fd >= 0 && !memcmp(l->other.addr, from->addr, 16);

		if (l->fd < 0)
			continue;
		if (l->state == LINK_READY) {
			known += same;
			continue;
		}
		strangers += same;
		if (!oldest || l->born_ms < oldest->born_ms)
			oldest = l;
	}
	if (strangers >= RELAY_STRANGERS_HOST || known >= LINKS_OF_ONE_HOST)
		return false;
	if (r->strangers >= RELAY_STRANGERS && oldest)
		link_end(r, oldest, LOCAL_OK);
	return true;
}

void link_admit(struct relay *r, int fd)
{
	struct relay_link *l;
	struct name_end self, other;
	char text[LOCAL_END_TEXT_BYTES];
	uint32_t index;

	if (address_ends(fd, &self, &other) < 0 ||
	    !settings_may_meet(&r->settings, other.addr)) {
		close(fd);
		return;
	}
	local_end_text(&other, text);
	if (!bucket_take_address(&r->by_stranger, other.addr, r->now_ms) ||
	    !has_room(r, &other)) {
		notice(r, "peer %s is turned away: it connects too often", text);
		close(fd);
		return;
	}
	l = take_slot(r, false);
	index = l ? (uint32_t)(l - r->link) : 0;
	if (!l || loop_watch(r, fd, RELAY_LINK, index, l->turn, false, true) < 0) {
		notice(r, "peer %s is turned away: too many links", text);
		close(fd);
		return;
	}
	prepare(r, l, fd, false);
	l->self = self;
	l->other = other;
	l->state = LINK_SHAKING;
	r->links++;
	r->strangers++;
	session_respond(&l->session, &r->keys, &other, &self);
}

/* ---- time ---- */

static void tick_one(struct relay *r, struct relay_link *l)
{
	/* Who asks closes first, so that no question meets a link that is being closed. */
	uint64_t grace = l->outgoing ? 0 : RELAY_IDLE_MS;
	char peer[LOCAL_END_TEXT_BYTES];

	if (l->state == LINK_FAILED) {
		if (r->now_ms >= l->retry_ms + RELAY_RETRY_MAX_MS)
			forget(r, l);
	} else if (l->state == LINK_READY) {
		if (l->waiting == 0 && (r->now_ms - l->used_ms > RELAY_IDLE_MS + grace ||
					r->now_ms - l->born_ms > RELAY_LIFE_MS + grace))
			link_end(r, l, LOCAL_OK);
	} else if (r->now_ms >= l->deadline_ms) {
		bool connecting = l->state == LINK_CONNECTING;

		notice(r, "peer %s: %s", local_end_text(&l->other, peer),
		       connecting ? "does not answer" : "has proved no key in time");
		link_lose(r, l, connecting ? LOCAL_CAUSE_CONNECT : LOCAL_CAUSE_NO_PROOF,
			  connecting ? ETIMEDOUT : 0);
	}
}

void link_tick(struct relay *r)
{
	for (int i = 0; r->links && i < 2 * RELAY_LINKS; i++)
		if (r->link[i].state != LINK_FREE)
			tick_one(r, &r->link[i]);
}
