/* SPDX-License-Identifier: Apache-2.0 */
/* How one end gets the memory of the other's export, and lets go of it. */
/*
 * 1. The importer binds and listens on an abstract AF_UNIX name of 128 random bits, and tells it in
 *    MAP. The name is known to nobody else but whoever lists names; hence 2 and 4.
 * 2. Where its peer is of the same user, the exporter's reader connects, asks the kernel who listens
 *    there, sends the descriptor when that is the same user, too, and closes. Nothing of that can
 *    wait. It answers MAPPED: done, or why not. From then on the memory is lent, whatever becomes of
 *    the message.
 * 3. The importer, which has waited for that answer, finds the connection in its queue.
 * 4. It asks the kernel who connected, and takes the descriptor of the same user only; checks that
 *    its size is sealed and large enough; maps it, and uses it for all handles of that export.
 *    In 2 and 4, a process of the same user in another pid namespace, as in a container, is a stranger.
 * 5. After UNEXPORT the importer unmaps, when the last thread that copies has done so, and answers
 *    UNMAPPED: once, where there was a MAPPED that was done, or a key (reach.c). BYE says the same of all.
 * 6. The exporter waits for that in vd_unexport, a bounded time. Without it, and when the connection
 *    has ended otherwise than by BYE, it exchanges the memory for a copy: then whatever the peer
 *    does, it does to memory that is nobody's.
 *
 * Each end may die at any step: the descriptor, its message and its mapping go with the process.
 */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/reason.h"
#include "native/native.h"

/* So many rounds over the stream, at most, for an upgrade that is under way. */
#define UPGRADE_ROUNDS 16
/* A peer whose library does not answer in this time is stopped, or lies. */
#define RECALL_MS 1000

static socklen_t name_of(const uint8_t *random, struct sockaddr_un *out)
{
	static const char prefix[] = "viaduct-map-";
	char *at = out->sun_path + 1;

	*out = (struct sockaddr_un){.sun_family = AF_UNIX};
	at = stpcpy(at, prefix);
	for (uint32_t i = 0; i < FRAME_NAME_BYTES; i++, at += 2)
		snprintf(at, 3, "%02x", random[i]);
	return (socklen_t)(at - (char *)out);
}

/* ---- the exporter ---- */

static bool give(int way, int fd)
{
	union {
		char bytes[CMSG_SPACE(sizeof(int))];
		struct cmsghdr align;
	} control = {0};
	char byte = 0;
	struct iovec iov = {&byte, 1};
	struct msghdr msg = {.msg_iov = &iov,
			     .msg_iovlen = 1,
			     .msg_control = &control,
			     .msg_controllen = sizeof(control)};
	struct cmsghdr *c = CMSG_FIRSTHDR(&msg);

	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(c), &fd, sizeof(fd));
	return sendmsg(way, &msg, MSG_DONTWAIT | MSG_NOSIGNAL) == 1;
}

static uint32_t bring(const uint8_t *random, int fd)
{
	struct sockaddr_un name;
	socklen_t len = name_of(random, &name);
	int way = door->socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	uint32_t reason = VD_REASON_NONE;

	if (way < 0)
		return VD_REASON_FD_LIMIT;
	/* We read nothing: so nobody leaves a descriptor there whose closing takes long. */
	door->shutdown(way, SHUT_RD);
	if (door->connect(way, (struct sockaddr *)&name, len) < 0)
		reason = VD_REASON_IDENTITY;
	else if (!door->may_stop_us(way))
		reason = VD_REASON_UID;
	else if (!give(way, fd))
		reason = VD_REASON_KERNEL;
	door->close(way);
	return reason;
}

uint32_t map_bring(vd_conn *c, struct memory *m, bool writes, const uint8_t *random)
{
	uint32_t reason, path = door->path(c->fd, &reason);
	int fd;

	if (path != DOOR_SHM)
		return reason ? reason : VD_REASON_REMOTE_PEER;
	/* Another user's peer could name where one of ours awaits the memory of somebody else. */
	if (!door->is_own(c->fd))
		return VD_REASON_UID;
	fd = memory_lend(m, writes);
	if (fd < 0)
		return VD_REASON_FULL;
	reason = bring(random, fd);
	door->close(fd);
	if (reason != VD_REASON_NONE)
		memory_returned(m, writes);
	return reason;
}

uint32_t map_lend(vd_conn *c, struct vd_region *x, const uint8_t *random)
{
	uint32_t reason = map_bring(c, x->memory, x->rights & VD_WRITE, random);

	if (reason != VD_REASON_NONE)
		return reason;
	x->is_lent = true;
	c->lent[x->id & FRAME_ID_PLACE] = x;
	c->is_held[x->id & FRAME_ID_PLACE] = true;
	return VD_REASON_NONE;
}

