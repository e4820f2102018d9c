/* SPDX-License-Identifier: Apache-2.0 */
/* The settings: defaults, good values, bad values and what the log says about them. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>

#include "settings/config.h"
#include "unit/child.h"

static char log_file[64] = "/tmp/viaduct-config-XXXXXX";

struct setting {
	const char *name, *value;
	struct config want;
	const char *complaint; /* NULL: none */
};

#define WANT(after, spin, fixed, area)                                                   \
	{                                                                                \
		.upgrade_after = (after), .spin_ns = (spin), .spin_fixed = (fixed),      \
		.area_limit = (area), .redirect = CONFIG_MEASURED, .go_followed = true   \
	}
#define WANT_REDIRECT(least)                                                             \
	{                                                                                \
		.upgrade_after = 16, .spin_ns = 50000, .area_limit = 2,                  \
		.redirect = (least), .go_followed = true                                 \
	}
#define DEFAULTS WANT(16, 50000, false, 2)

static void check(void *arg)
{
	const struct setting *s = arg;
	char env[96], text[2048];
	int fd = mkstemp(log_file);

	unlink(log_file);
	/* Through the descriptor, so that nothing has to be removed. */
	dup2(fd, 2);
	setenv("VIADUCT_CONFIG", "", 1);
	snprintf(env, sizeof(env), "error:stderr");
	setenv("VIADUCT_LOG", env, 1);
	if (s->name)
		setenv(s->name, s->value, 1);
	const struct config *c = config_get();
	CHECK_EQ(c->off, s->want.off);
	CHECK_EQ(c->upgrade_after, s->want.upgrade_after);
	CHECK_EQ(c->spin_ns, s->want.spin_ns);
	CHECK_EQ(c->spin_fixed, s->want.spin_fixed);
	CHECK_EQ(c->area_limit, s->want.area_limit);
	CHECK_EQ(c->redirect, s->want.redirect);
	CHECK_EQ(c->registration, s->want.registration);
	CHECK_EQ(c->io_uring_left, s->want.io_uring_left);
	CHECK_EQ(c->go_followed, s->want.go_followed);
	CHECK_EQ(c->static_followed, s->want.static_followed);
	CHECK(c->report == NULL);
	CHECK_STR(c->program, program_invocation_short_name);
	ssize_t n = pread(fd, text, sizeof(text) - 1, 0);
	text[n > 0 ? n : 0] = '\0';
	dup2(1, 2);
	if (!s->complaint) {
		CHECK_STR(text, "");
		return;
	}
	snprintf(env, sizeof(env), " error %s=%s: ", s->name, s->value);
	if (!strstr(text, env))
		CHECK_STR(text, env);
	if (!strstr(text, s->complaint))
		CHECK_STR(text, s->complaint);
}

