/* SPDX-License-Identifier: Apache-2.0 */
/* Two processes whose connection joins two network namespaces of this host find each other. */
/*
 * docs/near.md has the proof. A question waits until there is its mirror image. Then each end's probe,
 * which is a socket of that end's namespace at the connection's own address, sends a secret to the
 * other's. Only where both have come, and both connections are still there, do both get a way to each
 * other.
 */
#include <errno.h>
#include <sodium.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "daemon/near_helper.h"

#ifndef SO_PASSRIGHTS
#define SO_PASSRIGHTS 83 /* Linux 6.16 */
#endif

static struct relay_ref ref_of(const struct relay *r, const struct relay_near *n)
{
	return (struct relay_ref){(uint32_t)(n - r->near), n->turn};
}

static void release(struct relay *r, struct relay_near *n)
{
	near_place_close(&n->place);
	sodium_memzero(n->secret, sizeof(n->secret));
	n->state = NEAR_FREE;
	n->turn++;
	r->near_now--;
}

/* ---- a proof ---- */

static void watch(struct relay *r, struct relay_near *n, bool on)
{
	if (on && !n->watched)
		n->watched =
			loop_watch(r, n->place.probe, RELAY_NEAR_PROBE,
				   (uint32_t)(n - r->near), n->turn, false, true) == 0;
	else if (!on && n->watched) {
		loop_unwatch(r, n->place.probe);
		n->watched = false;
	}
}

static void stop_one(struct relay *r, struct relay_near *n)
{
	watch(r, n, false);
	n->state = NEAR_WAITS;
	n->round++; /* what was ordered is of no use any more */
}

/* The two are not the ends of one connection, or what was sent was lost. */
static void fail(struct relay *r, struct relay_near *n)
{
	struct relay_near *both[] = {n, &r->near[n->partner]};

	log_debug("no way between two namespaces: process %d",
		  (int)r->client[n->client.index].owner.pid);
	for (int i = 0; i < 2; i++) {
		uint64_t wait = both[i]->failures < 6
					? (uint64_t)RELAY_RETRY_MS << both[i]->failures
					: RELAY_RETRY_MAX_MS;

		stop_one(r, both[i]);
		both[i]->last = ref_of(r, both[!i]);
		if (both[i]->failures < 255)
			both[i]->failures++;
		both[i]->not_before_ms = r->now_ms + wait;
	}
}

static void remove_one(struct relay *r, struct relay_near *n)
{
	if (n->state == NEAR_PROVES)
		fail(r, n);
	release(r, n);
}

/* A child aims its probe at the other's, sends, and hears. One at a time. */
static void step(struct relay *r, struct relay_near *n)
{
	const struct relay_near *other = &r->near[n->partner];
	struct near_order order = {
		.kind = ORDER_STEP, .near = ref_of(r, n), .round = n->round};

	n->again = n->steps;
	/* What was sent while the other's probe was being aimed may be lost: until both have heard. */
	if (n->steps || (n->heard && other->heard))
		return;
	order.peer = n->peer;
	order.peer.port = other->place.port;
	memcpy(order.secret, n->secret, sizeof(order.secret));
	memcpy(order.due, other->secret, sizeof(order.due));
	n->steps = near_helper_order(r, n->client, &order, n->place.probe);
	sodium_memzero(&order, sizeof(order));
}

static void prepare(struct relay *r, struct relay_near *n, const struct relay_near *with)
{
	n->state = NEAR_PROVES;
	n->steps = n->again = n->heard = n->asked = n->holds = false;
	n->partner = (uint32_t)(with - r->near);
	n->deadline_ms = r->now_ms + RELAY_NEAR_MS;
	randombytes_buf(n->secret, sizeof(n->secret));
	watch(r, n, true);
}

static void begin(struct relay *r, struct relay_near *a, struct relay_near *b)
{
	prepare(r, a, b);
	prepare(r, b, a);
	step(r, a);
	step(r, b);
}

/* ---- the way ---- */

/* Both ends of a way: [0] of who has connected. Of the bells nobody gets a descriptor, nor of the line who
 * has accepted, since one that lingers would make its reader wait. */
