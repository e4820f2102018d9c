/* SPDX-License-Identifier: Apache-2.0 */
/* Says of one connection whether it is on the direct path, and why not. */
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>

#include "base/reason.h"
#include "conn/slot.h"
#include "tool/explain/proc.h"
#include "tool/explain/world.h"

static const char *state_name(uint8_t state)
{
	static const char *const names[] = {[TCP_ESTABLISHED] = "established",
					    [TCP_SYN_SENT] = "connecting",
					    [TCP_SYN_RECV] = "connecting",
					    [TCP_FIN_WAIT1] = "closing",
					    [TCP_FIN_WAIT2] = "half-closed by this end",
					    [TCP_TIME_WAIT] = "closed",
					    [TCP_CLOSE] = "closed",
					    [TCP_CLOSE_WAIT] =
						    "half-closed by the other end",
					    [TCP_LAST_ACK] = "closing",
					    [TCP_LISTEN] = "listening",
					    [TCP_CLOSING] = "closing"};

	return state < sizeof(names) / sizeof(names[0]) && names[state] ? names[state]
									: "unknown";
}

char *link_text(const struct world *w, const struct link *l)
{
	const struct observe_socket *other = world_other(w, l->socket);
	struct link peer = {.fd = -1};
	char local[64], far[64], *owner, *name, *text;

	observe_end_text(&l->socket->local, local);
	observe_end_text(&l->socket->peer, far);
	owner = process_text(l->owner);
	if (l->socket->state == TCP_LISTEN) {
		text = text_of("fd %d of %s: listens on %s", l->fd, owner, local);
		free(owner);
		return text;
	}
	if (other)
		peer = world_link(w, other);
	if (peer.owner)
		name = text_of("%s, pid %d, fd %d", peer.owner->name,
			       (int)peer.owner->pid, peer.fd);
	else if (other && other->inode == 0)
		name = text_of("not accepted yet, or closed");
	else
		name = text_of(other ? "a process that cannot be seen" : "not here");
	text = text_of("fd %d of %s: %s, with %s (%s), %s", l->fd, owner, local, far,
		       name, state_name(l->socket->state));
	free(owner);
	free(name);
	return text;
}

static bool say_direct(const struct link *l, struct answer *a)
{
	const struct observe_conn *c = l->conn;
	bool both = c->tx != OBSERVE_TCP && c->rx != OBSERVE_TCP;

	say(a, POINT_YES, "direct", "%s on the direct path%s.",
	    both		   ? "Both directions are"
	    : c->tx != OBSERVE_TCP ? "What it sends is"
				   : "What it receives is",
	    c->tx == OBSERVE_RDMA || c->rx == OBSERVE_RDMA ? ", by RDMA" : "");
	if (both)
		return true;
	if (c->reason != VD_REASON_NONE) {
		a->points[a->count - 1].state = POINT_NOTE;
		say_remedy(a, "It is going back to TCP, with reason %s.",
			   reason_name(c->reason));
	}
	return true;
}

/* Attached, and neither direction used since, or both on their way. */
static bool say_attached(struct answer *a)
{
	say(a, POINT_YES, "direct",
	    "The two ends have met: each direction takes the direct path with its next "
	    "bytes.");
	return true;
}

static void say_reason(struct world *w, const struct link *l, uint32_t reason,
		       struct answer *a)
{
	char *text, *remedy;

	reason_explain(w, l, reason, &text, &remedy);
	say(a, POINT_NO, reason_name(reason), "%s", text);
	say_remedy(a, "%s", remedy);
	free(text);
	free(remedy);
}

/* The reason of a connection whose end is outside: its peer sees a plain peer, but where the
 * library is there it has a reason of its own. */
static const char *outside_reason(const char *name)
{
	static const enum vd_reason own[] = {VD_REASON_OFF, VD_REASON_FD_LIMIT,
					     VD_REASON_MEMORY};

	for (size_t i = 0; name && i < sizeof(own) / sizeof(own[0]); i++)
		if (!strcmp(name, reason_name(own[i])))
			return name;
	return reason_name(VD_REASON_PLAIN_PEER);
}

