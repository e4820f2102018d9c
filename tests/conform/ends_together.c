/* SPDX-License-Identifier: Apache-2.0 */
/* Conformance cases of several processes that end with a connection which all of them have. */
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "conform/cases.h"

/* Asked past every library: that learns nothing by it. */
static int state_of(int fd)
{
	struct tcp_info info;
	socklen_t len = sizeof(info);

	NEED(syscall(SYS_getsockopt, fd, IPPROTO_TCP, TCP_INFO, &info, &len) == 0);
	return info.tcpi_state;
}

/* Two have the connection when they end, the second before anybody has asked for the first one's
 * status, or both at one time. */
static void end_beside(_Atomic int *at, bool at_once)
{
	siginfo_t info;
	pid_t pid = fork();

	if (pid != 0 && !at_once)
		NEED(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT) == 0);
	atomic_fetch_add(at, 1);
	while (at_once && atomic_load(at) != 2)
		;
	_exit(0);
}

/* Bytes that nobody has read when the last of them ends are answered by a reset, also where each has
 * sent its FIN long before. */
CASE(unread_at_two_ends, DIRECT)
{
	_Atomic int *at = mmap(NULL, sizeof *at, PROT_READ | PROT_WRITE,
			       MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	int reset = 0;

	NEED(at != MAP_FAILED);
	for (int i = 0; i < 40 && reset == i; i++) {
		struct pair p = pair_warm_open();
		pid_t pid;

		send_pattern(p.s, 0, 100);
		NEED(shutdown(p.c, SHUT_WR) == 0);
		while (state_of(p.s) == TCP_ESTABLISHED)
			;
		atomic_store(at, 0);
		pid = fork();
		if (pid == 0)
			end_beside(at, i % 4 != 0);
		NEED(close(p.c) == 0);
		NEED(child_status(pid) == 0);
		/* The other one may be a moment later. */
		for (int k = 0; k < 10000 && state_of(p.s) != TCP_CLOSE; k++)
			usleep(1000);
		reset += state_of(p.s) == TCP_CLOSE;
		close(p.s);
	}
	say("reset %d times", reset);
	munmap((void *)at, sizeof *at);
}