static struct setting settings[] = {
	{NULL, NULL, DEFAULTS, NULL},
	{"VIADUCT",
	 "off",
	 {.off = true,
	  .upgrade_after = 16,
	  .spin_ns = 50000,
	  .area_limit = 2,
	  .redirect = CONFIG_MEASURED,
	  .go_followed = true},
	 NULL},
	{"VIADUCT", "on", DEFAULTS, NULL},
	{"VIADUCT", "", DEFAULTS, NULL},
	{"VIADUCT", "maybe", DEFAULTS, "on or off"},
	{"VIADUCT_UPGRADE_AFTER", "0", WANT(0, 50000, false, 2), NULL},
	{"VIADUCT_UPGRADE_AFTER", "1000", WANT(1000, 50000, false, 2), NULL},
	{"VIADUCT_UPGRADE_AFTER", "", DEFAULTS, NULL},
	{"VIADUCT_UPGRADE_AFTER", "-1", DEFAULTS, "whole number"},
	{"VIADUCT_UPGRADE_AFTER", "4294967296", DEFAULTS, "whole number"},
	{"VIADUCT_UPGRADE_AFTER", "99999999999999999999", DEFAULTS, "whole number"},
	{"VIADUCT_UPGRADE_AFTER", "12x", DEFAULTS, "whole number"},
	{"VIADUCT_SPIN", "0", WANT(16, 0, true, 2), NULL},
	{"VIADUCT_SPIN", "200", WANT(16, 200000, true, 2), NULL},
	{"VIADUCT_SPIN", "1000001", DEFAULTS, "from 0 to 1000000"},
	{"VIADUCT_RING_MAX", "16K", WANT(16, 50000, false, 0), NULL},
	{"VIADUCT_RING_MAX", "16384", WANT(16, 50000, false, 0), NULL},
	{"VIADUCT_RING_MAX", "262143", WANT(16, 50000, false, 0), NULL},
	{"VIADUCT_RING_MAX", "256k", WANT(16, 50000, false, 1), NULL},
	{"VIADUCT_RING_MAX", "1M", WANT(16, 50000, false, 1), NULL},
	{"VIADUCT_RING_MAX", "4M", DEFAULTS, NULL},
	{"VIADUCT_RING_MAX", "1G", DEFAULTS, NULL},
	{"VIADUCT_RING_MAX", "16383", DEFAULTS, "from 16K"},
	{"VIADUCT_RING_MAX", "16KB", DEFAULTS, "from 16K"},
	{"VIADUCT_RING_MAX", "K", DEFAULTS, "from 16K"},
	{"VIADUCT_RING_MAX", "17592186044416000G", DEFAULTS, "from 16K"},
	{"VIADUCT_REDIRECT", "auto", DEFAULTS, NULL},
	{"VIADUCT_REDIRECT", "off", WANT_REDIRECT(0), NULL},
	{"VIADUCT_REDIRECT", "1", WANT_REDIRECT(1), NULL},
	{"VIADUCT_REDIRECT", "64K", WANT_REDIRECT(65536), NULL},
	{"VIADUCT_REDIRECT", "0", DEFAULTS, "auto, off, or a number of bytes"},
	{"VIADUCT_REDIRECT", "64KB", DEFAULTS, "auto, off, or a number of bytes"},
	{"VIADUCT_REGISTRATION", "keep", DEFAULTS, NULL},
	{"VIADUCT_REGISTRATION",
	 "once",
	 {.upgrade_after = 16,
	  .spin_ns = 50000,
	  .area_limit = 2,
	  .redirect = CONFIG_MEASURED,
	  .go_followed = true,
	  .registration = CONFIG_REGISTER_ONCE},
	 NULL},
	{"VIADUCT_REGISTRATION", "off", DEFAULTS, "keep, check or once"},
	{"VIADUCT_IO_URING", "refuse", DEFAULTS, NULL},
	{"VIADUCT_IO_URING",
	 "leave",
	 {.upgrade_after = 16,
	  .spin_ns = 50000,
	  .area_limit = 2,
	  .redirect = CONFIG_MEASURED,
	  .go_followed = true,
	  .io_uring_left = true},
	 NULL},
	{"VIADUCT_IO_URING", "off", DEFAULTS, "refuse or leave"},
	{"VIADUCT_GO", "follow", DEFAULTS, NULL},
	{"VIADUCT_GO",
	 "leave",
	 {.upgrade_after = 16,
	  .spin_ns = 50000,
	  .area_limit = 2,
	  .redirect = CONFIG_MEASURED},
	 NULL},
	{"VIADUCT_GO", "on", DEFAULTS, "leave or follow"},
	{"VIADUCT_STATIC",
	 "follow",
	 {.upgrade_after = 16,
	  .spin_ns = 50000,
	  .area_limit = 2,
	  .redirect = CONFIG_MEASURED,
	  .go_followed = true,
	  .static_followed = true},
	 NULL},
	{"VIADUCT_STATIC", "on", DEFAULTS, "leave or follow"},
	{"VIADUCT_SPIN", "auto", DEFAULTS, NULL},
	{"VIADUCT_SPIN", "automatic", DEFAULTS, "or auto"},
	{"VIADUCT_PROFILE", "latency", WANT(0, 200000, true, 2), NULL},
	{"VIADUCT_PROFILE", "throughput", WANT(64, 50000, false, 2), NULL},
	{"VIADUCT_PROFILE", "frugal", WANT(256, 0, true, 1), NULL},
	{"VIADUCT_PROFILE", "default", DEFAULTS, NULL},
	{"VIADUCT_PROFILE",
	 "off",
	 {.off = true,
	  .upgrade_after = 16,
	  .spin_ns = 50000,
	  .area_limit = 2,
	  .redirect = CONFIG_MEASURED,
	  .go_followed = true},
	 NULL},
	{"VIADUCT_PROFILE", "fast", DEFAULTS, "latency, throughput, frugal, off or"},
	{"VIADUCT_RULES", "deny port=x", DEFAULTS, "stays on TCP"},
};

