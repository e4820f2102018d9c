/* SPDX-License-Identifier: Apache-2.0 */
/* The service thread: reads what no caller reads, so that puts arrive without a call of the program. */
/*
 * There is one for each process, from its first connection on.
 *
 * Watching a connection costs its peer a ring of a bell for each frame, and this thread a wake-up.
 * So it leaves a connection to callers while they keep coming: while one waits, and for two ticks
 * after the last has gone. It ticks only while there is a connection left to callers, and no longer
 * for one whose caller has slept through some ticks: that one's leaving starts the ticks again.
 * Each look that finds that callers have come since makes the next one later, up to TICK_MOST_MS: to
 * look is to take the processor from them.
 *
 * Both sides exchange a store and a look: the thread clears `ticking`, then looks at the connections
 * under their locks; a caller leaves under that lock, then looks at `ticking`. One sees the other.
 */
#include <signal.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/kernel.h"
#include "native/lend.h"
#include "native/message.h"
#include "native/native.h"

#define TICK_MS	     2
#define TICK_MOST_MS 16
#define TICKS_LEFT   2 /* without a caller: taken back */
#define TICKS_STILL  2 /* with the same one: no more ticks for it */
#define EVENTS	     64
#define BATCHES	     32 /* receives in a row, before others have their turn */
#define STACK_BYTES  (128u << 10)
#define SERIAL_WAKES 0

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t done_with = PTHREAD_COND_INITIALIZER;
static vd_conn *conns, *current;
static struct vd_listener *listeners;
static uint64_t serials;
static bool running;
static int epoll_fd = -1, wake_fd = -1;
static _Atomic int ticking; /* ms to the next tick, or 0 */

/* Under mu: what the thread is to sleep on for c. */
static void watch(vd_conn *c)
{
	uint32_t want = c->mode == CONN_WATCHED && !c->error ? EPOLLIN : 0;
	struct epoll_event ev = {.data.u64 = c->serial};
	int op;

	if (want)
		message_watch(c);
	if (!c->error && send_is_due(c) && (c->mode == CONN_WATCHED || c->stuck))
		want |= EPOLLOUT;
	if (want == c->interest)
		return;
	ev.events = want;
	op = !want ? EPOLL_CTL_DEL : c->interest ? EPOLL_CTL_MOD : EPOLL_CTL_ADD;
	if (door->epoll_ctl(epoll_fd, op, c->fd, &ev) == 0)
		c->interest = want;
}

static void wake(void)
{
	uint64_t one = 1;
	ssize_t n = kernel_write(wake_fd, &one, sizeof(one));

	(void)n; /* full is as good */
}

static void start_ticks(int ms)
{
	if (!atomic_exchange(&ticking, ms))
		wake();
}

static int later(int ms)
{
	return ms == 0 ? TICK_MS : ms < TICK_MOST_MS ? 2 * ms : ms;
}

void service_called(vd_conn *c)
{
	c->callers++;
	c->calls++;
	if (c->mode == CONN_WATCHED) {
		c->mode = CONN_CALLED;
		watch(c);
	}
}

void service_left(vd_conn *c)
{
	c->callers--;
	conn_changed(c); /* vd_close waits for the last */
	if (c->callers > 0 || c->mode != CONN_CALLED)
		return;
	if (c->event_fd >= 0)
		service_take(c);
	else if (!atomic_load(&ticking))
		start_ticks(c->tick_ms = later(c->tick_ms));
}

void service_take(vd_conn *c)
{
	/* A caller that reads goes on; then only the writing is watched. */
	c->stuck = true;
	if (!c->is_read)
		c->mode = CONN_WATCHED;
	watch(c);
}

void service_looks(void)
{
	if (!atomic_load(&ticking))
		start_ticks(TICK_MS);
}

/* ---- the thread ---- */

/* Under mu, which it gives up meanwhile. */
static void read_here(vd_conn *c)
{
	int r = 0;

	c->is_read = true;
	for (int i = 0; i < BATCHES && r == 0; i++) {
		pthread_mutex_unlock(&c->mu);
		r = read_some(c, MSG_DONTWAIT);
	}
	c->is_read = false;
	conn_changed(c);
}

