/* SPDX-License-Identifier: Apache-2.0 */
/* musl's header, with a list of cleanups that longjmp looks at, as glibc's does: musl/longjmp.c. */
#ifndef VD_MUSL_PTHREAD_H
#define VD_MUSL_PTHREAD_H

#include_next <pthread.h>

struct _pthread_cleanup_buffer {
	struct __ptcb cancelled; /* musl's own: for a thread that is cancelled */
	void (*fn)(void *arg);
	void *arg;
	struct _pthread_cleanup_buffer *outer;
};

#define _pthread_cleanup_push cleanup_begin
#define _pthread_cleanup_pop  cleanup_end

#endif
