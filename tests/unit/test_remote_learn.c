/* SPDX-License-Identifier: Apache-2.0 */
/* Connections that find out by themselves from which size on it pays to redirect, and what is kept of that. */
/*
 * The clock is the test's: a byte takes as long as it says, so what is learnt does not depend on the machine.
 */
#include "unit/test.h"

#include <sys/resource.h>
#include <sys/stat.h>

#include "unit/child.h"
#define REDIRECT_LEAST "auto" /* nothing is set */
#include "unit/redirect_pair.h"

enum { ROOM = 16 << 10 };

static const char device[] = "fake0";
static char folder[64];
static uint64_t now_ns = 1000000000;
static unsigned percent; /* of the time of the ring's bytes that redirected ones take */
static uint64_t seen_redirects;

static uint64_t test_clock(void)
{
	return now_ns;
}

static char *path_of(const char *name)
{
	static char path[128];

	snprintf(path, sizeof(path), "%s/viaduct/%s", folder, name);
	return path;
}

static void begin_folder(void)
{
	strcpy(folder, "/tmp/viaduct-learn-XXXXXX");
	REQUIRE(mkdtemp(folder));
	REQUIRE(chmod(folder, 0777) == 0);
}

static void end_folder(void)
{
	char command[128];

	snprintf(command, sizeof(command), "rm -r %s", folder);
	CHECK_EQ(system(command), 0);
}

/* Root's file is the system's. */
static void become_user(void)
{
	if (geteuid() == 0)
		REQUIRE(setresuid(65534, 65534, 65534) == 0);
	setenv("XDG_STATE_HOME", folder, 1);
}

static void address(uint8_t last, uint8_t addr[16])
{
	const uint8_t all[16] = {[10] = 0xff, 0xff, 10, 9, 0, last};

	memcpy(addr, all, 16);
}

/* ---- a connection that learns ---- */

static void begin_learning(int fd)
{
	struct across_guard g = across_enter();
	struct peer *a = handle(fd);

	address(1, a->peer.addr);
	snprintf(a->link->context->device, LEARNT_DEVICE, "%s", device);
	learn_begin(a, a->link->context);
	across_used = ACROSS_CONNECTIONS; /* the pair has taken its handles by itself */
	across_leave(g);
}

static struct pair open_learning(void)
{
	struct pair p = open_beside();

	learn_clock = test_clock;
	learn_after_bytes = 0;
	begin_learning(p.b);
	return p;
}

/* One receive, which sleeps before its bytes come; each byte as it was sent. */
static void one(const struct pair *p, uint8_t seed)
{
	static uint8_t buf[ROOM];
	struct call c = {.fd = p->b, .buf = buf, .len = ROOM, .flags = MSG_WAITALL};
	bool redirected;

	call_start(&c, call_recv);
	while (!call_sleeps(&c))
		usleep(50);
	across_settle();
	put(p->a, 0, ROOM, seed);
	CHECK_EQ(call_end(&c), ROOM);
	CHECK(flow_is(buf, ROOM, 0, seed));
	across_settle();
	redirected = redirects() > seen_redirects;
	seen_redirects = redirects();
	now_ns += (uint64_t)ROOM * (redirected ? percent : 100);
}

/* Until nothing more can be learnt with such receives: 16 pairs of stretches of 4 receives, of which the last ends with
 * the first receive behind it. */
static void all_pairs(const struct pair *p)
{
	for (int i = 0; i < 16 * 2 * 4 + 1; i++)
		one(p, (uint8_t)i);
}

static uint64_t redirected_of(const struct pair *p, int receives)
{
	uint64_t before = redirects();

	for (int i = 0; i < receives; i++)
		one(p, (uint8_t)i);
	return redirects() - before;
}

static bool file_has(const char *line)
{
	char text[4096] = "";
	FILE *f = fopen(path_of("learnt"), "re");

	if (!f)
		return false;
	text[fread(text, 1, sizeof(text) - 1, f)] = '\0';
	fclose(f);
	return strstr(text, line) != NULL;
}

static char *line_of(uint32_t pays, uint32_t fails)
{
	static char text[LEARNT_TEXT];
	struct learnt l = {.pays = pays, .fails = fails};

	address(1, l.addr);
	strcpy(l.device, device);
	learnt_date(learnt_today(), l.date);
	return learnt_text(&l, text);
}