static void serve(vd_conn *c)
{
	pthread_mutex_lock(&c->mu);
	if (c->mode == CONN_WATCHED && c->is_read)
		c->mode = CONN_CALLED;
	else if (c->mode == CONN_WATCHED && !c->error)
		read_here(c);
	c->stuck = false;
	pthread_mutex_unlock(&c->mu);
	send_owed(c); /* says `stuck` again, where it is */
	pthread_mutex_lock(&c->mu);
	/* The last caller has left while this thread read, and with a descriptor no tick takes it back. */
	if (c->mode == CONN_CALLED && c->callers == 0 && c->event_fd >= 0 && !c->is_read)
		c->mode = CONN_WATCHED;
	watch(c);
	pthread_mutex_unlock(&c->mu);
}

static void serve_serial(uint64_t serial)
{
	vd_conn *c;

	pthread_mutex_lock(&lock);
	for (c = conns; c && c->serial != serial; c = c->next)
		;
	current = c;
	pthread_mutex_unlock(&lock);
	if (!c)
		return;
	serve(c);
	pthread_mutex_lock(&lock);
	current = NULL;
	pthread_cond_broadcast(&done_with);
	pthread_mutex_unlock(&lock);
}

/* Under the lock and mu. In how many ms there is to be a next tick for it; 0: none. */
static int tick_one(vd_conn *c)
{
	if (c->mode != CONN_CALLED || c->error)
		return 0;
	if (c->calls != c->seen_calls) {
		c->still_ticks = 0;
		c->seen_calls = c->calls;
		return c->tick_ms = later(c->tick_ms);
	}
	c->still_ticks++;
	if (c->callers > 0)
		return c->still_ticks < TICKS_STILL ? c->tick_ms : 0;
	/* The last has gone: from here on it is not to take long. */
	c->tick_ms = TICK_MS;
	if (c->still_ticks < TICKS_LEFT)
		return c->tick_ms;
	c->tick_ms = 0;
	c->mode = CONN_WATCHED;
	watch(c);
	return 0;
}

/* The same. Callers that keep coming look at devices themselves. */
static int tick_far(vd_conn *c)
{
	if (c->lend.far == 0)
		return 0;
	lend_look(c);
	if (send_is_due(c))
		service_take(c);
	return c->mode == CONN_CALLED && c->tick_ms > TICK_MS ? c->tick_ms : TICK_MS;
}

static int tick_all(void)
{
	int next = 0;

	pthread_mutex_lock(&lock);
	for (vd_conn *c = conns; c; c = c->next) {
		int ms, far;

		pthread_mutex_lock(&c->mu);
		ms = tick_one(c);
		far = tick_far(c);
		pthread_mutex_unlock(&c->mu);
		next = ms && (!next || ms < next) ? ms : next;
		next = far && (!next || far < next) ? far : next;
	}
	pthread_mutex_unlock(&lock);
	return next;
}

static void tick(void)
{
	int ms;

	atomic_store(&ticking, 0);
	ms = tick_all();
	if (ms)
		atomic_store(&ticking, ms);
}

static void answer_wake(void)
{
	uint64_t count;
	ssize_t n = kernel_read(wake_fd, &count, sizeof(count));

	(void)n;
}

/* The coarse clock costs no system call, whatever the machine's clock is. */
static void *service(void *arg)
{
	struct epoll_event ev[EVENTS];
	uint64_t next = 0, now;

	(void)arg;
	for (;;) {
		int ms = atomic_load(&ticking), n;

		now = ms ? clock_coarse_ms() : 0;
		if (ms && next == 0)
			next = now + (uint64_t)ms;
		if (ms)
			ms = next > now ? (int)(next - now) : 0;
		n = door->epoll_wait(epoll_fd, ev, EVENTS, next ? ms : -1);
		for (int i = 0; i < n; i++)
			if (ev[i].data.u64 == SERIAL_WAKES)
				answer_wake();
			else
				serve_serial(ev[i].data.u64);
		if (next && (n == 0 || clock_coarse_ms() >= next)) {
			next = 0;
			tick();
		}
	}
	return NULL;
}

