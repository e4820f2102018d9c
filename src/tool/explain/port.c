/* SPDX-License-Identifier: Apache-2.0 */
/* viaduct explain HOST:PORT: who listens there, and how a connection from here would go. */
#include <ctype.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/reason.h"
#include "conn/slot.h"
#include "settings/view.h"
#include "tool/cli.h"
#include "tool/explain/proc.h"
#include "tool/explain/world.h"

/* Shown for users that a user namespace does not know. */
#define USER_UNKNOWN 65534u

enum { ADDRESSES_MAX = 16, OLDEST = 1, NEWER = 4 };

/* ---- the hint ---- */

/* As name_port_address in rendezvous/name.c writes it. */
static bool is_announced(uint16_t port, unsigned version)
{
	struct sockaddr_un name = {.sun_family = AF_UNIX};
	int n = snprintf(name.sun_path + 1, sizeof(name.sun_path) - 1,
			 "viaduct.%u.port.%u", version, port);
	socklen_t len =
		(socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	bool there = fd >= 0 && connect(fd, (struct sockaddr *)&name, len) == 0;

	if (fd >= 0)
		close(fd);
	return there;
}

/* The layout's version that a port is announced with here; ours when that is among them; 0 for
 * none. */
static unsigned announced(uint16_t port)
{
	if (is_announced(port, WIRE_VERSION))
		return WIRE_VERSION;
	for (unsigned v = OLDEST; v <= WIRE_VERSION + NEWER; v++)
		if (is_announced(port, v))
			return v;
	return 0;
}

/* ---- one process that listens ---- */

static uint64_t own_netns(const struct world *w)
{
	const struct observe_process *self = observe_process(&w->o, getpid());

	return self ? self->netns : 0;
}

/* Another version has announced it: true, and that is said. */
static bool say_version(const struct world *w, const struct link *l, struct answer *a)
{
	unsigned version =
		own_netns(w) == w->netns ? announced(l->socket->local.port) : 0;

	if (version == 0 || version == WIRE_VERSION)
		return false;
	say(a, POINT_NO, reason_name(VD_REASON_VERSION),
	    "Its port is announced by an incompatible Viaduct (layout %u, and ours is "
	    "%u).",
	    version, WIRE_VERSION);
	say_remedy(a, "Run the same version of Viaduct at both ends.");
	return true;
}

static void say_announced(const struct world *w, const struct link *l, struct answer *a)
{
	bool here = own_netns(w) == w->netns;

	if (!here || announced(l->socket->local.port) == WIRE_VERSION) {
		say(a, POINT_YES, "listens",
		    "It runs under Viaduct%s: connections to it can be upgraded.",
		    here ? ", and announces its port" : "");
		return;
	}
	say(a, POINT_NOTE, "listens",
	    "It runs under Viaduct, but its port is not announced: it got its listener "
	    "from another program, and has not accepted a connection yet; or it had no "
	    "descriptor to spare.");
	say_remedy(a, "Nothing to do, unless it stays so: its log (`viaduct run --log "
		      "debug`) says why.");
}

static bool say_accept_rule(const struct proc *p, const struct sockaddr *server,
			    struct answer *a)
{
	const char *slash = strrchr(p->exe, '/');
	static struct rules rules;
	char message[256];

	if (!p->rules)
		return true;
	if (rules_parse(p->rules, &rules, message, sizeof(message)) == 0) {
		rules_keep_program(&rules, slash ? slash + 1 : p->exe, p->name);
		if (rules_allow(&rules, CONFIG_ACCEPT, server))
			return true;
	}
	say(a, POINT_NO, reason_name(VD_REASON_RULE),
	    "A rule of %s (pid %d) keeps connections to it on TCP: VIADUCT_RULES=%s",
	    p->name, (int)p->pid, p->rules);
	say_remedy(a, "Change the rule, and start it again: rules are read at the "
		      "start.");
	return false;
}

static const struct sockaddr *address_of(const struct observe_end *end,
					 struct sockaddr_in6 *in6)
{
	*in6 = (struct sockaddr_in6){.sin6_family = AF_INET6,
				     .sin6_addr = end->addr,
				     .sin6_port = htons(end->port)};
	if (IN6_IS_ADDR_V4MAPPED(&end->addr)) {
		struct sockaddr_in in = {.sin_family = AF_INET,
					 .sin_port = htons(end->port)};

		memcpy(&in.sin_addr, end->addr.s6_addr + 12, 4);
		memcpy(in6, &in, sizeof(in));
	}
	return (const struct sockaddr *)in6;
}

bool explain_listener(const struct world *w, const struct link *l, struct answer *a)
{
	struct sockaddr_in6 server;
	size_t before = a->count;
	struct outside out;
	char *about;
	struct proc p;
	bool well;

	if (!l->owner || proc_read(l->owner->pid, &p) != 0)
		return false;
	about = link_text(w, l);
	well = proc_is_under(&p, l->owner->viaduct, &out);
	if (say_version(w, l, a)) {
		well = false;
	} else if (well) {
		say_announced(w, l, a);
		well = say_accept_rule(&p, address_of(&l->socket->local, &server), a);
	} else {
		say(a, POINT_NO,
		    strcmp(out.name, "plain") ? out.name
					      : reason_name(VD_REASON_PLAIN_PEER),
		    "It is not under Viaduct.%s%s", l->owner == w->said ? "" : " ",
		    l->owner == w->said ? "" : out.why);
		say_remedy(a, "%s", l->owner == w->said ? "See above." : out.remedy);
	}
	for (size_t i = before; i < a->count; i++)
		a->points[i].about = text_of("%s", about);
	outside_finish(&out);
	proc_finish(&p);
	free(about);
	return well;
}

/* ---- this end ---- */

/* What a program that is started here would meet, but for its own name. */
static void say_here(const struct observe_end *end, struct answer *a)
{
	static struct view v;
	struct sockaddr_in6 server;

	view_here(&v, NULL, NULL);
	if (v.config.off) {
		say(a, POINT_NO, reason_name(VD_REASON_OFF),
		    "Viaduct is switched off here.");
		say_remedy(a, "See where with `viaduct config`, and remove that.");
	} else if (v.doubt) {
		say(a, POINT_NO, reason_name(VD_REASON_RULE),
		    "A rule, or a file of settings, cannot be understood here: every "
		    "connection from here stays on TCP.");
		say_remedy(a, "Correct it: `viaduct config --check` says what is wrong.");
	} else if (!rules_allow(&v.rules, CONFIG_CONNECT, address_of(end, &server))) {
		say(a, POINT_NO, reason_name(VD_REASON_RULE),
		    "A rule keeps connections from here to it on TCP.");
		say_remedy(a, "Change it; `viaduct config` lists the rules with their "
			      "places.");
	}
}

/* As rendezvous/ident.c has it: one user has to share both namespaces; of two users each needs a
 * number in the other's. */
static void say_namespaces(const struct observe_process *p, struct answer *a)
{
	bool users = proc_same_namespace(getpid(), p->pid, "user");
	bool pids = proc_same_namespace(getpid(), p->pid, "pid");

	if ((users && pids) ||
	    (p->uid != geteuid() && proc_maps_user(p->pid, geteuid()) &&
	     (p->uid != USER_UNKNOWN || proc_maps_user(getpid(), USER_UNKNOWN))))
		return;
	say(a, POINT_NO, reason_name(VD_REASON_NAMESPACE),
	    "It lives in another %s%s%s namespace than this command.",
	    users ? "" : "user", users || pids ? "" : " and ", pids ? "" : "pid");
	say_remedy(a, "Run both ends in the same ones: `docker run --pid "
		      "container:NAME`, `shareProcessNamespace: true` in a pod.");
}

/* ---- the address ---- */

static bool accepts(const struct observe_socket *s, const struct observe_end *end)
{
	static const struct in6_addr any = IN6ADDR_ANY_INIT;
	static const uint8_t any4[16] = {[10] = 0xff, [11] = 0xff};
	bool v4 = IN6_IS_ADDR_V4MAPPED(&end->addr);

	if (s->state != TCP_LISTEN || s->local.port != end->port)
		return false;
	return !memcmp(&s->local.addr, &end->addr, 16) ||
	       !memcmp(&s->local.addr, &any, 16) ||
	       (v4 && !memcmp(&s->local.addr, any4, 16)) ||
	       !memcmp(&end->addr, &any, 16) || !memcmp(&end->addr, any4, 16);
}

/* One of another user: whether it is under Viaduct is known by its announcement alone. */
static void say_hidden(const struct world *w, const struct link *l, size_t direct,
		       struct answer *a, bool *well)
{
	bool is_announced = own_netns(w) == w->netns &&
			    announced(l->socket->local.port) == WIRE_VERSION;

	if (is_announced || direct) {
		say(a, POINT_YES, "listens",
		    "A process that may not be seen listens there, and %s: it runs "
		    "under Viaduct, and connections to it can be upgraded.",
		    is_announced ? "announces its port"
				 : "connections to it are on the direct path");
		return;
	}
	say(a, POINT_NO, "hidden",
	    "A process that may not be seen listens there, and does not announce its "
	    "port: most likely it does not run under Viaduct.");
	say_remedy(a, "Ask as root.");
	*well = false;
}

/* Takes the last point back where it has been said already, of another socket. */
static void once(struct answer *a)
{
	for (size_t i = 0; i + 1 < a->count; i++) {
		const struct point *p = &a->points[i], *last = &a->points[a->count - 1];

		if (last->about || p->about || strcmp(p->text, last->text) != 0)
			continue;
		free(last->text);
		free(last->remedy);
		a->count--;
		return;
	}
}

/* How many processes listen there, and whether all of them are well. */
static size_t say_listeners(const struct world *w, const struct observe_end *end,
			    size_t direct, struct answer *a, bool *well, char **first)
{
	const struct observe_socket *s = w->sockets.items;
	size_t found = 0;

	for (size_t i = 0; i < w->sockets.count; i++) {
		struct link l;

		if (!accepts(&s[i], end))
			continue;
		l = world_link(w, &s[i]);
		if (!l.owner) {
			say_hidden(w, &l, direct, a, well);
		} else {
			*well &= explain_listener(w, &l, a);
			say_namespaces(l.owner, a);
		}
		once(a);
		if (!found++)
			*first = process_text(l.owner);
	}
	return found;
}

static bool is_any(const struct observe_end *end)
{
	return IN6_IS_ADDR_UNSPECIFIED(&end->addr);
}

static bool leads_to(const struct observe_end *peer, const struct observe_end *end)
{
	return peer->port == end->port &&
	       (is_any(end) ? address_is_here(&peer->addr, 0)
			    : !memcmp(&peer->addr, &end->addr, 16));
}

/* The connections to it that there are; how many of them are on the direct path. */
static size_t say_connections(struct world *w, const struct observe_end *end,
			      struct answer *a, size_t *direct)
{
	const struct observe_socket *s = w->sockets.items;
	size_t count = 0;

	for (size_t i = 0; i < w->sockets.count; i++) {
		struct link l;

		if (s[i].state == TCP_LISTEN || !leads_to(&s[i].peer, end))
			continue;
		l = world_link(w, &s[i]);
		if (!l.owner)
			continue;
		count++;
		*direct += explain_link(w, &l, a);
	}
	return count;
}

/* Said of the place first, then of its connections. */
static void append(struct answer *a, struct answer *more)
{
	a->points = need(
		realloc(a->points, (a->count + more->count + 1) * sizeof(*a->points)));
	if (more->count)
		memcpy(a->points + a->count, more->points,
		       more->count * sizeof(*a->points));
	a->count += more->count;
	free(more->points);
}

/* at: where somebody listens; end: an address there. */
static void explain_here(struct world *w, const struct observe_end *at,
			 const struct observe_end *end, const char *text, size_t direct,
			 struct answer *a)
{
	char *first = NULL;
	bool well = true;
	size_t found = say_listeners(w, at, direct, a, &well, &first);

	say_here(end, a);
	well &= !said_no(a);
	if (found == 0) {
		say(a, POINT_NO, "no-listener", "Nobody listens there.");
		say_remedy(a, "Start the server with: viaduct run -- SERVER");
		say_verdict(a, false, "%s is here, but nobody listens there.", text);
	} else if (well) {
		say_verdict(a, true,
			    "Connections to %s, %s, are accelerated for programs that "
			    "are started with `viaduct run`.",
			    text, first);
	} else {
		say_verdict(a, false, "Connections to %s, %s, stay on TCP.", text, first);
	}
	free(first);
}

/* What is seen is true, whatever else speaks against it. */
static void judge_by_connections(const char *text, size_t count, size_t direct,
				 struct answer *a)
{
	if (!direct || a->accelerated)
		return;
	free(a->verdict);
	say_verdict(a, true,
		    "%zu of the %zu connections to %s are on the direct path; new ones "
		    "may not be.",
		    direct, count, text);
}

#define NO_PORT                                                                          \
	"%s is no port: these are from 1 to 65535, or have a name in /etc/services"

struct addresses {
	struct observe_end ends[ADDRESSES_MAX];
	uint32_t scopes[ADDRESSES_MAX];
	size_t count;
};

static bool resolve(const char *host, const char *port, struct addresses *to)
{
	struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
	struct addrinfo *all = NULL;
	int r = getaddrinfo(*host ? host : NULL, port, &hints, &all);

	if (r == EAI_SERVICE) {
		usage_error("explain", NO_PORT, port);
		return false;
	}
	if (r) {
		warn_line("viaduct explain: %s:%s cannot be resolved: %s", host, port,
			  gai_strerror(r));
		return false;
	}
	for (struct addrinfo *at = all; at && to->count < ADDRESSES_MAX;
	     at = at->ai_next) {
		const struct sockaddr_in *in = (const void *)at->ai_addr;
		const struct sockaddr_in6 *in6 = (const void *)at->ai_addr;
		struct observe_end *end = &to->ends[to->count];
		uint32_t *scope = &to->scopes[to->count++];

		end->port = ntohs(in->sin_port);
		if (at->ai_family == AF_INET6) {
			end->addr = in6->sin6_addr;
			*scope = in6->sin6_scope_id;
		} else {
			end->addr.s6_addr[10] = end->addr.s6_addr[11] = 0xff;
			memcpy(end->addr.s6_addr + 12, &in->sin_addr, 4);
		}
	}
	freeaddrinfo(all);
	return to->count > 0;
}

static bool is_served(const struct world *w, const struct observe_end *end)
{
	const struct observe_socket *s = w->sockets.items;

	for (size_t i = 0; i < w->sockets.count; i++)
		if (accepts(&s[i], end))
			return true;
	return false;
}

/* Rather one that is here, and rather one that is served: `localhost` has two. */
static const struct observe_end *choose(const struct world *w,
					const struct addresses *all, bool *here)
{
	const struct observe_end *best = &all->ends[0];

	*here = false;
	for (size_t i = 0; i < all->count; i++) {
		const struct observe_end *end = &all->ends[i];

		if (!address_is_here(&end->addr, all->scopes[i]))
			continue;
		if (!*here || is_served(w, end))
			best = end;
		*here = true;
		if (is_served(w, end))
			break;
	}
	return best;
}

/* getaddrinfo would take the number modulo 65536. */
static bool is_port(const char *port)
{
	size_t digits = strspn(port, "0123456789");
	unsigned long n;

	for (const char *at = port; *at; at++)
		if (isalpha((unsigned char)*at))
			return true; /* the name of a service */
	n = digits && !port[digits] && digits <= 5 ? strtoul(port, NULL, 10) : 0;
	return n >= 1 && n <= 65535;
}

int explain_port(const char *host, const char *port, struct answer *a)
{
	struct addresses all = {.count = 0};
	struct answer connections = {0};
	const struct observe_end *end;
	struct observe_end at;
	size_t count, direct = 0;
	struct world w;
	char text[64];
	bool here;

	if (!is_port(port))
		return usage_error("explain", NO_PORT, port);
	if (!resolve(host, port, &all) || world_take(0, &w) != 0)
		return EXIT_USAGE;
	end = choose(&w, &all, &here);
	if (all.count == 1 && IN6_IS_ADDR_LINKLOCAL(&end->addr) && !all.scopes[0]) {
		world_finish(&w);
		return usage_error(
			"explain",
			"`%s` is an address of a link: name its interface, as in "
			"[%s%%eth0]:%s",
			host, host, port);
	}
	at = *end;
	observe_end_text(end, text);
	if (!*host) {
		at.addr = in6addr_any;
		snprintf(text, sizeof(text), "port %s (IPv4 and IPv6)", port);
	}
	count = say_connections(&w, &at, &connections, &direct);
	if (here) {
		explain_here(&w, &at, end, text, direct, a);
	} else {
		bool can = explain_far(end, text, a);

		say_here(end, a);
		can &= !said_no(a);
		say_verdict(
			a, can,
			can ? "Connections to %s, on another host, can be "
			      "accelerated, by RDMA, when both ends are started with "
			      "`viaduct run`."
			    : "%s is not on this host: connections to it stay on TCP, "
			      "as things are here.",
			text);
	}
	judge_by_connections(text, count, direct, a);
	append(a, &connections);
	world_finish(&w);
	return 0;
}
