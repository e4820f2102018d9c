/* SPDX-License-Identifier: Apache-2.0 */
/* For the tests of the native library between two hosts, both of which are one process, on the fake
 * interconnect. */
#ifndef VD_TESTS_NATIVE_FAR_RIG_H
#define VD_TESTS_NATIVE_FAR_RIG_H

#include <poll.h>

#include "native/rig.h"

#include "base/native_count.h"
#include "native/native.h"
#include "native/reach.h"
#include "preload/hook.h"
#include "unit/remote_pair.h"

#define BOX_BYTES 50000u
#define BOXES	  3
#define LEAST	  2000

extern const struct door viaduct_door;
static struct door far_door;

__attribute__((constructor)) static void settings(void)
{
	setenv("VD_TEST_REMOTE", "3", 0);
	setenv("VIADUCT_REDIRECT", "2000", 1);
	setenv("VIADUCT_UPGRADE_AFTER", "0", 1);
}

/* Both were made known before: see far_open. */
static void adopt(int fd, uint32_t role, int *announced)
{
	(void)role;
	REQUIRE(fd_sock(fd));
	*announced = -1;
}

static void hasten(int fd)
{
	(void)fd;
}

/* Puts whose source is lent, and with which a device went on by itself. */
static _Atomic uint32_t lent_count;

static uint32_t lent_begun(void)
{
	return atomic_load(&lent_count);
}

static int begin_counted(int fd, const struct door_key *key, uint64_t offset,
			 struct door_span *d, uint64_t *id)
{
	int r = viaduct_door.begin_move(fd, key, offset, d, id);

	atomic_fetch_add(&lent_count, r == 0);
	return r;
}

/* So that a device seems to be at puts that are lent for as long as a test wants. And so often somebody who waits for one
 * was to sleep while there were bytes to be read. */
static _Atomic bool is_stuck;
static _Thread_local bool sees_all; /* but for this thread */
static _Atomic uint32_t sleepless;

static int look_if_not_stuck(int fd, uint64_t id, bool ends)
{
	return atomic_load(&is_stuck) && !sees_all && !ends
		       ? 0
		       : viaduct_door.look_at_move(fd, id, ends);
}

static void await_or_stuck(int fd)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};

	if (viaduct_door.poll(&p, 1, 0) != 0)
		atomic_fetch_add(&sleepless, 1);
	else if (atomic_load(&is_stuck))
		usleep(1000);
	else
		viaduct_door.await_moves(fd);
}

static void far_begin(void)
{
	if (door)
		return;
	REQUIRE(hook_active = hook_begin(NULL));
	far_door = viaduct_door;
	far_door.adopt = adopt;
	far_door.hasten = hasten;
	far_door.begin_move = begin_counted;
	far_door.look_at_move = look_if_not_stuck;
	far_door.await_moves = await_or_stuck;
	door = &far_door;
	bulk_retry_ms = reach_again_ms = 2;
}

static struct rig far_open(void)
{
	struct sockaddr_in at = {.sin_family = AF_INET,
				 .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof(at);
	int listener = REAL(socket)(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0),
	    a = REAL(socket)(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), b;
	struct rig r;

	alarm(RIG_ALARM_S);
	far_begin();
	REQUIRE(bind(listener, (struct sockaddr *)&at, len) == 0);
	REQUIRE(REAL(listen)(listener, 1) == 0);
	REQUIRE(getsockname(listener, (struct sockaddr *)&at, &len) == 0);
	REQUIRE(REAL(connect)(a, (struct sockaddr *)&at, len) == 0);
	b = REAL(accept4)(listener, NULL, NULL, SOCK_CLOEXEC);
	REQUIRE(b >= 0);
	REAL(close)(listener);
	REQUIRE(fd_open_socket(a, false));
	fd_connecting(fd_sock(a), a);
	REQUIRE(fd_open_accepted(b, false));
	across_meet(fd_sock(a), fd_sock(b));
	REQUIRE(vd_adopt(a, VD_CONNECTED, &r.a) == 0);
	REQUIRE(vd_adopt(b, VD_ACCEPTED, &r.b) == 0);
	while (vd_path(r.a) != VD_PATH_RDMA || vd_path(r.b) != VD_PATH_RDMA) {
		REQUIRE(vd_flush(r.a) == 0);
		REQUIRE(vd_flush(r.b) == 0);
	}
	return r;
}

static uint64_t far_puts(vd_conn *c)
{
	return atomic_load(&c->counts[NATIVE_FAR_PUTS]);
}

static struct peer *handle(vd_conn *c)
{
	return peer_of(fd_sock(c->fd));
}

static uint32_t next(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return (uint32_t)(*state >> 16);
}

/* Puts until the device has written one. */
static void until_far(vd_conn *c, vd_remote *r, const void *src, size_t len)
{
	for (uint64_t was = far_puts(c); far_puts(c) == was; usleep(1000))
		REQUIRE(vd_put(r, 0, src, len, 0, 0) == 0);
}

static bool all_are(const uint8_t *at, size_t len, uint8_t byte)
{
	for (size_t i = 0; i < len; i++)
		if (at[i] != byte)
			return false;
	return true;
}

static uint64_t counted(vd_conn *c, enum native_count what)
{
	return atomic_load(&c->counts[what]);
}

/* Gets until the device has brought one. */
static void until_got(vd_conn *c, vd_remote *r, void *dst, size_t len)
{
	for (uint64_t was = counted(c, NATIVE_FAR_GETS);
	     counted(c, NATIVE_FAR_GETS) == was; usleep(1000))
		REQUIRE(vd_get(r, 0, dst, len) == 0);
}

static struct peer_export *known(const vd_remote *r)
{
	return &r->c->peer_exports[r->id & FRAME_ID_PLACE];
}

static int put_by(const struct rig *r, const struct across_key *key, uint8_t *src)
{
	struct across_span span = {.at = src, .bytes = BOX_BYTES};

	return across_move(handle(r->a), fd_sock(r->a->fd), key, 0, &span);
}

static uint32_t key_of(const vd_remote *r)
{
	uint32_t number;

	pthread_mutex_lock(&r->c->mu);
	number = known(r)->key_number;
	pthread_mutex_unlock(&r->c->mu);
	return number;
}

static bool is_reached(const vd_region *x)
{
	bool is;

	pthread_mutex_lock(&x->c->mu);
	is = x->is_reached;
	pthread_mutex_unlock(&x->c->mu);
	return is;
}

/* The owner's keys are void, as around a fork. */
static void void_keys(void)
{
	across_forking();
	across_forked_parent();
}

/* As NATIVE_TEST. */
#define FAR_TEST(id)                                                                     \
	static void far_test_##id(void);                                                 \
	TEST(id)                                                                         \
	{                                                                                \
		struct rig warm_ = far_open();                                           \
		rig_close(&warm_);                                                       \
		FDS_SETTLED();                                                           \
		far_test_##id();                                                         \
	}                                                                                \
	static void far_test_##id(void)

#endif
