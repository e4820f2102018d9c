/* SPDX-License-Identifier: Apache-2.0 */
/* Configuration files: whose are read, what their lines mean, which place stands above which. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "settings/view.h"
#include "unit/child.h"

static struct view view;
static char folder[64], said[4096];

static void note(struct view *v, enum view_effect effect, const char *file,
		 const char *place, const char *message)
{
	size_t n = strlen(said);
	const char *slash = strrchr(place, '/');

	(void)v;
	(void)file;
	snprintf(said + n, sizeof(said) - n, "%d %s: %s\n", (int)effect,
		 slash ? slash + 1 : place, message);
}

static void write_file(const char *path, const char *text, size_t size)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);

	REQUIRE(fd >= 0 && write(fd, text, size) == (ssize_t)size && close(fd) == 0);
	REQUIRE(chmod(path, 0644) == 0);
}

/* Reads text as the file of that level, in a folder that is gone afterwards. */
static void put(int which, enum conffile_level level, const char *text)
{
	struct conffile *f = &view.files[which];

	strcpy(folder, "/tmp/viaduct-view-XXXXXX");
	REQUIRE(mkdtemp(folder));
	snprintf(f->path, sizeof(f->path), "%s/%s", folder,
		 level == CONFFILE_SYSTEM ? "system" : "user");
	write_file(f->path, text, strlen(text));
	/* Nobody but root can make a file that is the system's. */
	conffile_read(f, geteuid() == 0 ? level : CONFFILE_USER);
	f->level = level;
	unlink(f->path);
	rmdir(folder);
	CHECK_STR(f->why, "");
	CHECK_EQ(f->state, CONFFILE_READ);
}

static void resolve(const char *program)
{
	view.exe = view.argv0 = program;
	view.complain = note;
	said[0] = '\0';
	view_resolve(&view);
}

/* One file, as the system's; what it says of the program nginx. */
static void file_of(const char *text)
{
	put(0, CONFFILE_CHECKED, text);
	resolve("nginx");
}