/* This end is not under Viaduct; why, is said once of a process. */
static void say_outside(struct world *w, const struct link *l, struct answer *a)
{
	const struct observe_socket *other = world_other(w, l->socket);
	struct link peer = {.fd = -1};
	struct outside out = {0};
	struct proc p;
	char *name;

	if (!other && !IN6_IS_ADDR_LOOPBACK(&l->socket->peer.addr)) {
		say_reason(w, l, VD_REASON_REMOTE_PEER, a);
		return;
	}
	if (other)
		peer = world_link(w, other);
	if (l->owner && l->owner != w->said && proc_read(l->owner->pid, &p) == 0) {
		proc_is_under(&p, false, &out);
		proc_finish(&p);
	} else if (l->owner && l->owner == w->said)
		out.name = w->said_name;
	name = process_text(peer.owner);
	say(a, POINT_NO, outside_reason(out.name), "This end %s%s%s%s.%s%s",
	    strcmp(outside_reason(out.name), reason_name(VD_REASON_PLAIN_PEER))
		    ? "has the library, but does not carry its connections"
		    : "does not run under Viaduct",
	    !peer.owner		  ? ""
	    : peer.owner->viaduct ? "; the other end, "
				  : "; nor does the other end, ",
	    peer.owner ? name : "",
	    peer.owner && peer.owner->viaduct ? ", runs under it" : "",
	    out.why ? " " : "", out.why ? out.why : "");
	if (out.remedy)
		say_remedy(a, "%s", out.remedy);
	else
		say_remedy(a, "See above for this end.");
	outside_finish(&out);
	free(name);
}

static bool is_over(uint8_t state)
{
	return state == TCP_CLOSE || state == TCP_TIME_WAIT || state == TCP_SYN_SENT;
}

#define NATIVE_BYTES 600

/* What the native interface has done on it. */
static void native_text(const struct observe_conn *c, char *out)
{
	const uint64_t *n = c->native_counts;
#define N(what) ((unsigned long long)n[NATIVE_##what])

	snprintf(
		out, NATIVE_BYTES,
		"; native: %llu puts (%llu bytes), %llu gets (%llu bytes), %llu atomics; "
		"notifications: %llu sent, %llu received; imports: %llu, mapped %llu; "
		"redirections: %llu full, %llu partial, %llu none; messages: %llu sent "
		"(%llu bytes, %llu in place), %llu received",
		N(PUTS), N(PUT_BYTES), N(GETS), N(GET_BYTES), N(ATOMICS), N(NOTES_SENT),
		N(NOTES_COME), N(IMPORTS), N(MAPPED), N(FULL), N(PARTIAL), N(NONE),
		N(MESSAGES), N(MESSAGE_BYTES), N(IN_PLACE), N(MESSAGES_COME));
#undef N
}

bool explain_link(struct world *w, const struct link *l, struct answer *a)
{
	const struct observe_conn *c = l->conn;
	size_t before = a->count;
	char *about = link_text(w, l);
	char native[NATIVE_BYTES] = "";
	bool direct = false;

	if (c && c->native)
		native_text(c, native);
	if (is_over(l->socket->state)) {
		say(a, POINT_NOTE, "not-open", "It is %s: there is nothing to upgrade.",
		    state_name(l->socket->state));
	} else if (!c || !l->owner || !l->owner->viaduct) {
		say_outside(w, l, a);
	} else if (!c->known) {
		say_reason(w, l, VD_REASON_ROLE, a);
	} else if (c->reason == VD_REASON_CORRUPT || c->reason == VD_REASON_BYPASS) {
		/* Broken off, wherever it stood. */
		say_reason(w, l, c->reason, a);
	} else if (c->tx != OBSERVE_TCP || c->rx != OBSERVE_TCP) {
		direct = say_direct(l, a);
	} else if (c->reason == VD_REASON_NONE && c->phase >= SLOT_ATTACHING &&
		   c->phase <= SLOT_ATTACHED) {
		direct = say_attached(a);
	} else {
		/* Before the first operation there is no reason yet. */
		say_reason(w, l, c->reason ? c->reason : VD_REASON_SHORT, a);
	}
	for (size_t i = before; i < a->count; i++)
		a->points[i].about =
			direct ? text_of("%s; %llu bytes sent and %llu received on the "
					 "direct path, %llu and %llu over TCP%s",
					 about, (unsigned long long)c->tx_direct_bytes,
					 (unsigned long long)c->rx_direct_bytes,
					 (unsigned long long)c->tx_tcp_bytes,
					 (unsigned long long)c->rx_tcp_bytes, native)
			       : text_of("%s", about);
	free(about);
	return direct;
}
