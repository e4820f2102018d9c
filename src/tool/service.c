/* SPDX-License-Identifier: Apache-2.0 */
/* viaduct service: puts a service of systemd under Viaduct, and takes it back. */
#include <ctype.h>
#include <errno.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/program.h"
#include "tool/cli.h"
#include "tool/explain/explain.h"
#include "tool/library.h"

#define UNITS	"/etc/systemd/system"
#define RESTART "systemctl daemon-reload && systemctl restart %s"
#define MARK	"# Written by `viaduct service`; `viaduct service --undo` removes it.\n"
/* LimitFSIZE= below it leaves no room for rings. */
#define ROOM 9437184

enum { PROPERTIES_MAX = 64 << 10 };

struct service {
	char name[256];		    /* with its .service */
	char shown[PROPERTIES_MAX]; /* lines of NAME=VALUE, each with a zero at its end */
	size_t length;
	char library[PATH_MAX];
	char *lines; /* of the drop-in, beside the library's; or NULL */
	struct answer answer;
};

static int help(void)
{
	printf("usage: viaduct service NAME\n"
	       "       viaduct service --undo NAME\n\n"
	       "Writes a drop-in by which the service NAME of systemd runs under Viaduct "
	       "when\nit is restarted, and says which of its settings stand in the "
	       "way.\n\n"
	       "  --undo   remove the drop-in\n"
	       "  --help   print this\n\n"
	       "Exit status: 0 done; 1 not, and nothing is written; 2 when the command "
	       "line\n"
	       "is wrong or names no service; 126 when the program cannot be preloaded. "
	       "See\n"
	       "viaduct-service(1).\n");
	return 0;
}

/* Of what systemd allows in a name; that is safe in the quotes of a shell, too. */
static bool is_name(const char *name)
{
	for (const char *at = name; *at; at++)
		if (!isalnum((unsigned char)*at) && !strchr(":-_.\\@", *at))
			return false;
	return *name && *name != '-' && *name != '.' && strlen(name) < 200;
}

/* ---- what systemd knows ---- */

static int show(struct service *s)
{
	char command[1024];
	FILE *f;

	snprintf(command, sizeof(command),
		 "systemctl show --no-pager -p LoadState -p ExecStart -p Environment "
		 "-p PrivateUsers -p RestrictAddressFamilies -p SystemCallFilter "
		 "-p MemoryDenyWriteExecute -p PrivateNetwork -p NetworkNamespacePath "
		 "-p RootDirectory -p RootImage -p NoExecPaths -p ProtectHome "
		 "-p StandardInput -p LimitFSIZE '%s'",
		 s->name);
	f = popen(command, "re");
	if (f)
		s->length = fread(s->shown, 1, sizeof(s->shown) - 1, f);
	if (!f || pclose(f) != 0) {
		warn_line("viaduct service: systemctl does not say what %s is", s->name);
		return 1;
	}
	for (size_t i = 0; i < s->length; i++)
		if (s->shown[i] == '\n')
			s->shown[i] = '\0';
	return 0;
}

/* "" where it is not set. */
static const char *property(const struct service *s, const char *name)
{
	size_t n = strlen(name);

	for (const char *at = s->shown; at < s->shown + s->length; at += strlen(at) + 1)
		if (!strncmp(at, name, n) && at[n] == '=')
			return at + n + 1;
	return "";
}

static bool is_yes(const struct service *s, const char *name)
{
	return !strcmp(property(s, name), "yes");
}

static bool has_word(const char *list, const char *word)
{
	size_t n = strlen(word);

	for (const char *at = list; (at = strstr(at, word)); at += n)
		if ((at == list || strchr(" ~", at[-1])) && strchr(" :", at[n]))
			return true;
	return false;
}

/* A list of what is allowed, or, with ~ in front, of what is not; or none. */
static bool allows(const char *list, const char *word)
{
	return !*list || has_word(list, word) == (*list != '~');
}

/* ---- the program ---- */

static int find_library(struct service *s)
{
	const char *exec = strstr(property(s, "ExecStart"), "path=");
	struct program *p = need(calloc(1, sizeof(*p)));
	int rc = exec ? 0 : 1;
	char path[PATH_MAX];

	snprintf(path, sizeof(path), "%.*s", exec ? (int)strcspn(exec + 5, " ;") : 0,
		 exec ? exec + 5 : "");
	if (rc) {
		warn_line("viaduct service: %s starts no program", s->name);
		goto out;
	}
	program_inspect(path, true, p);
	if (!explain_kind(p, p->path, false, &s->answer) || p->kind == PROGRAM_STATIC ||
	    p->kind == PROGRAM_GO) {
		warn_line("viaduct service: %s cannot be preloaded; `viaduct explain -- "
			  "%s` says why",
			  path, path);
		rc = EXIT_REFUSED;
		goto out;
	}
	rc = (p->kind == PROGRAM_MUSL ? library_find_musl
				      : library_find)(s->library, sizeof(s->library));
	if (rc || strpbrk(s->library, " \t\n:$%\"'\\")) {
		warn_line("viaduct service: the library %s %s", s->library,
			  rc ? "is missing: build or install it"
			     : "has a name that cannot be preloaded: move it");
		rc = EXIT_REFUSED;
	}
out:
	free(p);
	return rc;
}