static int make_way(int line[2], int bell[2])
{
	int off = 0;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, line) <
	    0)
		return -errno;
	if (socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, bell) < 0) {
		int e = -errno;

		close(line[0]);
		close(line[1]);
		return e;
	}
	if (setsockopt(line[1], SOL_SOCKET, SO_PASSRIGHTS, &off, sizeof(off)) == 0 &&
	    setsockopt(bell[0], SOL_SOCKET, SO_PASSRIGHTS, &off, sizeof(off)) == 0 &&
	    setsockopt(bell[1], SOL_SOCKET, SO_PASSRIGHTS, &off, sizeof(off)) == 0)
		return 0;
	for (int i = 0; i < 2; i++) {
		close(line[i]);
		close(bell[i]);
	}
	return -EOPNOTSUPP;
}

static void tell(struct relay *r, const struct relay_near *to,
		 const struct relay_near *about, int line, int bell)
{
	const int fds[NEAR_MET_FDS] = {[NEAR_LINE] = line, [NEAR_BELL] = bell};
	const struct local_met met = {about->place.cookie, about->place.netns};

	near_client_met(r, to->client, to->id, r->client[about->client.index].owner.uid,
			&met, fds);
	close(line);
	close(bell);
}

static void finish(struct relay *r, struct relay_near *n)
{
	struct relay_near *other = &r->near[n->partner];
	/* Telling one may end its process, and with that whatever is in the table of it. */
	struct relay_near connected = n->accepted ? *other : *n,
			  accepted = n->accepted ? *n : *other;
	int line[2], bell[2];

	if (!near_client_reads(r, n->client) || !near_client_reads(r, other->client) ||
	    make_way(line, bell) < 0) {
		fail(r, n);
		return;
	}
	stop_one(r, n);
	stop_one(r, other);
	release(r, n);
	release(r, other);
	log_debug("processes %d and %d meet, of two namespaces",
		  (int)r->client[connected.client.index].owner.pid,
		  (int)r->client[accepted.client.index].owner.pid);
	tell(r, &connected, &accepted, line[0], bell[0]);
	tell(r, &accepted, &connected, line[1], bell[1]);
}

/* Whether the connection is still there, at the end of the proof. */
static void ask(struct relay *r, struct relay_near *n)
{
	const struct near_order order = {.kind = ORDER_HOLDS,
					 .near = ref_of(r, n),
					 .round = n->round,
					 .local = n->local,
					 .peer = n->peer,
					 .cookie = n->place.cookie};

	/* Else the next tick tries again. */
	n->asked = near_helper_order(r, n->client, &order, n->place.diag);
}

static void ask_both(struct relay *r, struct relay_near *n)
{
	struct relay_near *other = &r->near[n->partner];

	if (!n->heard || !other->heard)
		return;
	if (!n->asked)
		ask(r, n);
	if (!other->asked)
		ask(r, other);
}

static struct relay_near *proving(struct relay *r, struct relay_ref ref)
{
	struct relay_near *n = &r->near[ref.index];

	return n->state == NEAR_PROVES && n->turn == ref.turn ? n : NULL;
}

void near_ready(struct relay *r, struct relay_ref ref)
{
	struct relay_near *n = proving(r, ref);

	if (!n)
		return;
	watch(r, n,
	      false); /* until the next tick, since others may send what they like */
	step(r, n);
}

void near_stepped(struct relay *r, struct relay_ref ref, uint32_t round, bool heard)
{
	struct relay_near *n = proving(r, ref);

	if (!n || n->round != round)
		return;
	n->steps = false;
	n->heard |= heard;
	if (n->heard)
		watch(r, n, false);
	if (n->again && !n->heard)
		step(r, n);
	ask_both(r, n);
}

void near_held(struct relay *r, struct relay_ref ref, uint32_t round, bool holds)
{
	struct relay_near *n = proving(r, ref);

	if (!n || n->round != round)
		return;
	n->holds = holds;
	if (!holds)
		fail(r, n);
	else if (r->near[n->partner].holds)
		finish(r, n);
}

/* ---- the table ---- */

static bool is_mirrored(const struct relay_near *a, const struct relay_near *b)
{
	return a->accepted != b->accepted && name_end_equal(&a->local, &b->peer) &&
	       name_end_equal(&a->peer, &b->local) && a->place.netns != b->place.netns &&
	       a->place.owner == b->place.owner;
}

static bool was_last(const struct relay *r, const struct relay_near *n,
		     const struct relay_near *other)
{
	struct relay_ref ref = ref_of(r, other);

	return n->failures && n->last.index == ref.index && n->last.turn == ref.turn;
}