/* No signal of the program's comes to it. */
static int start_thread(void)
{
	sigset_t all, before;
	pthread_attr_t attr;
	pthread_t thread;
	int error;

	if (pthread_attr_init(&attr) != 0)
		return -ENOMEM;
	sigfillset(&all);
	pthread_attr_setstacksize(&attr, STACK_BYTES);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	error = pthread_create(&thread, &attr, service, NULL);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	pthread_attr_destroy(&attr);
	return -error;
}

static void close_both(void)
{
	if (epoll_fd >= 0)
		door->close(epoll_fd);
	if (wake_fd >= 0)
		door->close(wake_fd);
	epoll_fd = wake_fd = -1;
}

/* Under the lock. */
static int start(void)
{
	struct epoll_event ev = {.events = EPOLLIN, .data.u64 = SERIAL_WAKES};
	int r = 0;

	epoll_fd = door->epoll_create1(EPOLL_CLOEXEC);
	if (epoll_fd < 0)
		return -errno;
	wake_fd = door->eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (wake_fd < 0 || door->epoll_ctl(epoll_fd, EPOLL_CTL_ADD, wake_fd, &ev) < 0)
		r = -errno;
	if (r == 0)
		r = start_thread();
	if (r < 0)
		close_both();
	running = r == 0;
	return r;
}

int service_start(void)
{
	int r = 0;

	pthread_mutex_lock(&lock);
	if (!running)
		r = start();
	pthread_mutex_unlock(&lock);
	return r;
}

int service_add(vd_conn *c)
{
	int r = 0;

	pthread_mutex_lock(&lock);
	if (!running)
		r = start();
	if (r == 0) {
		c->serial = ++serials;
		c->next = conns;
		conns = c;
		pthread_mutex_lock(&c->mu);
		watch(c);
		r = c->interest ? 0 : -errno;
		pthread_mutex_unlock(&c->mu);
		if (r < 0)
			conns = c->next;
	}
	pthread_mutex_unlock(&lock);
	return r;
}

void service_listens(struct vd_listener *l)
{
	pthread_mutex_lock(&lock);
	l->next = listeners;
	listeners = l;
	pthread_mutex_unlock(&lock);
}

void service_listens_no_more(struct vd_listener *l)
{
	struct vd_listener **at;

	pthread_mutex_lock(&lock);
	for (at = &listeners; *at != l; at = &(*at)->next)
		;
	*at = l->next;
	pthread_mutex_unlock(&lock);
}

void service_remove(vd_conn *c)
{
	vd_conn **at;

	pthread_mutex_lock(&lock);
	for (at = &conns; *at != c; at = &(*at)->next)
		;
	*at = c->next;
	while (current == c)
		pthread_cond_wait(&done_with, &lock);
	pthread_mutex_unlock(&lock);
}

/* ---- fork ---- */

void service_forking(void)
{
	pthread_mutex_lock(&lock);
}

void service_forked_parent(void)
{
	pthread_mutex_unlock(&lock);
}

/* The child has none of it: their memory stays, for calls by handles to say so. */
void service_forked_child(void)
{
	pthread_mutex_init(&lock, NULL);
	pthread_cond_init(&done_with, NULL);
	for (vd_conn *c = conns; c; c = c->next) {
		door->close(c->fd);
		if (c->event_fd >= 0)
			door->close(c->event_fd);
		if (c->inbox.listener >= 0)
			door->close(c->inbox.listener);
		if (c->announced >= 0)
			door->forget(c->announced);
	}
	for (struct vd_listener *l = listeners; l; l = l->next)
		door->close(l->fd);
	close_both();
	listeners = NULL;
	conns = current = NULL;
	running = false;
	atomic_store(&ticking, 0);
}