#define IN_CHILD(name)                                                                   \
	static void name##_child(void *arg);                                             \
	TEST(name)                                                                       \
	{                                                                                \
		CHILD(name##_child, NULL);                                               \
	}                                                                                \
	static void name##_child(void *arg __attribute__((unused)))

IN_CHILD(lines)
{
	file_of("# a comment\r\n\n  spin=7   # why\nUPGRADE_AFTER = 3\t#\n"
		"report = /a#b c\n");
	CHECK_STR(said, "");
	CHECK_EQ(view.config.spin_ns, 7000);
	CHECK_EQ(view.config.upgrade_after, 3);
	CHECK_STR(view.source[VALUE_REPORT].text, "/a#b c");
	CHECK_EQ(view.source[VALUE_REPORT].line, 5);
	CHECK_EQ(view.source[VALUE_SPIN].line, 3);
	CHECK(view.source[VALUE_SPIN].file == view.files[0].path);
	CHECK(view.source[VALUE_RING_MAX].text == NULL);
	file_of("\xef\xbb\xbf# as some editors write it\nspin = 8");
	CHECK_STR(said, "");
	CHECK_EQ(view.config.spin_ns, 8000);
	file_of("ring-max = 16K"); /* no newline at the end */
	CHECK_EQ(view.config.area_limit, 0);
	CHECK_EQ(view.config.spin_ns, 50000);
	file_of("");
	CHECK_STR(said, "");
}

IN_CHILD(profiles)
{
	file_of("profile = frugal\n");
	CHECK_EQ(view.config.spin_ns, 0);
	CHECK(view.config.spin_fixed && view.config.area_limit == 1);
	CHECK_EQ(view.config.upgrade_after, 256);
	CHECK_STR(view.source[VALUE_SPIN].profile, "frugal");
	CHECK_EQ(view.source[VALUE_SPIN].line, 1);
	CHECK(view.source[VALUE_LOG].text == NULL);
	file_of("spin = auto\nprofile = frugal\n"); /* in either order */
	CHECK(!view.config.spin_fixed && view.config.spin_ns == 50000);
	CHECK(view.source[VALUE_SPIN].profile == NULL);
	CHECK_EQ(view.config.upgrade_after, 256);
	file_of("profile = latency\n");
	CHECK_EQ(view.config.upgrade_after, 0);
	CHECK_EQ(view.config.spin_ns, 200000);
	file_of("profile = throughput\n");
	CHECK_EQ(view.config.upgrade_after, 64);
	CHECK(!view.config.spin_fixed);
	file_of("profile = off\n");
	CHECK(view.config.off);
	file_of("profile = off\nviaduct = on\n");
	CHECK(!view.config.off);
}

IN_CHILD(levels)
{
	put(0, CONFFILE_SYSTEM, "spin = 1\nring-max = 16K\nlog = debug\nprofile = off\n");
	put(1, CONFFILE_USER, "profile = latency\nring-max = 256K\n");
	setenv("VIADUCT_UPGRADE_AFTER", "9", 1);
	resolve("nginx");
	CHECK_STR(said, "");
	CHECK(!view.config.off);	       /* a later profile is above */
	CHECK_EQ(view.config.spin_ns, 200000); /* an earlier single setting, too */
	CHECK_EQ(view.config.area_limit, 1);
	CHECK_EQ(view.config.upgrade_after, 9);
	CHECK(view.source[VALUE_UPGRADE_AFTER].file == NULL);
	CHECK_STR(view.source[VALUE_UPGRADE_AFTER].text, "9");
	CHECK_STR(view.source[VALUE_LOG].text, "debug");
	setenv("VIADUCT_PROFILE", "frugal", 1);
	resolve("nginx");
	CHECK_EQ(view.config.spin_ns, 0);
	CHECK_EQ(view.config.upgrade_after, 9);
	CHECK_STR(view.source[VALUE_SPIN].profile, "frugal");
	CHECK(view.source[VALUE_SPIN].file == NULL);
	setenv("VIADUCT_SPIN", "x", 1);
	setenv("VIADUCT_PROFILE", "fast", 1);
	resolve("nginx");
	CHECK_EQ(view.config.spin_ns, 200000);
	CHECK(strstr(said, "0 VIADUCT_SPIN=x: a whole number"));
	CHECK(strstr(said, "0 VIADUCT_PROFILE=fast: latency, throughput"));
}

IN_CHILD(sections)
{
	const char *text = "spin = 1\ndeny port=1\n"
			   "[program=ngin?]\nspin = 2\ndeny port=2\n"
			   "[ program=redis-* ]\nspin = 3\ndeny port=3\nprofile=off\n"
			   "[program=*]\nupgrade-after = 4\ndeny port=4\n";
	put(0, CONFFILE_SYSTEM, text);
	resolve("nginx");
	CHECK_STR(said, "");
	CHECK_EQ(view.config.spin_ns, 2000);
	CHECK_EQ(view.config.upgrade_after, 4);
	CHECK_EQ(view.rules.count, 3);
	CHECK_EQ(view.rules.rule[1].line, 5);
	CHECK_EQ(view.sections, 3);
	resolve("redis-server");
	CHECK_EQ(view.config.upgrade_after, 4);
	CHECK(view.config.off);
	CHECK_EQ(view.config.spin_ns, 3000);
	resolve(NULL);
	CHECK_EQ(view.config.spin_ns, 1000);
	CHECK_EQ(view.rules.count, 2);
	CHECK_EQ(view.config.upgrade_after, 4);
	/* A profile of a section is above the single settings before it. */
	file_of("spin = 1\n[program=nginx]\nprofile = latency\n");
	CHECK_EQ(view.config.spin_ns, 200000);
}

IN_CHILD(rules_in_order)
{
	put(0, CONFFILE_SYSTEM, "allow port=3; deny port=4\nspin = 5\nrules = deny\n");
	put(1, CONFFILE_USER, "deny  port=2 # so\n");
	setenv("VIADUCT_RULES", "deny port=1; allow uid=7-9", 1);
	resolve("nginx");
	CHECK_STR(said, "");
	const char *want[] = {"deny port=1",  "allow uid=7-9", "deny  port=2",
			      "allow port=3", "deny port=4",   "deny"};
	unsigned lines[] = {0, 0, 1, 1, 1, 3};
	CHECK_EQ(view.rules.count, 6);
	for (unsigned i = 0; i < 6; i++) {
		struct rule *r = &view.rules.rule[i];
		char text[64];
		snprintf(text, sizeof(text), "%.*s", r->length, r->text);
		CHECK_STR(text, want[i]);
		CHECK_EQ(r->line, lines[i]);
		CHECK(r->file == (i < 2	  ? NULL
				  : i < 3 ? view.files[1].path
					  : view.files[0].path));
	}
}

static void wrong(const char *text, const char *want)
{
	file_of(text);
	if (strncmp(said, want, strlen(want)) != 0)
		CHECK_STR(said, want);
	CHECK_EQ(view.doubt, want[0] == '3');
	CHECK_EQ(view.complaints, 1);
}

IN_CHILD(complaints)
{
	wrong("\nspin = fast", "0 user:2: spin = fast: a whole number");
	wrong("spn = 1", "0 user:1: there is no setting spn; there are profile,");
	wrong("al = 1", "0 user:1: there is no setting al;");
	wrong("spin =", "0 user:1: spin = : a whole number");
	wrong("ring-max = 1K", "0 user:1: ring-max = 1K: a number of bytes from 16K");
	wrong("profile = fast", "0 user:1: profile = fast: latency, throughput,");
	wrong("viaduct = yes", "0 user:1: viaduct = yes: on or off is allowed");
	wrong("log = loud", "0 user:1: log = loud: off, error, info or debug");
	wrong("log = info:l", "0 user:1: log = info:l: off, error, info or debug is "
			      "allowed, with :stderr or :FILE after it; the name of a "
			      "file begins with /");
	wrong("report = r", "0 user:1: report = r: a file name");
	wrong("spin=1\nring-max=4M\nspin=2",
	      "0 user:3: spin is set in line 1 already: remove one of the two");
	CHECK_EQ(view.config.spin_ns, 1000);
	wrong("[program=]", "0 user:1: a section begins with [program=PATTERN]");
	wrong("[nginx]\nspin = 1", "0 user:1: a section begins");
	CHECK_EQ(view.config.spin_ns, 50000);
	wrong("[program=a/b]", "0 user:1: a section begins");
	wrong("[program=a", "0 user:1: a section begins");
	wrong("[program=a] b", "0 user:1: a section begins");
	wrong("[program=a b]", "0 user:1: a section begins");
	wrong("deny prot=80",
	      "3 user:1: character 6: 'prot' is not known here; after "
	      "allow or deny come program=, uid=, port=, addr= and role=");
	wrong("alow port=80", "3 user:1: character 1: a rule begins with allow or deny");
	wrong("alow", "3 user:1: character 1: a rule begins");
	wrong("spin", "3 user:1: a setting is written as spin = VALUE");
	wrong("Ring_Max 4M", "3 user:1: a setting is written as ring-max = VALUE");
	wrong("spin: 4", "3 user:1: character 1: a rule begins");
	wrong("deny = port=80", "3 user:1: character 6: '' is not known");
	wrong("deny port=80; alow", "3 user:1: character 15: a rule begins");
	CHECK_EQ(view.rules.count, 0);
	wrong("rules = alow", "3 user:1: character 1: a rule begins");
	wrong("allow uid=me", "3 user:1: character 7: uid= takes the number");
	wrong("allow uid=4294967295", "3 user:1: character 7: uid= takes");
	wrong("allow uid=2-1", "3 user:1: character 7: uid= takes");
}

IN_CHILD(rules_of_nobody_knows_whom)
{
	file_of("[nginx]\ndeny port=80\n");
	CHECK(strstr(said, "3 user:2: this rule is in a section whose"));
	CHECK(view.doubt);
}

/* What is for others is none of this program's business, unless it is asked to look. */
IN_CHILD(sections_of_others)
{
	file_of("[program=other]\nspin = x\nalow\n[program=nginx]\nspin = 4\n");
	CHECK_STR(said, "");
	CHECK_EQ(view.config.spin_ns, 4000);
	view.strict = true;
	resolve("nginx");
	CHECK_EQ(view.complaints, 2);
	CHECK(strstr(said, "0 user:2: spin = x"));
	CHECK(strstr(said, "3 user:3: "));
	CHECK_EQ(view.config.spin_ns, 4000);
}

IN_CHILD(many_rules)
{
	static char text[CONFFILE_BYTES];

	for (int i = 0; i < RULES_MAX; i++)
		strcat(text, "deny port=1\n");
	file_of(text);
	CHECK_STR(said, "");
	CHECK_EQ(view.rules.count, RULES_MAX);
	strcat(text, "deny\n");
	wrong(text, "3 user:257: character 1: more than 256 rules");
}

/* ---- which files ---- */

static void load(const char *want)
{
	memset(view.files, 0, sizeof(view.files));
	view_load(&view);
	view.files[0].state = CONFFILE_NONE; /* whatever this machine has */
	resolve("nginx");
	if (*want ? !strstr(said, want) : *said)
		CHECK_STR(said, want);
}

static char *in_folder(const char *name)
{
	static char paths[4][128];
	static int next;
	char *path = paths[next++ % 4];

	snprintf(path, sizeof(paths[0]), "%s/%s", folder, name);
	return path;
}

static void own_folder(void)
{
	strcpy(folder, "/tmp/viaduct-view-XXXXXX");
	REQUIRE(mkdtemp(folder) && chmod(folder, 0755) == 0);
	unsetenv("VIADUCT_CONFIG");
	unsetenv("XDG_CONFIG_HOME");
	setenv("HOME", folder, 1);
	REQUIRE(mkdir(in_folder(".config"), 0755) == 0);
}

static void remove_folder(void)
{
	unlink(in_folder(".config/viaduct.conf"));
	rmdir(in_folder(".config"));
	unlink(in_folder("viaduct.conf"));
	rmdir(folder);
}

IN_CHILD(place_of_the_file)
{
	own_folder();
	load("");
	CHECK_EQ(view.files[1].state, CONFFILE_ABSENT);
	CHECK_STR(view.files[1].path, in_folder(".config/viaduct.conf"));
	CHECK_STR(view.files[0].path, conffile_system);
	write_file(in_folder(".config/viaduct.conf"), "spin = 1\n", 9);
	load("");
	CHECK_EQ(view.config.spin_ns, 1000);
	write_file(in_folder("viaduct.conf"), "spin = 2\n", 9);
	setenv("XDG_CONFIG_HOME", folder, 1);
	load("");
	CHECK_EQ(view.config.spin_ns, 2000);
	setenv("XDG_CONFIG_HOME", "relative", 1);
	load("");
	CHECK_EQ(view.config.spin_ns, 1000);
	setenv("HOME", "relative", 1);
	load("");
	CHECK_EQ(view.files[1].state, CONFFILE_NONE);
	setenv("VIADUCT_CONFIG", in_folder("viaduct.conf"), 1);
	load("");
	CHECK_EQ(view.config.spin_ns, 2000);
	CHECK_STR(view.files[0].path, "");
	setenv("HOME", folder, 1);
	setenv("VIADUCT_CONFIG", "", 1);
	load("");
	CHECK_EQ(view.config.spin_ns, 50000);
	setenv("VIADUCT_CONFIG", "viaduct.conf", 1);
	load("3 viaduct.conf: VIADUCT_CONFIG takes an absolute name");
	setenv("VIADUCT_CONFIG", in_folder("none"), 1);
	load("3 none: it cannot be read: No such file");
	remove_folder();
}

/* Off by the environment: then no file is even opened. */
IN_CHILD(off_reads_nothing)
{
	own_folder();
	write_file(in_folder(".config/viaduct.conf"), "viaduct = on\n", 13);
	setenv("VIADUCT", "off", 1);
	load("");
	CHECK(view.config.off);
	CHECK_EQ(view.files[1].state, CONFFILE_NONE);
	unsetenv("VIADUCT");
	setenv("VIADUCT_PROFILE", "off", 1);
	load("");
	CHECK(view.config.off);
	CHECK_EQ(view.files[1].state, CONFFILE_NONE);
	setenv("VIADUCT", "on", 1);
	load("");
	CHECK(!view.config.off);
	CHECK_EQ(view.files[1].state, CONFFILE_READ);
	remove_folder();
}

IN_CHILD(files_of_no_use)
{
	static char big[CONFFILE_BYTES + 1];
	const char *path;

	own_folder();
	path = in_folder(".config/viaduct.conf");
	memset(big, '#', sizeof(big));
	write_file(path, big, CONFFILE_BYTES);
	load("");
	write_file(path, big, CONFFILE_BYTES + 1);
	load("3 viaduct.conf: it has more than 65536 bytes: shorten it");
	write_file(path, "spin\0= 1", 8);
	load("3 viaduct.conf: it has a zero byte in it");
	write_file(path, "spin = 1\n", 9);
	chmod(path, 0664);
	load("1 viaduct.conf: other users can write to it");
	CHECK(!view.doubt && view.config.spin_ns == 50000);
	chmod(path, 0646);
	load("1 viaduct.conf: other users can write to it");
	setenv("VIADUCT_CONFIG", path, 1);
	load("3 viaduct.conf: other users can write to it");
	unsetenv("VIADUCT_CONFIG");
	unlink(path);
	REQUIRE(mkfifo(path, 0644) == 0);
	load("3 viaduct.conf: it is no regular file");
	unlink(path);
	REQUIRE(symlink("viaduct.conf", path) == 0);
	load("3 viaduct.conf: it cannot be read: ");
	remove_folder();
}

#define NOBODY 65534

IN_CHILD(files_of_others)
{
	const char *path;

	if (geteuid() != 0)
		return;
	own_folder();
	path = in_folder(".config/viaduct.conf");
	write_file(path, "spin = 1\n", 9);
	REQUIRE(chown(path, NOBODY, (gid_t)-1) == 0);
	load("2 viaduct.conf: it belongs to user 65534, and so is ignored");
	CHECK(!view.doubt && view.config.spin_ns == 50000);
	/* The system's file is root's, also where the user is another. */
	strcpy(view.files[0].path, path);
	conffile_read(&view.files[0], CONFFILE_SYSTEM);
	CHECK_EQ(view.files[0].state, CONFFILE_FOREIGN);
	REQUIRE(seteuid(NOBODY) == 0);
	conffile_read(&view.files[0], CONFFILE_SYSTEM);
	CHECK_EQ(view.files[0].state, CONFFILE_FOREIGN);
	load("");
	CHECK_EQ(view.config.spin_ns, 1000);
	REQUIRE(seteuid(0) == 0);
	REQUIRE(chown(path, 0, (gid_t)-1) == 0 && seteuid(NOBODY) == 0);
	load("");
	CHECK_EQ(view.config.spin_ns, 1000);
	/* A HOME that was root's: nobody else's file. */
	REQUIRE(seteuid(0) == 0 && chmod(folder, 0700) == 0 && seteuid(NOBODY) == 0);
	load("2 viaduct.conf: it may not be read by user 65534");
	CHECK(!view.doubt);
	setenv("VIADUCT_CONFIG", path, 1);
	load("3 viaduct.conf: it cannot be read: Permission denied");
	REQUIRE(seteuid(0) == 0);
	remove_folder();
}

/* Without a descriptor a file that is not there is still told from one that is. */
IN_CHILD(descriptors_are_short)
{
	struct rlimit limit, none;

	own_folder();
	REQUIRE(getrlimit(RLIMIT_NOFILE, &limit) == 0);
	none = limit;
	none.rlim_cur = 0;
	REQUIRE(setrlimit(RLIMIT_NOFILE, &none) == 0);
	load("");
	CHECK_EQ(view.files[1].state, CONFFILE_ABSENT);
	REQUIRE(setrlimit(RLIMIT_NOFILE, &limit) == 0);
	write_file(in_folder(".config/viaduct.conf"), "viaduct = off\n", 14);
	REQUIRE(setrlimit(RLIMIT_NOFILE, &none) == 0);
	load("3 viaduct.conf: it cannot be read: Too many open files");
	CHECK(view.doubt);
	REQUIRE(setrlimit(RLIMIT_NOFILE, &limit) == 0);
	remove_folder();
}