/* ---- its settings ---- */

static void add_line(struct service *s, const char *line)
{
	char *all = text_of("%s%s\n", s->lines ? s->lines : "", line);

	free(s->lines);
	s->lines = all;
}

/* Words that a list of the unit leaves out, into a line that adds them. */
static void allow(struct service *s, const char *setting, const char *const *words,
		  const char *means)
{
	const char *list = property(s, setting);
	char *missing = NULL, *line;

	for (; *words; words++)
		if (!allows(list, *words))
			missing = text_of("%s%s%s", missing ? missing : "",
					  missing ? " " : "", *words);
	if (!missing)
		return;
	line = text_of("%s=%s", setting, missing);
	add_line(s, line);
	say(&s->answer, POINT_NOTE, "allowed", "%s. The drop-in adds: %s", means, line);
	free(line);
	free(missing);
}

static const char *const families[] = {"AF_NETLINK", "AF_UNIX", NULL};
/* What a service may not have used so far: docs/systemd.md. */
static const char *const calls[] = {"memfd_create",  "ftruncate",
				    "eventfd2",	     "socket",
				    "bind",	     "listen",
				    "connect",	     "accept4",
				    "sendto",	     "sendmsg",
				    "recvfrom",	     "recvmsg",
				    "getsockopt",    "setsockopt",
				    "poll",	     "mmap",
				    "mremap",	     "fcntl",
				    "getresuid",     "geteuid",
				    "getegid",	     "rt_sigprocmask",
				    "rt_sigpending", "rt_tgsigqueueinfo",
				    "tkill",	     NULL};

/* The drop-in can do something about these. */
static void check_lists(struct service *s)
{
	char *folder, *line;

	allow(s, "RestrictAddressFamilies", families,
	      "By these sockets the two ends meet, and ask the kernel who the other is");
	allow(s, "SystemCallFilter", calls,
	      "Without these system calls it would stay on TCP, or be killed");
	folder =
		text_of("%.*s", (int)(strrchr(s->library, '/') - s->library), s->library);
	if (*property(s, "RootDirectory") || *property(s, "RootImage")) {
		line = text_of("BindReadOnlyPaths=%s", folder);
		add_line(s, line);
		say(&s->answer, POINT_NOTE, "root",
		    "It has a root folder of its own. The drop-in adds: %s", line);
		free(line);
	}
	if (*property(s, "NoExecPaths")) {
		line = text_of("ExecPaths=%s", folder);
		add_line(s, line);
		say(&s->answer, POINT_NOTE, "exec",
		    "It may not map all files as code. The drop-in adds: %s", line);
		free(line);
	}
	free(folder);
}

/* Those are for the administrator to judge. */
static void check_isolation(struct service *s)
{
	if (is_yes(s, "PrivateUsers")) {
		add_line(s,
			 "# For clients of other users than root; then it is in no user "
			 "namespace of its own:\n#PrivateUsers=no");
		say(&s->answer, POINT_NOTE, "namespace",
		    "PrivateUsers=yes: clients of root alone are accelerated.");
		say_remedy(
			&s->answer,
			"PrivateUsers=no in the drop-in, where it is a comment. That "
			"gives up that a service that has been taken over does not know "
			"the system's other users.");
	}
	if (is_yes(s, "PrivateNetwork") || *property(s, "NetworkNamespacePath"))
		say(&s->answer, POINT_NOTE, "network",
		    "It has a network of its own: only ends in there can meet, or those "
		    "that viaductd brings together.");
	if (!strcmp(property(s, "StandardInput"), "socket"))
		say(&s->answer, POINT_NOTE, "stdio",
		    "A connection that it gets as its standard input stays on TCP.");
	if (is_yes(s, "MemoryDenyWriteExecute"))
		say(&s->answer, POINT_YES, "memory",
		    "MemoryDenyWriteExecute=yes does no harm: the library makes no "
		    "code.");
}

