/* SPDX-License-Identifier: Apache-2.0 */
/* Checks by a connection with the other host: which way its bytes go, whether all come, how fast. */
#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tool/doctor/far.h"
#include "tool/floor.h"

enum {
	/* Ends that have not met by then do not. Between two looks, bytes must flow. */
	MEET_LIMIT_MS = 5000,
	MEET_STEP_MS = 50,
	LATENCY_MS = 300,
};

static struct far_child child;
static struct far_path before;
static struct far_view view; /* of the other side */
static bool has_answer, has_view;

struct name_end answer_end(void)
{
	struct name_end end = way.peer;

	end.port = htons(way.port);
	return end;
}

/* Once it has failed there is no connection any more. 0 or -errno. */
static int order(enum far_do what, uint32_t ms, struct far_result *out)
{
	int r = far_order(&child, what, ms, out);

	if (r < 0)
		has_answer = false;
	return r;
}

/* ---- somebody answers there ---- */

/* False: it was told why no program of ours can try. */
static bool has_child(struct finding *f)
{
	struct far_result result;
	/* Else nothing could be tried, or measured again, where RDMA was slower. */
	int r = far_start_asking(&child, crossover_keeps_tcp(way.peer.addr) ? FAR_BY_RING
									    : FAR_AS_SET);

	has_answer = r == 0;
	if (r == 0)
		r = order(FAR_DO_START, 0, &result);
	if (r == 0)
		return true;
	found_word(f, strerror(-r));
	found(f, "no program can be run under Viaduct here: %s", strerror(-r));
	found_trouble(f, FINDING_PROBLEM, "So no connection is tried.",
		      "See `library` and `preload` of `viaduct doctor`, without a host.");
	return false;
}

/* What is to be run there. */
static void answer_text(char *text, size_t size)
{
	snprintf(text, size, "viaduct doctor --answer%s",
		 way.port == WAY_PORT ? "" : " --port ");
	if (way.port != WAY_PORT)
		snprintf(text + strlen(text), size - strlen(text), "%u", way.port);
}

void check_answer(struct finding *f)
{
	struct far_result result;
	char command[64];
	int r;

	if (!way_for(f))
		return;
	if (!has_child(f))
		return;
	answer_text(command, sizeof(command));
	r = order(FAR_DO_CONNECT, 0, &result);
	if (r < 0) {
		found_word(f, strerror(-r));
		found(f, "nothing answers at port %u of %s: %s", way.port, way.peer_text,
		      strerror(-r));
		found_trouble(f, FINDING_NOTE,
			      "So no connection with it is tried, and nothing measured.",
			      "Run this there first: `%s`; its port must pass the "
			      "firewalls.",
			      command);
		return;
	}
	r = order(FAR_DO_ECHO, 0, &result);
	if (r < 0) {
		found_word(f, strerror(-r));
		found(f, "what answers at port %u of %s is not the other doctor: %s",
		      way.port, way.peer_text, strerror(-r));
		found_trouble(f, FINDING_PROBLEM, "So no connection with it is tried.",
			      "Run `%s` of the same version there, if need be at another "
			      "port, which --port names on both hosts.",
			      command);
		return;
	}
	found_word(f, "running");
	found(f, "`%s` answers at %s", command, way.peer_text);
}

/* ---- the way that the bytes go ---- */

static bool is_settled(const struct far_path *p)
{
	return p->is_final || (observe_is_direct(p->tx) && observe_is_direct(p->rx));
}

/* A loss of the connection is -errno. */
static int wait_settled(void)
{
	uint64_t end = floor_now_ns() + (uint64_t)MEET_LIMIT_MS * 1000000;
	struct name_end peer = answer_end();
	struct far_result result;
	int r;

	do {
		r = order(FAR_DO_ECHO, MEET_STEP_MS, &result);
		if (r == 0)
			far_look(&child, &peer, &before);
	} while (r == 0 && !is_settled(&before) && floor_now_ns() < end);
	if (r == 0)
		r = order(FAR_DO_LOOK, 0, &result);
	has_view = r == 0;
	if (r == 0)
		view = result.view;
	return r;
}

