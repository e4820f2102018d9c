/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes to and from another daemon, and what they mean in each state of a link. */
#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#include "daemon/address.h"
#include "daemon/daemon.h"

bool link_flush(struct relay *r, struct relay_link *l)
{
	uint32_t index = (uint32_t)(l - r->link);
	ssize_t n = 0;

	if (l->out_bytes > 0)
		n = send(l->fd, l->out, l->out_bytes, MSG_DONTWAIT | MSG_NOSIGNAL);
	if (n < 0 && errno != EAGAIN && errno != EINTR) {
		link_lose(r, l, LOCAL_CAUSE_LOST, errno);
		return false;
	}
	if (n > 0) {
		l->out_bytes -= (size_t)n;
		memmove(l->out, l->out + n, l->out_bytes);
	}
	if (l->wants_write != (l->out_bytes > 0)) {
		l->wants_write = l->out_bytes > 0;
		loop_watch(r, l->fd, RELAY_LINK, index, l->turn, l->wants_write, false);
	}
	return true;
}

bool link_send(struct relay *r, struct relay_link *l, const uint8_t *plain, size_t bytes)
{
	char peer[LOCAL_END_TEXT_BYTES];
	size_t n = 0;

	if (sizeof(l->out) - l->out_bytes >= SESSION_FRAME_MAX)
		n = session_seal(&l->session, plain, bytes, l->out + l->out_bytes);
	if (n == 0) {
		notice(r, "peer %s does not read: ended",
		       local_end_text(&l->other, peer));
		link_lose(r, l, LOCAL_CAUSE_LOST, 0);
		return false;
	}
	l->out_bytes += n;
	l->used_ms = r->now_ms;
	return link_flush(r, l);
}

/* ---- what comes ---- */

static enum local_cause shake_cause(const struct relay_link *l, int error)
{
	switch (error) {
	case -ECONNREFUSED:
		return l->session.refusal == LOCAL_KEY	     ? LOCAL_CAUSE_REFUSES_KEY
		       : l->session.refusal == LOCAL_VERSION ? LOCAL_CAUSE_REFUSES_VERSION
							     : LOCAL_CAUSE_STRANGER;
	case -EPROTONOSUPPORT:
		return LOCAL_CAUSE_OTHER_VERSION;
	case -EKEYREJECTED:
		return LOCAL_CAUSE_WRONG_KEY;
	default:
		return LOCAL_CAUSE_STRANGER;
	}
}

static bool shake_failed(struct relay *r, struct relay_link *l, int error)
{
	char peer[LOCAL_END_TEXT_BYTES];
	enum local_cause cause = shake_cause(l, error);
	struct relay_ref ref = link_ref(r, l);

	notice(r, "peer %s %s: it %s", local_end_text(&l->other, peer),
	       error == -ECONNREFUSED ? "refuses us" : "is refused",
	       error == -ENOKEY ? "names a key that is not in our file"
				: local_cause_text(cause));
	link_flush(r, l); /* a refusal */
	if (link_of(r, ref))
		link_lose(r, l, cause, 0);
	return false;
}

static bool is_ready(struct relay *r, struct relay_link *l)
{
	char peer[LOCAL_END_TEXT_BYTES];
	struct relay_ref ref = link_ref(r, l);

	if (!l->outgoing)
		r->strangers--;
	l->state = LINK_READY;
	l->failures = 0;
	l->used_ms = r->now_ms;
	notice(r, "peer %s has proved key %.16s: link %s",
	       local_end_text(&l->other, peer), l->session.key->id,
	       l->outgoing ? "made" : "accepted");
	if (l->outgoing)
		pending_link_up(r, l);
	return link_of(r, ref) != NULL;
}

/* Bytes used, 0 for more, or -1 when the link is no more. */
static ssize_t shake(struct relay *r, struct relay_link *l, const uint8_t *in,
		     size_t bytes)
{
	size_t out_bytes = 0;
	ssize_t n;

	n = session_shake(&l->session, in, bytes, l->out + l->out_bytes, &out_bytes);
	l->out_bytes += out_bytes;
	if (n < 0) {
		shake_failed(r, l, (int)n);
		return -1;
	}
	if (n == 0)
		return 0;
	if (!link_flush(r, l) || (l->session.state == SESSION_READY && !is_ready(r, l)))
		return -1;
	return n;
}

