/* SPDX-License-Identifier: Apache-2.0 */
/* viaduct explain HOST:PORT of another host: whether connections can go there by RDMA. */
#include <arpa/inet.h>
#include <stdlib.h>
#include <time.h>

#include "base/reason.h"
#include "remote/crossover.h"
#include "remote/learnt.h"
#include "settings/config.h"
#include "tool/doctor/way.h"
#include "tool/explain/world.h"
#include "tool/kept.h"

/* One check of `viaduct doctor HOST`. False: it is a hindrance. */
static bool say_check(void (*look)(struct finding *), const char *name, struct answer *a)
{
	struct finding f = {.state = FINDING_OK};
	char *text;

	look(&f);
	if (f.left_out)
		return false;
	text = sentence_of(f.text);
	if (f.state == FINDING_OK) {
		say(a, POINT_YES, name, "%s", text);
	} else {
		say(a, POINT_NO, name, "%s %s", text, f.meaning);
		say_remedy(a, "%s", f.remedy);
	}
	free(text);
	return f.state == FINDING_OK;
}

/* What connections have found out, where nobody has measured. */
static void say_learnt(const char *host, const struct in6_addr *addr, struct answer *a)
{
	struct learnt l;

	learnt_read();
	if (!learnt_find(addr->s6_addr, NULL, &l))
		return;
	if (l.pays)
		say(a, POINT_NOTE, "redirect",
		    "Receives with room for %u bytes or more are redirected, as "
		    "connections "
		    "by %s have found out on %s.",
		    l.pays, l.device, l.date);
	else
		say(a, POINT_NOTE, "redirect",
		    "Redirection does not pay up to %u bytes, as connections by %s have "
		    "found out on %s.",
		    l.fails, l.device, l.date);
	say_remedy(a, "`viaduct doctor %s` measures it.", host);
}

/* What `viaduct doctor` has measured, where the settings leave it to that. False: RDMA is slower. */
static bool say_kept(const char *host, const struct in6_addr *addr, struct answer *a)
{
	struct crossover c;

	if (crossover_is_open(addr->s6_addr))
		say_learnt(host, addr, a);
	if (config_get()->redirect != CONFIG_MEASURED ||
	    !crossover_find(addr->s6_addr, &c))
		return true;
	if (c.is_slower) {
		say(a, POINT_NO, reason_name(VD_REASON_SLOWER),
		    "`viaduct doctor` has measured on %s that RDMA is slower than TCP "
		    "there.",
		    c.date);
		say_remedy(a, "Measure it again: `viaduct doctor --measure %s`.", host);
		return false;
	}
	if (c.least)
		say(a, POINT_NOTE, "redirect",
		    "Receives with room for %u bytes or more are redirected, as "
		    "measured on %s.",
		    c.least, c.date);
	else
		say(a, POINT_NOTE, "redirect",
		    "Nothing from there is redirected, since that does not pay, as "
		    "measured on %s.",
		    c.date);
	if (kept_is_old(&c, time(NULL)))
		say_remedy(a, "`viaduct doctor %s` measures it again.", host);
	return true;
}

/* What this host can tell; the other one may lack something still. */
static bool say_way(const char *host, const struct in6_addr *addr, struct answer *a)
{
	struct finding name = {.state = FINDING_OK};
	bool is_faster, well;

	way.host = host;
	check_name(&name);
	is_faster = say_kept(host, addr, a);
	if (!say_check(check_route, "route", a))
		return false;
	well = say_check(check_device, reason_name(VD_REASON_NO_DEVICE), a);
	/* It is asked whether it reaches the other one; for that nothing else need be well. */
	if (!say_check(check_relay_daemon, reason_name(VD_REASON_RELAY), a) ||
	    !say_check(check_relay, reason_name(VD_REASON_RELAY), a))
		well = false;
	return well && is_faster;
}

bool explain_far(const struct observe_end *end, const char *text, struct answer *a)
{
	bool v4 = IN6_IS_ADDR_V4MAPPED(&end->addr), well;
	char host[INET6_ADDRSTRLEN];
	size_t at = a->count;

	inet_ntop(v4 ? AF_INET : AF_INET6, end->addr.s6_addr + (v4 ? 12 : 0), host,
		  sizeof(host));
	say(a, POINT_NO, reason_name(VD_REASON_REMOTE_PEER),
	    "%s is no address of this host, in this network namespace.", text);
	well = say_way(host, &end->addr, a);
	if (well) {
		a->points[at].state = POINT_NOTE;
		at = a->count;
		say(a, POINT_NOTE, "there",
		    "Whether a program under Viaduct listens there, and the other host "
		    "is ready, too, cannot be told from here.");
		say_remedy(a,
			   "Test the whole way: `viaduct doctor %s`. On the other host: "
			   "`viaduct explain %s`.",
			   host, text);
		return true;
	}
	a->points[at].remedy = text_of(
		"Another host is reached by RDMA, where both have it: `viaduct doctor "
		"%s` tests the way, and says what is missing. Without it, run both ends "
		"on one host, in one network namespace. Where the address is a "
		"container's, ask from within: `nsenter -t PID -n viaduct explain "
		"...`; where it is translated (a published port, a load balancer), use "
		"the server's own address.",
		host);
	return false;
}
