/* SPDX-License-Identifier: Apache-2.0 */
/* For the tests of the native library: two ends of a connection, as two threads or two processes. */
#ifndef VD_TESTS_NATIVE_RIG_H
#define VD_TESTS_NATIVE_RIG_H

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "support/stretch.h"

#define TEST_KEPT_SOCKETS 1
#include "unit/test.h"
#include "viaduct/viaduct.h"

#define RIG_FN __attribute__((unused)) static

/* No test takes so long; one that hangs ends. */
#define RIG_ALARM_S 240
#define RIG_MS	    100000
/* After so many round trips a test that waits for its path says so. */
#define RIG_TRIPS 4096

/* Which path the test's environment asks for: "tcp" or "shm". */
RIG_FN int rig_path(void)
{
	const char *path = getenv("NATIVE_PATH");

	return path && strcmp(path, "shm") == 0 ? VD_PATH_SHM : VD_PATH_TCP;
}

RIG_FN const char *rig_port(vd_listener *l, char text[8])
{
	struct sockaddr_in at = {0};
	socklen_t len = sizeof(at);

	REQUIRE(getsockname(vd_listener_fd(l), (struct sockaddr *)&at, &len) == 0);
	snprintf(text, 8, "%u", ntohs(at.sin_port));
	return text;
}

struct rig {
	vd_conn *a, *b; /* connected, accepted */
};

/* Both ends in this process. */
RIG_FN struct rig rig_open(void)
{
	vd_listener *l;
	struct rig r = {NULL, NULL};
	char port[8];

	alarm(RIG_ALARM_S);
	REQUIRE(vd_listen("127.0.0.1", "0", &l) == 0);
	REQUIRE(vd_connect("127.0.0.1", rig_port(l, port), RIG_MS, &r.a) == 0);
	REQUIRE(vd_accept(l, RIG_MS, &r.b) == 0);
	vd_listener_close(l);
	return r;
}

/* At the end of a test: its connection takes the way that it was meant to, at some moment. It may be
 * on its way there now, or between two at the next one. */
RIG_FN void rig_check_path(vd_conn *c)
{
	int path = vd_path(c), trips = 0;

	while (path != rig_path()) {
		REQUIRE(vd_flush(c) == 0);
		path = vd_path(c);
		/* A path that never comes ends by the alarm, and looks like a hang. */
		if (++trips == RIG_TRIPS)
			fprintf(stderr, "still waits for path %d, is on %d: %s\n",
				rig_path(), path, vd_reason(c));
	}
	if (rig_path() == VD_PATH_SHM)
		CHECK_STR(vd_reason(c), "none");
	else
		CHECK_STR(vd_reason(c), "off");
}

RIG_FN void rig_close(struct rig *r)
{
	vd_close(r->a);
	vd_close(r->b);
}

RIG_FN struct vd_event rig_event(vd_conn *c)
{
	struct vd_event ev = {0};

	REQUIRE(vd_wait(c, &ev, 1, RIG_MS) == 1);
	return ev;
}

/* A known stream of bytes. */
RIG_FN uint8_t rig_byte(uint64_t at)
{
	return (uint8_t)(at * 131 + (at >> 8) * 17 + (at >> 16) * 29);
}

RIG_FN void rig_fill(uint8_t *to, size_t len, uint64_t at)
{
	for (size_t i = 0, n; i < len; i += n) {
		const uint8_t *from = stretch(rig_byte(at + i), at + i, len - i, &n);
		memcpy(to + i, from, n);
	}
}

RIG_FN bool rig_is(const uint8_t *from, size_t len, uint64_t at)
{
	size_t i = 0;
	for (size_t n; i < len; i += n) {
		const uint8_t *want = stretch(rig_byte(at + i), at + i, len - i, &n);
		if (memcmp(from + i, want, n) != 0)
			break;
	}
	for (; i < len; i++)
		if (from[i] != rig_byte(at + i)) {
			fprintf(stderr, "byte %zu is %u\n", i, from[i]);
			return false;
		}
	return true;
}

/*
 * The other end in a process of its own, which has none of ours: it runs `peer` with a connection,
 * and ends with the number of its failed checks.
 */
struct rig_child {
	pid_t pid;
	vd_conn *c;
};

/* Not 0: its real and effective user. */
__attribute__((unused)) static uid_t rig_as_user;