TEST(values)
{
	for (size_t i = 0; i < sizeof(settings) / sizeof(settings[0]); i++)
		CHILD(check, &settings[i]);
}

static bool allowed(enum config_role role, const char *local, int local_port,
		    const char *peer, int peer_port)
{
	struct sockaddr_in l = {.sin_family = AF_INET,
				.sin_port = htons((uint16_t)local_port)};
	struct sockaddr_in p = {.sin_family = AF_INET,
				.sin_port = htons((uint16_t)peer_port)};

	REQUIRE(inet_pton(AF_INET, local, &l.sin_addr) == 1);
	REQUIRE(inet_pton(AF_INET, peer, &p.sin_addr) == 1);
	return config_allows(role, (struct sockaddr *)&l, (struct sockaddr *)&p);
}

static void server_side(void *arg)
{
	(void)arg;
	setenv("VIADUCT_RULES", "deny addr=10.0.0.1 port=80", 1);
	CHECK(!allowed(CONFIG_CONNECT, "10.0.0.2", 999, "10.0.0.1", 80));
	CHECK(allowed(CONFIG_CONNECT, "10.0.0.1", 80, "10.0.0.2", 999));
	CHECK(!allowed(CONFIG_ACCEPT, "10.0.0.1", 80, "10.0.0.2", 999));
	CHECK(allowed(CONFIG_ACCEPT, "10.0.0.2", 999, "10.0.0.1", 80));
}

static void bad_rules(void *arg)
{
	(void)arg;
	setenv("VIADUCT_RULES", "deny port=80; alow", 1);
	CHECK(!allowed(CONFIG_CONNECT, "10.0.0.2", 999, "10.0.0.1", 81));
}

static void program_rule(void *arg)
{
	char rule[128];

	snprintf(rule, sizeof(rule), "deny program=%.60s", program_invocation_short_name);
	setenv("VIADUCT_RULES", arg ? arg : rule, 1);
	CHECK_EQ(allowed(CONFIG_CONNECT, "10.0.0.2", 999, "10.0.0.1", 81), arg != NULL);
}

TEST(rules)
{
	CHILD(server_side, NULL);
	CHILD(bad_rules, NULL);
	CHILD(program_rule, NULL);
	CHILD(program_rule, "deny program=no-such-program");
}

static void report_name(void *arg)
{
	char want[64];

	(void)arg;
	REQUIRE(chdir("/tmp") == 0);
	setenv("VIADUCT_REPORT", "r.%p", 1);
	snprintf(want, sizeof(want), "/tmp/r.%d", getpid());
	CHECK_STR(config_get()->report, want);
}

TEST(report_file_is_absolute)
{
	CHILD(report_name, NULL);
}

/* ---- files: what the library makes of one that VIADUCT_CONFIG names ---- */

static void config_file(const char *text)
{
	char path[64] = "/tmp/viaduct-config-XXXXXX";
	int fd = mkstemp(path), log = mkstemp(log_file);

	REQUIRE(fd >= 0 && log >= 0 && unlink(log_file) == 0);
	REQUIRE(write(fd, text, strlen(text)) == (ssize_t)strlen(text));
	close(fd);
	setenv("VIADUCT_CONFIG", path, 1);
	dup2(log, 2);
	config_get();
	unlink(path);
}

