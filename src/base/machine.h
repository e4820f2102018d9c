/* SPDX-License-Identifier: Apache-2.0 */
/* What this processor and this kernel have of what programs need that make system calls past the C library. */
#ifndef VD_BASE_MACHINE_H
#define VD_BASE_MACHINE_H

enum {
	MACHINE_RDFSBASE = 1, /* and its like: programs read and set FS and GS */
	MACHINE_XSAVEC = 2,
	/* For programs to be followed; of those in Go the dynamically linked ones: static ones need none. */
	MACHINE_FOR_GO = MACHINE_RDFSBASE,
	MACHINE_FOR_STATIC = MACHINE_RDFSBASE | MACHINE_XSAVEC,
};

unsigned machine_here(void);
/* What that is by AT_HWCAP2, and by what cpuid says: ecx of leaf 1, and eax of leaf 13, subleaf 1. */
unsigned machine_of(unsigned long hwcap2, unsigned features, unsigned xsave);
/* NULL: all that is needed is there. Else a sentence with what is not. */
const char *machine_lacks(unsigned there, unsigned needed);

#endif
