/* SPDX-License-Identifier: Apache-2.0 */
/* System calls past the C library: no cancellation point, no interposed name, no errno. */
#ifndef VD_BASE_KERNEL_H
#define VD_BASE_KERNEL_H

/* Returns the result, or -errno. Blocks as the system call does. */
static inline long kernel_call6(long nr, long a, long b, long c, long d, long e, long f)
{
	register long r10 __asm__("r10") = d;
	register long r8 __asm__("r8") = e;
	register long r9 __asm__("r9") = f;
	long result;
	__asm__ __volatile__("syscall"
			     : "=a"(result)
			     : "a"(nr), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
			     : "rcx", "r11", "memory");
	return result;
}

static inline long kernel_call4(long nr, long a, long b, long c, long d)
{
	return kernel_call6(nr, a, b, c, d, 0, 0);
}

#endif
