/* SPDX-License-Identifier: Apache-2.0 */
/* Marked as a program in Go, and like those it ends without the C library. */
#include <sys/syscall.h>

__asm__(".pushsection .note.go.buildid, \"a\", @note\n"
	".long 4, 4, 4\n"
	".asciz \"Go\\0\"\n"
	".long 0\n"
	".popsection\n");

int main(void)
{
	__asm__ __volatile__("syscall" : : "a"(SYS_exit_group), "D"(0) : "memory");
	return 1;
}
