/* SPDX-License-Identifier: Apache-2.0 */
/* System calls where a segment begins and where it ends, with what may be written behind it. */
	.section .first, "ax"
first:	nop
	syscall
	cmp $-4095, %rax
	ret

	.text
	.globl _start
_start:	mov $1, %edi
	lea said(%rip), %rsi
	mov $5, %edx
	mov $1, %eax
	call first
	mov $1, %eax
	call last
	movl $7, written(%rip)
	mov written(%rip), %edi
	mov $231, %eax
	syscall
	hlt

	.section .last, "ax"
last:	nop
	syscall
	cmp $-4095, %rax
	ret

	.data
written:
	.long 0
said:	.ascii "said\n"
	.section .note.GNU-stack, "", @progbits