static bool is_returned(vd_conn *c, const void *x)
{
	return ((const struct vd_region *)x)->is_returned || c->peer_returned;
}

int map_await_return(vd_conn *c, struct vd_region *x)
{
	return until_is(c, is_returned, x, until(RECALL_MS));
}

/* Gives mu up: it takes as long as a copy. Nobody else has to do with x any more. */
static int part(vd_conn *c, struct vd_region *x)
{
	int r;

	pthread_mutex_unlock(&c->mu);
	r = memory_part(x->memory);
	pthread_mutex_lock(&c->mu);
	return r;
}

int map_recall(vd_conn *c, struct vd_region *x)
{
	bool writes = x->rights & VD_WRITE;
	int r = 0;

	if (!x->is_lent)
		return 0;
	/* A peer that only reads does no harm. */
	if (writes && !c->error && !c->peer_is_slow)
		c->peer_is_slow = map_await_return(c, x) == -ETIMEDOUT;
	if (!writes || is_returned(c, x))
		memory_returned(x->memory, writes);
	else
		r = part(c, x);
	x->is_lent = r < 0;
	/* The place may be another's by now. */
	if (r == 0 && c->lent[x->id & FRAME_ID_PLACE] == x)
		c->lent[x->id & FRAME_ID_PLACE] = NULL;
	return r;
}

/* ---- the importer ---- */

int map_listen(uint8_t *random)
{
	struct sockaddr_un name;
	socklen_t len;
	int fd;

	if (getrandom(random, FRAME_NAME_BYTES, GRND_NONBLOCK) != FRAME_NAME_BYTES)
		return -1;
	len = name_of(random, &name);
	fd = door->socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd >= 0 && bind(fd, (struct sockaddr *)&name, len) == 0 &&
	    door->listen(fd, 8) == 0)
		return fd;
	if (fd >= 0)
		door->close(fd);
	return -1;
}

static int take(int way)
{
	union {
		char bytes[CMSG_SPACE(sizeof(int))];
		struct cmsghdr align;
	} control;
	char byte;
	struct iovec iov = {&byte, 1};
	struct msghdr msg = {.msg_iov = &iov,
			     .msg_iovlen = 1,
			     .msg_control = &control,
			     .msg_controllen = sizeof(control)};
	struct cmsghdr *c;
	int fd = -1;

	if (recvmsg(way, &msg, MSG_DONTWAIT | MSG_CMSG_CLOEXEC) != 1)
		return -1;
	c = CMSG_FIRSTHDR(&msg);
	if (c && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS &&
	    c->cmsg_len == CMSG_LEN(sizeof(int)))
		memcpy(&fd, CMSG_DATA(c), sizeof(fd));
	return fd;
}

/* The descriptor that our user has brought there; others may have come, too. */
static int accept_ours(int listener)
{
	int fd = -1;

	while (fd < 0) {
		int way = door->accept4(listener, NULL, NULL, SOCK_CLOEXEC);

		if (way < 0)
			return -1;
		if (!door->may_stop_us(way)) {
			door->turn_away(way);
			continue;
		}
		fd = take(way);
		door->close(way);
	}
	return fd;
}

/* NULL where it is not what it ought to be. */
static uint8_t *map_file(int fd, size_t len, uint32_t rights)
{
	int prot = rights & VD_WRITE ? PROT_READ | PROT_WRITE : PROT_READ;
	int seals = door->fcntl(fd, F_GET_SEALS);
	struct stat st;
	uint8_t *map;

	if (seals < 0 || !(seals & F_SEAL_SHRINK) || fstat(fd, &st) < 0 ||
	    (uint64_t)st.st_size < len)
		return NULL;
	map = mmap(NULL, len, prot, MAP_SHARED, fd, 0);
	if (map == MAP_FAILED)
		return NULL;
	if (madvise(map, len, MADV_DONTFORK) == 0)
		return map;
	munmap(map, len);
	return NULL;
}

uint8_t *map_take(int listener, size_t len, uint32_t rights)
{
	int fd = accept_ours(listener);
	uint8_t *map = NULL;

	if (fd >= 0) {
		map = map_file(fd, len, rights);
		door->close(fd);
	}
	return map;
}

/* An upgrade is asked for at each operation: makes some, while there is hope. */
static void await_upgrade(vd_conn *c, int64_t deadline)
{
	uint32_t reason;

	for (int i = 0; i < UPGRADE_ROUNDS; i++)
		if (door->path(c->fd, &reason) != DOOR_TCP || reason == VD_REASON_OFF ||
		    ping(c, deadline) < 0)
			break;
}

