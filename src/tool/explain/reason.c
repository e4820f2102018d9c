/* SPDX-License-Identifier: Apache-2.0 */
/* The sentences for each reason to be on TCP, with names, and with what to run. */
#include <ctype.h>
#include <netinet/tcp.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/reason.h"
#include "conn/slot.h"
#include "tool/explain/proc.h"
#include "tool/explain/world.h"

/* What the sentences are made from. */
struct case_of {
	struct world *w;
	const struct link *link;
	struct link peer; /* owner NULL: not here, or not to be seen */
	bool has_other;	  /* its socket is in this network namespace */
	char **text, **remedy;
};

char *sentence_of(const char *text)
{
	char *s = text_of("%s.", text);

	*s = (char)toupper((unsigned char)*s);
	return s;
}

char *process_text(const struct observe_process *p)
{
	return p ? text_of("%s (pid %d)", p->name, (int)p->pid)
		 : text_of("a process that cannot be seen");
}

static char *user_text(uid_t uid)
{
	const struct passwd *pw = getpwuid(uid);

	return pw ? text_of("%s (%u)", pw->pw_name, uid) : text_of("%u", uid);
}

static void set(char **to, char *text)
{
	free(*to);
	*to = text;
}

/* The words of the list, when nothing better is known. */
static void general(const struct case_of *c, uint32_t reason)
{
	set(c->text, sentence_of(reason_text(reason)));
	set(c->remedy, sentence_of(reason_remedy(reason)));
}

/* The peer is not under Viaduct: why, and how it gets there. False when it is. */
static bool peer_is_plain(const struct case_of *c)
{
	struct outside out;
	struct proc p;
	char *name;
	bool plain;

	if (!c->peer.owner || proc_read(c->peer.owner->pid, &p) != 0)
		return false;
	plain = !proc_is_under(&p, c->peer.owner->viaduct, &out);
	if (plain) {
		name = process_text(c->peer.owner);
		set(c->text, text_of("The other end, %s, does not run under Viaduct. %s",
				     name, out.why));
		set(c->remedy, text_of("%s", out.remedy));
		free(name);
	}
	outside_finish(&out);
	proc_finish(&p);
	return plain;
}

/* A reason of the peer's own, for good: it is the one that counts. */
static bool peer_has_reason(const struct case_of *c)
{
	const struct observe_conn *other = c->peer.conn;

	return other && other->known && other->phase == SLOT_FINAL &&
	       other->reason != VD_REASON_NONE && other->reason != VD_REASON_SHORT &&
	       other->reason != VD_REASON_PEER_ASKED &&
	       other->reason != VD_REASON_PLAIN_PEER;
}

static void add_peer_reason(const struct case_of *c, const char *before)
{
	uint32_t reason = c->peer.conn->reason;
	char *name = process_text(c->peer.owner), *text = NULL, *remedy = NULL;
	struct case_of other = {.w = c->w,
				.link = &c->peer,
				.peer = *c->link,
				.text = &text,
				.remedy = &remedy};

	general(&other, reason);
	set(c->text, text_of("%s The other end, %s, gives the reason %s: %s", before,
			     name, reason_name(reason), text));
	set(c->remedy, text_of("%s", remedy));
	free(name);
	free(text);
	free(remedy);
}