static void it_pays(void *arg)
{
	struct pair p;

	(void)arg;
	become_user();
	percent = 50;
	p = open_learning();
	all_pairs(&p);
	CHECK(!across_learns(handle(p.b), ROOM));
	CHECK_EQ(across_redirect_least(handle(p.b)), ROOM);
	/* Each is counted by both ends. */
	CHECK_EQ(redirected_of(&p, 10), 20);
	CHECK(file_has(line_of(ROOM, 0)));
	pair_close(&p);
	/* The next connection knows it from its first byte. */
	p = open_learning();
	CHECK_EQ(across_redirect_least(handle(p.b)), ROOM);
	pair_close(&p);
}

static void it_does_not_pay(void *arg)
{
	struct pair p;

	(void)arg;
	become_user();
	percent = 99;
	p = open_learning();
	all_pairs(&p);
	CHECK_EQ(across_redirect_least(handle(p.b)), 0);
	CHECK_EQ(redirected_of(&p, 10), 0);
	CHECK(file_has(line_of(0, ROOM)));
	/* Of larger ones nothing is known yet. */
	CHECK(across_learns(handle(p.b), 4 * ROOM));
	pair_close(&p);
}

/* One receive in between took long: the pair does not count. */
static void idle_programs(void *arg)
{
	struct pair p;

	(void)arg;
	become_user();
	percent = 50;
	p = open_learning();
	for (int i = 0; i < 20; i++) {
		for (int j = 0; j < 7; j++)
			one(&p, 1);
		now_ns += 3000000000;
	}
	CHECK_EQ(across_redirect_least(handle(p.b)), 0);
	CHECK(across_learns(handle(p.b), ROOM));
	CHECK(!file_has("fake0"));
	pair_close(&p);
}

/* The peer's sends do not block: what they send goes by the ring, and says nothing. */
static void not_taken(void *arg)
{
	struct pair p;

	(void)arg;
	become_user();
	percent = 50;
	p = open_learning();
	st_nonblock(p.a);
	for (int i = 0; i < 3; i++) {
		CHECK(across_learns(handle(p.b), ROOM));
		all_pairs(&p);
	}
	CHECK_EQ(redirects(), 0);
	/* Its first look gives the size up; larger ones may be learnt. */
	CHECK_EQ(across_redirect_least(handle(p.b)), 0);
	CHECK(!file_has("fake0"));
	pair_close(&p);
}

/* A connection that is short. */
static void short_one(void *arg)
{
	struct pair p;

	(void)arg;
	become_user();
	percent = 50;
	p = open_learning();
	learn_after_bytes = 20 * ROOM;
	CHECK_EQ(redirected_of(&p, 20), 0);
	CHECK(redirected_of(&p, 16) > 0);
	pair_close(&p);
}

/* No folder for it: it holds for the process. */
static void no_home(void *arg)
{
	struct pair p;

	(void)arg;
	become_user();
	setenv("XDG_STATE_HOME", "/proc/self/nothing", 1);
	percent = 50;
	p = open_learning();
	all_pairs(&p);
	CHECK_EQ(across_redirect_least(handle(p.b)), ROOM);
	CHECK_EQ(redirected_of(&p, 10), 20);
	pair_close(&p);
}

static void in_folder(const char *what, void (*body)(void *))
{
	begin_folder();
	child_run(what, body, NULL);
	end_folder();
}

TEST(learns_that_it_pays)
{
	in_folder("it pays", it_pays);
}

TEST(learns_that_it_does_not)
{
	in_folder("it does not pay", it_does_not_pay);
}

TEST(idle_programs_say_nothing)
{
	in_folder("idle", idle_programs);
}

TEST(offers_that_are_not_taken_say_nothing)
{
	in_folder("not taken", not_taken);
}

TEST(short_connections_do_not_learn)
{
	in_folder("short", short_one);
}

/* What `viaduct doctor` has measured, and what is set. */
static void known_already(void *arg)
{
	uint8_t addr[16];

	become_user();
	mkdir(path_of(""), 0755);
	if (arg) {
		setenv("VIADUCT_REDIRECT", arg, 1);
	} else {
		FILE *f = fopen(path_of("redirect"), "we");

		REQUIRE(f);
		fputs("10.9.0.2 off 2026-01-31\n", f);
		fclose(f);
	}
	address(1, addr);
	CHECK_EQ(learn_may_begin(addr), !arg);
	address(2, addr);
	CHECK(!learn_may_begin(addr));
}

TEST(what_is_known_is_not_learnt)
{
	in_folder("known", known_already);
	begin_folder();
	CHILD(known_already, "off");
	CHILD(known_already, "64K");
	end_folder();
}

