/* SPDX-License-Identifier: Apache-2.0 */
/* A small program and a small library, for fuzz_elf.c to begin with: built without the C library. */

__attribute__((visibility("default"))) int fuzz_seed_call(int n);
__attribute__((weak)) int connect(int fd, const void *at, unsigned size);
__attribute__((weak)) long syscall(long n, ...);
__attribute__((weak)) int sendfile(int to, int from, void *at, unsigned long n);

#ifdef FUZZ_LIBRARY_SEED
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