static void explain_short(const struct case_of *c)
{
	char *name = process_text(c->peer.owner), *plain = NULL, *remedy = NULL;
	struct case_of look = *c;
	uint32_t phase = c->link->conn ? c->link->conn->phase : SLOT_EARNING;

	look.text = &plain;
	look.remedy = &remedy;
	if (peer_has_reason(c)) {
		add_peer_reason(c, "It has not been upgraded.");
	} else if (peer_is_plain(&look)) {
		set(c->text,
		    text_of("It has not been upgraded, and will not be. %s", plain));
		set(c->remedy, text_of("%s", remedy));
	} else if (phase == SLOT_MEETING || phase == SLOT_OFFERED) {
		set(c->text, text_of("It has earned its upgrade, and the two ends are "
				     "about to meet: each goes on at its next operation. "
				     "The other one is %s.",
				     name));
		set(c->remedy, text_of("Nothing to do, unless the program at the other "
				       "end does nothing with the connection."));
	} else {
		set(c->text,
		    text_of("It has not made enough operations to earn an "
			    "upgrade (VIADUCT_UPGRADE_AFTER, 16 without it; more "
			    "where upgrades at this port have not paid), or its "
			    "ends have not met yet."));
		set(c->remedy,
		    text_of("Nothing to do: for a short connection an upgrade costs more "
			    "than it saves. Only where connections last, and their first "
			    "messages matter, VIADUCT_UPGRADE_AFTER=0 upgrades at the "
			    "first operation: `viaduct run --upgrade-after 0`."));
	}
	free(name);
	free(plain);
	free(remedy);
}

static void explain_remote(const struct case_of *c)
{
	const struct observe_process *p = world_elsewhere(c->w, c->link->socket);
	char addr[64], *name;

	observe_end_text(&c->link->socket->peer, addr);
	if (p) {
		name = process_text(p);
		set(c->text,
		    text_of("The other end, %s, is on this host, but in another network "
			    "namespace (a container, say).",
			    name));
		set(c->remedy,
		    text_of("Put both into one network namespace: `docker run "
			    "--network container:NAME`, one pod, or `nsenter "
			    "-t %d -n viaduct run -- PROGRAM`. Or let them meet "
			    "by a viaductd that both reach: near-socket in "
			    "viaductd(8).",
			    (int)p->pid));
		free(name);
	} else {
		set(c->text, text_of("The other end, %s, is not on this host, or in "
				     "another network namespace that cannot be looked "
				     "into, or the packet filter leads the connection to "
				     "another address.",
				     addr));
		*strrchr(addr, ':') = '\0'; /* the port */
		set(c->remedy,
		    text_of("If it is on another host, connections go there by RDMA "
			    "where both hosts have it, and the other end runs under "
			    "Viaduct, too: `viaduct doctor %s` tests the way. Else run "
			    "both ends on one host, in one network namespace.",
			    addr));
	}
}

static void explain_plain(const struct case_of *c)
{
	char *name;

	if (peer_has_reason(c)) {
		add_peer_reason(c, "The two ends did not meet.");
		return;
	}
	if (!c->has_other && !IN6_IS_ADDR_LOOPBACK(&c->link->socket->peer.addr)) {
		explain_remote(c);
		return;
	}
	if (peer_is_plain(c) || !c->peer.owner)
		return;
	name = process_text(c->peer.owner);
	set(c->text,
	    text_of("The other end, %s, runs under Viaduct, but did not look for this "
		    "end: it may have listened before it was under Viaduct, run another "
		    "version, or have used the connection too little.",
		    name));
	set(c->remedy, text_of("Start both ends with the same `viaduct run`, the one "
			       "that listens first."));
	free(name);
}

static void explain_nat(const struct case_of *c)
{
	char path[64];
	bool has_socket;

	if (!c->link->owner)
		return;
	/* As that process sees it: its container may have no such folder. */
	snprintf(path, sizeof(path), "/proc/%d/root/run/viaduct/near/near.sock",
		 (int)c->link->owner->pid);
	has_socket = access(path, F_OK) == 0;
	set(c->text,
	    text_of("The kernel rewrites this connection's addresses (a sidecar, a "
		    "published "
		    "port), and nobody has told %s (pid %d) where the other end is%s.",
		    c->link->owner->name, (int)c->link->owner->pid,
		    has_socket
			    ? ""
			    : ": it finds no viaductd at /run/viaduct/near/near.sock"));
	set(c->remedy,
	    has_socket
		    ? text_of("See in this end's network namespace whether viaductd "
			      "tells it: "
			      "`nsenter -t %d -n viaduct doctor`, check `rewritten`.",
			      (int)c->link->owner->pid)
		    : text_of("Let a viaductd of root's tell both ends: near-socket in "
			      "viaductd(8), with its folder mounted into their "
			      "containers. Or "
			      "dial the server's own address."));
}

