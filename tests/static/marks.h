/* SPDX-License-Identifier: Apache-2.0 */
/* Two functions that do nothing: what lies between the calls of them is looked at instruction by instruction. */
#ifndef VD_TESTS_STATIC_MARKS_H
#define VD_TESTS_STATIC_MARKS_H

void mark_begin(void);
void mark_end(void);
__asm__(".text\n"
	".globl mark_begin, mark_end\n"
	".type mark_begin, @function\n"
	".type mark_end, @function\n"
	".balign 16\n"
	"mark_begin:\n"
	"	nop\n"
	"	ret\n"
	".size mark_begin, . - mark_begin\n"
	".balign 16\n"
	"mark_end:\n"
	"	nop\n"
	"	ret\n"
	".size mark_end, . - mark_end\n");

#endif
