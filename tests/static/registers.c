/* SPDX-License-Identifier: Apache-2.0 */
/* Conformance: the instruction SYSCALL keeps all registers but rax, rcx and r11, vectors as well. */
#include <errno.h>
#include <stdint.h>
#include <string.h>

#include "conform/cases.h"

#define COUNT 16
#define BYTES 32

/* Of x and its number in the arrays. */
#define ALL_OF(x)                                                                        \
	x(0) x(1) x(2) x(3) x(4) x(5) x(6) x(7) x(8) x(9) x(10) x(11) x(12) x(13) x(14)  \
		x(15)
#define XMM_IN(i)  "movdqu " #i "*32(%[in]), %%xmm" #i "\n\t"
#define XMM_OUT(i) "movdqu %%xmm" #i ", " #i "*32(%[out])\n\t"
#define YMM_IN(i)  "vmovdqu " #i "*32(%[in]), %%ymm" #i "\n\t"
#define YMM_OUT(i) "vmovdqu %%ymm" #i ", " #i "*32(%[out])\n\t"
#define X87_IN	   "fldt (%[in])\n\tfldt 32(%[in])\n\t"
#define X87_OUT	   "fstpt 32(%[out])\n\tfstpt (%[out])\n\t"

/* Loads registers, receives 16 bytes, and stores them. */
#define RECEIVE(name, load, store)                                                       \
	static long name(int fd, const void *in, void *out, void *at)                    \
	{                                                                                \
		register long r10 __asm__("r10") = 0;                                    \
		register long r8 __asm__("r8") = 0;                                      \
		register long r9 __asm__("r9") = 0;                                      \
		register const void *from __asm__("rbx") = in;                           \
		register void *to __asm__("r12") = out;                                  \
		long result;                                                             \
                                                                                         \
		__asm__ __volatile__(load "movl $45, %%eax\n\tsyscall\n\t" store         \
				     : "=&a"(result)                                     \
				     : "D"((long)fd), "S"(at), "d"(16L), "r"(r10),       \
				       "r"(r8), "r"(r9), [in] "r"(from), [out] "r"(to)   \
				     : "rcx", "r11", "memory", "cc", "xmm0", "xmm1",     \
				       "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7",   \
				       "xmm8", "xmm9", "xmm10", "xmm11", "xmm12",        \
				       "xmm13", "xmm14", "xmm15");                       \
		return result;                                                           \
	}

RECEIVE(with_xmm, ALL_OF(XMM_IN), ALL_OF(XMM_OUT))
RECEIVE(with_ymm, ALL_OF(YMM_IN), ALL_OF(YMM_OUT) "vzeroupper\n\t")
RECEIVE(with_x87, X87_IN, X87_OUT)

static uint32_t mxcsr(void)
{
	uint32_t now;

	__asm__ __volatile__("stmxcsr %0" : "=m"(now));
	return now;
}

static void compare(const char *name,
		    long (*receive)(int fd, const void *in, void *out, void *at),
		    struct pair p, int count, size_t each)
{
	uint8_t in[COUNT][BYTES], out[COUNT][BYTES], got[16];
	int kept = 0;

	for (int i = 0; i < COUNT; i++)
		for (int k = 0; k < BYTES; k++)
			in[i][k] = pattern((uint64_t)i * BYTES + (uint64_t)k);
	/* As numbers of x87, normal ones. */
	for (int i = 0; i < count && each == 10; i++)
		in[i][7] |= 0x80, in[i][8] = 0, in[i][9] = 0x40;
	send_all(p.c, "sixteen bytes...", 16);
	errno = 0;
	say("%s: %ld", name, receive(p.s, in, out, got));
	for (int i = 0; i < count; i++)
		kept += memcmp(in[i], out[i], each) == 0;
	say("kept: %d, got %.16s", kept, (char *)got);
}

/* With wider registers in use, and without. */
CASE(static_registers, DIRECT)
{
	const uint32_t up = (mxcsr() & ~0x6000u) | 0x4000;
	struct pair p = pair_warm_open();

	compare("xmm", with_xmm, p, COUNT, 16);
	__asm__ __volatile__("ldmxcsr %0" : : "m"(up));
	compare("xmm", with_xmm, p, COUNT, 16);
	say("mxcsr: %d", mxcsr() == up);
	if (__builtin_cpu_supports("avx")) {
		compare("ymm", with_ymm, p, COUNT, 32);
		compare("xmm", with_xmm, p, COUNT, 16);
	}
	compare("x87", with_x87, p, 2, 10);
	compare("xmm", with_xmm, p, COUNT, 16);
	pair_close(p);
}
