/* SPDX-License-Identifier: Apache-2.0 */
/* The unit-test harness: registered tests, checks that are always on, a main. */
#ifndef VD_TESTS_UNIT_TEST_H
#define VD_TESTS_UNIT_TEST_H

#include <dirent.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

/*
 * Include it in one file of a program, and write
 *
 *	TEST(name)
 *	{
 *		CHECK(cond);
 *		CHECK_EQ(got, want);
 *		CHECK_STR(got, want);
 *	}
 *
 * A failed check is printed and counted, and the test goes on; REQUIRE ends the program
 * where going on makes no sense. SKIP(reason) leaves the test. A test must leave the same
 * descriptors open that it found; FDS_SETTLED() after a warm-up takes note of what is
 * kept open on purpose. Arguments of the program are names of tests to run.
 *
 * The harness neither forks nor opens sockets, so that it can run above an interposer.
 * Exit status: 0, 1 when a check failed, 77 when every test was skipped.
 */
struct test {
	const char *name;
	void (*run)(void);
	struct test *next;
};

enum { TEST_FDS = 1 << 20 }; /* Viaduct's own lie just below the limit */

static struct test *test_first, **test_last = &test_first;
static _Atomic int test_failures; /* of the running test; checks may run in threads */
static const char *test_skipped;
static uint64_t test_fds[TEST_FDS / 64]; /* a bit for each */

