/* SPDX-License-Identifier: Apache-2.0 */
/* What is to be done when a thread leaves a frame by cancellation or longjmp. */
#ifndef VD_BASE_CLEANUP_H
#define VD_BASE_CLEANUP_H

#include <pthread.h>

/*
 * libc's list of what to do when a thread leaves a frame: cancelled, or by a longjmp out
 * of a signal handler. Unlike the macros of the same name it needs neither setjmp nor an
 * unwinder in the library, and knows longjmp.
 */
void _pthread_cleanup_push(struct _pthread_cleanup_buffer *buffer, void (*fn)(void *),
			   void *arg);
void _pthread_cleanup_pop(struct _pthread_cleanup_buffer *buffer, int execute);

#endif
