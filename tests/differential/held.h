/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes that one end holds back: how they are sent, let go, and seen by the other end. */
#ifndef DIFFERENTIAL_HELD_H
#define DIFFERENTIAL_HELD_H

#include "differential.h"

/*
 * TCP holds them for 200 ms at most, and on a loaded machine these pass between any two calls. So no
 * line tells whether they have come before something let them go. What is received before that
 * counts in the sum alone, and whoever waits for the time waits until it is over.
 */

/* One connection, of which one end holds back what it sends. */
struct hold {
	int from, to; /* ends */
	int fd;	      /* by which it sends */
	int instance; /* of epoll, or -1; the receiver is registered there */
	int outer;    /* in which that one is registered, or -1 */
	uint32_t events;
	bool cork;   /* else each call says that more is to come */
	bool asleep; /* somebody else receives meanwhile, `left` bytes yet */
	/* What has come before it was let go may have been received, or an event of it. */
	bool taken, told;
	size_t left;
	size_t before, got; /* bytes that were unread at first; that have been received */
	uint8_t into[65536];
};

int set_tcp(int fd, int name, int value);
/* held_send.c */
void held_piece(struct dice *d, struct hold *h);
/* What a program does between two pieces. */
void held_between(struct dice *d, struct hold *h);
/* held_seen.c */
void held_wait_due(const struct hold *h);
/* Sleeps on the other end: by itself it hears of what is due. */
void held_sleep(struct dice *d, struct hold *h);
void held_take(struct hold *h, size_t most);
/* They have been let go. */
void held_see(struct dice *d, struct hold *h);

#endif
