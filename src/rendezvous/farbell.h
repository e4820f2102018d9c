/* SPDX-License-Identifier: Apache-2.0 */
/* The doorbells between two users: a netlink socket of each end, which never leaves it. */
#ifndef VD_RENDEZVOUS_FARBELL_H
#define VD_RENDEZVOUS_FARBELL_H

#include <stdbool.h>
#include <stdint.h>

/*
 * Between processes of one user a doorbell is an eventfd that both ends hold. Its flags
 * and its counter then belong to both, and no write to it is nonblocking by itself: who
 * rings could be stopped for ever. That matters where the peer could not stop us anyway.
 * So between users each end has a socket of its own, which sends to the other's and takes
 * from nobody else. What travels is its port number, and no call depends on its flags.
 */

/* What one answer takes at most, so that a peer who rings without end is not waited for. */
#define FARBELL_MOST 16

/* A socket in the network namespace with that cookie, adopted; or -errno (see socket_cache.h). */
int farbell_create(uint64_t netns);
/* The number by which the other end reaches it; 0 when the kernel does not say. */
uint32_t farbell_port(int fd);
/* From now on it rings that port, and hears no other. 0 or -errno. */
int farbell_connect(int fd, uint32_t port);
/*
 * Between two network namespaces it is one of a pair of AF_UNIX datagram sockets, made by viaductd. No
 * descriptor can be left in its queue (SO_PASSRIGHTS). It is connected from the start.
 */
bool farbell_is_pair(int fd);
/* The other end of a pair has been closed by all that had it. */
bool farbell_is_over(int fd);
/* Never blocks, sets no errno. What does not fit need not come: it is readable then. */
void farbell_ring(int fd);
/* Empties it. Returns how often it was rung: FARBELL_MOST when there may be more. */
int farbell_answer(int fd);

#endif
