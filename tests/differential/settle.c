/* SPDX-License-Identifier: Apache-2.0 */
/* Waits until what the ends have sent has come, so that what is seen next depends on no time. */
#include <errno.h>
#include <netinet/in.h>
#include <linux/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "differential.h"

/* Of a connection; the C library's header of them excludes the kernel's. */
enum {
	ESTABLISHED = 1,
	FIN_WAIT1 = 4,
	FIN_WAIT2 = 5,
	CLOSED = 7,
	LAST_ACK = 9,
	LISTENS = 10,
	CLOSING = 11
};

/* In a statically linked program even an instruction is led away, but for one that is written when it runs. */
static const void *system_call(void)
{
	static const unsigned char code[] = {0x0f, 0x05, 0xc3}; /* syscall, ret */
	static void *page;
	if (!page) {
		page = mmap(NULL, sizeof code, PROT_READ | PROT_WRITE | PROT_EXEC,
			    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (page == MAP_FAILED)
			abort();
		memcpy(page, code, sizeof code);
	}
	return page;
}

/* Asked of the kernel past every library: an answer to us must change nothing for the program. */
long raw_call(long number, long a, long b, long c, long d, long e)
{
	const void *code = system_call();
	long r;
	register long r10 __asm__("r10") = d;
	register long r8 __asm__("r8") = e;
	register long r9 __asm__("r9") = 0;
	__asm__ volatile("subq $128, %%rsp\n\t"
			 "call *%[code]\n\t"
			 "subq $-128, %%rsp"
			 : "=a"(r)
			 : [code] "r"(code), "a"(number), "D"(a), "S"(b), "d"(c),
			   "r"(r10), "r"(r8), "r"(r9)
			 : "rcx", "r11", "memory", "cc");
	return r;
}

int raw_option(int fd, int level, int name)
{
	int value = 0;
	socklen_t len = sizeof value;
	if (raw_call(SYS_getsockopt, fd, level, name, (long)&value, (long)&len) != 0)
		return -1;
	return value;
}

static bool info_of(int fd, struct tcp_info *info)
{
	socklen_t len = sizeof *info;
	memset(info, 0, sizeof *info);
	return raw_call(SYS_getsockopt, fd, IPPROTO_TCP, TCP_INFO, (long)info,
			(long)&len) == 0;
}

void settle_publish(void)
{
	struct tcp_info info;
	for (int i = 0; i < descriptor_count; i++) {
		if (descriptors[i].kind != SOCKET || !info_of(descriptors[i].fd, &info))
			continue;
		struct end *e = end_of(&descriptors[i]);
		e->sent = info.tcpi_bytes_sent - info.tcpi_bytes_retrans;
		e->unsent = info.tcpi_notsent_bytes;
		e->is_full = info.tcpi_notsent_bytes &&
			     info.tcpi_unacked >= info.tcpi_snd_cwnd;
	}
}

/* Has that end say at once what it has got; by itself it would after 40 ms. */
static void acknowledge(const struct descriptor *s)
{
	int on = 1;
	if (s)
		raw_call(SYS_setsockopt, s->fd, IPPROTO_TCP, TCP_QUICKACK, (long)&on,
			 sizeof on);
}

static bool has_come(const struct descriptor *s)
{
	struct tcp_info info;
	const struct end *e = end_of(s), *peer = peer_of(s);
	if (!info_of(s->fd, &info) || info.tcpi_state == CLOSED ||
	    info.tcpi_state == LISTENS)
		return true;
	if (e->resets)
		return false;
	if (info.tcpi_bytes_received < peer->sent)
		return false;
	/* Many small sends fill the first window, and the end that has them says so late. */
	if (peer->is_full) {
		acknowledge(s);
		/* Only the process that has it sees when it is no longer so. */
		if (of_end(s->end ^ 1) ||
		    info.tcpi_bytes_received < peer->sent + peer->unsent)
			return false;
	}
	/* That our end has come to the other is an edge as well. */
	if (info.tcpi_state == FIN_WAIT1 || info.tcpi_state == LAST_ACK ||
	    info.tcpi_state == CLOSING) {
		acknowledge(of_end(s->end ^ 1));
		return false;
	}
	if (peer->shut_write || peer->closed)
		return info.tcpi_state != ESTABLISHED && info.tcpi_state != FIN_WAIT1 &&
		       info.tcpi_state != FIN_WAIT2;
	return true;
}

static int64_t now_ms(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

void settle(void)
{
	int64_t began = 0;
	settle_publish();
	for (int i = 0; i < descriptor_count; i++) {
		if (descriptors[i].kind != SOCKET)
			continue;
		while (!has_come(&descriptors[i])) {
			struct timespec a_moment = {0, 50000};
			if (!began)
				began = now_ms();
			if (now_ms() - began > 1000) {
				/* The model was wrong, or the machine stands still. */
				end_of(&descriptors[i])->resets = false;
				dprintf(STDERR_FILENO,
					"unsettled: seed %lu, before %u, fd %d\n",
					shared->seed, perform_number, descriptors[i].fd);
				break;
			}
			raw_call(SYS_nanosleep, (long)&a_moment, 0, 0, 0, 0);
			settle_publish();
		}
	}
}
