/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the places where a Go program enters the kernel. */
#ifndef VD_BASE_GO_TEXT_H
#define VD_BASE_GO_TEXT_H

#include <stdbool.h>
#include <stdint.h>

enum go_place {
	GO_SYSCALL6,	 /* what net, os and syscall go through */
	GO_VFORK,	 /* syscall.rawVforkSyscall: a child that shares the memory */
	GO_EXIT,	 /* runtime.exit */
	GO_EPOLL_CREATE, /* these four: up to Go 1.19 only */
	GO_EPOLL_CREATE1,
	GO_EPOLL_CTL,
	GO_EPOLL_WAIT,
	GO_SETTLS, /* from here on: of statically linked programs only */
	GO_CLONE,  /* runtime.clone: a thread */
	GO_EXIT_THREAD,
	GO_SIGACTION, /* runtime.rt_sigaction */
	GO_PLACES
};

/* Five bytes at `at` become a jump; 0: the program has no such place. As the file says, that is,
 * without the address where a position-independent program is loaded. */
struct go_text {
	uint64_t at[GO_PLACES];
	const unsigned char *was[GO_PLACES]; /* what stands there */
	bool is_static;	   /* no C library is in it: all of it is Go's */
	const char *lacks; /* what is not as expected, when the search fails */
};

#define GO_PATCH_BYTES 5

/*
 * Looks through a program's file. Returns 0, or -ENOEXEC with `lacks` set: then none of it is to be
 * changed. No heap.
 */
int go_text_find(const char *path, struct go_text *found);

/* Whether that is a program in Go that is linked statically, by its first instructions alone: it takes no time. */
bool go_text_begins(const char *path);

#endif
