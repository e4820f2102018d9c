/* SPDX-License-Identifier: Apache-2.0 */
/* A small program and a small library, for fuzz_elf.c to begin with: built without the C library. */

#ifdef FUZZ_STATIC_SEED
/* Linked statically: with calls of known and unknown numbers, and a table of branches. */
static long call(long n, long a)
{
	long r;

	__asm__ volatile("syscall" : "=a"(r) : "a"(n), "D"(a) : "rcx", "r11", "memory");
	return r < 0 ? -1 : r;
}

void _start(void);
void _start(void)
{
	long r = call(39, 0);

	__asm__ volatile("mov $42, %%eax\n\tsyscall\n\tcmp $-4095, %%rax\n\tjae 1f\n\t"
			 "nopw 0(%%rax,%%rax,1)\n1:"
			 : "+a"(r)
			 :
			 : "rcx", "r11", "cc");
	switch (r) {
	case 0:
		r = call(0, 1);
		break;
	case 1:
		r = call(1, 2);
		break;
	case 2:
		r = call(r + 40, 3);
		break;
	case 3:
		r = call(47, 4);
		break;
	case 4:
		r = call(44, 5);
		break;
	default:
		break;
	}
	for (;;)
		call(231, r);
}
#else
__attribute__((visibility("default"))) int fuzz_seed_call(int n);
__attribute__((weak)) int connect(int fd, const void *at, unsigned size);
__attribute__((weak)) long syscall(long n, ...);
__attribute__((weak)) int sendfile(int to, int from, void *at, unsigned long n);

#ifdef FUZZ_LIBRARY_SEED
/* A wrapper, as libraries in LD_PRELOAD have them. */
__attribute__((visibility("default"))) int listen(int fd, int backlog);
int listen(int fd, int backlog)
{
	return fd + backlog;
}

/* As Go's linker marks what it makes. */
__asm__(".pushsection .note.go.buildid,\"a\",@note\n"
	".long 4, 4, 4\n.ascii \"Go\\0\\0\"\n.ascii \"abcd\"\n.popsection");

int fuzz_seed_call(int n)
{
	/* A system call of its own, on a socket: connect. */
	__asm__ volatile("mov $42, %%eax\n\tsyscall" : "+a"(n) : : "rcx", "r11");
	return connect ? connect(n, &n, 1) + (int)syscall(425, n) : 0;
}
#else
void _start(void);
void _start(void)
{
	fuzz_seed_call(1);
	if (connect && sendfile)
		sendfile(connect(1, 0, 0), 2, 0, 0);
	for (;;)
		;
}
#endif
#endif
