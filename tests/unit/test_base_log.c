/* SPDX-License-Identifier: Apache-2.0 */
/* The log: which file, which lines, what a line holds, and what it leaves alone. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "base/borrowed.h"
#include "base/fds.h"
#include "base/log.h"
#include "unit/child.h"

enum { TEXT_BYTES = 1 << 20 };

static char dir[64];
static char text[TEXT_BYTES];

__attribute__((constructor)) static void make_dir(void)
{
	strcpy(dir, "/tmp/viaduct-log-XXXXXX");
	REQUIRE(mkdtemp(dir));
}

static pid_t maker;

__attribute__((constructor)) static void remember_maker(void)
{
	maker = getpid();
}

__attribute__((destructor)) static void remove_dir(void)
{
	if (getpid() == maker)
		rmdir(dir);
}

/* The file's text, which is removed; NULL when there is none. */
static char *take(const char *path)
{
	int fd = open(path, O_RDONLY);
	ssize_t n;

	if (fd < 0)
		return NULL;
	n = read(fd, text, sizeof(text) - 1);
	text[n > 0 ? n : 0] = '\0';
	close(fd);
	unlink(path);
	return text;
}

static char *in_dir(const char *name)
{
	static char path[PATH_MAX];

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	return path;
}

static void init(const char *level, const char *file)
{
	char setting[PATH_MAX + 16];

	snprintf(setting, sizeof(setting), "%s:%s", level, file);
	log_init(setting);
}

static void levels(void *arg)
{
	char *got;

	(void)arg;
	init("info", in_dir("a"));
	CHECK(access(in_dir("a"), F_OK) != 0); /* lazily */
	errno = 77;
	log_error("one");
	log_info("two %d", 2);
	log_debug("three");
	CHECK_EQ(errno, 77);
	struct stat st;
	CHECK_EQ(stat(in_dir("a"), &st), 0);
	CHECK_EQ(st.st_mode & 0777, 0600);
	got = take(in_dir("a"));
	REQUIRE(got);
	int y, mo, d, h, mi, s, ms, pid, tid, end = 0;
	CHECK_EQ(sscanf(got, "%4d-%2d-%2dT%2d:%2d:%2d.%3dZ %d %d error one\n%n", &y, &mo,
			&d, &h, &mi, &s, &ms, &pid, &tid, &end),
		 9);
	CHECK_EQ(pid, getpid());
	CHECK_EQ(tid, gettid());
	/* The date is libc's. */
	struct tm tm = {.tm_year = y - 1900,
			.tm_mon = mo - 1,
			.tm_mday = d,
			.tm_hour = h,
			.tm_min = mi,
			.tm_sec = s};
	/* By the same clock: time() may still be in the second before. */
	struct timespec now;
	REQUIRE(clock_gettime(CLOCK_REALTIME, &now) == 0);
	time_t then = timegm(&tm);
	CHECK(then <= now.tv_sec && now.tv_sec - then < 86400);
	CHECK(strstr(got + end, " info two 2\n"));
	CHECK(!strstr(got, "three"));
}

TEST(levels_and_form)
{
	CHILD(levels, NULL);
}

static void off(void *arg)
{
	log_init(arg);
	CHECK_EQ(log_level_now, LOG_OFF);
	log_error("never");
}

TEST(off_means_off)
{
	setenv("XDG_RUNTIME_DIR", dir, 1);
	CHILD(off, NULL);
	CHILD(off, "");
	CHILD(off, "off");
}

static void default_file(void *arg)
{
	char name[64];

	log_init(arg);
	log_error("hello");
	snprintf(name, sizeof(name), "viaduct-%u-%d.log", getuid(), getpid());
	char *got = take(in_dir(name));
	CHECK(got && strstr(got, " error hello\n"));
}

TEST(default_names)
{
	setenv("XDG_RUNTIME_DIR", dir, 1);
	CHILD(default_file, "debug");
	CHILD(default_file, "debug:");
	unsetenv("XDG_RUNTIME_DIR");
	setenv("TMPDIR", dir, 1);
	CHILD(default_file, "debug");
	unsetenv("TMPDIR");
}

static void bad_level(void *arg)
{
	init("chatty", in_dir("a"));
	(void)arg;
	log_info("not this");
	char *got = take(in_dir("a"));
	CHECK(got && strstr(got, "VIADUCT_LOG=chatty:") && strstr(got, "unknown level"));
	CHECK(got && !strstr(got, "not this"));
}

TEST(a_bad_level_is_told)
{
	CHILD(bad_level, NULL);
}

static void forked_line(void *arg)
{
	(void)arg;
	log_info("child %d", getpid());
}

static void fork_shares(void *arg)
{
	char name[64], want[64];

	(void)arg;
	init("info", in_dir("%p.log"));
	snprintf(name, sizeof(name), "%d.log", getpid());
	CHILD(forked_line,
	      NULL); /* the child is first, and yet it is the parent's file */
	log_info("parent");
	char *got = take(in_dir(name));
	REQUIRE(got);
	CHECK(strstr(got, " info child "));
	snprintf(want, sizeof(want), " %d %d info parent\n", getpid(), gettid());
	CHECK(strstr(got, want));
}

TEST(a_child_writes_to_its_parents_file)
{
	CHILD(fork_shares, NULL);
}

