/* SPDX-License-Identifier: Apache-2.0 */
/* All registers around a receive or a send, as the instruction SYSCALL keeps them. */
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "edges.h"

#define PAGES	16384
#define VECTORS 32
#define MASKS	8
#define DF	0x400u
/* Accesses that are not aligned fault. */
#define AC 0x40000u
/* Of a message: more than are received at once. */
#define MOST 20000

/* The assembly knows the places. */
struct registers {
	uint64_t rax, rbx, rbp, rdx, rsi, rdi, r8, r9, r10, r12, r13, r14, r15, flags;
	uint64_t pad[2];
	uint64_t masks[MASKS];
	uint8_t vectors[VECTORS][64];
} __attribute__((aligned(64)));

/* Makes a call with these registers, and says what they are behind it. */
void registers_xmm(const struct registers *in, struct registers *out);
void registers_ymm(const struct registers *in, struct registers *out);
void registers_zmm(const struct registers *in, struct registers *out);

__asm__(".text\n"
	".macro REGISTERS_IN at\n"
	"	movq 8(\\at), %rbx\n"
	"	movq 16(\\at), %rbp\n"
	"	movq 24(\\at), %rdx\n"
	"	movq 32(\\at), %rsi\n"
	"	movq 48(\\at), %r8\n"
	"	movq 56(\\at), %r9\n"
	"	movq 64(\\at), %r10\n"
	"	movq 72(\\at), %r12\n"
	"	movq 80(\\at), %r13\n"
	"	movq 88(\\at), %r14\n"
	"	movq 96(\\at), %r15\n"
	"	pushq 104(\\at)\n"
	"	movq (\\at), %rax\n"
	"	movq 40(\\at), %rdi\n"
	"	popfq\n"
	".endm\n"
	".macro REGISTERS_OUT at\n"
	"	movq %rax, (\\at)\n"
	"	movq %rbx, 8(\\at)\n"
	"	movq %rbp, 16(\\at)\n"
	"	movq %rdx, 24(\\at)\n"
	"	movq %rsi, 32(\\at)\n"
	"	movq %rdi, 40(\\at)\n"
	"	movq %r8, 48(\\at)\n"
	"	movq %r9, 56(\\at)\n"
	"	movq %r10, 64(\\at)\n"
	"	movq %r12, 72(\\at)\n"
	"	movq %r13, 80(\\at)\n"
	"	movq %r14, 88(\\at)\n"
	"	movq %r15, 96(\\at)\n"
	"	pushfq\n"
	"	popq 104(\\at)\n"
	"	pushq $0x202\n"
	"	popfq\n"
	".endm\n"
	".macro REGISTERS name, kind, move, wide\n"
	".globl \\name\n"
	"\\name:\n"
	"	pushq %rbx\n"
	"	pushq %rbp\n"
	"	pushq %r12\n"
	"	pushq %r13\n"
	"	pushq %r14\n"
	"	pushq %r15\n"
	"	pushq %rsi\n"
	".irp i, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15\n"
	"	\\move 192 + 64 * \\i(%rdi), %\\kind\\i\n"
	".endr\n"
	".if \\wide\n"
	".irp i, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31\n"
	"	\\move 192 + 64 * \\i(%rdi), %\\kind\\i\n"
	".endr\n"
	".irp k, 0, 1, 2, 3, 4, 5, 6, 7\n"
	"	kmovq 128 + 8 * \\k(%rdi), %k\\k\n"
	".endr\n"
	".endif\n"
	"	REGISTERS_IN %rdi\n"
	"	syscall\n"
	"	movq (%rsp), %rcx\n"
	"	REGISTERS_OUT %rcx\n"
	".irp i, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15\n"
	"	\\move %\\kind\\i, 192 + 64 * \\i(%rcx)\n"
	".endr\n"
	".if \\wide\n"
	".irp i, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31\n"
	"	\\move %\\kind\\i, 192 + 64 * \\i(%rcx)\n"
	".endr\n"
	".irp k, 0, 1, 2, 3, 4, 5, 6, 7\n"
	"	kmovq %k\\k, 128 + 8 * \\k(%rcx)\n"
	".endr\n"
	".endif\n"
	".ifnc \\kind,xmm\n"
	"	vzeroupper\n"
	".endif\n"
	"	popq %rsi\n"
	"	popq %r15\n"
	"	popq %r14\n"
	"	popq %r13\n"
	"	popq %r12\n"
	"	popq %rbp\n"
	"	popq %rbx\n"
	"	ret\n"
	".endm\n"
	"	REGISTERS registers_xmm, xmm, movups, 0\n"
	"	REGISTERS registers_ymm, ymm, vmovups, 0\n"
	"	REGISTERS registers_zmm, zmm, vmovups, 1\n");

static struct registers in, out;
static unsigned kept, wrong;

static void fill(long nr, int fd, void *buf, size_t len, uint64_t flags)
{
	uint8_t *at = (uint8_t *)&in;

	for (size_t i = 0; i < sizeof(in); i++)
		at[i] = (uint8_t)(i * 7 + i / 64 + len);
	in.rax = (uint64_t)nr;
	in.rdi = (uint64_t)fd;
	in.rsi = (uint64_t)buf;
	in.rdx = len;
	in.flags = 0x202 | flags;
	if (nr == SYS_sendto || nr == SYS_recvfrom)
		in.r10 = in.r8 = in.r9 = 0;
}

static void keeps(const char *what, const void *a, const void *b, size_t bytes)
{
	if (memcmp(a, b, bytes) == 0)
		kept++;
	else if (wrong++ < 10)
		printf("%s of call %d with %d bytes\n", what, (int)in.rax, (int)in.rdx);
}

