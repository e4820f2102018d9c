/* SPDX-License-Identifier: Apache-2.0 */
/* System calls as no compiler makes them: one number whose upper half is not 0, and flags around others. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>

static long call(unsigned long nr, long a, const void *b, long c)
{
	long r;

	__asm__ volatile("syscall"
			 : "=a"(r)
			 : "0"(nr), "D"(a), "S"(b), "d"(c)
			 : "rcx", "r11", "memory");
	return r;
}

/* What is in the ring comes back, and what comes by TCP does not. */
static void upper_half(void)
{
	struct sockaddr_in a = {.sin_family = AF_INET,
				.sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int l = socket(AF_INET, SOCK_STREAM, 0), c = socket(AF_INET, SOCK_STREAM, 0), s;
	struct timeval soon = {.tv_sec = 2};
	socklen_t n = sizeof(a);
	char b[16] = {0};
	long sent, got = 0;

	bind(l, (void *)&a, n);
	listen(l, 1);
	getsockname(l, (void *)&a, &n);
	connect(c, (void *)&a, n);
	s = accept(l, NULL, NULL);
	for (int i = 0; i < 4; i++)
		got += write(c, "one", 3) + read(s, b, 3) + write(s, "two", 3) +
		       read(c, b, 3);
	setsockopt(s, SOL_SOCKET, SO_RCVTIMEO, &soon, sizeof(soon));
	sent = call(7ul << 32 | SYS_write, c, "hello", 5);
	memset(b, 0, sizeof(b));
	n = (socklen_t)read(s, b, sizeof(b));
	printf("%ld, sent %ld, read %d: %s\n", got, sent, (int)n, b);
}

#define FLAGS "$0x8d5" /* CF, PF, AF, ZF, SF and OF */

static unsigned long flags_after(unsigned long nr, unsigned long before)
{
	unsigned long after;

	__asm__ volatile("push %2\n"
			 "popfq\n"
			 "syscall\n"
			 "pushfq\n"
			 "pop %0\n"
			 "and " FLAGS ", %0"
			 : "=r"(after), "+a"(nr)
			 : "r"(before | 0x202), "D"(-1l)
			 : "rcx", "r11", "cc", "memory");
	return after;
}

static void flags(void)
{
	static const unsigned long those[] = {0, 1, 4, 0x10, 0x40, 0x80, 0x800, 0x8d5};

	for (unsigned i = 0; i < sizeof(those) / sizeof(those[0]); i++)
		if (flags_after(SYS_getppid, those[i]) != those[i] ||
		    flags_after(1000, those[i]) != those[i])
			printf("%#lx is lost\n", those[i]);
}

int main(void)
{
	upper_half();
	flags();
	return 0;
}
