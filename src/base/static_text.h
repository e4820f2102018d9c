/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the system calls of a program without a C library of the host's, and room to lead them away. */
#ifndef VD_BASE_STATIC_TEXT_H
#define VD_BASE_STATIC_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum static_kind {
	STATIC_LEAVE, /* its number is known, and no call of that number concerns us */
	/* Five bytes at `jump` become a jump. What it leads to executes `head`, makes the call,
	 * executes `tail`, and goes on at `back`. */
	STATIC_JUMP,
	/* Two bytes at `jump` (the syscall) become a jump to `pad` + 2, where a jump of five bytes as
	 * above stands. Before it `eb pad_skip`: these are NOPs that the program may run through. */
	STATIC_PAD,
};

enum { STATIC_MOVED = 30, STATIC_SITES_MOST = 4096 };

/* One instruction `syscall`. Addresses are as the file says: without the one where a
 * position-independent program is loaded. Bytes between `jump` and `back` that are not part of the
 * jump stay as they are: nothing reaches them. */
struct static_site {
	uint64_t at;   /* of the syscall */
	uint64_t jump; /* where the changed bytes begin */
	uint64_t pad;  /* 0: none */
	uint64_t back; /* where the program goes on; 0: the tail ends with a return */
	uint64_t
		cond_to; /* where it goes on if `cond` holds behind the tail; 0: there is none */
	int32_t number; /* -1: not known */
	uint8_t kind;
	uint8_t cond;	  /* the second byte of 0f 80 to 0f 8f, `jo` to `jg`, or 0 */
	uint8_t pad_skip; /* from `pad` + 2 to the end of these NOPs */
	uint8_t head_bytes, tail_bytes;
	/* Behind a lea in the head, whose last four bytes are the distance from there; 0: there is none. */
	uint8_t rip_end;
	/* Whole instructions without a branch (but a last `ret`), which do the same anywhere. */
	uint8_t head[STATIC_MOVED], tail[STATIC_MOVED];
};

struct static_text {
	struct static_site *sites; /* by address; mapped */
	size_t count;
	bool cancels_by_place; /* no call that can be cancelled may be led away */
	bool is_pie;	       /* ET_DYN: any address will do */
	const char *lacks;     /* a sentence why not, when the search fails */
	uint64_t lacks_at;     /* the address that it speaks of, or 0 */
};

/*
 * Looks through a program's file. A number below `concerns_count` whose entry is not 0 concerns us;
 * all others may be left to the program. Returns 0, or -ENOEXEC with `lacks` set (then none of it is
 * to be changed), or another -errno. No heap. static_text_finish is for success only.
 */
int static_text_find(const char *path, const uint8_t *concerns, size_t concerns_count,
		     struct static_text *found);
void static_text_finish(struct static_text *found);

#endif