static bool broken(struct relay *r, struct relay_link *l, const char *why)
{
	char peer[LOCAL_END_TEXT_BYTES];

	notice(r, "peer %s is ended: %s", local_end_text(&l->other, peer), why);
	link_lose(r, l, LOCAL_CAUSE_BROKEN, 0);
	return false;
}

static bool take_plain(struct relay *r, struct relay_link *l, const uint8_t *plain,
		       size_t bytes)
{
	struct relay_ref ref = link_ref(r, l);
	struct wire_question q;
	struct wire_answer a;

	l->used_ms = r->now_ms;
	if (l->outgoing && wire_get_answer(plain, bytes, &a) == 0)
		pending_answer(r, l, &a);
	else if (!l->outgoing && wire_get_question(plain, bytes, &q) == 0)
		asked_question(r, l, &q);
	else
		return broken(r, l, "what it says makes no sense");
	return link_of(r, ref) != NULL;
}

static ssize_t frame(struct relay *r, struct relay_link *l, const uint8_t *in,
		     size_t bytes)
{
	uint8_t plain[WIRE_PLAIN_MAX];
	size_t plain_bytes = 0;
	ssize_t n = session_open(&l->session, in, bytes, plain, &plain_bytes);

	if (n < 0) {
		broken(r, l,
		       n == -EALREADY	? "a frame has come twice"
		       : n == -EMSGSIZE ? "a frame of no possible length"
					: "a frame is forged, changed or missing");
		return -1;
	}
	if (n > 0 && !take_plain(r, l, plain, plain_bytes))
		return -1;
	return n;
}

bool link_take(struct relay *r, struct relay_link *l)
{
	size_t at = 0;

	for (;;) {
		const uint8_t *in = l->in + at;
		size_t bytes = l->in_bytes - at;
		ssize_t n = 0;

		if (bytes > 0 && l->state == LINK_SHAKING)
			n = shake(r, l, in, bytes);
		else if (bytes > 0)
			n = frame(r, l, in, bytes);
		if (n < 0)
			return false;
		if (n == 0)
			break;
		at += (size_t)n;
	}
	l->in_bytes -= at;
	memmove(l->in, l->in + at, l->in_bytes);
	return true;
}

static bool is_connected(struct relay *r, struct relay_link *l)
{
	socklen_t size = sizeof(int);
	char peer[LOCAL_END_TEXT_BYTES];
	int error = 0;

	if (getsockopt(l->fd, SOL_SOCKET, SO_ERROR, &error, &size) < 0)
		error = errno;
	if (error == 0)
		error = -address_ends(l->fd, &l->self, &l->other);
	if (error != 0) {
		notice(r, "peer %s cannot be connected: %s",
		       local_end_text(&l->other, peer), strerror(error));
		link_lose(r, l, LOCAL_CAUSE_CONNECT, error);
		return false;
	}
	l->state = LINK_SHAKING;
	l->out_bytes =
		session_initiate(&l->session, &r->keys, &l->self, &l->other, l->out);
	return true;
}

static void hung_up(struct relay *r, struct relay_link *l, int error)
{
	char peer[LOCAL_END_TEXT_BYTES];
	bool shaking = l->state == LINK_SHAKING;

	notice(r, "peer %s has closed the link%s%s", local_end_text(&l->other, peer),
	       shaking ? " before it has proved anything" : "",
	       error == 0	    ? ""
	       : error == ETIMEDOUT ? ": no sign of life"
				    : " hard");
	/* Without questions under way nothing is lost. */
	if (l->outgoing && (l->waiting > 0 || shaking))
		link_lose(r, l, shaking ? LOCAL_CAUSE_CLOSED : LOCAL_CAUSE_LOST, error);
	else
		link_end(r, l, LOCAL_OK);
}

void link_ready(struct relay *r, struct relay_ref ref, bool writable)
{
	struct relay_link *l = link_of(r, ref);
	ssize_t n;

	if (!l)
		return;
	if (l->state == LINK_CONNECTING && (!writable || !is_connected(r, l)))
		return;
	if (!link_flush(r, l))
		return;
	n = recv(l->fd, l->in + l->in_bytes, sizeof(l->in) - l->in_bytes, MSG_DONTWAIT);
	if (n > 0) {
		l->in_bytes += (size_t)n;
		link_take(r, l);
		return;
	}
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	hung_up(r, l, n == 0 ? 0 : errno);
}
