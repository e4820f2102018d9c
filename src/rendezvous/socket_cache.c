/* SPDX-License-Identifier: Apache-2.0 */
/* A socket that a process keeps for short errands, because making one costs more than
 * the errand. */
#include <errno.h>

#include "base/atomic.h"
#include "base/fds.h"
#include "base/low.h"
#include "base/self.h"
#include "base/tcp.h"
#include "rendezvous/rendezvous.h"
#include "rendezvous/socket_cache.h"

static int kept_check(int fd, uint64_t netns)
{
	uint64_t own;
	int r = tcp_netns_cookie(fd, &own);

	if (r == 0 && own != netns)
		r = -ENONET;
	if (r != 0) {
		fds_close(fd);
		return r;
	}
	return fd;
}

static int make(int domain, int type, int protocol, uint64_t netns, int (*adopt)(int fd))
{
	int fd =
		LOW_MADE(adopt, kernel_socket(domain, type | SOCK_CLOEXEC | SOCK_NONBLOCK,
					      protocol));

	return fd < 0 ? fd : kept_check(fd, netns);
}

int kept_socket(int domain, int type, int protocol, uint64_t netns)
{
	return make(domain, type, protocol, netns, fds_adopt);
}

int kept_socket_low(int domain, int type, int protocol, uint64_t netns)
{
	return make(domain, type, protocol, netns, fds_adopt_low);
}

/* The places where sockets are kept: one for each errand, each listed at its first use. */
#define KEPT_PLACES 16
static struct kept *_Atomic kept_places[KEPT_PLACES];

static void kept_list(struct kept *k)
{
	for (int i = 0; i < KEPT_PLACES; i++) {
		struct kept *none = NULL;

		if (atomic_compare_exchange_strong(&kept_places[i], &none, k) ||
		    none == k)
			return;
	}
}

void kept_close_all(void)
{
	for (int i = 0; i < KEPT_PLACES; i++) {
		struct kept *k = atomic_load(&kept_places[i]);
		uint64_t word = k ? atomic_exchange(&k->word, 0) : 0;

		if (word != 0)
			fds_close((int)(uint32_t)word);
	}
}

void meet_give_back(void)
{
	kept_close_all();
}

static uint64_t kept_word(int fd)
{
	return (uint64_t)(uint32_t)self_pid() << 32 | (uint32_t)fd;
}

/*
 * The word is taken out while the socket is in use: so no lock is needed, which a forked
 * child could find taken for ever. Acquire here and release in kept_give: the giver's last
 * use of the socket comes before the taker's first.
 */
int kept_take(struct kept *k, int domain, int type, int protocol, uint64_t netns)
{
	uint64_t word = exchange_acquire(&k->word, 0);
	int fd = (int)(uint32_t)word;

	if (word == 0)
		return kept_socket(domain, type, protocol, netns);
	/* A socket that was inherited over fork is still the parent's too: answers would
	 * go to either. */
	if (word != kept_word(fd))
		fds_close(fd);
	else if (kept_check(fd, netns) >= 0)
		return fd;
	return kept_socket(domain, type, protocol, netns);
}

void kept_give(struct kept *k, int fd)
{
	uint64_t none = 0;

	kept_list(k);
	if (!atomic_compare_exchange_strong_explicit(&k->word, &none, kept_word(fd),
						     memory_order_release,
						     memory_order_relaxed))
		fds_close(fd);
}