static void said(const char *want)
{
	char text[2048];
	ssize_t n = pread(2, text, sizeof(text) - 1, 0);

	dup2(1, 2);
	text[n > 0 ? n : 0] = '\0';
	if (*want ? !strstr(text, want) : *text)
		CHECK_STR(text, want);
}

static void good_file(void *arg)
{
	char text[256];

	(void)arg;
	snprintf(text, sizeof(text),
		 "profile = frugal\nlog = error:stderr\nreport = /r.%%p\n"
		 "[program=%.60s]\nspin = 3\ndeny port=80\n",
		 program_invocation_short_name);
	config_file(text);
	said("");
	CHECK_EQ(config_get()->area_limit, 1);
	CHECK_EQ(config_get()->spin_ns, 3000);
	snprintf(text, sizeof(text), "/r.%d", getpid());
	CHECK_STR(config_get()->report, text);
	CHECK(!allowed(CONFIG_CONNECT, "10.0.0.2", 999, "10.0.0.1", 80));
	CHECK(allowed(CONFIG_CONNECT, "10.0.0.2", 999, "10.0.0.1", 81));
}

/* The log is the file's own, and the mistake stands before it. */
static void bad_line(void *arg)
{
	(void)arg;
	config_file("spin = much\nlog = error:stderr\nring-max = 16K\n");
	said(":1: spin = much: a whole number from 0 to 1000000, or auto, is allowed; it "
	     "is skipped\n");
	CHECK_EQ(config_get()->area_limit, 0);
	CHECK(allowed(CONFIG_CONNECT, "10.0.0.2", 999, "10.0.0.1", 80));
}

static void bad_rule(void *arg)
{
	(void)arg;
	config_file("log = error:stderr\nallow port=80\nallow prot=81\n");
	said(":3: character 7: 'prot' is not known here; after allow or deny come "
	     "program=, uid=, port=, addr= and role=; every connection stays on TCP\n");
	CHECK(!allowed(CONFIG_CONNECT, "10.0.0.2", 999, "10.0.0.1", 80));
}

static void rules_of_others(void *arg)
{
	(void)arg;
	config_file("[program=no-such]\ndeny\nspin = 1\n[program=*]\ndeny port=80\n"
		    "deny program=no-such");
	CHECK(!allowed(CONFIG_CONNECT, "10.0.0.2", 999, "10.0.0.1", 80));
	CHECK(allowed(CONFIG_CONNECT, "10.0.0.2", 999, "10.0.0.1", 81));
	CHECK_EQ(config_get()->spin_ns, 50000);
}

/* The variable switches it off; a file that switches it on again is not asked. */
static void off_by(void *arg)
{
	setenv(arg, "off", 1);
	config_file("viaduct = on\nprofile = default\nlog = error:stderr\nspin = x\n");
	said("");
	CHECK(config_get()->off);
}

static void off_by_file(void *arg)
{
	(void)arg;
	config_file("profile = off\n");
	CHECK(config_get()->off);
}

/* What an image before has left is handed out: only VIADUCT=off was known to that one. */
static void off_with_a_legacy(void *arg)
{
	setenv("VIADUCT_CARRY", "", 1);
	if (arg)
		setenv(arg, "off", 1);
	config_file("profile = off\n");
	CHECK_EQ(config_get()->off, arg && !strcmp(arg, "VIADUCT"));
	CHECK(!allowed(CONFIG_CONNECT, "10.0.0.2", 999, "10.0.0.1", 80) ||
	      config_get()->off);
}

TEST(files)
{
	CHILD(good_file, NULL);
	CHILD(bad_line, NULL);
	CHILD(bad_rule, NULL);
	CHILD(rules_of_others, NULL);
	CHILD(off_by_file, NULL);
	CHILD(off_by, "VIADUCT");
	CHILD(off_by, "VIADUCT_PROFILE");
	CHILD(off_with_a_legacy, NULL);
	CHILD(off_with_a_legacy, "VIADUCT_PROFILE");
	CHILD(off_with_a_legacy, "VIADUCT");
}