static void tell_lost(struct finding *f, int error)
{
	bool wrong = error == -EBADMSG;

	found_word(f, strerror(-error));
	found(f, "%s: %s",
	      wrong ? "the bytes that came are not those that were sent"
		    : "the connection was lost",
	      strerror(-error));
	found_trouble(f, FINDING_PROBLEM,
		      wrong ? "This must never be: Viaduct, a device or memory is at "
			      "fault."
			    : "Programs would have lost it, too.",
		      wrong ? "Report it; try again with VIADUCT=off."
			    : "See the kernel's log on both hosts, and try again.");
}

/* These say no more than that nobody has come: the other side may know why. */
static bool is_vague(uint32_t reason)
{
	return reason == VD_REASON_NONE || reason == VD_REASON_SHORT ||
	       reason == VD_REASON_PLAIN_PEER || reason == VD_REASON_REMOTE_PEER ||
	       reason == VD_REASON_PEER_ASKED;
}

/* Then the ends have met, and have nothing to tell but that no link has come of it. */
static bool all_else_is_well(void)
{
	return way.has_device && way.has_relay && view.has_device &&
	       view.relay_error == 0 && view.relay_status == LOCAL_OK;
}

static void tell_blocked(struct finding *f, const char *sentence)
{
	found_trouble(
		f, FINDING_PROBLEM, sentence,
		"Let RoCE, which is UDP port 4791, pass the firewalls on the way in "
		"both directions, and at its full size: see the MTU of both "
		"devices.");
}

static void tell_tcp(struct finding *f)
{
	uint32_t reason = before.reason;
	bool there = is_vague(reason) && !is_vague(view.reason) &&
		     view.reason < VD_REASON_COUNT;
	char meaning[200];

	if (there)
		reason = view.reason;
	if (is_vague(reason) && all_else_is_well()) {
		tell_blocked(f, "It stays on TCP: what is written by RDMA does not come "
				"through.");
		return;
	}
	if (is_vague(reason)) {
		found_trouble(f, FINDING_PROBLEM,
			      "It stays on TCP: the two ends have not found each other.",
			      "Mend what the checks of viaductd and of the device say, "
			      "here and in `relay-back` and `device-there`.");
		return;
	}
	snprintf(meaning, sizeof(meaning), "It stays on TCP: %s, %s.",
		 there ? "there" : "here", reason_text(reason));
	if (reason == VD_REASON_LINK)
		tell_blocked(f, meaning);
	else if (reason == VD_REASON_RELAY)
		found_trouble(f, FINDING_PROBLEM, meaning,
			      "Mend what the other checks say; where they say nothing, "
			      "see the logs of viaductd.");
	else
		found_trouble(f, FINDING_PROBLEM, meaning, "%c%s.",
			      toupper((unsigned char)reason_remedy(reason)[0]),
			      reason_remedy(reason) + 1);
}

void check_connection(struct finding *f)
{
	char paths[64];
	int r;

	f->left_out = !has_answer;
	if (f->left_out)
		return;
	r = wait_settled();
	if (r < 0) {
		tell_lost(f, r);
		return;
	}
	if (!before.is_seen && !before.is_final) {
		found(f, "the connection works, but which way it goes cannot be told");
		found_trouble(f, FINDING_PROBLEM, "Processes here cannot be looked at.",
			      "See `proc` of `viaduct doctor`, without a host.");
		return;
	}
	snprintf(paths, sizeof(paths), "%s", observe_path_name(before.tx));
	if (before.tx != before.rx)
		snprintf(paths + strlen(paths), sizeof(paths) - strlen(paths), "/%s",
			 observe_path_name(before.rx));
	found_word(f, paths);
	found(f, "bytes to %s go by %s, bytes from it by %s", way.peer_text,
	      observe_path_name(before.tx), observe_path_name(before.rx));
	if (before.tx != OBSERVE_RDMA || before.rx != OBSERVE_RDMA)
		tell_tcp(f);
	else if (view.reason == VD_REASON_SLOWER)
		found_trouble(f, FINDING_NOTE,
			      "Others stay on TCP: there, RDMA to this host was measured "
			      "to be slower.",
			      "Measure it again there: `viaduct doctor --measure %s`.",
			      way.local_text);
}

