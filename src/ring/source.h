/* SPDX-License-Identifier: Apache-2.0 */
/* Where the bytes of a send come from: the program's memory, or a file. */
#ifndef VD_RING_SOURCE_H
#define VD_RING_SOURCE_H

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

#include "base/kernel.h"
#include "base/lock.h"
#include "ring/iov.h"

/* Large copies are published in pieces, so that both ends copy at the same time. */
#define SOURCE_PIECE_BYTES 16384u
/* Of a file, where the consumer has more to read. */
#define SOURCE_FILE_BYTES 131072u

struct source {
	struct iov_cursor from;
	bool is_file; /* sendfile */
	bool is_past; /* to be copied past the caches */
	bool may_lend; /* to another host, without a copy: the call stays until they are there */
	size_t left;  /* bytes still to send */
	size_t least; /* none is put before there is room for so many */
	int file;
	off64_t *offset;
	bool moves;	/* the file's position, to *offset */
	bool has_slept; /* so that the file's number may be another file's */
	bool is_gone;	/* it is, or it is no number to read from */
	bool is_odd;	/* it cannot be read to any place */
	dev_t device;
	ino_t inode;
};

/*
 * The kernel reads a file through the caches. To get past them, it reads to this, whose lines stay
 * with the processor, and from there they are copied; by one thread at a time, while others have
 * the kernel write to the ring.
 */
extern uint8_t source_stopover[SOURCE_PIECE_BYTES];
extern struct lock source_stopover_lock;
void source_forked_child(void);

/*
 * These are inline: a return that follows a system call is predicted wrongly where the kernel has
 * emptied the processor's stack of returns, which here costs a piece a tenth of its time.
 */
static inline ssize_t source_read(const struct source *src, uint8_t *to, size_t len)
{
	return kernel_call4(SYS_pread64, src->file, (long)to, (long)len, *src->offset);
}

/*
 * The kernel looks the file up once, when a call begins. Here each piece is read by the number. What has
 * been read is the file's own where that has the number afterwards, too. No duplicate is kept: its end
 * would take the locks away that the process has set on the file by fcntl.
 */
static inline bool source_is_other(struct source *src)
{
	struct stat st;
	if (!src->has_slept)
		return false;
	src->is_gone = kernel_fstat(src->file, &st) < 0 || st.st_dev != src->device ||
		       st.st_ino != src->inode;
	return src->is_gone;
}

/* After each piece: others who have the file see it there if this process is killed. */
static inline void source_moved(struct source *src)
{
	if (src->moves && !src->is_gone && !source_is_other(src))
		kernel_call4(SYS_lseek, src->file, *src->offset, SEEK_SET, 0);
}

static inline ssize_t source_read_past(const struct source *src, uint8_t *to, size_t len)
{
	ssize_t n = source_read(src, source_stopover, len);
	if (n > 0 && crit_copy_past(to, source_stopover, (size_t)n) < 0)
		n = -EFAULT;
	lock_drop(&source_stopover_lock);
	return n;
}

/* Up to SOURCE_FILE_BYTES, or SOURCE_PIECE_BYTES past the caches, under the lock of the ring's producer: fewer at a file's end, where
 * `left` becomes 0. A count or -errno. */
static inline ssize_t source_copy(struct source *src, uint8_t *to, size_t len)
{
	ssize_t n;
	if (!src->is_file) {
		n = iov_drain(&src->from, to, len, src->is_past);
		if (n < 0)
			return n;
	} else {
		n = src->is_past && lock_try(&source_stopover_lock)
			    ? source_read_past(src, to, len)
			    : source_read(src, to, len);
		src->is_gone = n == -EBADF;
		if (src->is_gone || source_is_other(src))
			return -EBADF;
		src->is_odd = n == -EINVAL;
		if (n < 0)
			return n;
		if (n == 0)
			src->left = 0; /* the file's end */
		*src->offset += n;
	}
	src->left -= src->left < (size_t)n ? src->left : (size_t)n;
	return n;
}

#endif
