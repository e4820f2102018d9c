/* SPDX-License-Identifier: Apache-2.0 */
/* The file of what was measured of other hosts: written, by whom it may be. */
#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tool/kept.h"
#include "unit/child.h"
#include "unit/test.h"

static char folder[64];

/* Root's file is the system's: as another user, there is nothing but the folder. */
static void begin(void)
{
	strcpy(folder, "/tmp/viaduct-kept-XXXXXX");
	REQUIRE(mkdtemp(folder));
	REQUIRE(chmod(folder, 0777) == 0);
}

static void end(void)
{
	char command[128];

	snprintf(command, sizeof(command), "rm -r %s", folder);
	CHECK_EQ(system(command), 0);
}

static void become_user(void)
{
	if (geteuid() == 0)
		REQUIRE(setresuid(65534, 65534, 65534) == 0);
	setenv("XDG_STATE_HOME", folder, 1);
	setenv("VIADUCT_CONFIG", "", 1);
}

static char *path_of(const char *name)
{
	static char path[128];

	snprintf(path, sizeof(path), "%s/viaduct/%s", folder, name);
	return path;
}

static struct crossover host(unsigned number, uint32_t least)
{
	struct crossover c = {
		.addr = {[10] = 0xff, 0xff, 10, 9}, .least = least, .date = "2026-02-01"};

	c.addr[14] = (uint8_t)(number >> 8);
	c.addr[15] = (uint8_t)number;
	return c;
}

static int put(unsigned number, uint32_t least)
{
	struct crossover c = host(number, least);
	char path[PATH_MAX];

	return kept_write(&c, path);
}

static uint32_t got(unsigned number)
{
	struct crossover c = host(number, 0), found;

	return crossover_find(c.addr, &found) ? found.least : 0;
}

static void write_file(const char *text, mode_t mode)
{
	FILE *f;

	mkdir(path_of(""), 0755);
	f = fopen(path_of("redirect"), "we");
	REQUIRE(f);
	fputs(text, f);
	fclose(f);
	REQUIRE(chmod(path_of("redirect"), mode) == 0);
}

static void writes(void *arg)
{
	struct stat st;

	(void)arg;
	become_user();
	CHECK_EQ(put(1, 11), 0);
	CHECK_EQ(put(2, 22), 0);
	CHECK_EQ(put(1, 33), 0);
	REQUIRE(stat(path_of("redirect"), &st) == 0);
	CHECK_EQ(st.st_mode & 07777, 0644);
	CHECK_EQ(got(1), 33);
	CHECK_EQ(got(2), 22);
}

TEST(lines_of_other_hosts_stay)
{
	begin();
	CHILD(writes, NULL);
	end();
}

/* The last one measured is among those that are read. */
static void many(void *arg)
{
	(void)arg;
	become_user();
	for (unsigned i = 1; i <= CROSSOVERS_MAX + 3; i++)
		CHECK_EQ(put(i, i), 0);
	CHECK_EQ(got(CROSSOVERS_MAX + 3), CROSSOVERS_MAX + 3);
	CHECK_EQ(got(4), 4);
	CHECK_EQ(got(3), 0);
}

TEST(more_hosts_than_are_read)
{
	begin();
	CHILD(many, NULL);
	end();
}

/* What anybody could have written is not made the user's own. */
static void loose(void *arg)
{
	(void)arg;
	become_user();
	write_file("10.9.0.1 1 2026-02-01\n", 0666);
	CHECK_EQ(put(2, 22), 0);
	CHECK_EQ(got(1), 0);
	CHECK_EQ(got(2), 22);
}

TEST(lines_of_strangers_go)
{
	begin();
	CHILD(loose, NULL);
	end();
}

static void rubbish(void *arg)
{
	(void)arg;
	become_user();
	write_file("rubbish\n10.9.0.1 11 2026-02-01\n10.9.0.1 12 2026-02-01 more\n",
		   0644);
	CHECK_EQ(put(2, 22), 0);
	CHECK_EQ(got(1), 11);
	CHECK_EQ(got(2), 22);
}

TEST(rubbish_goes)
{
	begin();
	CHILD(rubbish, NULL);
	end();
}

static void links(void *arg)
{
	char other[128];
	struct stat st;

	(void)arg;
	become_user();
	snprintf(other, sizeof(other), "%s/other", folder);
	mkdir(path_of(""), 0755);
	REQUIRE(symlink(other, path_of("redirect.lock")) == 0);
	CHECK_EQ(put(1, 11), -ELOOP);
	CHECK(stat(other, &st) < 0);
	REQUIRE(unlink(path_of("redirect.lock")) == 0);
	REQUIRE(mkfifo(path_of("redirect.lock"), 0600) == 0);
	CHECK_EQ(put(1, 11), -EPERM);
	REQUIRE(unlink(path_of("redirect.lock")) == 0);
	/* It is replaced, and what it leads to left as it is. */
	REQUIRE(symlink(other, path_of("redirect")) == 0);
	CHECK_EQ(put(1, 11), 0);
	CHECK(stat(other, &st) < 0);
	CHECK(lstat(path_of("redirect"), &st) == 0 && S_ISREG(st.st_mode));
}

TEST(links_are_not_followed)
{
	begin();
	CHILD(links, NULL);
	end();
}

enum { WRITERS = 4, HOSTS_EACH = 8 };

static void together(void *arg)
{
	(void)arg;
	become_user();
	for (unsigned w = 0; w < WRITERS; w++) {
		pid_t pid = fork();

		REQUIRE(pid >= 0);
		if (pid > 0)
			continue;
		for (unsigned i = 1; i <= HOSTS_EACH; i++)
			if (put(w * HOSTS_EACH + i, i) < 0)
				_exit(1);
		_exit(0);
	}
	for (unsigned w = 0; w < WRITERS; w++) {
		int status = -1;

		REQUIRE(wait(&status) > 0);
		CHECK_EQ(status, 0);
	}
	for (unsigned i = 1; i <= WRITERS * HOSTS_EACH; i++)
		CHECK(got(i) > 0);
}

TEST(no_line_is_lost)
{
	begin();
	CHILD(together, NULL);
	end();
}

TEST(age)
{
	const time_t now = 1772323200; /* 2026-03-01 */
	struct crossover c = host(1, 1);

	CHECK(!kept_is_old(&c, now));
	CHECK(!kept_is_old(&c, now + 3 * 86400));
	CHECK(kept_is_old(&c, now + 4 * 86400));
	strcpy(c.date, "2026-03-02");
	CHECK(kept_is_old(&c, now));
	strcpy(c.date, "0000-00-00");
	CHECK(kept_is_old(&c, now));
}
