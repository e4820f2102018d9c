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

#include "daemon/address.h"
#include "daemon/daemon.h"

#define HEAR_AT_ONCE 16

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

static void stop_one(struct relay *r, struct relay_near *n)
{
	loop_unwatch(r, n->place.probe);
	n->state = NEAR_WAITS;
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
		both[i]->tried_ms = r->now_ms;
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

static void send_secret(const struct relay_near *n)
{
	send(n->place.probe, n->secret, sizeof(n->secret), MSG_DONTWAIT | MSG_NOSIGNAL);
}

static bool aim(struct relay *r, struct relay_near *n, const struct relay_near *at)
{
	struct name_end to = n->peer;
	union address name;
	socklen_t size;

	to.port = at->place.port;
	size = address_of_end(&to, &name);
	randombytes_buf(n->secret, sizeof(n->secret));
	return connect(n->place.probe, &name.any, size) == 0 &&
	       loop_watch(r, n->place.probe, RELAY_NEAR_PROBE, (uint32_t)(n - r->near),
			  n->turn, false, true) == 0;
}

static void begin(struct relay *r, struct relay_near *a, struct relay_near *b)
{
	bool aimed;

	a->state = b->state = NEAR_PROVES;
	a->heard = b->heard = false;
	a->partner = (uint32_t)(b - r->near);
	b->partner = (uint32_t)(a - r->near);
	a->deadline_ms = b->deadline_ms = r->now_ms + RELAY_NEAR_MS;
	aimed = aim(r, a, b);
	if (!aim(r, b, a) || !aimed) {
		fail(r, a);
		return;
	}
	send_secret(a);
	send_secret(b);
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

	client_met(r, to->client, to->id, r->client[about->client.index].owner.uid, &met,
		   fds);
	close(line);
	close(bell);
}

static bool holds(const struct relay *r, const struct relay_near *n)
{
	return near_place_holds(&r->client[n->client.index].owner, &n->local, &n->peer,
				&n->place);
}

static void finish(struct relay *r, struct relay_near *n)
{
	struct relay_near *other = &r->near[n->partner];
	/* Telling one may end its process, and with that whatever is in the table of it. */
	struct relay_near connected = n->accepted ? *other : *n,
			  accepted = n->accepted ? *n : *other;
	int line[2], bell[2];

	if (!holds(r, n) || !holds(r, other) || make_way(line, bell) < 0) {
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

/* False: nobody can hear by it any more. */
static bool hear(struct relay *r, struct relay_near *n)
{
	const uint8_t *due = r->near[n->partner].secret;
	uint8_t said[sizeof(n->secret)];

	for (int i = 0; i < HEAR_AT_ONCE; i++) {
		ssize_t got = recv(n->place.probe, said, sizeof(said),
				   MSG_DONTWAIT | MSG_TRUNC);

		if (got < 0) /* also that nobody is at the other address yet */
			return true;
		if (got == 0) /* shut down */
			return false;
		if (got == sizeof(said) && !sodium_memcmp(said, due, sizeof(said)))
			n->heard = true;
	}
	return true;
}

void near_ready(struct relay *r, struct relay_ref ref)
{
	struct relay_near *n = &r->near[ref.index];

	if (n->state != NEAR_PROVES || n->turn != ref.turn)
		return;
	if (!hear(r, n))
		fail(r, n);
	else if (n->heard && r->near[n->partner].heard)
		finish(r, n);
}

/* ---- the table ---- */

static bool is_mirrored(const struct relay_near *a, const struct relay_near *b)
{
	return a->accepted != b->accepted && name_end_equal(&a->local, &b->peer) &&
	       name_end_equal(&a->peer, &b->local) && a->place.netns != b->place.netns &&
	       a->place.owner == b->place.owner;
}

/* The same four numbers may be those of other connections, in other namespaces: so of all that
 * may be the other end of this one, who was not tried for the longest time. */
static struct relay_near *candidate(struct relay *r, const struct relay_near *n)
{
	struct relay_near *found = NULL;

	for (int i = 0; i < RELAY_NEAR; i++) {
		struct relay_near *other = &r->near[i];

		if (other->state == NEAR_WAITS && is_mirrored(n, other) &&
		    (!found || other->tried_ms < found->tried_ms))
			found = other;
	}
	return found;
}

static bool was_last(const struct relay *r, const struct relay_near *n,
		     const struct relay_near *other)
{
	struct relay_ref ref = ref_of(r, other);

	return n->failures && n->last.index == ref.index && n->last.turn == ref.turn;
}

static void match(struct relay *r, struct relay_near *n)
{
	struct relay_near *other = candidate(r, n),
			  *one = other ? candidate(r, other) : NULL;

	/* Two that are tried again and again have nobody else to be tried with. */
	if (one &&
	    (!was_last(r, one, other) || !was_last(r, other, one) ||
	     (r->now_ms >= one->not_before_ms && r->now_ms >= other->not_before_ms)))
		begin(r, one, other);
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

static void tick_one(struct relay *r, struct relay_near *n)
{
	if (n->state == NEAR_PROVES && r->now_ms >= n->deadline_ms)
		fail(r, n);
	else if (n->state == NEAR_PROVES)
		send_secret(n);
	else if (n->failures) /* else who comes later finds it */
		match(r, n);
}

void near_tick(struct relay *r)
{
	for (int i = 0; r->near_now && i < RELAY_NEAR; i++)
		if (r->near[i].state != NEAR_FREE)
			tick_one(r, &r->near[i]);
}
