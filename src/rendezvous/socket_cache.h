/* SPDX-License-Identifier: Apache-2.0 */
/* A socket that a process keeps for short errands, because making one costs more than
 * the errand. */
#ifndef VD_RENDEZVOUS_SOCKET_CACHE_H
#define VD_RENDEZVOUS_SOCKET_CACHE_H

#include <stdatomic.h>
#include <stdint.h>

/* Zero-initialised: nothing kept yet. */
struct kept {
	_Atomic uint64_t word; /* process id and descriptor, or 0 */
};

/*
 * Takes the kept socket for one thread's use, or makes a new one: nonblocking,
 * close-on-exec, adopted, and in the network namespace with that cookie. Returns it, or
 * -errno; -ENONET when this thread has left that namespace. Never blocks: a socket that
 * another thread is using is not waited for.
 */
int kept_take(struct kept *k, int domain, int type, int protocol, uint64_t netns);
/* Gives it back in working order; closed when another one is kept by now. */
void kept_give(struct kept *k, int fd);
/* A new socket like those of kept_take, for the caller to close. */
int kept_socket(int domain, int type, int protocol, uint64_t netns);
/* The same, for fds_adopt_low. */
int kept_socket_low(int domain, int type, int protocol, uint64_t netns);
/* Closes all that is kept. */
void kept_close_all(void);

#endif