TEST(without_a_home)
{
	in_folder("no home", no_home);
}

/* ---- the file ---- */

TEST(dates)
{
	char date[11];

	CHECK(!learnt_is_old("2026-03-01", 20513));
	learnt_date(20513, date);
	CHECK_STR(date, "2026-03-01");
	learnt_date(0, date);
	CHECK_STR(date, "1970-01-01");
	for (int64_t day = 0; day < 60000; day++) {
		learnt_date(day, date);
		if (learnt_is_old(date, day) || !learnt_is_old(date, day - 1) ||
		    learnt_is_old(date, day + LEARNT_DAYS) ||
		    !learnt_is_old(date, day + LEARNT_DAYS + 1))
			test_fail(__FILE__, __LINE__, date);
	}
}

TEST(lines)
{
	static const char *const good[] = {
		"10.9.0.1 65536 2026-01-31 16384 rxe0",
		"10.9.0.1 off 2026-01-31 262144 mlx5_0",
		"fd09::1 16384 2026-01-31 0 rxe0",
	};
	static const char *const bad[] = {
		"",
		"10.9.0.1 65536 2026-01-31",
		"10.9.0.1 65536 2026-01-31 rxe0",
		"10.9.0.1 65536 2026-01-31 16384 rxe0 more",
		"10.9.0.1 65536 2026-01-31 65536 rxe0",
		"10.9.0.1 65536 2026-01-31 -1 rxe0",
		"10.9.0.1 65536 2026-01-32 0 rxe0",
		"10.9.0.1 0 2026-01-31 0 rxe0",
		"10.9.0.1 off 2026-01-31 99999999999 rxe0",
		"host off 2026-01-31 0 rxe0",
	};
	char text[LEARNT_TEXT];
	struct learnt l;

	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
		CHECK_EQ(learnt_parse(good[i], &l), 0);
		CHECK_STR(learnt_text(&l, text), good[i]);
	}
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		CHECK_EQ(learnt_parse(bad[i], &l), -EINVAL);
}

static struct learnt host(uint8_t last, uint32_t pays)
{
	struct learnt l = {.pays = pays};

	address(last, l.addr);
	strcpy(l.device, device);
	learnt_date(learnt_today(), l.date);
	return l;
}

static void write_file(const char *text, mode_t mode)
{
	FILE *f;

	mkdir(path_of(""), 0755);
	f = fopen(path_of("learnt"), "we");
	REQUIRE(f);
	fputs(text, f);
	fclose(f);
	REQUIRE(chmod(path_of("learnt"), mode) == 0);
}

/* Neither old nor new enough, of another device, or not understood. */
static void not_believed(void *arg)
{
	struct learnt l = host(1, 0), found;
	char text[1024], old[11], late[11];

	(void)arg;
	become_user();
	learnt_date(learnt_today() - LEARNT_DAYS - 1, old);
	learnt_date(learnt_today() + 1, late);
	snprintf(text, sizeof(text),
		 "rubbish\n10.9.0.1 1024 %s 0 fake0\n10.9.0.1 2048 %s 0 fake0\n"
		 "10.9.0.1 4096 %s 0 other0\n10.9.0.1 8192 %s 0 fake0\n",
		 old, late, l.date, l.date);
	write_file(text, 0644);
	learnt_read();
	CHECK(learnt_find(l.addr, device, &found));
	CHECK_EQ(found.pays, 8192);
	CHECK(learnt_find(l.addr, NULL, &found));
	CHECK_EQ(found.pays, 4096);
	CHECK(!learnt_find(l.addr, "fake1", &found));
	l = host(2, 0);
	CHECK(!learnt_find(l.addr, device, &found));
	/* What is written leaves out what nobody would believe. */
	CHECK_EQ(learnt_save(&l), 0);
	CHECK(file_has("10.9.0.2 off "));
	CHECK(file_has("10.9.0.1 4096 ") && file_has("10.9.0.1 8192 "));
	CHECK(!file_has("10.9.0.1 1024 ") && !file_has("10.9.0.1 2048 ") &&
	      !file_has("rubbish"));
	/* In the place of the same host's with the same device. */
	l = host(1, 5);
	CHECK_EQ(learnt_save(&l), 0);
	CHECK(file_has("10.9.0.1 5 ") && file_has("10.9.0.1 4096 ") &&
	      !file_has("10.9.0.1 8192 "));
	/* A stranger could have written that. */
	write_file(text, 0666);
	CHECK_EQ(learnt_save(&l), 0);
	CHECK(file_has("10.9.0.1 5 ") && !file_has("10.9.0.1 4096 "));
}

