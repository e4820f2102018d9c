/* SPDX-License-Identifier: Apache-2.0 */
/* What this processor and this kernel have of what programs need that make system calls past the C library. */
#include "base/machine.h"

#include <cpuid.h>
#include <stddef.h>
#include <sys/auxv.h>
#include <asm/hwcap2.h>

enum { XSAVE_LEAF = 0xd, XSAVE_HAS_XSAVEC = 2 };

unsigned machine_of(unsigned long hwcap2, unsigned features, unsigned xsave)
{
	unsigned there = 0;

	/* The kernel says so: without its leave the instruction is none. */
	if (hwcap2 & HWCAP2_FSGSBASE)
		there |= MACHINE_RDFSBASE;
	/* A kernel that was told noxsave leaves what the processor can do in leaf 13 as it is. */
	if ((features & bit_OSXSAVE) && (xsave & XSAVE_HAS_XSAVEC))
		there |= MACHINE_XSAVEC;
	return there;
}

unsigned machine_here(void)
{
	unsigned a, b, c, d, features = 0;

	if (__get_cpuid(1, &a, &b, &c, &d))
		features = c;
	if (!__get_cpuid_count(XSAVE_LEAF, 1, &a, &b, &c, &d))
		a = 0;
	return machine_of(getauxval(AT_HWCAP2), features, a);
}

const char *machine_lacks(unsigned there, unsigned needed)
{
	unsigned lacks = needed & ~there;

	if (lacks & MACHINE_RDFSBASE)
		return "this processor or kernel has no rdfsbase";
	return lacks ? "this processor or kernel has no xsavec" : NULL;
}