static void explain_rule(const struct case_of *c)
{
	struct proc p;

	if (!c->link->owner || proc_read(c->link->owner->pid, &p) != 0)
		return;
	set(c->text, text_of("A rule of %s (pid %d) keeps this connection on TCP.%s%s",
			     p.name, (int)p.pid, p.rules ? " Its VIADUCT_RULES: " : "",
			     p.rules ? p.rules : ""));
	set(c->remedy,
	    text_of("Change the rule, and start the program again. `viaduct config "
		    "--program %s` lists the rules with their places.",
		    p.name));
	proc_finish(&p);
}

static void explain_uid(const struct case_of *c)
{
	char *own, *other;

	if (!c->peer.owner || !c->link->owner)
		return;
	own = user_text(c->link->owner->uid);
	other = user_text(c->peer.owner->uid);
	set(c->text,
	    text_of("This end, %s (pid %d), belongs to user %s, and the other end, %s "
		    "(pid %d), to user %s. One of them may have made the connection as "
		    "another user than it is now: then nobody vouches for it.",
		    c->link->owner->name, (int)c->link->owner->pid, own,
		    c->peer.owner->name, (int)c->peer.owner->pid, other));
	set(c->remedy,
	    text_of("Run both ends as one user, or let each become its user before it "
		    "connects or accepts."));
	free(own);
	free(other);
}

static void explain_namespace(const struct case_of *c)
{
	bool users, pids;

	if (!c->peer.owner || !c->link->owner)
		return;
	users = proc_same_namespace(c->link->owner->pid, c->peer.owner->pid, "user");
	pids = proc_same_namespace(c->link->owner->pid, c->peer.owner->pid, "pid");
	if (users && pids)
		return;
	set(c->text,
	    text_of("The two ends, %s (pid %d) and %s (pid %d), live in "
		    "different %s%s%s namespaces.",
		    c->link->owner->name, (int)c->link->owner->pid, c->peer.owner->name,
		    (int)c->peer.owner->pid, users ? "" : "user",
		    users || pids ? "" : " and ", pids ? "" : "pid"));
	set(c->remedy, text_of("Run both in the same ones: `docker run --pid "
			       "container:NAME`, `shareProcessNamespace: true` in a pod, "
			       "or without unshare(1)."));
}

static void explain_descriptors(const struct case_of *c)
{
	char limit[32];

	if (!c->link->owner)
		return;
	proc_limit(c->link->owner->pid, "Max open files", limit, sizeof(limit));
	if (!*limit)
		return;
	set(c->text, text_of("%s (pid %d) may have %s descriptors: too few are left for "
			     "the direct path of this connection.",
			     c->link->owner->name, (int)c->link->owner->pid, limit));
	set(c->remedy, text_of("Raise the limit for its next connections: `prlimit "
			       "--pid %d --nofile=65536`, or at its start: `ulimit -n`, "
			       "LimitNOFILE= of the service.",
			       (int)c->link->owner->pid));
}

static void explain_memory(const struct case_of *c)
{
	char space[32], file[32];

	if (!c->link->owner)
		return;
	proc_limit(c->link->owner->pid, "Max address space", space, sizeof(space));
	proc_limit(c->link->owner->pid, "Max file size", file, sizeof(file));
	set(c->text,
	    text_of("There was no memory for the direct path. The limits of %s "
		    "(pid %d): address space %s, file size %s.",
		    c->link->owner->name, (int)c->link->owner->pid, space, file));
	set(c->remedy, text_of("Lift them: `ulimit -v unlimited -f unlimited`, LimitAS= "
			       "and LimitFSIZE= of the service; or give the machine, or "
			       "the container, more memory."));
}

