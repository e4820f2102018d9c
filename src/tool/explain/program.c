/* SPDX-License-Identifier: Apache-2.0 */
/* What can be said of a program before it runs: the file, its interpreter, what it becomes. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/go_text.h"
#include "base/machine.h"
#include "base/program.h"
#include "base/reason.h"
#include "base/regular.h"
#include "base/static_text.h"
#include "settings/view.h"
#include "tool/cli.h"
#include "tool/explain/explain.h"
#include "tool/fault.h"
#include "tool/library.h"

/* Of a machine that lacks what its program needs. */
#define DOCTOR_TELLS "see `instructions` in `viaduct doctor`."
enum { BECOMES_MAX = 4, SCRIPT_BYTES = 64 << 10, BECOMES_LEVELS = 4 };

static const char *base_name(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

static bool is_one_of(const char *name, const char *const *names)
{
	for (; *names; names++)
		if (!strcmp(name, *names))
			return true;
	return false;
}

/* Starts other programs as other users, and clears their environment before that. */
static bool changes_user(const char *path)
{
	static const char *const names[] = {"sudo", "doas", "su", "pkexec", NULL};

	return is_one_of(base_name(path), names);
}

static bool is_su(const char *path)
{
	return !strcmp(base_name(path), "su");
}

static void say_behind(const struct program *p, struct answer *a)
{
	if (is_su(p->path)) /* what follows its options is a user's name */
		say_remedy(a, "Put `viaduct run` behind it: `su USER -c 'viaduct run -- "
			      "PROGRAM'`.");
	else
		say_remedy(a, "Put `viaduct run` behind it: `%s viaduct run -- PROGRAM`.",
			   base_name(p->path));
}

static void say_privileged(const struct program *p, struct answer *a)
{
	say(a, POINT_NO, "privileged",
	    "%s gains privileges when it starts (%s), and the loader preloads nothing "
	    "into such a program.",
	    p->path, p->detail);
	if (changes_user(p->path))
		say_behind(p, a);
	else if (!strcmp(p->detail, "file capabilities"))
		say_remedy(a,
			   "Take them away (`setcap -r %s`), and give it ambient ones: "
			   "AmbientCapabilities= of a service, or capsh(1).",
			   p->path);
	else
		say_remedy(a,
			   "Start it as that user or group, so that it gains nothing.");
}

/* What this machine lacks for a program in Go that is as it is to be; or NULL. */
static const char *go_machine_lacks(const struct go_text *text)
{
	return text->lacks || text->is_static
		       ? NULL
		       : machine_lacks(machine_here(), MACHINE_FOR_GO);
}

/* In Go: true when its system calls can be made to come to us, and are to. */
static bool go_fits(const struct program *p, const char *file, struct go_text *text,
		    struct answer *a)
{
	static struct view v;
	bool fits = go_text_find(file, text) == 0 && !go_machine_lacks(text);

	view_here(&v, p->path, NULL);
	if (!fits || !v.config.go_followed)
		return false;
	say(a, POINT_YES, "go",
	    "%s is a program in Go, linked %s: its system calls are made to come to "
	    "libviaduct-preload.so.",
	    p->path, text->is_static ? "statically" : "dynamically and with cgo");
	return true;
}

/* The program is as it is to be: with another setting, or on another machine, it is carried. */
static void say_static_stays(const struct program *p, const char *lacks, struct answer *a)
{
	if (lacks) {
		say(a, POINT_NO, "static",
		    "%s is statically linked: its connections cannot be followed: %s.",
		    p->path, lacks);
		say_remedy(a, "Use a build of it that is linked dynamically, or another "
			      "machine: " DOCTOR_TELLS);
		return;
	}
	say(a, POINT_NO, "static",
	    "%s is statically linked: no library can be preloaded into it.", p->path);
	say_remedy(a, "Use `--static follow`, which carries its connections, or a build "
		      "of it that is linked dynamically; see viaduct-run(1).");
}

/* One place in it is in the way. */
static void say_static_lacks(const struct program *p, const struct static_text *text,
			     struct answer *a)
{
	say(a, POINT_NO, "static",
	    "%s is statically linked: its connections cannot be followed: %s, at %#llx.",
	    p->path, text->lacks, (unsigned long long)text->lacks_at);
	say_remedy(a, "Use a build of it that is linked dynamically.");
}

/* With a C library of its own. Each number is taken for one that concerns us: where such a call cannot be
 * led away, the library knows better only for few. False: *is_said, or it is not of that kind. */
static bool static_fits(const struct program *p, const char *file, bool *is_said,
			struct answer *a)
{
	const char *lacks = machine_lacks(machine_here(), MACHINE_FOR_STATIC);
	static struct view v;
	struct static_text text;
	uint8_t all[512];

	memset(all, 1, sizeof(all));
	if (static_text_find(file, all, sizeof(all), &text) != 0) {
		*is_said = text.lacks_at != 0;
		if (*is_said)
			say_static_lacks(p, &text, a);
		return false;
	}
	static_text_finish(&text);
	view_here(&v, p->path, NULL);
	*is_said = lacks || !v.config.static_followed;
	if (*is_said) {
		say_static_stays(p, lacks, a);
		return false;
	}
	say(a, POINT_YES, "static",
	    "%s is statically linked: its system calls are made to come to "
	    "libviaduct-preload.so.",
	    p->path);
	return true;
}

/* Started by hand, with a program as its argument. */
static bool is_loader(const char *path)
{
	const char *name = strrchr(path, '/');

	name = name ? name + 1 : path;
	return !strcmp(name, PROGRAM_LOADER_GLIBC) || !strcmp(name, PROGRAM_LOADER_MUSL);
}

static bool explain_static(const struct program *p, const char *file, bool go,
			   struct answer *a)
{
	struct go_text text;
	bool is_said = false;

	if (is_loader(p->path)) {
		say(a, POINT_NO, "loader",
		    "%s is a dynamic loader: what it is to load is not looked into.",
		    p->path);
		say_remedy(a, "Start that program itself.");
		return false;
	}
	if (go_fits(p, file, &text, a))
		return true;
	if (!text.lacks) {
		say(a, POINT_NO, "static",
		    "%s is statically linked, a program in Go: its connections are not "
		    "followed.",
		    p->path);
		say_remedy(a,
			   "Use `--go follow`, which carries them; see viaduct-run(1).");
		return false;
	}
	if (go || go_text_begins(file)) {
		say(a, POINT_NO, "static",
		    "%s is statically linked, a program in Go: its connections cannot "
		    "be followed: %s.",
		    p->path, text.lacks);
		say_remedy(a, "Nothing to do: it stays on TCP, and its peers with it.");
		return false;
	}
	if (static_fits(p, file, &is_said, a))
		return true;
	if (is_said)
		return false;
	say(a, POINT_NO, "static",
	    "%s is statically linked: no library can be preloaded into it.", p->path);
	say_remedy(a, "Use a build of it that is linked dynamically.");
	return false;
}

/* Linked dynamically. */
static bool explain_go(const struct program *p, const char *file, struct answer *a)
{
	const char *machine, *lacks;
	struct go_text text;

	if (go_fits(p, file, &text, a))
		return true;
	machine = go_machine_lacks(&text);
	lacks = machine ? machine : text.lacks;
	say(a, POINT_NO, reason_name(VD_REASON_RAW),
	    "%s is a program in Go: it makes its system calls past the C library, so "
	    "that its connections %s%s%s.",
	    p->path, lacks ? "cannot be followed" : "are not followed", lacks ? ": " : "",
	    lacks ? lacks : "");
	say_remedy(
		a,
		machine ? "Nothing to do on this machine: " DOCTOR_TELLS
		: lacks ? "Nothing to do: it stays on TCP, and its peers with it."
			: "Use `--go follow`, which carries them; see viaduct-run(1).");
	return false;
}

/* The loader of musl takes a library of its own. */
static bool explain_musl(const struct program *p, struct answer *a)
{
	char library[PATH_MAX];

	if (library_find_musl(library, sizeof(library)) == 0)
		return true;
	say(a, POINT_NO, "libc",
	    "%s uses musl and not the GNU C library (%s), and " LIBRARY_MUSL
	    " is neither beside this command nor in %s.",
	    p->path, p->detail, VD_LIBDIR);
	say_remedy(a, "Build or install that, or use a build of the program for the GNU "
		      "C library.");
	return false;
}

/* True when a library can be preloaded into it. */
bool explain_kind(const struct program *p, const char *file, bool go, struct answer *a)
{
	switch (p->kind) {
	case PROGRAM_OK:
		return true;
	case PROGRAM_STATIC:
		return explain_static(p, file, go, a);
	case PROGRAM_PRIVILEGED:
		say_privileged(p, a);
		break;
	case PROGRAM_OTHER_CLASS:
		say(a, POINT_NO, "architecture",
		    "%s is built for another kind of processor than "
		    "libviaduct-preload.so (%s).",
		    p->path, p->detail);
		say_remedy(a, "Use a build of it for x86-64.");
		break;
	case PROGRAM_OTHER_LIBC:
		say(a, POINT_NO, "libc",
		    "%s uses another C library than the GNU one, or musl with Go (%s): "
		    "there is no library of Viaduct's for it.",
		    p->path, p->detail);
		say_remedy(a, "Use a build of it for the GNU C library.");
		break;
	case PROGRAM_MUSL:
		return explain_musl(p, a);
	case PROGRAM_GO:
		return explain_go(p, file, a);
	case PROGRAM_UNREADABLE:
		say(a, POINT_NOTE, "unreadable",
		    access(p->path, R_OK)
			    ? "%s cannot be looked into, because it may not be read. "
			      "`viaduct run` preloads the library all the same."
			    : "%s cannot be looked into: it is no sound program.",
		    p->path);
		say_remedy(a, access(p->path, R_OK) ? "Ask as a user who may read it."
						    : "Install it again.");
		return true;
	}
	return false;
}

bool explain_copied(const struct program *p, const char *file, bool go, struct answer *a)
{
	bool is_searched = p->kind == PROGRAM_STATIC || p->kind == PROGRAM_GO, fits;
	struct copy c = {.fd = -1};

	if (is_searched)
		copy_make(&c, file);
	fits = explain_kind(p, c.name, go, a);
	copy_drop(&c);
	return fits;
}

static void say_rpc(struct answer *a)
{
	char library[PATH_MAX], module[PATH_MAX];

	if (library_find(library, sizeof(library)) != 0)
		return; /* that is said already */
	if (library_find_rpc(library, module, sizeof(module)) == 0) {
		say(a, POINT_YES, "rpc",
		    "It needs libtirpc: `viaduct run` adds %s, which makes its remote "
		    "procedure calls over TCP.",
		    module);
		return;
	}
	say(a, POINT_NOTE, "rpc",
	    "It needs libtirpc, but there is no %s: its remote procedure calls are that "
	    "library's own, over Viaduct's sockets.",
	    module);
	say_remedy(a, "Build or install that, too.");
}

static void explain_elf(const struct program *p, bool libs, struct answer *a)
{
	bool musl = p->kind == PROGRAM_MUSL;
	struct elf_view e = {0};
	int r = elf_view_open(p->path, &e);

	if (!explain_copied(p, p->path, r == 0 && e.is_go, a) ||
	    (p->kind != PROGRAM_OK && !musl))
		;
	else if (r == 0) {
		say(a, POINT_YES, "program",
		    "%s is linked dynamically, for %s on x86-64.", p->path,
		    musl ? "musl" : "the GNU C library");
		if (changes_user(p->path)) {
			say(a, POINT_NOTE, "privileged",
			    "It clears the environment of the program that it starts, "
			    "LD_PRELOAD included%s.",
			    is_su(p->path) ? ", with `-` or `-l`" : "");
			say_behind(p, a);
		}
		explain_imports(p->path, &e, false, a);
		if (!musl && explain_needs(p->path, LIBRARY_LIBTIRPC))
			say_rpc(a);
		if (libs && musl)
			say(a, POINT_NOTE, "libs",
			    "The libraries of a program of musl are not looked into.");
		else if (libs)
			explain_libs(p->path, &e, a);
	} else {
		say(a, POINT_NOTE, "unreadable",
		    "%s contradicts itself: what it imports cannot be told.", p->path);
		say_remedy(a, "Install it again.");
	}
	elf_view_finish(&e);
}

static void explain_file(const char *path, bool libs, int level, struct answer *a);

/* The program that a line of a shell script becomes, in place; NULL: it becomes none. */
static char *becomes(char *line)
{
	char *word, *rest = line + strspn(line, " \t"), *end;

	if (strncmp(rest, "exec", 4) != 0 || !strchr(" \t", rest[4]) || !rest[4])
		return NULL;
	rest += 4;
	do {
		rest += strspn(rest, " \t");
		word = rest;
		rest += strcspn(rest, " \t;&|");
		if (!strncmp(word, "-a", 2) && rest == word + 2) { /* NAME */
			rest += strspn(rest, " \t");
			rest += strcspn(rest, " \t");
		}
	} while (*word == '-' && *rest);
	end = rest;
	*end = 0;
	if (!*word || *word == '-' || strcspn(word, "<>") < strlen(word))
		return NULL; /* a redirection only */
	if ((*word == '"' || *word == '\'') && end > word + 1 && end[-1] == *word) {
		end[-1] = 0;
		word++;
	}
	return word;
}

static void say_becomes(const char *script, const char *word, unsigned line, bool libs,
			int level, struct answer *a)
{
	char path[PATH_MAX];

	if (strpbrk(word, "$`\"'\\*?")) {
		say(a, POINT_NOTE, "script",
		    "In line %u %s becomes `%s`, which cannot be told beforehand.", line,
		    script, word);
		say_remedy(a, "Ask for that program, or for the process once it runs: "
			      "`viaduct explain PID`.");
	} else if (program_find(word, path, sizeof(path)) != 0) {
		say(a, POINT_NOTE, "script",
		    "In line %u %s becomes `%s`, which is not found from here.", line,
		    script, word);
		say_remedy(a,
			   "Ask from the folder, and with the PATH, that it will have.");
	} else {
		say(a, POINT_YES, "script", "In line %u it becomes %s.", line, path);
		explain_file(path, libs, level + 1, a);
	}
}

/* Wrappers end in `exec PROGRAM "$@"`: what they become is what matters. */
static void explain_script(const char *path, bool libs, int level, struct answer *a)
{
	char *words[BECOMES_MAX], *text = need(calloc(1, SCRIPT_BYTES + 1)), *rest = text;
	unsigned lines[BECOMES_MAX], number = 0, count = 0;
	int fd = regular_open(path);
	char *line;

	if (fd >= 0) {
		ssize_t n = pread(fd, text, SCRIPT_BYTES, 0);

		text[n > 0 ? n : 0] = '\0';
		close(fd);
	}
	while ((line = strsep(&rest, "\n"))) {
		char *word = becomes(line);

		number++;
		if (!word || count == BECOMES_MAX)
			continue;
		words[count] = word;
		lines[count++] = number;
	}
	if (count == 1)
		say_becomes(path, words[0], lines[0], libs, level, a);
	for (unsigned i = 0; count > 1 && i < count; i++) {
		say(a, POINT_NOTE, "script", "In line %u %s may become `%s`.", lines[i],
		    path, words[i]);
		say_remedy(a, "Ask for that program, too.");
	}
	free(text);
}

/* The kernel starts nothing there: that is said, and is the verdict on the program named. */
static bool explain_refusal(const char *path, const struct program *p, int level,
			    struct answer *a)
{
	char missing[PATH_MAX];

	if (interpreter_lacks(p, missing, sizeof(missing))) {
		say(a, POINT_NO, "interpreter",
		    "%s cannot be started at all: its interpreter `%s` is missing%s.",
		    path, missing, interpreter_lacks_hint(missing));
		say_remedy(a, "Install it, or correct the name in the file.");
	} else if (interpreter_barred(p)) {
		say(a, POINT_NO, "interpreter",
		    "%s cannot be started at all: its interpreter `%s` cannot be "
		    "executed.",
		    path, p->path);
		say_remedy(
			a,
			"Correct the name in the file, or the mode of the interpreter.");
	} else if (p->refused == ELOOP) {
		say(a, POINT_NO, "interpreter",
		    "%s cannot be started at all: its interpreters are scripts that "
		    "form a loop, or more than five scripts.",
		    path);
		say_remedy(a, "Correct the first line of the files.");
	} else if (p->refused) {
		say(a, POINT_NO, "unreadable",
		    "%s cannot be started at all: %s is cut off, or no sound program.",
		    path, p->path);
		say_remedy(a, "Install it again.");
	} else {
		return false;
	}
	if (level == 0)
		say_verdict(a, false, "%s", a->points[a->count - 1].text);
	return true;
}

static void explain_file(const char *path, bool libs, int level, struct answer *a)
{
	static const char *const shells[] = {"sh",  "bash",    "dash", "ksh",
					     "zsh", "busybox", NULL};
	struct program *p = need(calloc(1, sizeof(*p)));

	program_inspect(path, true, p);
	if (explain_refusal(path, p, level, a)) {
		free(p);
		return;
	}
	if (strcmp(p->path, path) != 0)
		say(a, POINT_YES, "script", "%s is a script, and %s is what runs it.",
		    path, p->path);
	explain_elf(p, libs, a);
	if (strcmp(p->path, path) != 0 && level < BECOMES_LEVELS &&
	    is_one_of(base_name(p->path), shells))
		explain_script(path, libs, level, a);
	free(p);
}

/* The command line, as a shell would take it. */
char *command_line(char *const *argv)
{
	static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
				    "0123456789@%+=:,./_-";
	char *line = text_of("%s", ""), *longer;

	for (size_t i = 0; argv[i]; i++) {
		const char *word = argv[i];
		bool quote = !*word || word[strspn(word, plain)];

		longer = text_of("%s%s%s", line, i ? " " : "", quote ? "'" : "");
		free(line);
		line = longer;
		while (*word) {
			size_t len = strcspn(word, "'");

			longer = text_of("%s%.*s%s", line, (int)len, word,
					 word[len] ? "'\\''" : "");
			free(line);
			line = longer;
			word += len + (word[len] != 0);
		}
		longer = text_of("%s%s", line, quote ? "'" : "");
		free(line);
		line = longer;
	}
	return line;
}

int explain_program(char **argv, bool libs, struct answer *a)
{
	static struct program program;
	static char path[PATH_MAX];
	int rc = program_find(argv[0], path, sizeof(path));
	char *line;

	if (rc) {
		char why[2 * PATH_MAX];

		fault_of_program(rc, argv[0], path, why, sizeof(why));
		warn_line("viaduct explain: %s", why);
		return EXIT_USAGE;
	}
	explain_file(path, libs, 0, a);
	program_inspect(path, true, &program);
	explain_library(program.kind == PROGRAM_MUSL, a);
	explain_settings(path, argv[0], a);
	explain_limits(a);
	line = command_line(argv);
	if (a->verdict)
		;
	else if (said_no(a))
		say_verdict(a, false, "%s would stay on TCP.", argv[0]);
	else
		say_verdict(
			a, true,
			"%s can be accelerated, towards peers that run under Viaduct, "
			"too. Start it with: viaduct run -- %s",
			argv[0], line);
	free(line);
	return 0;
}
