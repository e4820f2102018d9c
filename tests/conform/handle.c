/* SPDX-License-Identifier: Apache-2.0 */
/* Conformance: functions that a program takes from a library's own handle, as ctypes does. */
#include <dlfcn.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "conform/cases.h"

static void *from(const char *library, const char *name)
{
	void *handle = dlopen(library, RTLD_NOW), *found;

	NEED(handle != NULL);
	found = dlsym(handle, name);
	NEED(found != NULL);
	return found;
}

/* Of libc, and of a library through which libc's are found. */
static void moves(const char *library)
{
	ssize_t (*own_read)(int, void *, size_t);
	ssize_t (*own_write)(int, const void *, size_t);
	struct pair p = pair_warm_open();
	char buf[16] = "";

	*(void **)&own_read = from(library, "read");
	*(void **)&own_write = from(library, "write");
	send_all(p.c, "question", 8);
	say_result("read", own_read(p.s, buf, sizeof(buf)));
	say("%s", buf);
	say_result("write", own_write(p.s, "answer", 6));
	recv_all(p.c, buf, 6);
	say("%.6s", buf);
	pair_close(p);
}

CASE(handle_moves, DIRECT)
{
	moves("libc.so.6");
}

CASE(handle_moves_of_another, DIRECT)
{
	moves("libm.so.6");
}

CASE(handle_waits, DIRECT)
{
	int (*own_poll)(struct pollfd *, nfds_t, int);
	struct pair p = pair_warm_open();
	struct pollfd one = {.fd = p.s, .events = POLLIN};

	*(void **)&own_poll = from("libc.so.6", "poll");
	say_result("poll", own_poll(&one, 1, 0));
	send_all(p.c, "x", 1);
	say_result("poll", own_poll(&one, 1, -1));
	say("%x", (unsigned)one.revents);
	pair_close(p);
}

CASE(handle_sets, DIRECT)
{
	int (*own_fcntl)(int, int, ...);
	struct pair p = pair_warm_open();
	char byte;

	*(void **)&own_fcntl = from("libc.so.6", "fcntl");
	say_result("fcntl", own_fcntl(p.s, F_SETFL, O_NONBLOCK));
	say_result("read", read(p.s, &byte, 1));
	pair_close(p);
}

CASE(handle_splices, DIRECT)
{
	ssize_t (*own_splice)(int, off64_t *, int, off64_t *, size_t, unsigned);
	struct pair p = pair_warm_open();
	char buf[8] = "";
	int fds[2];

	NEED(pipe(fds) == 0);
	*(void **)&own_splice = from("libc.so.6", "splice");
	send_all(p.c, "spliced", 7);
	say_result("splice", own_splice(p.s, NULL, fds[1], NULL, 7, 0));
	say_result("read", read(fds[0], buf, 7));
	say("%s", buf);
	close(fds[0]);
	close(fds[1]);
	pair_close(p);
}

/* What is not there, and what is nobody's but libc's. */
CASE(handle_finds_no_more, ANYWAY)
{
	void *libc = dlopen("libc.so.6", RTLD_NOW);

	NEED(libc != NULL);
	say("%d", dlsym(libc, "no_such_name") == NULL);
	say("%d", dlerror() != NULL);
	say("%d", dlsym(libc, "strlen") == dlsym(RTLD_DEFAULT, "strlen"));
	say("%d", dlerror() == NULL);
	dlclose(libc);
}