static void explain_locked(const struct case_of *c)
{
	char limit[32];

	if (!c->link->owner)
		return;
	proc_limit(c->link->owner->pid, "Max locked memory", limit, sizeof(limit));
	if (!*limit)
		return;
	set(c->text, text_of("%s (pid %d) may lock %s bytes of memory. Each process of "
			     "another host that it meets takes 4.5 MB of that, and again "
			     "for each eight connections.",
			     c->link->owner->name, (int)c->link->owner->pid, limit));
	set(c->remedy, text_of("Raise the limit for its next connections: `prlimit "
			       "--pid %d --memlock=unlimited`, or at its start: `ulimit "
			       "-l`, LimitMEMLOCK= of the service.",
			       (int)c->link->owner->pid));
}

static void explain_shared(const struct case_of *c)
{
	size_t count;
	const struct observe_holder *h =
		world_holders(c->w, c->link->socket->inode, &count);
	char *list = NULL;

	for (size_t i = 0; i < count; i++) {
		char *name = process_text(world_process(c->w, &h[i]));

		text_list(&list, name);
		free(name);
	}
	if (count > 1) {
		set(c->text, text_of("Several processes hold the connection: %s.", list));
		set(c->remedy,
		    text_of("Nothing to do: it is upgraded once one process holds it "
			    "alone. A server does that by closing in the parent what it "
			    "has forked for."));
	}
	free(list);
}

static void explain_stdio(const struct case_of *c)
{
	if (c->link->fd < 0 || c->link->fd > 2)
		return;
	set(c->text, text_of("The connection is descriptor %d: those are used through "
			     "stdio, and by programs that are started.",
			     c->link->fd));
	set(c->remedy, text_of("Give it another descriptor: as an inetd service, let the "
			       "program listen itself (wait, or `Accept=no`)."));
}

static void explain_asked(const struct case_of *c)
{
	if (c->peer.conn && c->peer.conn->known &&
	    c->peer.conn->reason != VD_REASON_NONE &&
	    c->peer.conn->reason != VD_REASON_PEER_ASKED)
		add_peer_reason(c, "The other end went back to TCP.");
}

static void explain_role(const struct case_of *c)
{
	const struct observe_process *p = c->link->owner;

	if (!p || !p->viaduct)
		return;
	if (p->trouble) {
		char *why = sentence_of(p->trouble);

		set(c->text, text_of("How %s (pid %d) carries it cannot be told: %s",
				     p->name, (int)p->pid, why));
		set(c->remedy, text_of("Ask with the command of the version that it runs "
				       "under, as root."));
		free(why);
		return;
	}
	set(c->text, text_of("%s (pid %d) has got the descriptor from another program, "
			     "by exec or in a message, and nothing is known of its past.",
			     p->name, (int)p->pid));
	set(c->remedy, text_of("Start the program that opened the connection with "
			       "`viaduct run`, too."));
}

void reason_explain(struct world *w, const struct link *l, uint32_t reason, char **text,
		    char **remedy)
{
	static void (*const special[VD_REASON_COUNT])(const struct case_of *c) = {
		[VD_REASON_SHORT] = explain_short,
		[VD_REASON_PLAIN_PEER] = explain_plain,
		[VD_REASON_REMOTE_PEER] = explain_remote,
		[VD_REASON_RULE] = explain_rule,
		[VD_REASON_NAT] = explain_nat,
		[VD_REASON_UID] = explain_uid,
		[VD_REASON_NAMESPACE] = explain_namespace,
		[VD_REASON_FD_LIMIT] = explain_descriptors,
		[VD_REASON_MEMORY] = explain_memory,
		[VD_REASON_ROLE] = explain_role,
		[VD_REASON_SHARED] = explain_shared,
		[VD_REASON_STDIO] = explain_stdio,
		[VD_REASON_PEER_ASKED] = explain_asked,
		[VD_REASON_LOCKED] = explain_locked,
	};
	const struct observe_socket *other = world_other(w, l->socket);
	struct case_of c = {.w = w, .link = l, .text = text, .remedy = remedy};

	*text = *remedy = NULL;
	c.has_other = other != NULL;
	if (other)
		c.peer = world_link(w, other);
	general(&c, reason);
	if (reason < VD_REASON_COUNT && special[reason])
		special[reason](&c);
}