/* ---- measured ---- */

/*
 * Carries the order out, and tells its value. What was compared must have gone the way that
 * `connection` has told: the library's own counts say so.
 */
static bool measure(struct finding *f, enum far_do what, struct far_result *out)
{
	struct name_end peer = answer_end();
	struct far_path now;
	uint64_t direct;
	int r;

	f->left_out = !has_answer;
	if (f->left_out)
		return false;
	far_look(&child, &peer, &before);
	r = order(what, LATENCY_MS, out);
	if (r < 0) {
		tell_lost(f, r);
		return false;
	}
	far_look(&child, &peer, &now);
	direct = now.tx_direct_bytes - before.tx_direct_bytes + now.rx_direct_bytes -
		 before.rx_direct_bytes;
	if (before.tx == OBSERVE_RDMA && before.rx == OBSERVE_RDMA && direct < out->bytes)
		found_trouble(f, FINDING_PROBLEM, "It went back to TCP meanwhile.",
			      "See the logs of viaductd and of the kernel on both "
			      "hosts.");
	return true;
}

static const char *way_name(void)
{
	return before.tx == before.rx ? observe_path_name(before.tx) : "both ways";
}

void check_latency(struct finding *f)
{
	struct far_result result;

	if (!measure(f, FAR_DO_ECHO, &result))
		return;
	found_number(f, result.value, "us");
	found(f, "a round trip of %d bytes takes %.1f us by %s", FAR_ECHO_BYTES,
	      result.value, way_name());
}

static void check_stream(struct finding *f, enum far_do what, const char *direction)
{
	struct far_result result;

	if (!measure(f, what, &result))
		return;
	found_number(f, result.value / 1e6, "MB/s");
	found(f, "%.1f MB/s %s %s by %s; %.1f MB are right", f->number, direction,
	      way.peer_text, way_name(), (double)result.bytes / 1e6);
}

void check_sending(struct finding *f)
{
	check_stream(f, FAR_DO_TAKE, "to");
}

void check_receiving(struct finding *f)
{
	check_stream(f, FAR_DO_GIVE, "from");
}

/* ---- what the other side says of itself ---- */

void check_device_there(struct finding *f)
{
	char name[sizeof(view.device) + 1];

	f->left_out = !has_view;
	if (f->left_out)
		return;
	memcpy(name, view.device, sizeof(view.device));
	name[sizeof(view.device)] = 0;
	for (char *c = name; *c; c++)
		*c = isprint((unsigned char)*c) ? *c : '?';
	found_word(f, name);
	if (view.has_device) {
		found(f, "%s has the address %s", name, way.peer_text);
		return;
	}
	found(f, "%s: %s", way.peer_text, name);
	found_trouble(f, FINDING_PROBLEM, "Connections with that host stay on TCP.",
		      "Run `viaduct doctor %s` there, which says more.", way.local_text);
}

void check_relay_back(struct finding *f)
{
	struct probed p = {.error = view.relay_error,
			   .status = (enum local_status)view.relay_status,
			   .why = {view.relay_cause, view.relay_errno},
			   .daemon = view.relay_daemon,
			   .round_trip_us = view.relay_us};

	f->left_out = !has_view;
	if (!f->left_out)
		relay_tell(f, &p, true);
}

bool link_is_rdma(void)
{
	return has_answer && before.tx == OBSERVE_RDMA && before.rx == OBSERVE_RDMA;
}

void link_finish(void)
{
	far_close(&child, has_answer);
	has_answer = false;
}