/* The same four numbers may be those of other connections, in other namespaces. So of all that may be the
 * other end of this one, whichever chance picks, but for who was tried with it last: an order would repeat
 * itself, and keep two wrong pairs together that were tried one after the other. Two that have nobody else
 * are tried again and again. */
static struct relay_near *candidate(struct relay *r, const struct relay_near *n)
{
	struct relay_near *found = NULL, *again = NULL;
	uint32_t count = 0;

	for (int i = 0; i < RELAY_NEAR; i++) {
		struct relay_near *other = &r->near[i];

		if (other->state != NEAR_WAITS || !is_mirrored(n, other))
			continue;
		if (was_last(r, n, other) && was_last(r, other, n))
			again = other;
		else if (randombytes_uniform(++count) == 0)
			found = other;
	}
	if (!found && again && r->now_ms >= n->not_before_ms &&
	    r->now_ms >= again->not_before_ms)
		found = again;
	return found;
}

static void match(struct relay *r, struct relay_near *n)
{
	struct relay_near *other = candidate(r, n);

	if (other)
		begin(r, n, other);
}

static struct relay_near *slot(struct relay *r, uint32_t uid)
{
	struct share share = {.uid = uid};
	struct relay_near *free_slot = NULL;

	for (int i = 0; i < RELAY_NEAR; i++) {
		struct relay_near *n = &r->near[i];

		if (n->state == NEAR_FREE)
			free_slot = free_slot ? free_slot : n;
		else
			share_count(&share, r->client[n->client.index].owner.uid);
	}
	return share_is_left(&share, RELAY_NEAR_UID, RELAY_NEAR) ? free_slot : NULL;
}

enum local_status near_add(struct relay *r, struct relay_ref client,
			   const struct local_message *m, const struct near_place *place,
			   struct relay_ref *out)
{
	const struct local_meet *meet = (const struct local_meet *)m->hello;
	struct relay_near *n;

	near_withdraw(r, client.index, &m->local, &m->peer);
	n = slot(r, r->client[client.index].owner.uid);
	if (!n)
		return LOCAL_FULL;
	*n = (struct relay_near){.state = NEAR_WAITS,
				 .turn = n->turn,
				 .client = client,
				 .id = m->id,
				 .accepted = meet->accepted != 0,
				 .local = m->local,
				 .peer = m->peer,
				 .place = *place};
	r->near_now++;
	*out = ref_of(r, n);
	return LOCAL_OK;
}

void near_try(struct relay *r, struct relay_ref ref)
{
	struct relay_near *n = &r->near[ref.index];

	if (n->state == NEAR_WAITS && n->turn == ref.turn)
		match(r, n);
}

void near_withdraw(struct relay *r, uint32_t client, const struct name_end *local,
		   const struct name_end *peer)
{
	for (int i = 0; r->near_now && i < RELAY_NEAR; i++) {
		struct relay_near *n = &r->near[i];

		if (n->state != NEAR_FREE && n->client.index == client &&
		    name_end_equal(&n->local, local) && name_end_equal(&n->peer, peer))
			remove_one(r, n);
	}
}

void near_remove_all(struct relay *r, uint32_t client)
{
	for (int i = 0; r->near_now && i < RELAY_NEAR; i++)
		if (r->near[i].state != NEAR_FREE && r->near[i].client.index == client)
			remove_one(r, &r->near[i]);
}

static void go_on(struct relay *r, struct relay_near *n)
{
	if (r->now_ms >= n->deadline_ms) {
		fail(r, n);
		return;
	}
	if (!n->heard)
		watch(r, n, true);
	step(r, n);
	ask_both(r, n);
}

/* Who failed looks for somebody else, a bounded number at a time, in turns: else whoever comes later finds it. */
static void look(struct relay *r)
{
	static int next;

	for (int i = 0, looks = 0; i < RELAY_NEAR && looks < RELAY_NEAR_TRIES; i++) {
		struct relay_near *n = &r->near[next];

		next = (next + 1) % RELAY_NEAR;
		if (n->state != NEAR_WAITS || !n->failures)
			continue;
		match(r, n);
		looks++;
	}
}

void near_tick(struct relay *r)
{
	if (!r->near_now)
		return;
	for (int i = 0; i < RELAY_NEAR; i++)
		if (r->near[i].state == NEAR_PROVES)
			go_on(r, &r->near[i]);
	look(r);
}
