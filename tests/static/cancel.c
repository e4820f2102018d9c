/* SPDX-License-Identifier: Apache-2.0 */
/* In the C library's place, where that cancels threads by a place in its code: a statically linked program that has
 * its function stays on TCP. With glibc any that has threads has it, by this name. */
#include <pthread.h>

#include "conform/cases.h"

int __pthread_cancel(pthread_t thread);
int __pthread_cancel(pthread_t thread)
{
	(void)thread;
	skip("a program that cancels threads by a place in its code stays on TCP");
}

int pthread_cancel(pthread_t thread)
{
	return __pthread_cancel(thread);
}
