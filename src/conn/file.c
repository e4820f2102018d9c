/* SPDX-License-Identifier: Apache-2.0 */
/* The file of a sendfile that sleeps: as in the kernel it is that of the call's begin, whatever becomes of its number. */
#include <sys/syscall.h>
#include <unistd.h>

#include "base/fds.h"
#include "base/kernel.h"
#include "base/low.h"
#include "base/sections.h"
#include "conn/conn.h"
#include "conn/file.h"
#include "ring/source.h"

static struct lock uses_lock FORK_DATA; /* before tx_lock */
static struct file_use *uses FORK_DATA;
/* Relaxed: who closes a number of a call that he knows to sleep sees it. */
static _Atomic uint32_t uses_count FORK_DATA;

static off64_t seek(int file, off64_t at, int whence)
{
	return kernel_call4(SYS_lseek, file, at, whence, 0);
}

/* The kernel moves the file's own position at the end. */
static void keep_position(struct file_use *u)
{
	struct source *src = u->src;
	off64_t at = seek(src->file, 0, SEEK_CUR);
	off64_t begin = at - (off64_t)(u->count - src->left);
	if (at < 0 || begin < 0 ||
	    (begin != at && seek(src->file, begin, SEEK_SET) != begin))
		return;
	u->begin = begin;
	u->at = at;
	src->offset = &u->at;
}

void file_keep(struct file_use *u)
{
	if (!u->src->offset)
		keep_position(u);
	lock_take(&uses_lock);
	u->next = uses;
	uses = u;
	store_relaxed(&uses_count, load_relaxed(&uses_count) + 1);
	lock_drop(&uses_lock);
}

void file_drop(struct file_use *u)
{
	lock_take(&uses_lock);
	/* Not in a child that was forked amid the call. */
	for (struct file_use **at = &uses; *at; at = &(*at)->next) {
		if (*at != u)
			continue;
		*at = u->next;
		store_relaxed(&uses_count, load_relaxed(&uses_count) - 1);
		break;
	}
	lock_drop(&uses_lock);
	if (u->src->offset == &u->at) {
		if (u->at != u->begin && !u->is_lost)
			seek(u->src->file, u->at, SEEK_SET);
		u->src->offset = NULL;
	}
	fds_close(u->own);
	u->own = -1;
}

/*
 * A duplicate is made here, and not before each sleep: to close one would end the program's locks of
 * that file (fcntl), which this close does anyway.
 */
static void keep_file(struct file_use *u)
{
	lock_take(&u->s->slot->tx_lock);
	int copy = LOW_MADE(fds_adopt, kernel_dup(u->src->file));
	if (copy >= 0)
		u->own = u->src->file = copy;
	else
		u->is_lost = true;
	lock_drop(&u->s->slot->tx_lock);
}

static __attribute__((noinline, cold)) void closing_slow(unsigned first, unsigned last)
{
	lock_take(&uses_lock);
	for (struct file_use *u = uses; u; u = u->next) {
		unsigned file = (unsigned)u->src->file;
		if (file >= first && file <= last && u->own < 0)
			keep_file(u);
	}
	lock_drop(&uses_lock);
}

void file_closing(unsigned first, unsigned last)
{
	if (__builtin_expect(load_relaxed(&uses_count) != 0, 0))
		closing_slow(first, last);
}

FORK_CODE void file_forked_child(void)
{
	/* They are other threads' of the parent. A store would copy the page. */
	if (load_relaxed(&uses_lock.word))
		store_relaxed(&uses_lock.word, 0);
	if (uses)
		uses = NULL;
	if (load_relaxed(&uses_count))
		store_relaxed(&uses_count, 0);
}
