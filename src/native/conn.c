/* SPDX-License-Identifier: Apache-2.0 */
/* A connection from its first frame to its last. */
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "base/reason.h"
#include "base/tcp.h"
#include "native/lend.h"
#include "native/message.h"
#include "native/native.h"
#include "native/reach.h"

/* So long a close waits for the peer's library to have read everything. */
#define CLOSE_MS 500
/* So long the peer's accuser waits for its turn. */
#define ACCUSE_MS 20

/* ---- begin ---- */

static void destroy(vd_conn *c)
{
	for (uint32_t i = 0; i < VD_EXPORTS_MAX; i++)
		if (c->exports[i])
			export_forget(c->exports[i]);
	for (vd_region *x = c->ended, *next; x; x = next) {
		next = x->next_ended;
		export_forget(x);
	}
	for (vd_remote *r = c->remotes, *next; r; r = next) {
		next = r->next;
		free(r);
	}
	free(c->events);
	free(c->peer_exports);
	free(c->in);
	free(c->rest);
	free(c->lend.items);
	message_finish(c);
	pthread_cond_destroy(&c->changed);
	pthread_mutex_destroy(&c->mu);
	pthread_mutex_destroy(&c->wr);
	pthread_mutex_destroy(&c->turn);
	free(c);
}

static vd_conn *allocate(void)
{
	vd_conn *c = calloc(1, sizeof(*c));
	pthread_condattr_t attr;

	if (!c)
		return NULL;
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&c->changed, &attr);
	pthread_condattr_destroy(&attr);
	pthread_mutex_init(&c->mu, NULL);
	pthread_mutex_init(&c->wr, NULL);
	pthread_mutex_init(&c->turn, NULL);
	message_init(c);
	c->events = calloc(EVENTS_MOST, sizeof(*c->events));
	c->peer_exports = calloc(VD_EXPORTS_MAX, sizeof(*c->peer_exports));
	c->in = malloc(IN_BYTES);
	c->rest = malloc(FRAME_BYTES + FRAME_GET_MOST);
	if (c->events && c->peer_exports && c->in && c->rest)
		return c;
	destroy(c);
	return NULL;
}

int conn_create(int fd, int announced, vd_conn **out)
{
	struct frame hello = {
		.type = FRAME_HELLO, .id = FRAME_PROTOCOL, .offset = FRAME_MAGIC};
	struct iovec iov = {&hello, sizeof(hello)};
	vd_conn *c = allocate();
	const int on = 1;
	ssize_t n;
	int r;

	if (!c)
		return -ENOMEM;
	c->fd = fd;
	c->announced = announced;
	c->birth = load_relaxed(native_birth);
	c->event_fd = -1;
	door->setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	door->hasten(fd);
	c->counts = door->counts(fd);
	if (!c->counts)
		c->counts = c->no_counts;
	/* The hello is the last that a caller's socket of vd_adopt can fail by, but for the connection's end. */
	r = service_start();
	if (r < 0) {
		destroy(c);
		return r;
	}
	/* A new connection has room for so little. */
	n = door->send(fd, &iov, 1, MSG_DONTWAIT | MSG_NOSIGNAL);
	r = n == sizeof(hello) ? service_add(c) : n < 0 ? (int)n : -ECONNRESET;
	if (r < 0)
		destroy(c);
	else
		*out = c;
	return r;
}

NATIVE int vd_adopt(int fd, unsigned end, vd_conn **c)
{
	NOT_CANCELLED;
	struct sockaddr_storage peer;
	socklen_t len = sizeof(peer);
	int protocol = 0, announced, flags, r = native_begin();

	if (r < 0)
		return r;
	if (end != VD_CONNECTED && end != VD_ACCEPTED)
		return -EINVAL;
	if (getpeername(fd, (struct sockaddr *)&peer, &len) < 0)
		return -errno;
	len = sizeof(protocol);
	if (getsockopt(fd, SOL_SOCKET, SO_PROTOCOL, &protocol, &len) < 0)
		return -errno;
	if (protocol != IPPROTO_TCP)
		return -EINVAL;
	flags = door->fcntl(fd, F_GETFL);
	if (flags < 0 || door->fcntl(fd, F_SETFL, 0) < 0)
		return -errno;
	door->adopt(fd, end == VD_CONNECTED ? TCP_ROLE_CONNECTED : TCP_ROLE_ACCEPTED,
		    &announced);
	r = conn_create(fd, announced, c);
	if (r < 0 && announced >= 0)
		door->forget(announced);
	if (r < 0)
		door->fcntl(fd, F_SETFL, flags);
	return r;
}

