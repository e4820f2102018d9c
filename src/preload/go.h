/* SPDX-License-Identifier: Apache-2.0 */
/* Go programs, whose system calls go past the C library. */
#ifndef VD_PRELOAD_GO_H
#define VD_PRELOAD_GO_H

#include <stdbool.h>
#include <stdint.h>

/* Makes the system calls of this program, which is in Go, come to the functions of
 * go_entry.c. Once, from the constructor. NULL, or why nothing has been changed. */
const char *go_join(uint64_t load_address);

/* The entries, jumped to in the place of a system call. */
void go_entry_syscall6(void);
void go_entry_vfork(void);
void go_entry_exit(void);
void go_entry_epoll_create(void);
void go_entry_epoll_create1(void);
void go_entry_epoll_ctl(void);
void go_entry_epoll_wait(void);

/* Where these go on in the program. */
extern uint64_t go_back_syscall6, go_back_vfork;
/* The main thread's FS as the C library has set it, until a call of that thread has shown that Go
 * leaves it alone; then 0. Until then all calls go straight to the kernel. */
extern _Atomic uint64_t go_main_fs;

#endif
