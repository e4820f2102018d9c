/* SPDX-License-Identifier: Apache-2.0 */
/* What there is: the ends of all connections, and this process's descriptors of them. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "differential.h"

/* What a nonblocking send may leave unread: every path takes that much at once. */
#define ROOM_AT_ONCE 12000
/* What lies within TCP's first window, so that it all arrives. */
#define ROOM_IN_ALL 40000

struct shared *shared;
struct descriptor descriptors[MOST_DESCRIPTORS];
int descriptor_count;

struct dice dice_of(uint64_t seed, uint64_t number)
{
	struct dice d = {seed * 0x9E3779B97F4A7C15u ^ (number + 1) * 0xD1B54A32D192ED03u};
	for (int i = 0; i < 4; i++)
		dice(&d, 2);
	return d;
}

unsigned dice(struct dice *d, unsigned below)
{
	uint64_t z = d->state += 0x9E3779B97F4A7C15u;
	z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
	z = (z ^ z >> 27) * 0x94D049BB133111EBu;
	return (unsigned)((z ^ z >> 31) % below);
}

bool once_in(struct dice *d, unsigned times)
{
	return dice(d, times) == 0;
}

size_t dice_size(struct dice *d, size_t most)
{
	size_t size = 0;
	switch (dice(d, 16)) {
	case 0:
		break;
	case 1:
		size = 1;
		break;
	case 2:
	case 3:
		size = dice(d, 30000);
		break;
	case 4:
	case 5:
	case 6:
		size = dice(d, 5000);
		break;
	default:
		size = 1 + dice(d, 300);
	}
	return size < most ? size : most;
}

void world_start(uint64_t seed)
{
	shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE,
		      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	NEED(shared != MAP_FAILED);
	shared->seed = seed;
	descriptor_count = 0;
}

struct descriptor *any_descriptor(struct dice *d)
{
	unsigned which = dice(d, 1 << 20);
	return descriptor_count ? &descriptors[which % (unsigned)descriptor_count] : NULL;
}

struct descriptor *any_of(struct dice *d, enum kind kind)
{
	struct descriptor *found[MOST_DESCRIPTORS];
	unsigned n = 0, which = dice(d, 1 << 20);
	for (int i = 0; i < descriptor_count; i++)
		if (descriptors[i].kind == kind)
			found[n++] = &descriptors[i];
	return n ? found[which % n] : NULL;
}

static bool sound(int end)
{
	const struct end *e = &shared->end[end];
	return !e->shut_write && !e->shut_read && !e->closed && !e->gone && !e->urgent &&
	       !e->peeks && !e->resets && !e->corked;
}

struct descriptor *any_sound_pair(struct dice *d, struct descriptor **other)
{
	struct descriptor *found[MOST_DESCRIPTORS];
	unsigned n = 0, which = dice(d, 1 << 20);
	for (int i = 0; i < descriptor_count; i++) {
		struct descriptor *s = &descriptors[i];
		if (s->kind == SOCKET && sound(s->end) && sound(s->end ^ 1) &&
		    of_end(s->end ^ 1) && of_end(s->end) == s)
			found[n++] = s;
	}
	if (n == 0)
		return NULL;
	*other = of_end(found[which % n]->end ^ 1);
	return found[which % n];
}

struct descriptor *descriptor_of(int fd)
{
	for (int i = 0; i < descriptor_count; i++)
		if (descriptors[i].fd == fd)
			return &descriptors[i];
	return NULL;
}

struct descriptor *of_end(int end)
{
	for (int i = 0; i < descriptor_count; i++)
		if (descriptors[i].kind == SOCKET && descriptors[i].end == end)
			return &descriptors[i];
	return NULL;
}

struct end *end_of(const struct descriptor *s)
{
	return &shared->end[s->end];
}

struct end *peer_of(const struct descriptor *s)
{
	return &shared->end[s->end ^ 1];
}

bool room_for_descriptor(void)
{
	return descriptor_count < MOST_DESCRIPTORS;
}

void descriptor_add(int fd, enum kind kind, int end)
{
	NEED(room_for_descriptor());
	NEED(!descriptor_of(fd));
	descriptors[descriptor_count++] = (struct descriptor){fd, kind, end};
	if (kind == SOCKET)
		shared->end[end].holders++;
}

void end_let_go(int end)
{
	struct end *e = &shared->end[end], *peer = &shared->end[end ^ 1];
	if (--e->holders > 0)
		return;
	e->closed = true;
	if (peer->written > e->read && !e->urgent && !peer->urgent && !e->gone &&
	    !peer->gone)
		peer->resets = true;
}

void descriptor_gone(struct descriptor *s)
{
	struct descriptor was = *s;
	*s = descriptors[--descriptor_count];
	if (was.kind == SOCKET)
		end_let_go(was.end);
}

void world_forked(void)
{
	for (int i = 0; i < descriptor_count; i++)
		if (descriptors[i].kind == SOCKET)
			end_of(&descriptors[i])->holders++;
}

