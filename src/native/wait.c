/* SPDX-License-Identifier: Apache-2.0 */
/* Callers that wait for something on a connection: one of them reads, the others sleep. */
#include <limits.h>
#include <time.h>

#include "native/lend.h"
#include "native/message.h"
#include "native/native.h"

/* So long a receive waits at most. A deadline that is nearer is left to poll. */
#define SLICE_MS 500
/* What has come by the deadline is looked at. So many reads are more than a stream holds; a peer that sends all the
 * time would go on for ever. */
#define LATE_READS 256
/* After so many waits in a row without a deadline it is taken back: a sleep that ends by itself reads the
 * clock, which is a system call on some machines. */
#define ENDLESS_LEAST 8

static int64_t now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * 1000ll + ts.tv_nsec / 1000000;
}

int64_t until(int timeout_ms)
{
	return timeout_ms < 0 ? UNTIL_EVER : now_ms() + timeout_ms;
}

int until_left(int64_t deadline)
{
	int64_t left;

	if (deadline == UNTIL_EVER)
		return -1;
	left = deadline - now_ms();
	return left < 0 ? 0 : left > INT_MAX ? INT_MAX : (int)left;
}

/* Under mu, which it gives up meanwhile. Nothing is there yet. 0, or -ETIMEDOUT. */
static int doze(vd_conn *c, int64_t deadline, bool is_due)
{
	struct pollfd p = {.fd = c->fd,
			   .events = (short)(POLLIN | (is_due ? POLLOUT : 0))};
	bool is_far = lend_is_far(c);
	int n = 0;

	pthread_mutex_unlock(&c->mu);
	/* What the peer sends ends that, too. */
	if (is_far && until_left(deadline) != 0)
		door->await_moves(c->fd);
	else
		n = door->poll(&p, 1, is_far ? 0 : until_left(deadline));
	pthread_mutex_lock(&c->mu);
	return n == 0 && until_left(deadline) == 0 ? -ETIMEDOUT : 0;
}

/* The reader's: its receives end after SLICE_MS, or do no more. */
static void slice(vd_conn *c, bool is_sliced)
{
	const struct timeval tv = {.tv_usec = is_sliced ? SLICE_MS * 1000 : 0};

	if (c->is_sliced != is_sliced &&
	    door->setsockopt(c->fd, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv)) == 0)
		c->is_sliced = is_sliced;
}

/* The reader's: whether the receive itself may wait, which costs less than poll. */
static bool may_receive(vd_conn *c, int64_t deadline)
{
	if (deadline == UNTIL_EVER) {
		if (c->is_sliced && ++c->endless >= ENDLESS_LEAST)
			slice(c, false);
		return true;
	}
	if (until_left(deadline) <= SLICE_MS)
		return false;
	c->endless = 0;
	slice(c, true);
	return c->is_sliced;
}

/* As the reader. It takes mu. */
static int read_waiting(vd_conn *c, int64_t deadline, bool is_due)
{
	int r;

	if (!is_due && may_receive(c, deadline))
		return read_some(c, 0);
	r = read_some(c, MSG_DONTWAIT);
	return r == -EAGAIN ? doze(c, deadline, is_due) : r;
}

/* Under mu, as the reader: messages that come past the stream. -EAGAIN: that is to be read. */
static int read_beside(vd_conn *c, int64_t deadline, bool is_due)
{
	uint32_t told = c->inbox.told;
	bool has_some = false;
	int r = -EAGAIN;

	/* The rest of a body comes before all that the board tells meanwhile; so nobody has to wake us
	 * for that. */
	if (c->body_left > 0)
		return r;
	if (!is_due && until_left(deadline) != 0 && message_may_spin(c))
		has_some = message_spin(c);
	if (has_some && c->inbox.told == told) {
		pthread_mutex_unlock(&c->mu);
		r = read_some(c, MSG_DONTWAIT);
	}
	if (r == -EAGAIN && c->inbox.told == told)
		message_watch(c);
	if (c->inbox.is_wrong && r == -EAGAIN) {
		pthread_mutex_unlock(&c->mu);
		conn_over(c, r = -EPROTO);
		pthread_mutex_lock(&c->mu);
	}
	return c->inbox.told == told ? r : 0;
}

/* Under mu. */
static int read_once(vd_conn *c, int64_t deadline)
{
	/* Who looks at a device does not sleep for the peer alone. */
	bool is_due = send_is_due(c) || lend_is_far(c);
	int r;

	c->is_read = c->is_deaf = true;
	r = read_beside(c, deadline, is_due);
	if (r == -EAGAIN) {
		pthread_mutex_unlock(&c->mu);
		r = read_waiting(c, deadline, is_due);
	}
	c->is_deaf = false;
	is_due = send_is_due(c);
	if (is_due) {
		pthread_mutex_unlock(&c->mu);
		send_owed(c);
		pthread_mutex_lock(&c->mu);
	}
	c->is_read = false;
	conn_changed(c);
	return r;
}

/* Under mu: another thread reads. */
static int follow(vd_conn *c, int64_t deadline)
{
	struct timespec ts = {deadline / 1000, deadline % 1000 * 1000000};
	int r = 0;

	c->followers++;
	if (deadline == UNTIL_EVER)
		pthread_cond_wait(&c->changed, &c->mu);
	else
		r = -pthread_cond_timedwait(&c->changed, &c->mu, &ts);
	c->followers--;
	return r;
}

int until_freed(vd_conn *c, until_fn *is, const void *arg, int64_t deadline)
{
	int r = 0, cancel;

	if (is(c, arg))
		return 0;
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
	while (!is(c, arg) && !c->error && r != -ETIMEDOUT)
		r = follow(c, deadline);
	if (is(c, arg))
		r = 0;
	else if (c->error)
		r = c->error;
	conn_changed(c); /* vd_close waits for the last */
	pthread_setcancelstate(cancel, NULL);
	return r;
}

int until_is(vd_conn *c, until_fn *is, const void *arg, int64_t deadline)
{
	int r = 0, cancel, reads = 0, late = 0;

	if (is(c, arg))
		return 0;
	/* A reader that ended in mid-read would leave no other. */
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
	service_called(c);
	for (;;) {
		lend_look(c);
		if (is(c, arg))
			break;
		/* After a last look at what the reading has brought. */
		if (r == -ETIMEDOUT)
			break;
		if (reads++ > 0 && until_left(deadline) == 0 && late++ == LATE_READS) {
			r = -ETIMEDOUT;
			break;
		}
		r = c->error;
		/* What is lent comes back first; whoever sends it has been waked. */
		if (r && !c->is_lending)
			break;
		r = c->is_read || r ? follow(c, deadline) : read_once(c, deadline);
	}
	if (is(c, arg))
		r = 0;
	service_left(c);
	pthread_setcancelstate(cancel, NULL);
	return r;
}
