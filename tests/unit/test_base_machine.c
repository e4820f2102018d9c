/* SPDX-License-Identifier: Apache-2.0 */
/* What is said of machines that have and lack what followed programs need. */
#include "base/machine.h"

#include <stdbool.h>
#include <string.h>
#include <sys/auxv.h>

#include "unit/test.h"

enum { FSGSBASE = 2, RING3MWAIT = 1, OSXSAVE = 1 << 27, XSAVEOPT = 1, XSAVEC = 2 };

TEST(a_machine_that_has_all)
{
	unsigned there = machine_of(FSGSBASE | RING3MWAIT, OSXSAVE, XSAVEOPT | XSAVEC);

	CHECK_EQ(there, MACHINE_RDFSBASE | MACHINE_XSAVEC);
	CHECK(!machine_lacks(there, MACHINE_FOR_GO));
	CHECK(!machine_lacks(there, MACHINE_FOR_STATIC));
}

TEST(no_rdfsbase)
{
	unsigned there = machine_of(RING3MWAIT, OSXSAVE, XSAVEC);
	const char *text = "this processor or kernel has no rdfsbase";

	CHECK(!strcmp(machine_lacks(there, MACHINE_FOR_GO), text));
	CHECK(!strcmp(machine_lacks(there, MACHINE_FOR_STATIC), text));
	CHECK(!strcmp(machine_lacks(machine_of(0, 0, 0), MACHINE_FOR_STATIC), text));
}

TEST(no_xsavec)
{
	const char *text = "this processor or kernel has no xsavec";
	unsigned there = machine_of(FSGSBASE, OSXSAVE, XSAVEOPT);

	CHECK(!machine_lacks(there, MACHINE_FOR_GO));
	CHECK(!strcmp(machine_lacks(there, MACHINE_FOR_STATIC), text));
	/* The processor has it, and the kernel was told noxsave. */
	CHECK_EQ(machine_of(FSGSBASE, ~(unsigned)OSXSAVE, XSAVEC), MACHINE_RDFSBASE);
}

TEST(this_machine)
{
	bool has = getauxval(AT_HWCAP2) & FSGSBASE;

	CHECK_EQ(has, (machine_here() & MACHINE_RDFSBASE) != 0);
	if (has) {
		unsigned long base;

		__asm__ volatile("rdfsbase %0" : "=r"(base));
		CHECK_EQ(base, *(unsigned long *)__builtin_thread_pointer());
	}
}