static void look(size_t vector_bytes)
{
	unsigned count = vector_bytes == 64 ? VECTORS : VECTORS / 2;
	static const char *const names[] = {"rbx", "rbp", "rdx", "rsi", "rdi", "r8",
					    "r9",  "r10", "r12", "r13", "r14", "r15"};

	for (unsigned i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		keeps(names[i], &in.rbx + i, &out.rbx + i, sizeof(in.rbx));
	out.flags &= DF | AC;
	in.flags &= DF | AC;
	keeps("flags", &in.flags, &out.flags, sizeof(in.flags));
	for (unsigned i = 0; i < count; i++)
		keeps("vectors", in.vectors[i], out.vectors[i], vector_bytes);
	if (vector_bytes == 64)
		keeps("masks", in.masks, out.masks, sizeof(in.masks));
}

static void make(long nr, int fd, void *buf, size_t len, size_t vector_bytes,
		 uint64_t flags)
{
	fill(nr, fd, buf, len, flags);
	if (vector_bytes == 64)
		registers_zmm(&in, &out);
	else if (vector_bytes == 32)
		registers_ymm(&in, &out);
	else
		registers_xmm(&in, &out);
	CHECK(out.rax == len);
	look(vector_bytes);
}

/* Aligned, and not. */
static void send_and_receive(size_t len, size_t vector_bytes, uint64_t flags)
{
	static char room[2][MOST + 16] __attribute__((aligned(16)));
	char *from = room[0] + len / 2 % 8, *to = room[1] + len / 4 % 8;

	for (size_t i = 0; i < len; i++)
		from[i] = (char)(i + len);
	make(len & 1 ? SYS_write : SYS_sendto, ends_of.client, from, len, vector_bytes,
	     flags);
	make(len & 2 ? SYS_read : SYS_recvfrom, ends_of.server, to, len, vector_bytes,
	     flags);
	CHECK(memcmp(from, to, len) == 0);
	memset(to, 0, len);
}

/* A child that ends amid a call of its: the next one begins below its place. */
static __attribute__((noinline)) void leave_a_call(void)
{
	pid_t pid = vfork();

	if (pid == 0)
		syscall(SYS_exit, 0);
	CHECK(waitpid(pid, NULL, 0) == pid);
}

static void t_registers_then(void)
{
	make_pair();
	for (size_t len = 1; len < 200; len += 13) {
		leave_a_call();
		send_and_receive(len, 16, 0);
		leave_a_call();
		send_and_receive(len + 1, 16, len & 2 ? DF : AC);
		if (!__builtin_cpu_supports("avx512bw"))
			continue;
		leave_a_call();
		send_and_receive(len + 2, 64, 0);
	}
	printf("kept %u, wrong %u\n", kept, wrong);
}

static void t_registers(void)
{
	static const uint64_t sets[] = {0, DF, AC, DF | AC};

	make_pair();
	for (size_t len = 1; len < MOST; len += len < 140 ? 1 : len < 1000 ? 61 : 999)
		for (size_t i = 0; i < sizeof(sets) / sizeof(sets[0]); i++) {
			uint64_t flags = sets[i];

			send_and_receive(len, 16, flags);
			if (__builtin_cpu_supports("avx"))
				send_and_receive(len, 32, flags);
			if (__builtin_cpu_supports("avx512bw"))
				send_and_receive(len, 64, flags);
			send_and_receive(len, 16, flags);
		}
	printf("kept %u, wrong %u\n", kept, wrong);
}

/* The last byte has no memory. */
static void partly_without(size_t len)
{
	static char *pages, b[2 * PAGES];
	char *at;

	if (!pages) {
		pages = mmap(NULL, 2 * PAGES, PROT_READ | PROT_WRITE,
			     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		CHECK(pages != MAP_FAILED &&
		      mprotect(pages + PAGES, PAGES, PROT_NONE) == 0);
	}
	at = pages + PAGES - len + 1;
	CHECK(write(ends_of.client, at, len) == -1 && errno == EFAULT);
	memset(b, (int)len, len);
	CHECK(write(ends_of.client, b, len) == (ssize_t)len);
	CHECK(read(ends_of.server, at, len) == -1 && errno == EFAULT);
	memset(b, 0, len);
	CHECK(read(ends_of.server, b, sizeof(b)) == (ssize_t)len);
	for (size_t i = 0; i < len; i++)
		CHECK(b[i] == (char)len);
}

/* Where the memory is not there nothing is lost. */
static void t_no_memory(void)
{
	static char *volatile none = (char *)8;
	static const size_t lengths[] = {2, 16, 33, 128, 129, 256, 257, 1000, 4096, 8000};
	char b[32];

	make_pair();
	for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++)
		partly_without(lengths[i]);
	for (int i = 1; i < 32; i++) {
		CHECK(send(ends_of.client, none, (size_t)i, 0) == -1 && errno == EFAULT);
		CHECK(write(ends_of.client, none, (size_t)i) == -1 && errno == EFAULT);
		CHECK(send(ends_of.client, "sixteen bytes...", 16, 0) == 16);
		CHECK(recv(ends_of.server, none, (size_t)i, 0) == -1 && errno == EFAULT);
		CHECK(read(ends_of.server, none, (size_t)i) == -1 && errno == EFAULT);
		CHECK(recv(ends_of.server, b, sizeof(b), 0) == 16);
		CHECK(memcmp(b, "sixteen bytes...", 16) == 0);
	}
	puts("nothing lost");
}

const struct edge_case edges_quick[] = {
	{"registers", t_registers},
	{"registers_then", t_registers_then},
	{"no_memory", t_no_memory},
	{NULL, NULL},
};
