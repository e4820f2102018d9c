/* SPDX-License-Identifier: Apache-2.0 */
/* Checks of viaductd: whether ours answers, and whether it reaches that of the other host. */
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "tool/doctor/way.h"
#include "tool/floor.h"

#define RELAY_SOCKET "/run/viaduct/relay.sock"

enum {
	OWN_LIMIT_MS = 2000,   /* for an answer of our daemon's own */
	PROBE_LIMIT_MS = 8000, /* it gives up after five seconds */
	/* Where others probe, too, ours may have to wait for its turn. */
	TURNS = 5,
	TURN_MS_MAX = 2000,
};

static const char meaning[] = "Connections with the other host stay on TCP.";
static bool has_daemon;

/* The next message of that type; bytes of its hello, or -errno. */
static int hear(int fd, enum local_type type, struct local_message *m, int limit_ms)
{
	uint64_t end = floor_now_ns() + (uint64_t)limit_ms * 1000000;
	struct pollfd p = {.fd = fd, .events = POLLIN};

	for (;;) {
		int n = caller_hear(fd, m);

		/* Id 0: it turns us away. */
		if (n >= 0 && m->type == LOCAL_DONE && m->status != LOCAL_OK)
			return m->status == LOCAL_FULL || m->status == LOCAL_RATE
				       ? -EBUSY
				       : -EPROTONOSUPPORT;
		if (n >= 0 && m->type == type)
			return n;
		if (n < 0 && n != -EAGAIN)
			return n;
		if (floor_now_ns() >= end)
			return -ETIMEDOUT;
		poll(&p, 1, 100);
	}
}

/* ---- ours ---- */

int relay_greet(const char *name)
{
	static const struct name_end none;
	struct local_message m;
	int fd = caller_open(name), r;

	if (fd < 0)
		return fd;
	r = caller_say(fd, LOCAL_WITHDRAW, 1, &none, &none, LOCAL_OK, NULL, 0);
	if (r == 0)
		r = hear(fd, LOCAL_DONE, &m, OWN_LIMIT_MS);
	close(fd);
	return r < 0 ? r : 0;
}

static void tell_own(struct finding *f, int error)
{
	found_word(f, strerror(-error));
	found(f, "viaductd of this host: %s: %s", RELAY_SOCKET, strerror(-error));
	switch (error) {
	case -ENOENT:
	case -ECONNREFUSED:
		found_trouble(f, FINDING_PROBLEM, meaning,
			      "Start it: `systemctl enable --now viaductd.socket`; see "
			      "viaductd(8).");
		break;
	case -EACCES:
		found_trouble(f, FINDING_PROBLEM, meaning,
			      "Let this user reach it: the folder needs `chmod a+x`.");
		break;
	case -EBUSY:
	case -EAGAIN:
		found_trouble(f, FINDING_PROBLEM, meaning,
			      "It has too much to do: see its log.");
		break;
	case -EPROTO:
	case -EPROTONOSUPPORT:
	case -EPIPE:
		found_trouble(f, FINDING_PROBLEM, meaning,
			      "It is of another version than this command: install one, "
			      "and restart it.");
		break;
	default:
		found_trouble(f, FINDING_PROBLEM, meaning,
			      "It is stopped or hangs: see its log, and restart it.");
	}
}

void check_relay_daemon(struct finding *f)
{
	int r;

	if (!way_for(f))
		return;
	r = relay_greet(RELAY_SOCKET);
	has_daemon = r == 0;
	if (r < 0) {
		tell_own(f, r);
		return;
	}
	found_word(f, "running");
	found(f, "viaductd of this host answers");
}

/* ---- the other one ---- */

static void nap_ms(uint32_t ms)
{
	struct timespec t = {ms / 1000, (long)(ms % 1000) * 1000000};

	nanosleep(&t, NULL);
}

/* One PROBE and its answer. 0 or -errno. */
static int probe_once(int fd, const struct name_end *local, const struct name_end *peer,
		      struct local_message *m, double *took_us)
{
	static uint32_t id;
	uint64_t start;
	int r;

	for (int i = 0; i < TURNS; i++) {
		start = floor_now_ns();
		r = caller_say(fd, LOCAL_PROBE, ++id, local, peer, LOCAL_OK, NULL, 0);
		if (r == 0)
			r = hear(fd, LOCAL_PROBED, m, PROBE_LIMIT_MS);
		*took_us = (double)(floor_now_ns() - start) / 1e3;
		if (r < 0 || m->status != LOCAL_RATE)
			break;
		nap_ms(m->wait_ms < TURN_MS_MAX ? m->wait_ms : TURN_MS_MAX);
	}
	return r < 0 ? r : 0;
}

void relay_probe(const struct name_end *local, const struct name_end *peer,
		 struct probed *out)
{
	struct local_message m;
	double took_us;
	int fd = caller_open(RELAY_SOCKET), r;

	memset(out, 0, sizeof(*out));
	r = fd < 0 ? fd : probe_once(fd, local, peer, &m, &took_us);
	out->error = r;
	if (r == 0) {
		out->status = (enum local_status)m.status;
		memcpy(&out->why, m.hello, sizeof(out->why));
		out->self = m.local;
		out->daemon = m.peer;
	}
	/* The first has made the link between the daemons. */
	if (r == 0 && m.status == LOCAL_OK &&
	    probe_once(fd, local, peer, &m, &took_us) == 0 && m.status == LOCAL_OK)
		out->round_trip_us = took_us;
	if (fd >= 0)
		close(fd);
}

