/* SPDX-License-Identifier: Apache-2.0 */
/* The files that say from which size on bytes are redirected. */
#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "remote/crossover.h"
#include "settings/config.h"
#include "unit/child.h"
#include "unit/test.h"

static const char *const good[] = {
	"10.9.0.1 65536 2026-01-31",	  "10.9.0.1 off 2026-01-31",
	"fd09::1 1 2026-01-31",		  "fd09::1 1073741824 1999-12-31",
	"10.9.0.1 65536 2024-02-29",	  "10.9.0.1 65536 2000-02-29",
	"fd09::1 4096 1999-12-31 slower", "10.9.0.1 off 1999-12-31 slower",
};

TEST(lines_come_back)
{
	char text[CROSSOVER_TEXT];
	struct crossover c;

	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
		CHECK_EQ(crossover_parse(good[i], &c), 0);
		CHECK_STR(crossover_text(&c, text), good[i]);
	}
	CHECK_EQ(crossover_parse("  ::ffff:1.2.3.4\t7   2026-01-31 ", &c), 0);
	CHECK_STR(crossover_text(&c, text), "1.2.3.4 7 2026-01-31");
}

TEST(lines_that_are_none)
{
	static const char *const bad[] = {
		"",
		"10.9.0.1",
		"10.9.0.1 65536",
		"10.9.0.1 65536 2026-01-31 more",
		"10.9.0.1 65536 2026-01-31 slowe",
		"10.9.0.1 65536 2026-01-31 slowerer",
		"10.9.0.1 65536 2026-01-31 slower more",
		"10.9.0.1 65536 slower",
		"10.9.0 65536 2026-01-31",
		"host 65536 2026-01-31",
		"10.9.0.1 0 2026-01-31",
		"10.9.0.1 -1 2026-01-31",
		"10.9.0.1 64K 2026-01-31",
		"10.9.0.1 1073741825 2026-01-31",
		"10.9.0.1 99999999999 2026-01-31",
		"10.9.0.1 0000000000065536 2026-01-31",
		"10.9.0.1 on 2026-01-31",
		"10.9.0.1 65536 31.1.2026",
		"10.9.0.1 65536 2026-01-311",
		"10.9.0.1 65536 0000-00-00",
		"10.9.0.1 65536 2026-13-01",
		"10.9.0.1 65536 2026-00-01",
		"10.9.0.1 65536 2026-01-00",
		"10.9.0.1 65536 2026-01-32",
		"10.9.0.1 65536 2026-04-31",
		"10.9.0.1 65536 2026-02-29",
		"10.9.0.1 65536 2100-02-29",
	};
	struct crossover c;

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		CHECK_EQ(crossover_parse(bad[i], &c), -EINVAL);
}

static void address(const char *text, uint8_t addr[16])
{
	memset(addr, 0, 10);
	memset(addr + 10, 0xff, 2);
	CHECK_EQ(inet_pton(AF_INET, text, addr + 12), 1);
}

static char folder[] = "/tmp/viaduct-crossover-XXXXXX";

static void write_file(const char *text)
{
	char path[128];
	FILE *f;

	snprintf(path, sizeof(path), "%s/viaduct", folder);
	mkdir(path, 0755);
	snprintf(path, sizeof(path), "%s/viaduct/redirect", folder);
	f = fopen(path, "we");
	REQUIRE(f);
	fputs(text, f);
	fclose(f);
}

/* In a child each: the files are read once. */
static void found(void *arg)
{
	struct crossover c;
	uint8_t addr[16];

	(void)arg;
	setenv("XDG_STATE_HOME", folder, 1);
	setenv("VIADUCT_CONFIG", "", 1);
	address("10.9.0.2", addr);
	CHECK(crossover_find(addr, &c));
	CHECK_EQ(c.least, 4096);
	CHECK_STR(c.date, "2026-02-01");
	CHECK_EQ(crossover_least(addr), 4096);
	CHECK(!crossover_keeps_tcp(addr));
	address("10.9.0.3", addr);
	CHECK_EQ(crossover_least(addr), 0);
	CHECK(crossover_keeps_tcp(addr));
	CHECK(crossover_keeps_any());
	address("10.9.0.4", addr);
	CHECK(!crossover_find(addr, &c));
	CHECK_EQ(crossover_least(addr), 0);
	CHECK(!crossover_keeps_tcp(addr));
}

/* The setting is asked first. */
static void set(void *arg)
{
	uint8_t addr[16];

	setenv("XDG_STATE_HOME", folder, 1);
	setenv("VIADUCT_CONFIG", "", 1);
	setenv("VIADUCT_REDIRECT", arg ? "2K" : "off", 1);
	address("10.9.0.2", addr);
	CHECK_EQ(crossover_least(addr), arg ? 2048 : 0);
	address("10.9.0.3", addr);
	CHECK(!crossover_keeps_tcp(addr));
	CHECK(!crossover_keeps_any());
}

TEST(files)
{
	char path[128];

	REQUIRE(mkdtemp(folder));
	write_file("# measured\n10.9.0.2 4096 2026-02-01\nrubbish\n\n10.9.0.3 off "
		   "2026-02-01 slower\n");
	CHILD(found, NULL);
	CHILD(set, NULL);
	CHILD(set, folder);
	snprintf(path, sizeof(path), "rm -r %s", folder);
	CHECK_EQ(system(path), 0);
}