#define TEST(id)                                                                         \
	static void test_run_##id(void);                                                 \
	__attribute__((constructor)) static void test_register_##id(void)                \
	{                                                                                \
		static struct test self = {#id, test_run_##id, NULL};                    \
		*test_last = &self;                                                      \
		test_last = &self.next;                                                  \
	}                                                                                \
	static void test_run_##id(void)

#define CHECK(cond) ((cond) ? (void)0 : test_fail(__FILE__, __LINE__, "CHECK(" #cond ")"))

#define REQUIRE(cond)                                                                    \
	((cond) ? (void)0                                                                \
		: (test_fail(__FILE__, __LINE__, "REQUIRE(" #cond ")"), exit(1)))

/* For integers and pointers; each side is evaluated once. */
#define CHECK_EQ(got, want)                                                              \
	test_eq(__FILE__, __LINE__, #got " == " #want, (long long)(got),                 \
		(long long)(want))

#define CHECK_STR(got, want)                                                             \
	test_str(__FILE__, __LINE__, #got " == " #want, (got), (want))

#define SKIP(reason)                                                                     \
	do {                                                                             \
		test_skipped = (reason);                                                 \
		return;                                                                  \
	} while (0)

#define FDS_SETTLED() test_scan_fds(test_fds)

__attribute__((unused)) static void test_fail(const char *file, int line,
					      const char *what)
{
	atomic_fetch_add(&test_failures, 1);
	fprintf(stderr, "%s:%d: %s failed\n", file, line, what);
}

__attribute__((unused)) static void test_eq(const char *file, int line, const char *what,
					    long long got, long long want)
{
	if (got == want)
		return;
	atomic_fetch_add(&test_failures, 1);
	fprintf(stderr,
		"%s:%d: CHECK_EQ(%s) failed: got %lld (0x%llx), want %lld (0x%llx)\n",
		file, line, what, got, got, want, want);
}

__attribute__((unused)) static void test_str(const char *file, int line, const char *what,
					     const char *got, const char *want)
{
	if (got && want && strcmp(got, want) == 0)
		return;
	atomic_fetch_add(&test_failures, 1);
	fprintf(stderr, "%s:%d: CHECK_STR(%s) failed: got \"%s\", want \"%s\"\n", file,
		line, what, got ? got : "(null)", want ? want : "(null)");
}

/* Of the sockets that the library keeps for its next errand: whether one is there depends on the last errand, and which number
 * it has on how many threads were at one at the same time. Where a test cannot have them given back, so many of each kind are
 * not looked at. */
#ifndef TEST_KEPT_SOCKETS
#define TEST_KEPT_SOCKETS 0
#endif
#define TEST_KEPT_KINDS 3

/* 0: the question for other sockets; others: the looks for the other end, or for its port. These have no name, and have met
 * nobody. -1: it is none of those. */
static int test_kept_kind(int fd)
{
	struct sockaddr_un name;
	socklen_t len = sizeof(name), int_len = sizeof(int);
	int domain = 0, type = 0;

	if (TEST_KEPT_SOCKETS == 0 ||
	    getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &int_len) != 0 ||
	    getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &int_len) != 0)
		return -1;
	if (domain == AF_NETLINK)
		return 0;
	return domain == AF_UNIX && (type == SOCK_SEQPACKET || type == SOCK_DGRAM) &&
			       getsockname(fd, (struct sockaddr *)&name, &len) == 0 &&
			       len == sizeof(sa_family_t) &&
			       getpeername(fd, (struct sockaddr *)&name, &len) < 0
		       ? 1 + (type == SOCK_DGRAM)
		       : -1;
}

/* A thread that has waited long for a lock asks whether its owner lives, which on a busy machine may be
 * at any moment: base/self.c. Or it is gone already. */
static int test_is_passing(int fd)
{
	char path[64], target[64] = "";
	const char *end;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	if (readlink(path, target, sizeof(target) - 1) < 0)
		return 1;
	end = strrchr(target, '/');
	return strncmp(target, "/proc/", 6) == 0 && strcmp(end, "/stat") == 0;
}

static int test_has_fd(const uint64_t *fds, int fd)
{
	return fds[fd / 64] >> fd % 64 & 1;
}

/* The first one from `fd` on that is in one of the two and not in the other, or TEST_FDS. */
static int test_other_fd(const uint64_t *a, const uint64_t *b, int fd)
{
	while (fd < TEST_FDS && a[fd / 64] >> fd % 64 == b[fd / 64] >> fd % 64)
		fd = (fd / 64 + 1) * 64;
	while (fd < TEST_FDS && test_has_fd(a, fd) == test_has_fd(b, fd))
		fd++;
	return fd;
}

__attribute__((unused)) static void test_scan_fds(uint64_t *open_fds)
{
	static const uint64_t none[TEST_FDS / 64];
	DIR *dir = opendir("/proc/self/fd");
	struct dirent *e;
	int kept[TEST_KEPT_KINDS] = {0};

	memset(open_fds, 0, sizeof(test_fds));
	while (dir && (e = readdir(dir))) {
		long fd = strtol(e->d_name, NULL, 10);

		if (e->d_name[0] != '.' && fd != dirfd(dir) && fd < TEST_FDS &&
		    !test_is_passing((int)fd))
			open_fds[fd / 64] |= 1ull << fd % 64;
	}
	for (int fd = -1; TEST_KEPT_SOCKETS > 0 &&
			  (fd = test_other_fd(open_fds, none, fd + 1)) < TEST_FDS;) {
		int kind = test_kept_kind(fd);

		if (kind >= 0 && kept[kind]++ < TEST_KEPT_SOCKETS)
			open_fds[fd / 64] &= ~(1ull << fd % 64);
	}
	if (dir)
		closedir(dir);
}

/* What the link of a socket does not tell. */
static const char *test_socket_kind(int fd)
{
	static char text[192];
	struct sockaddr_un name = {.sun_family = AF_UNSPEC};
	socklen_t len = sizeof(name), int_len = sizeof(int);
	int domain, type = 0;

	if (getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &int_len) < 0)
		return "";
	getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &int_len);
	getsockname(fd, (struct sockaddr *)&name, &len);
	snprintf(text, sizeof(text), ", domain %d, type %d, %u bytes of name: %.100s",
		 domain, type, len,
		 domain == AF_UNIX && len > 3 ? name.sun_path + 1 : "");
	return text;
}

static void test_check_fds(const char *name)
{
	static uint64_t now[TEST_FDS / 64];

	test_scan_fds(now);
	for (int fd = -1; (fd = test_other_fd(now, test_fds, fd + 1)) < TEST_FDS;) {
		char path[64], target[256];
		ssize_t n;

		snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
		n = readlink(path, target, sizeof(target) - 1);
		target[n < 0 ? 0 : n] = 0;
		if (test_has_fd(now, fd) && strstr(target, "memfd:viaduct-table"))
			continue; /* made once in a process, and stays */
		fprintf(stderr, "%s: descriptor %d %s %s%s\n", name, fd,
			test_has_fd(now, fd) ? "was left open:" : "was closed", target,
			test_socket_kind(fd));
		atomic_fetch_add(&test_failures, 1);
	}
}

static int test_wanted(const char *name, int argc, char **argv)
{
	for (int i = 1; i < argc; i++)
		if (strcmp(argv[i], name) == 0)
			return 1;
	return argc < 2;
}

int main(int argc, char **argv)
{
	int passed = 0, failed = 0, skipped = 0;

	setvbuf(stdout, NULL, _IOLBF, 0);
	for (struct test *t = test_first; t; t = t->next) {
		if (!test_wanted(t->name, argc, argv))
			continue;
		atomic_store(&test_failures, 0);
		test_skipped = NULL;
		test_scan_fds(test_fds);
		t->run();
		test_check_fds(t->name);
		if (atomic_load(&test_failures)) {
			failed++;
			printf("FAIL %s\n", t->name);
		} else if (test_skipped) {
			skipped++;
			printf("SKIP %s: %s\n", t->name, test_skipped);
		} else {
			passed++;
			printf("ok   %s\n", t->name);
		}
	}
	printf("%d passed, %d failed, %d skipped\n", passed, failed, skipped);
	if (failed || passed + skipped == 0)
		return 1;
	return passed ? 0 : 77;
}

#endif