void world_leave(void)
{
	while (descriptor_count)
		descriptor_gone(&descriptors[descriptor_count - 1]);
}

size_t unread(const struct descriptor *s)
{
	return peer_of(s)->written - end_of(s)->read;
}

bool is_nonblocking(int fd)
{
	return raw_call(SYS_fcntl, fd, F_GETFL, 0, 0, 0) & O_NONBLOCK;
}

bool receive_blocks(const struct descriptor *s, size_t len, int flags)
{
	const struct end *e = end_of(s), *peer = peer_of(s);
	if (e->urgent || peer->urgent || (e->peeks && flags & MSG_PEEK))
		return true;
	if (e->gone || e->shut_read || peer->shut_write || peer->closed)
		return false;
	if (raw_option(s->fd, SOL_SOCKET, SO_RCVLOWAT) > 1)
		return true;
	return unread(s) == 0 || (flags & MSG_WAITALL && len > unread(s));
}

size_t room_to_send(const struct descriptor *s, bool nonblocking)
{
	size_t used = end_of(s)->written - peer_of(s)->read;
	size_t room = nonblocking ? ROOM_AT_ONCE : ROOM_IN_ALL;
	return used < room ? room - used : 0;
}

void was_sent(const struct descriptor *s, ssize_t count)
{
	struct end *e = end_of(s), *peer = peer_of(s);
	if (count <= 0)
		return;
	e->written += (size_t)count;
	if (peer->closed && !e->gone)
		e->resets = true;
}

void was_received(const struct descriptor *s, ssize_t count)
{
	if (count > 0)
		end_of(s)->read += (size_t)count;
}

void fill_bytes(const struct descriptor *s, void *bytes, size_t len)
{
	uint8_t *p = bytes;
	uint64_t at = end_of(s)->written;
	for (size_t i = 0; i < len; i++, at++)
		p[i] = (uint8_t)(at * 7 + (at >> 8) * 13 + (unsigned)s->end * 31);
}

/* ---- connections ---- */

int out_of_the_way(int fd)
{
	int high = fcntl(fd, F_DUPFD_CLOEXEC, 200);
	NEED(high >= 0);
	NEED(close(fd) == 0);
	return high;
}

int listen_here(uint16_t *port)
{
	struct sockaddr_in a = {.sin_family = AF_INET,
				.sin_addr = {htonl(INADDR_LOOPBACK)}};
	socklen_t len = sizeof a;
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	NEED(fd >= 0);
	fd = out_of_the_way(fd);
	NEED(bind(fd, (struct sockaddr *)&a, sizeof a) == 0);
	NEED(listen(fd, 16) == 0);
	NEED(getsockname(fd, (struct sockaddr *)&a, &len) == 0);
	*port = ntohs(a.sin_port);
	return fd;
}

int connect_here(uint16_t port)
{
	struct sockaddr_in a = {.sin_family = AF_INET,
				.sin_addr = {htonl(INADDR_LOOPBACK)},
				.sin_port = htons(port)};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	NEED(fd >= 0);
	NEED(connect(fd, (struct sockaddr *)&a, sizeof a) == 0);
	return fd;
}

void end_prepare(int fd)
{
	/* An upgraded connection never waits for more, as Nagle's algorithm does: documented. */
	int on = 1;
	NEED(setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) == 0);
}

static int the_listener(uint16_t *port)
{
	static int listener = -1;
	static uint16_t its_port;
	static pid_t owner;
	if (listener < 0 || owner != getpid()) {
		listener = listen_here(&its_port);
		owner = getpid();
	}
	*port = its_port;
	return listener;
}

/* What sockets inherit from the listener that accepts them. */
static void inherited(struct dice *d, int listener)
{
	static const int options[] = {SO_KEEPALIVE, SO_OOBINLINE, SO_RCVLOWAT,
				      SO_PRIORITY};
	int on = 1;
	if (once_in(d, 4))
		NEED(setsockopt(listener, SOL_SOCKET, options[dice(d, 4)], &on,
				sizeof on) == 0);
}

int pair_open(struct dice *d)
{
	uint16_t port;
	if (shared->ends + 2 > MOST_ENDS || descriptor_count + 2 > MOST_DESCRIPTORS)
		return -1;
	bool own = once_in(d, 4);
	int listener = own ? listen_here(&port) : the_listener(&port);
	if (own)
		inherited(d, listener);
	int c = connect_here(port);
	int s = accept4(listener, NULL, NULL,
			SOCK_CLOEXEC | (once_in(d, 3) ? SOCK_NONBLOCK : 0));
	NEED(s >= 0);
	if (own)
		NEED(close(listener) == 0);
	end_prepare(c);
	end_prepare(s);
	int end = shared->ends;
	shared->ends += 2;
	descriptor_add(c, SOCKET, end);
	descriptor_add(s, SOCKET, end + 1);
	return end;
}