/* With these nothing is written. */
static void check_refusals(struct service *s)
{
	const char *home = property(s, "ProtectHome"), *room = property(s, "LimitFSIZE");
	const char *preload = strstr(property(s, "Environment"), "LD_PRELOAD=");
	bool in_home = !strncmp(s->library, "/home/", 6) ||
		       !strncmp(s->library, "/root/", 6) ||
		       !strncmp(s->library, "/run/user/", 10);

	if (in_home && (!strcmp(home, "yes") || !strcmp(home, "tmpfs"))) {
		say(&s->answer, POINT_NO, "home", "ProtectHome=%s hides the library, %s.",
		    home, s->library);
		say_remedy(&s->answer,
			   "Install Viaduct, and take the installed command.");
	}
	if (preload && !library_is_named(preload)) {
		say(&s->answer, POINT_NO, "preload",
		    "The unit sets LD_PRELOAD itself, and the drop-in would replace "
		    "that.");
		say_remedy(&s->answer, "Put %s in front of it: `systemctl edit %s`.",
			   s->library, s->name);
	}
	if (isdigit((unsigned char)*room) && strtoull(room, NULL, 10) < ROOM) {
		say(&s->answer, POINT_NO, "memory",
		    "LimitFSIZE=%s leaves no room for a connection's memory.", room);
		say_remedy(&s->answer, "LimitFSIZE=9M, or more.");
	}
}

/* ---- the file ---- */

struct place {
	char folder[512], file[600], made[620];
};

static void find_place(const struct service *s, struct place *p)
{
	snprintf(p->folder, sizeof(p->folder), UNITS "/%s.d", s->name);
	snprintf(p->file, sizeof(p->file), "%s/run-under-viaduct.conf", p->folder);
	snprintf(p->made, sizeof(p->made), "%s.new", p->file);
}

/* 1: by this command; 0: there is none; -1: by somebody else, which is said. */
static int is_ours(const struct place *p)
{
	FILE *f = fopen(p->file, "re");
	char line[128] = "";
	bool ours = f && fgets(line, sizeof(line), f) && !strcmp(line, MARK);

	if (f)
		fclose(f);
	if (ours || (!f && errno == ENOENT))
		return ours;
	warn_line("viaduct service: %s is not of this command: remove it, or keep it",
		  p->file);
	return -1;
}

static int write_file(const struct service *s, const struct place *p)
{
	FILE *f;

	if (mkdir(p->folder, 0755) != 0 && errno != EEXIST)
		return -errno;
	f = fopen(p->made, "we");
	if (!f)
		return -errno;
	fprintf(f, MARK "[Service]\nEnvironment=LD_PRELOAD=%s\n%s", s->library,
		s->lines ? s->lines : "");
	if (fflush(f) == 0 && fclose(f) == 0 && chmod(p->made, 0644) == 0 &&
	    rename(p->made, p->file) == 0)
		return 0;
	unlink(p->made);
	return -EIO;
}

static int undo(const struct service *s)
{
	struct place p;
	int ours;

	find_place(s, &p);
	ours = is_ours(&p);
	if (ours < 0)
		return 1;
	if (!ours || unlink(p.file) != 0) {
		warn_line("viaduct service: %s: %s", p.file, strerror(errno));
		return 1;
	}
	rmdir(p.folder); /* unless there is more in it */
	printf("%s is removed. Now: " RESTART "\n", p.file, s->name);
	return 0;
}

static int apply(struct service *s)
{
	struct place p;
	int rc = show(s);

	if (rc == 0 && strcmp(property(s, "LoadState"), "loaded") != 0) {
		warn_line("viaduct service: there is no service %s", s->name);
		rc = EXIT_USAGE;
	}
	rc = rc ? rc : find_library(s);
	if (rc)
		return rc;
	check_refusals(s);
	check_lists(s);
	check_isolation(s);
	find_place(s, &p);
	if (said_no(&s->answer)) {
		say_verdict(&s->answer, false, "Nothing is written.");
		answer_print(stdout, &s->answer);
		return 1;
	}
	if (is_ours(&p) < 0)
		return 1;
	rc = write_file(s, &p);
	if (rc) {
		warn_line("viaduct service: %s cannot be written: %s", p.file,
			  strerror(-rc));
		return 1;
	}
	say_verdict(&s->answer, true, "%s is written. Now: " RESTART, p.file, s->name);
	answer_print(stdout, &s->answer);
	return 0;
}

int cmd_service(int argc, char **argv)
{
	static const struct option options[] = {
		{"undo", 0, NULL, 'u'}, {"help", 0, NULL, 'h'}, {0}};
	static struct service s;
	bool undoes = false;
	int c;

	argv[0] = (char *)"viaduct service";
	while ((c = getopt_long(argc, argv, "h", options, NULL)) != -1) {
		if (c == 'h')
			return help();
		if (c != 'u')
			return usage_error("service", NULL);
		undoes = true;
	}
	if (argc - optind != 1)
		return usage_error("service", "it takes one NAME");
	if (!is_name(argv[optind]))
		return usage_error("service", "`%s` is no name of a service",
				   argv[optind]);
	snprintf(s.name, sizeof(s.name), "%s%s", argv[optind],
		 strstr(argv[optind], ".service") ? "" : ".service");
	return undoes ? undo(&s) : apply(&s);
}
