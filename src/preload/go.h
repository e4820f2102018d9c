/* SPDX-License-Identifier: Apache-2.0 */
/* Go programs, whose system calls go past the C library. */
#ifndef VD_PRELOAD_GO_H
#define VD_PRELOAD_GO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Makes the system calls of this program, which is in Go, come to the functions of
 * go_entry.c. Once, from the constructor. NULL, or why nothing has been changed. */
const char *go_join(uint64_t load_address);

/* Changes the code of a program that is in memory. NULL, or why nothing has been changed. */
struct go_text;
const char *go_change(const struct go_text *text, uint64_t load_address);

/* ---- statically linked programs (go_static.c) ---- */

/* Has the loader map it. NULL: it may begin. Else why not. */
const char *go_static_join(const struct go_text *text);
extern bool go_is_static;
/* This thread has a stack for its calls that is not to be given back by itself. */
void go_stack_is_lent(void);

/* As hook_kinds: the numbers that come to C. */
extern const uint8_t *go_kinds;

/* The entries, jumped to in the place of a system call. */
void go_entry_syscall6(void);
void go_entry_vfork(void);
void go_entry_exit(void);
void go_entry_epoll_create(void);
void go_entry_epoll_create1(void);
void go_entry_epoll_ctl(void);
void go_entry_epoll_wait(void);
void go_entry_settls(void);
void go_entry_clone(void);
void go_entry_exit_thread(void);
void go_entry_sigaction(void);

/* Where these go on in the program. */
extern uint64_t go_back_syscall6, go_back_vfork, go_back_settls, go_back_clone;
/* The main thread's FS as the C library has set it, until a call of that thread has shown that Go
 * leaves it alone; then 0. Until then all calls go straight to the kernel. */
extern _Atomic uint64_t go_main_fs;

#define GO_TLS _Thread_local __attribute__((tls_model("initial-exec"), used))

#endif