/* ---- end ---- */

void conn_leave(vd_conn *c)
{
	pthread_mutex_lock(&c->mu);
	conn_left(c);
	pthread_mutex_unlock(&c->mu);
}

/* The peer is told that it has broken a rule, where nothing is in the way. */
static void accuse(vd_conn *c)
{
	struct frame f = {.type = FRAME_WRONG};
	struct iovec iov = {&f, sizeof(f)};
	struct timespec ts;
	bool is_blocked;

	/* Whoever blocks in a send with wr is waked only by what follows. Others have it for moments, and the
	 * service thread has more to do than to wait for one that uses a device. */
	pthread_mutex_lock(&c->mu);
	is_blocked = c->is_blocked;
	pthread_mutex_unlock(&c->mu);
	clock_gettime(CLOCK_MONOTONIC, &ts);
	ts.tv_nsec += ACCUSE_MS * 1000000;
	ts.tv_sec += ts.tv_nsec / 1000000000;
	ts.tv_nsec %= 1000000000;
	if (is_blocked || pthread_mutex_clocklock(&c->wr, CLOCK_MONOTONIC, &ts) != 0)
		return;
	pthread_mutex_lock(&c->mu);
	send_stamp(c, &f);
	pthread_mutex_unlock(&c->mu);
	if (load_relaxed(&c->rest_end) == 0)
		door->send(c->fd, &iov, 1, MSG_DONTWAIT | MSG_NOSIGNAL);
	pthread_mutex_unlock(&c->wr);
}

void conn_over(vd_conn *c, int error)
{
	bool first;

	if (error == -EPROTO)
		accuse(c);
	pthread_mutex_lock(&c->mu);
	first = c->error == 0;
	/* What the peer has told before its end can be had. */
	if (first)
		message_drain(c);
	/* Before anybody hears of the end. */
	if (first)
		reach_close_all(c);
	if (first)
		c->error = error == -ECONNABORTED ? -EPROTO : error;
	if (first)
		lend_give_back(c);
	conn_changed(c);
	event_tell(c);
	pthread_mutex_unlock(&c->mu);
	/* Wakes those who block in a send, and lets the peer see the end. */
	if (first)
		door->shutdown(c->fd, SHUT_RDWR);
}

static bool is_over(vd_conn *c, const void *arg)
{
	(void)arg;
	return c->error != 0;
}

/* The last frame, and then until the peer has read it, which it shows by its own end. It says that nothing is
 * under way to the peer's memory: while a thread writes there it is not said. */
static void say_bye(vd_conn *c)
{
	int64_t deadline = until(CLOSE_MS);
	bool is_idle;

	pthread_mutex_lock(&c->mu);
	c->is_closing = true;
	is_idle = until_freed(c, map_is_idle, NULL, deadline) == 0;
	if (is_idle)
		map_end_all(c);
	c->owed.bye = is_idle;
	pthread_mutex_unlock(&c->mu);
	if (!is_idle)
		return;
	send_owed(c);
	pthread_mutex_lock(&c->mu);
	until_is(c, is_over, NULL, deadline);
	pthread_mutex_unlock(&c->mu);
}

NATIVE void vd_close(vd_conn *c)
{
	if (!c || native_check(c) < 0 || handler_puts_off(c))
		return;
	export_end_all(c);
	say_bye(c);
	conn_over(c, -EPIPE);
	pthread_mutex_lock(&c->mu);
	c->followers++;
	while (c->callers > 0 || c->followers > 1 || c->waiters > 0)
		pthread_cond_wait(&c->changed, &c->mu);
	c->followers--;
	map_end_all(c);
	pthread_mutex_unlock(&c->mu);
	service_remove(c);
	door->close(c->fd);
	if (c->announced >= 0)
		door->forget(c->announced);
	if (c->event_fd >= 0)
		door->close(c->event_fd);
	destroy(c);
}

/* ---- what it is ---- */

NATIVE int vd_path(vd_conn *c)
{
	NOT_CANCELLED;
	uint32_t reason;
	int r = native_check(c);

	return r < 0 ? r : (int)door->path(c->fd, &reason);
}

NATIVE const char *vd_reason(vd_conn *c)
{
	NOT_CANCELLED;
	uint32_t reason = VD_REASON_ENDED;

	if (native_check(c) == 0)
		door->path(c->fd, &reason);
	return reason_name(reason);
}
