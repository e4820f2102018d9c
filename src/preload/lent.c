/* SPDX-License-Identifier: Apache-2.0 */
/* Connections that this image has inherited, and that others have lent: docs/processes.md, "Lent connections". */
#include "preload/lent.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/single_threaded.h>

#include "base/fds.h"
#include "base/kernel.h"
#include "base/low.h"
#include "conn/loan.h"
#include "preload/hook.h"

/* At once, of the list of open descriptors. */
#define LIST_BYTES    2048
#define UNLISTED_MOST 65536

unsigned lent_tokens FORK_DATA;
_Atomic int lent_one FORK_DATA = -1;
bool lent_closes;

struct entry { /* as the kernel has it */
	uint64_t inode;
	int64_t next;
	uint16_t length;
	uint8_t type;
	char name[];
};

/* A connection that has come by the exec: what this image has made itself is in its tables. */
static bool is_lent(int fd)
{
	return !fd_sock(fd) && !fds_is_ours(fd) && loan_may_be(fd);
}

/* All that are lent; false: they cannot be listed, and those beyond UNLISTED_MOST may be missed. */
static bool each(void (*visit)(int fd))
{
	char list[LIST_BYTES] __attribute__((aligned(8)));
	bool good;
	long n;

	low_begin();
	int self = kernel_open("/proc/self/fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
	while (self >= 0 &&
	       (n = kernel_call4(SYS_getdents64, self, (long)list, sizeof(list), 0)) > 0)
		for (long at = 0; at < n; at += ((struct entry *)(list + at))->length) {
			const char *name = ((struct entry *)(list + at))->name;

			if (*name >= '0' && *name <= '9' && is_lent(atoi(name)))
				visit(atoi(name));
		}
	good = self >= 0 && n == 0;
	if (self >= 0)
		kernel_close(self);
	low_end();
	for (int fd = 0; !good && fd < UNLISTED_MOST; fd++)
		if (is_lent(fd))
			visit(fd);
	return good;
}

static int last;

static void note_last(int fd)
{
	last = fd;
}

/* The kernel forgets what they say when the last of them is closed. */
static void let_go(void)
{
	for (int i = 0; i < LOAN_MOST; i++)
		if (lent_tokens & 1u << i)
			fds_close_apart(LOAN_FIRST + i);
	lent_tokens = 0;
}

/*
 * Another thread might have a number of it where the list has been passed. So tokens stay with a program that has threads,
 * and where somebody else has these descriptors.
 */
void lent_closed_slow(void)
{
	int saved = errno;

	if (!hook_active || !__libc_single_threaded || load_relaxed(&hook_is_parted) ||
	    hook_is_borrowed())
		return;
	crit_enter();
	last = -1;
	bool known = each(note_last);
	if (known && last < 0)
		let_go();
	else
		lent_one = known ? last : -1;
	crit_leave();
	errno = saved;
}

void lent_init(void)
{
	struct pollfd at[LOAN_MOST];

	for (int i = 0; i < LOAN_MOST; i++)
		at[i] = (struct pollfd){.fd = LOAN_FIRST + i};
	/* Under a small limit it refuses. */
	if (kernel_poll(at, LOAN_MOST, 0) < 0)
		for (int i = 0; i < LOAN_MOST; i++)
			at[i].revents = 0;
	for (int i = 0; i < LOAN_MOST; i++)
		if (at[i].revents != POLLNVAL && loan_is_token(LOAN_FIRST + i))
			lent_tokens |= 1u << i;
	if (!lent_tokens)
		return;
	if (!hook_active) {
		lent_unknown();
		return;
	}
	for (int i = 0; i < LOAN_MOST; i++)
		if (lent_tokens & 1u << i)
			fds_note(LOAN_FIRST + i);
	lent_closed_slow();
}

void lent_passing(int fd)
{
	if (lent_is_any() && is_lent(fd))
		loan_for_good(fd);
}

void lent_unknown(void)
{
	if (lent_is_any())
		each(loan_for_good);
	/* A child of vfork says so of its own alone. */
	if (!hook_is_borrowed())
		lent_tokens = 0;
}

static void leave(int fd)
{
	int flags = REAL(fcntl64)(fd, F_GETFD);

	if (flags >= 0 && !(flags & FD_CLOEXEC))
		loan_for_good(fd);
}

void lent_leaving(bool is_followed, bool spawns)
{
	/* A child of vfork may have closed one, or put another file there, and a range may have been set close-on-exec. */
	for (int i = 0; i < LOAN_MOST; i++)
		if ((lent_tokens & 1u << i) &&
		    (REAL(fcntl64)(LOAN_FIRST + i, F_SETFD, 0) < 0 ||
		     !loan_is_token(LOAN_FIRST + i)))
			is_followed = false;
	if (!is_followed)
		each(spawns ? loan_for_good : leave);
}

void lent_is_closed_in_children(int from, int to)
{
	if (from < LOAN_FIRST + LOAN_MOST && to >= LOAN_FIRST)
		lent_closes = true;
}