RIG_FN void rig_be_peer(int from, void (*peer)(vd_conn *c))
{
	char port[8] = "";
	vd_conn *c;

	alarm(RIG_ALARM_S);
	if (rig_as_user)
		REQUIRE(setresuid(rig_as_user, rig_as_user, 0) == 0);
	REQUIRE(read(from, port, sizeof(port)) == sizeof(port));
	close(from);
	REQUIRE(vd_connect("127.0.0.1", port, RIG_MS, &c) == 0);
	atomic_store(&test_failures, 0);
	peer(c);
	fflush(NULL);
	_exit(atomic_load(&test_failures) ? 1 : 0);
}

#ifdef __SANITIZE_THREAD__
/*
 * In the child of a process with threads ThreadSanitizer's own locks may be taken for ever, by threads that it does not
 * have. So it is the program anew, which is told where the function lies.
 */
RIG_FN pid_t rig_begin(const int way[2], void (*peer)(vd_conn *c))
{
	static char self[] = "/proc/self/exe";
	char *const argv[] = {self, NULL};
	char what[64];
	pid_t pid;

	snprintf(what, sizeof(what), "%d %ld", way[0],
		 (long)((uintptr_t)peer - (uintptr_t)rig_be_peer));
	REQUIRE(fcntl(way[1], F_SETFD, FD_CLOEXEC) == 0);
	REQUIRE(setenv("RIG_PEER", what, 1) == 0);
	REQUIRE(posix_spawn(&pid, self, NULL, NULL, argv, environ) == 0);
	REQUIRE(unsetenv("RIG_PEER") == 0);
	return pid;
}

__attribute__((constructor)) static void rig_is_peer(void)
{
	const char *what = getenv("RIG_PEER");
	long offset;
	int from;

	if (!what)
		return;
	REQUIRE(sscanf(what, "%d %ld", &from, &offset) == 2);
	rig_be_peer(from,
		    (void (*)(vd_conn *))((uintptr_t)rig_be_peer + (uintptr_t)offset));
}
#else
RIG_FN pid_t rig_begin(const int way[2], void (*peer)(vd_conn *c))
{
	pid_t pid = fork();

	if (pid == 0) {
		close(way[1]);
		rig_be_peer(way[0], peer);
	}
	return pid;
}
#endif

RIG_FN struct rig_child rig_spawn(void (*peer)(vd_conn *c))
{
	struct rig_child r;
	vd_listener *l;
	char port[8] = "";
	int way[2];

	alarm(RIG_ALARM_S);
	REQUIRE(pipe(way) == 0);
	fflush(NULL);
	r.pid = rig_begin(way, peer);
	REQUIRE(r.pid > 0);
	close(way[0]);
	REQUIRE(vd_listen("127.0.0.1", "0", &l) == 0);
	rig_port(l, port);
	REQUIRE(write(way[1], port, sizeof(port)) == sizeof(port));
	close(way[1]);
	REQUIRE(vd_accept(l, RIG_MS, &r.c) == 0);
	vd_listener_close(l);
	return r;
}

RIG_FN void rig_reap(struct rig_child *r, int want)
{
	int status = -1;

	REQUIRE(waitpid(r->pid, &status, 0) == r->pid);
	CHECK_EQ(WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), want);
}

/* Leaves no descriptor but those that the library keeps for the process. */
#define NATIVE_TEST(id)                                                                  \
	static void native_test_##id(void);                                              \
	TEST(id)                                                                         \
	{                                                                                \
		struct rig warm_ = rig_open();                                           \
		rig_check_path(warm_.a);                                                 \
		rig_close(&warm_);                                                       \
		FDS_SETTLED();                                                           \
		native_test_##id();                                                      \
	}                                                                                \
	static void native_test_##id(void)

/* A thread says right before a call that it makes it, and another waits until it sleeps there. */
__attribute__((unused)) static _Atomic int rig_caller;

RIG_FN void rig_call_begins(void)
{
	atomic_store(&rig_caller, gettid());
}

RIG_FN void rig_await_call(void)
{
	char name[64], state = 0;
	int tid;

	while ((tid = atomic_load(&rig_caller)) == 0)
		usleep(1000);
	snprintf(name, sizeof(name), "/proc/self/task/%d/stat", tid);
	while (state != 'S') {
		FILE *f = fopen(name, "re");

		REQUIRE(f && fscanf(f, "%*d (%*[^)]) %c", &state) == 1);
		fclose(f);
		usleep(1000);
	}
	atomic_store(&rig_caller, 0);
}

/* A thread that runs one call. */
struct rig_thread {
	pthread_t thread;
	void *(*run)(void *arg);
	void *arg;
};

#endif