TEST(only_what_holds_is_believed)
{
	in_folder("not believed", not_believed);
}

static void odd_places(void *arg)
{
	struct learnt l = host(1, 5);
	struct stat st;

	(void)arg;
	become_user();
	errno = 77;
	CHECK_EQ(learnt_save(&l), 0);
	CHECK_EQ(errno, 77);
	REQUIRE(stat(path_of("learnt"), &st) == 0);
	CHECK_EQ(st.st_mode & 07777, 0644);
	/* A process died in the middle. */
	REQUIRE(mkfifo(path_of("learnt.new"), 0600) == 0);
	CHECK_EQ(learnt_save(&l), 0);
	CHECK(lstat(path_of("learnt.new"), &st) < 0);
	/* Links are not followed. */
	REQUIRE(unlink(path_of("learnt.lock")) == 0);
	REQUIRE(symlink("/tmp/viaduct-learn-nothing", path_of("learnt.lock")) == 0);
	CHECK_EQ(learnt_save(&l), -ELOOP);
	CHECK(stat("/tmp/viaduct-learn-nothing", &st) < 0);
	REQUIRE(unlink(path_of("learnt.lock")) == 0);
	/* A folder that may not be written to, and none at all. */
	REQUIRE(chmod(path_of(""), 0555) == 0);
	CHECK_EQ(learnt_save(&l), -EACCES);
	REQUIRE(chmod(path_of(""), 0755) == 0);
	unsetenv("XDG_STATE_HOME");
	unsetenv("HOME");
	CHECK_EQ(learnt_save(&l), -ENOENT);
	/* No signal, and the file as it was. */
	setenv("XDG_STATE_HOME", folder, 1);
	REQUIRE(setrlimit(RLIMIT_FSIZE, &(struct rlimit){10, 10}) == 0);
	l.pays = 6;
	CHECK(learnt_save(&l) < 0);
	CHECK(file_has("10.9.0.1 5 ") && lstat(path_of("learnt.new"), &st) < 0);
}

TEST(odd_folders_and_limits)
{
	in_folder("odd places", odd_places);
}

enum { WRITERS = 4, HOSTS_EACH = 8 };

/* Nobody waits for another process, so each tries until it was alone. */
static void together(void *arg)
{
	struct learnt found;
	int status;

	(void)arg;
	become_user();
	for (unsigned w = 0; w < WRITERS; w++) {
		pid_t pid = fork();

		REQUIRE(pid >= 0);
		for (unsigned i = 0; pid == 0 && i < HOSTS_EACH; i++) {
			struct learnt l = host((uint8_t)(w * HOSTS_EACH + i), i + 1);
			int r;

			while ((r = learnt_save(&l)) == -EAGAIN)
				usleep(200);
			if (r < 0)
				_exit(1);
		}
		if (pid == 0)
			_exit(0);
	}
	for (unsigned w = 0; w < WRITERS; w++) {
		REQUIRE(wait(&status) > 0);
		CHECK_EQ(status, 0);
	}
	learnt_read();
	for (unsigned i = 0; i < WRITERS * HOSTS_EACH; i++) {
		struct learnt l = host((uint8_t)i, 0);

		CHECK(learnt_find(l.addr, device, &found));
		CHECK_EQ(found.pays, i % HOSTS_EACH + 1);
	}
}

TEST(processes_that_write_at_once)
{
	in_folder("together", together);
}

/* A process that holds the lock is not waited for, and one that it has forked does not hold it. */
static void held(void *arg)
{
	struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
	struct learnt l = host(1, 5);
	int fds[2], fd;
	pid_t pid;
	char byte;

	(void)arg;
	become_user();
	CHECK_EQ(learnt_save(&l), 0);
	REQUIRE(pipe(fds) == 0);
	pid = fork();
	if (pid == 0) {
		fd = open(path_of("learnt.lock"), O_RDWR | O_CLOEXEC);
		if (fcntl(fd, F_SETLK, &whole) < 0 || write(fds[1], "x", 1) != 1)
			_exit(1);
		pause();
	}
	REQUIRE(read(fds[0], &byte, 1) == 1);
	CHECK_EQ(learnt_save(&l), -EAGAIN);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	CHECK_EQ(learnt_save(&l), 0);
}

TEST(a_lock_is_not_waited_for)
{
	in_folder("held", held);
}
