/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers that are kept from a child, by FD_CLOEXEC, which all threads share. */
#include "preload/withheld.h"

#include <fcntl.h>

#include "base/atomic.h"
#include "base/log.h"
#include "base/reason.h"

/*
 * The word: the generation of the connection, and how many threads withhold it now. Nothing is
 * taken out of one that has a count. Whoever makes a note of a number, or counts there, has that
 * (sock_number_begin), so there is one of each.
 */
struct note {
	_Atomic uint64_t word;
	struct sock *_Atomic s;
	_Atomic int fd;
};
static struct note notes[HOOK_WITHHELD_MOST];
static _Atomic bool is_any;

static uint32_t generation_of(uint64_t word)
{
	return (uint32_t)(word >> 32);
}

static uint32_t count_of(uint64_t word)
{
	return (uint32_t)word;
}

static struct note *find(struct sock *s, int fd)
{
	for (int i = 0; i < HOOK_WITHHELD_MOST && load_relaxed(&is_any); i++) {
		struct note *n = &notes[i];

		if (generation_of(atomic_load(&n->word)) == sock_generation(s) &&
		    atomic_load(&n->s) == s && atomic_load(&n->fd) == fd)
			return n;
	}
	return NULL;
}

bool withheld_is(struct sock *s, int fd)
{
	return find(s, fd) != NULL;
}

/* One that nobody else can find, or NULL. */
static struct note *claim(void)
{
	store_relaxed(&is_any, true);
	for (int i = 0; i < 2 * HOOK_WITHHELD_MOST; i++) {
		struct note *n = &notes[i % HOOK_WITHHELD_MOST];
		uint64_t word = atomic_load(&n->word);

		/* Those first that nothing was ever noted in. */
		if ((i < HOOK_WITHHELD_MOST ? word == 0 : count_of(word) == 0) &&
		    atomic_compare_exchange_strong(&n->word, &word, 1))
			return n;
	}
	return NULL;
}

/* False: it is another's by now, or nobody's. */
static bool change(struct note *n, uint32_t generation, uint64_t keep, uint64_t add)
{
	uint64_t word = atomic_load(&n->word);

	do {
		if (generation_of(word) != generation)
			return false;
	} while (!atomic_compare_exchange_weak(&n->word, &word, (word & keep) + add));
	return true;
}

/* Of the number that the caller has. */
static struct note *note_for(struct sock *s, int fd)
{
	struct note *n = find(s, fd);

	if (n && change(n, sock_generation(s), UINT64_MAX, 1))
		return n;
	n = claim();
	if (!n)
		return NULL;
	atomic_store(&n->s, s);
	atomic_store(&n->fd, fd);
	atomic_store(&n->word, (uint64_t)sock_generation(s) << 32 | 1);
	return n;
}

bool withheld_begin(struct spawning *w, struct sock *s, int fd, uint32_t generation)
{
	struct note *n;

	if (!sock_number_begin(s, fd, generation))
		return true; /* another thread has closed it */
	n = note_for(s, fd);
	if (n) {
		/* The table of a child of vfork is its own: there is nothing to undo. */
		if (hook_is_borrowed())
			atomic_fetch_sub(&n->word, 1);
		else
			w->withheld |= 1ull << (n - notes);
		REAL(fcntl64)(fd, F_SETFD, FD_CLOEXEC);
		log_error("fd %d: %s with bytes unread in the ring: closed in the child",
			  fd, reason_name(VD_REASON_EXEC));
	}
	sock_number_end(s);
	return n != NULL;
}

static void end(struct note *n)
{
	struct sock *s = atomic_load(&n->s);
	uint32_t generation = generation_of(atomic_load(&n->word));
	int fd = atomic_load(&n->fd);
	bool is_there = generation && sock_number_begin(s, fd, generation);
	uint64_t word = atomic_load(&n->word);

	if (is_there && generation_of(word) && count_of(word) == 1)
		REAL(fcntl64)(fd, F_SETFD, 0);
	atomic_fetch_sub(&n->word, 1);
	if (is_there)
		sock_number_end(s);
}

void withheld_end(const struct spawning *w)
{
	for (int i = 0; i < HOOK_WITHHELD_MOST; i++)
		if (w->withheld >> i & 1)
			end(&notes[i]);
}

void withheld_pass(struct sock *s, int fd, uint32_t generation)
{
	bool borrowed = hook_is_borrowed();

	if (!withheld_is(s, fd))
		return;
	/* The numbers of a child of vfork are its own, whatever its parent's threads close. */
	if (!borrowed && !sock_number_begin(s, fd, generation))
		return;
	REAL(fcntl64)(fd, F_SETFD, 0);
	if (!borrowed)
		sock_number_end(s);
}

void withheld_pass_all(void)
{
	for (int i = 0; i < HOOK_WITHHELD_MOST && load_relaxed(&is_any); i++) {
		uint32_t generation = generation_of(atomic_load(&notes[i].word));
		struct sock *s = atomic_load(&notes[i].s);
		int fd = atomic_load(&notes[i].fd);

		if (generation && fd_is(fd, s))
			withheld_pass(s, fd, generation);
	}
}

void withheld_forget(struct sock *s, int fd)
{
	struct note *n;

	if (!withheld_is(s, fd) || !sock_number_begin(s, fd, sock_generation(s)))
		return;
	n = find(s, fd);
	if (n)
		change(n, sock_generation(s), UINT32_MAX, 0);
	sock_number_end(s);
}