/* What it opens is not open here, where that number may be a connection. */
static void vfork_child_is_first(void *arg)
{
	(void)arg;
	init("info", in_dir("a"));
	borrowed_mark = getpid();
	pid_t pid = vfork();
	if (pid == 0) {
		log_info("child");
		_exit(0);
	}
	REQUIRE(pid > 0 && waitpid(pid, NULL, 0) == pid);
	log_info("parent");
	char *got = take(in_dir("a"));
	CHECK(got && strstr(got, " info child\n"));
	CHECK(got && strstr(got, " info parent\n"));
}

TEST(a_child_of_vfork_opens_it_for_itself)
{
	CHILD(vfork_child_is_first, NULL);
}

static void moved(void *arg)
{
	(void)arg;
	REQUIRE(chdir(dir) == 0);
	init("info", "rel");
	REQUIRE(chdir("/") == 0);
	log_info("here");
	char *got = take(in_dir("rel"));
	CHECK(got && strstr(got, "here"));
}

TEST(a_relative_name_survives_chdir)
{
	CHILD(moved, NULL);
}

static void links(void *arg)
{
	(void)arg;
	char target[80];
	snprintf(target, sizeof(target), "%.60s/target", dir);
	CHECK_EQ(symlink(target, in_dir("link")), 0);
	init("info", in_dir("link"));
	log_info("never");
	CHECK(access(in_dir("target"), F_OK) != 0);
	unlink(in_dir("link"));
	/* It gives up once and for all, rather than try at each line. */
	log_info("never");
	CHECK(access(in_dir("link"), F_OK) != 0);
}

static void fifo_in_the_way(void *arg)
{
	char name[64];

	(void)arg;
	setenv("XDG_RUNTIME_DIR", dir, 1);
	snprintf(name, sizeof(name), "viaduct-%u-%d.log", getuid(), getpid());
	REQUIRE(mkfifo(in_dir(name), 0600) == 0);
	int reader = open(in_dir(name), O_RDONLY | O_NONBLOCK);
	log_init("info");
	log_info("not into a pipe");
	CHECK(read(reader, name, 1) <= 0);
	snprintf(name, sizeof(name), "viaduct-%u-%d.log", getuid(), getpid());
	unlink(in_dir(name));
}

static void second_name(void *arg)
{
	struct stat st;
	char path[PATH_MAX];

	(void)arg;
	strcpy(path, in_dir("theirs"));
	close(open(path, O_CREAT | O_WRONLY, 0600));
	REQUIRE(link(path, in_dir("log")) == 0);
	init("info", in_dir("log"));
	log_info("not into a file with another name");
	CHECK(stat(path, &st) == 0);
	CHECK_EQ(st.st_size, 0);
	unlink(path);
	unlink(in_dir("log"));
}

TEST(traps_in_the_way)
{
	CHILD(second_name, NULL);
	CHILD(links, NULL);
	CHILD(fifo_in_the_way, NULL);
}

static void to_stderr(void *arg)
{
	int p[2];

	(void)arg;
	REQUIRE(pipe(p) == 0);
	dup2(p[1], 2);
	log_init("info:stderr");
	dup2(1, 2); /* what the program does with 2 later is its own affair */
	log_info("asked for");
	ssize_t n = read(p[0], text, sizeof(text) - 1);
	text[n > 0 ? n : 0] = '\0';
	CHECK(strstr(text, " info asked for\n"));
}

TEST(stderr_when_asked)
{
	CHILD(to_stderr, NULL);
}

static void long_line(void *arg)
{
	static char big[5000];

	(void)arg;
	memset(big, 'x', sizeof(big) - 1);
	init("info", in_dir("a"));
	log_info("%s", big);
	log_info("next");
	char *got = take(in_dir("a"));
	REQUIRE(got);
	char *newline = strchr(got, '\n');
	REQUIRE(newline);
	CHECK_EQ(newline - got, 1023);
	CHECK(newline[-1] == 'x');
	CHECK(strstr(newline, " info next\n"));
}

TEST(long_lines_are_cut)
{
	CHILD(long_line, NULL);
}

static pthread_barrier_t barrier;

static void *many(void *arg)
{
	pthread_barrier_wait(&barrier);
	for (int i = 0; i < 500; i++)
		log_info("thread %c%c%c%c", *(char *)arg, *(char *)arg, *(char *)arg,
			 *(char *)arg);
	return NULL;
}

static void threads(void *arg)
{
	pthread_t t[4];
	int lines = 0, fd;

	(void)arg;
	init("info", in_dir("a"));
	pthread_barrier_init(&barrier, NULL, 4);
	for (int i = 0; i < 4; i++)
		REQUIRE(!pthread_create(&t[i], NULL, many, &"abcd"[i]));
	for (int i = 0; i < 4; i++)
		pthread_join(t[i], NULL);
	/* All but one of those that were opened at the same time are closed again. */
	int open_fds = 0;
	for (fd = 0; fd < fds_limit(); fd++)
		open_fds += fds_is_ours(fd);
	CHECK_EQ(open_fds, 1);
	for (char *line = strtok(take(in_dir("a")), "\n"); line;
	     line = strtok(NULL, "\n")) {
		char *word = strstr(line, " info thread ");
		REQUIRE(word);
		word += strlen(" info thread ");
		CHECK_EQ(strlen(word), 4);
		CHECK(word[0] == word[1] && word[1] == word[2] && word[2] == word[3]);
		lines++;
	}
	CHECK_EQ(lines, 2000);
}

TEST(threads_write_whole_lines)
{
	CHILD(threads, NULL);
}