static const char *connect_remedy(uint32_t error)
{
	switch (error) {
	case ECONNREFUSED:
		return "Start viaductd there: `systemctl enable --now viaductd.socket`; "
		       "both hosts need the same `port` in viaductd.conf.";
	case EADDRNOTAVAIL:
		return "See `ip addr`: viaductd is in another network namespace, or the "
		       "address has gone.";
	default:
		return "See that the host is up, and let this TCP port pass the "
		       "firewalls on the way.";
	}
}

static const char *cause_remedy(const struct local_probed *why)
{
	switch ((enum local_cause)why->cause) {
	case LOCAL_CAUSE_CONNECT:
		return connect_remedy(why->error);
	case LOCAL_CAUSE_CLOSED:
		return "Its rules deny every connection with the other host, or too many "
		       "connect to it: see its rules and its log.";
	case LOCAL_CAUSE_NO_PROOF:
		return "It is stopped or hangs, or something else has the port: see its "
		       "log.";
	case LOCAL_CAUSE_STRANGER:
		return "Something else has the port: set another `port` in viaductd.conf "
		       "of both hosts.";
	case LOCAL_CAUSE_OTHER_VERSION:
	case LOCAL_CAUSE_REFUSES_VERSION:
		return "Install the same version of Viaduct on both hosts, and restart "
		       "viaductd.";
	case LOCAL_CAUSE_REFUSES_KEY:
	case LOCAL_CAUSE_WRONG_KEY:
		return "Give both hosts the same viaductd.key, and restart viaductd on "
		       "both.";
	case LOCAL_CAUSE_BROKEN:
		return "Something between the hosts changes or repeats what they say: "
		       "see the logs of both.";
	default:
		return "Try again; see its log.";
	}
}

/* The daemon that was asked, or that should have been. */
static const char *daemon_text(const struct probed *p, bool there,
			       char text[LOCAL_END_TEXT_BYTES])
{
	struct name_end end = p->daemon;

	if (end.port != 0)
		return local_end_text(&end, text);
	snprintf(text, LOCAL_END_TEXT_BYTES, "%s",
		 there ? way.local_text : way.peer_text);
	return text;
}

static void tell_cause(struct finding *f, const struct probed *p, const char *daemon,
		       bool there)
{
	uint32_t error = p->why.error;

	found_word(f, error ? strerror((int)error) : local_cause_text(p->why.cause));
	found(f, "viaductd at %s %s%s%s%s", daemon, local_cause_text(p->why.cause),
	      there ? " when asked from there" : "", error ? ": " : "",
	      error ? strerror((int)error) : "");
	found_trouble(f, FINDING_PROBLEM, meaning, "%s", cause_remedy(&p->why));
}

static const char *status_remedy(enum local_status status)
{
	switch (status) {
	case LOCAL_NETNS:
		return "Run a viaductd in the network namespace of the programs.";
	case LOCAL_RULE:
		return "See the rules in viaductd.conf of that host: one denies this "
		       "user, this host, or the program `viaduct`.";
	case LOCAL_FOREIGN:
		return "Where daemons use other addresses than the connections, both "
		       "hosts need the same `peer =` lines in viaductd.conf.";
	case LOCAL_SILENT:
		return "The other viaductd hangs, or the way there has just been cut: "
		       "see its log.";
	default:
		return "Try again in some seconds; see the logs of both viaductd.";
	}
}

void relay_tell(struct finding *f, const struct probed *p, bool there)
{
	char daemon[LOCAL_END_TEXT_BYTES];

	daemon_text(p, there, daemon);
	if (p->error) {
		found_word(f, strerror(-p->error));
		found(f, "viaductd %s gave no answer: %s",
		      there ? "of the other host" : "of this host", strerror(-p->error));
		found_trouble(f, FINDING_PROBLEM, meaning,
			      "See that it runs there, is of the same version as this "
			      "command, and what its log says.");
	} else if (p->status == LOCAL_OK) {
		found_number(f, p->round_trip_us, "us");
		found(f, "viaductd at %s has the key, and answers%s within %.0f us",
		      daemon, there ? " that of the other host" : "", p->round_trip_us);
	} else if (p->status == LOCAL_UNREACHABLE || p->status == LOCAL_KEY) {
		tell_cause(f, p, daemon, there);
	} else {
		found_word(f, local_status_text(p->status));
		found(f, "viaductd %s says: %s",
		      p->status == LOCAL_FOREIGN || p->status == LOCAL_SILENT ? daemon
		      : there ? "of the other host"
			      : "of this host",
		      local_status_text(p->status));
		found_trouble(f, FINDING_PROBLEM, meaning, "%s",
			      status_remedy(p->status));
	}
}

void check_relay(struct finding *f)
{
	struct probed p;

	if (!way_for(f))
		return;
	f->left_out = !has_daemon;
	if (f->left_out)
		return;
	relay_probe(&way.local, &way.peer, &p);
	way.has_relay = !p.error && p.status == LOCAL_OK;
	relay_tell(f, &p, false);
}