static bool is_at_rest(vd_conn *c, const void *arg)
{
	(void)arg;
	return c->map_id == 0;
}

/* The peer's answer, or why there is none. When that is late it is the reader's to see to it. The question is owed,
 * for this call has a deadline: another thread may block in a send. */
static uint32_t ask(vd_conn *c, uint32_t id, const uint8_t *random, int64_t deadline)
{
	uint32_t reason;

	pthread_mutex_lock(&c->mu);
	c->owed.map_id = id;
	memcpy(c->owed.map_name, random, FRAME_NAME_BYTES);
	pthread_mutex_unlock(&c->mu);
	send_owed(c);
	pthread_mutex_lock(&c->mu);
	reason = until_is(c, is_at_rest, NULL, deadline) == 0 ? c->map_reason
							      : VD_REASON_ENDED;
	pthread_mutex_unlock(&c->mu);
	return reason;
}

/* The memory of that export, mapped; or why not. */
static uint32_t fetch(vd_conn *c, const struct peer_export *p, int64_t deadline,
		      uint8_t **map)
{
	uint8_t random[FRAME_NAME_BYTES];
	int listener = map_listen(random);
	uint32_t reason = VD_REASON_KERNEL;

	*map = NULL;
	if (listener >= 0) {
		reason = ask(c, p->id, random, deadline);
		if (reason == VD_REASON_NONE)
			*map = map_take(listener, p->len, p->rights);
		door->unlisten(listener);
	} else {
		pthread_mutex_lock(&c->mu);
		c->map_id = 0;
		conn_changed(c);
		pthread_mutex_unlock(&c->mu);
	}
	if (reason != VD_REASON_NONE)
		return reason;
	return *map ? VD_REASON_NONE : VD_REASON_MEMORY;
}

static bool is_settled(vd_conn *c, const void *p)
{
	(void)c;
	return !((const struct peer_export *)p)->is_asked;
}

/*
 * No handle is given before it is settled: a put by the stream would be overtaken by a later one to
 * the memory. models/native.pml.
 */
int map_import(vd_conn *c, struct peer_export *p, int64_t deadline)
{
	int r = until_freed(c, is_settled, p, deadline);
	struct peer_export was;
	uint32_t reason;
	uint8_t *map;

	if (r < 0 || !p->is_whole)
		return r;
	p->is_whole = false;
	p->is_asked = true;
	was = *p;
	r = until_freed(c, is_at_rest, NULL, deadline);
	if (r == 0) {
		c->map_id = was.id;
		pthread_mutex_unlock(&c->mu);
		await_upgrade(c, deadline);
		reason = fetch(c, &was, deadline, &map);
		pthread_mutex_lock(&c->mu);
	} else {
		reason = VD_REASON_ENDED;
		map = NULL;
	}
	p->is_asked = false;
	if (p->id == was.id)
		p->reason = reason;
	if (p->id == was.id && p->alive && !c->error && !c->is_closing)
		p->map = map;
	else if (map)
		munmap(map, was.len);
	conn_changed(c);
	return 0;
}

uint8_t *map_hold(const struct vd_remote *r, uint64_t offset)
{
	struct peer_export *p = &r->c->peer_exports[r->id & FRAME_ID_PLACE];

	if (p->id != r->id || !p->alive || !p->map)
		return NULL;
	p->users++;
	return p->map + offset;
}

void map_release_id(vd_conn *c, uint32_t id)
{
	struct peer_export *p = &c->peer_exports[id & FRAME_ID_PLACE];

	p->users--;
	if (!p->alive)
		map_ended(c, p);
	if (c->is_closing)
		conn_changed(c);
}

void map_release(const struct vd_remote *r)
{
	map_release_id(r->c, r->id);
}

void map_ended(vd_conn *c, struct peer_export *p)
{
	if (p->users > 0)
		return;
	if (p->map)
		munmap(p->map, p->len);
	p->map = NULL;
	if (p->is_lent) {
		p->is_lent = false;
		p->owes_return = true;
		c->owed.returns++;
	}
}

bool map_is_idle(vd_conn *c, const void *arg)
{
	(void)arg;
	for (uint32_t i = 0; i < VD_EXPORTS_MAX; i++)
		if (c->peer_exports[i].users > 0)
			return false;
	return true;
}

void map_end_all(vd_conn *c)
{
	for (uint32_t i = 0; i < VD_EXPORTS_MAX; i++) {
		struct peer_export *p = &c->peer_exports[i];

		if (p->map)
			munmap(p->map, p->len);
		p->map = NULL;
		/* BYE says that, also where the export has not ended. */
		p->is_lent = p->owes_return = false;
	}
	c->owed.returns = 0;
}
