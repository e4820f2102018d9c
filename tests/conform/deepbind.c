/* SPDX-License-Identifier: Apache-2.0 */
/* Conformance: a library that was loaded with RTLD_DEEPBIND moves a connection's bytes. */
#include <dlfcn.h>
#include <sys/socket.h>

#include "conform/cases.h"

/* The C library's own, which is what such a library calls. */
static ssize_t (*own_recv)(int fd, void *buf, size_t len, int flags);
static ssize_t (*own_send)(int fd, const void *buf, size_t len, int flags);

static void find_own(void)
{
	void *libc = dlopen("libc.so.6", RTLD_LAZY | RTLD_DEEPBIND);

	NEED(libc != NULL);
	*(void **)&own_recv = dlsym(libc, "recv");
	*(void **)&own_send = dlsym(libc, "send");
	NEED(own_recv && own_send);
}

/* What lay unread before it was loaded, and what comes after. */
CASE(deepbind, DIRECT)
{
	struct pair p = pair_warm_open();
	char buf[8] = "";

	send_all(p.c, "before", 6);
	find_own();
	say_result("recv", own_recv(p.s, buf, 6, 0));
	say("%s", buf);
	send_all(p.c, "again", 5);
	say_result("recv", own_recv(p.s, buf, 5, 0));
	say("%.5s", buf);
	say_result("send", own_send(p.s, "answer", 6, 0));
	recv_all(p.c, buf, 6);
	say("%s", buf);
	pair_close(p);
}
