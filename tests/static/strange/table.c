/* SPDX-License-Identifier: Apache-2.0 */
/* Constants among the instructions, without a symbol, that could be instructions: one is a system call. */
#include <stdio.h>

__asm__(".text\n"
	".balign 16\n"
	".globl table\n"
	"table:\n"
	"	.byte 0x90, 0x90, 0x90, 0x0f, 0x05, 0x48, 0x89, 0xc7\n"
	"	.byte 0x48, 0x89, 0xc6, 0x90, 0x90, 0x90, 0x90, 0xc3\n");
extern const unsigned char table[16];

int main(void)
{
	const unsigned char *volatile at = table;

	for (int i = 0; i < 16; i++)
		printf("%02x", at[i]);
	puts("");
	return 0;
}
