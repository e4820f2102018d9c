/* SPDX-License-Identifier: Apache-2.0 */
/* viaduct run: sets the environment up for the library and becomes the program. */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/program.h"
#include "base/standard.h"
#include "settings/view.h"
#include "tool/cli.h"
#include "tool/explain/explain.h"
#include "tool/fault.h"
#include "tool/library.h"
#include "tool/self.h"
#include "tool/setting.h"
#include "tool/summary.h"
#include "tool/variable.h"

enum { OPT_TCP_ANYWAY = 256, OPT_SUMMARY, OPT_HELP, OPT_SETTING };
enum { MISTAKES_SHOWN = 10 };

struct run {
	bool tcp_anyway, summary;
	const char *name; /* as given */
	char path[PATH_MAX];
};

static int help(void)
{
	printf("usage: viaduct run [OPTION...] [--] PROGRAM [ARGUMENT...]\n\n");
	for (size_t i = 0; i < setting_count; i++) {
		const struct value_info *info = setting_info(i);
		char left[64];

		snprintf(left, sizeof(left), "--%s %s", info->name,
			 info->argument ? info->argument : "");
		printf("  %-20s %s\n", left, info->help);
	}
	printf("  %-20s run a program that cannot be preloaded on plain TCP\n",
	       "--tcp-anyway");
	printf("  %-20s say at the end, on stderr, what became of its connections\n",
	       "--summary");
	printf("  %-20s print this\n", "--help");
	printf("\nEach option sets an environment variable, which stands above the files "
	       "of\nviaduct.conf(5); see viaduct-run(1).\n");
	return 0;
}

/* An option that is not written in full: what was meant by it is not to be guessed. Or NULL. */
static const char *shortened(char **argv, const struct option *options)
{
	while (*++argv && !strncmp(*argv, "--", 2) && (*argv)[2]) {
		const char *name = *argv + 2;
		size_t len = strcspn(name, "=");
		const struct option *o = options, *begin = NULL;

		for (; o->name && (strncmp(o->name, name, len) || o->name[len]); o++)
			if (!strncmp(o->name, name, len))
				begin = o;
		if (!o->name && begin)
			return *argv;
		if (o->name && o->has_arg && !name[len] && !*++argv)
			break;
	}
	return NULL;
}

static int parse(int argc, char **argv, struct run *run)
{
	struct option options[SETTINGS_MAX + 4] = {0};
	size_t n = 0;
	int c;

	for (; n < setting_count; n++)
		options[n] = (struct option){setting_info(n)->name,
					     setting_info(n)->argument ? 1 : 0, NULL,
					     OPT_SETTING + (int)n};
	options[n++] = (struct option){"tcp-anyway", 0, NULL, OPT_TCP_ANYWAY};
	options[n++] = (struct option){"summary", 0, NULL, OPT_SUMMARY};
	options[n++] = (struct option){"help", 0, NULL, OPT_HELP};

	if (shortened(argv, options))
		return usage_error("run", "no such option: %s", shortened(argv, options));
	optind = 1;
	argv[0] = (char *)"viaduct run"; /* getopt's messages begin with it */
	while ((c = getopt_long(argc, argv, "+h", options, NULL)) != -1) {
		if (c == OPT_TCP_ANYWAY)
			run->tcp_anyway = true;
		else if (c == OPT_SUMMARY)
			run->summary = true;
		else if (c == OPT_HELP || c == 'h')
			exit(standard_end("viaduct run", help()));
		else if (c < OPT_SETTING)
			return usage_error("run", NULL);
		else if (setting_apply((size_t)(c - OPT_SETTING), optarg))
			return EXIT_USAGE;
	}
	return optind < argc ? 0 : usage_error("run", "no program was named");
}

static struct view view;
static unsigned mistakes;

/* What the library makes of a VIADUCT_LOG that is not right. */
static const char *log_effect(const char *value)
{
	return log_level_of(value, strcspn(value, ":")) > LOG_OFF
		       ? "; the log goes to its usual file"
		       : "; errors alone are logged";
}

/* In a file: the program is not started. In a variable the library skips it, or is in doubt. */
static void complain(struct view *v, enum view_effect effect, const char *file,
		     const char *place, const char *message)
{
	(void)v;
	/* Files of others are no mistake. */
	if (effect == VIEW_FOREIGN)
		return;
	if (!file)
		warn_line("viaduct run: %s: %s%s", place, message,
			  effect == VIEW_DOUBT ? "; every connection stays on TCP"
			  : !strncmp(place, "VIADUCT_LOG=", 12) ? log_effect(place + 12)
								: "; it is skipped");
	else if (mistakes++ < MISTAKES_SHOWN)
		warn_line("viaduct run: %s: %s", place, message);
}

static void warn_of_setting(enum value_id id, const char *text, const char *message)
{
	const struct view_source *s = &view.source[id];

	if (s->file)
		warn_line("viaduct run: %s:%u: %s = %s: %s", s->file, s->line,
			  value_table[id].name, text, message);
	else
		warn_line("viaduct run: %s=%s: %s", value_table[id].variable, text,
			  message);
}

static void warn_of_file(enum value_id id, const char *path, const char *what)
{
	char why[512], message[600];

	if (setting_file(path, why, sizeof(why)) == 0)
		return;
	snprintf(message, sizeof(message), "%s; there will be no %s", why, what);
	warn_of_setting(id, view.source[id].text, message);
}

/* What is good as a value, and yet will not be as it is written. */
static void warn(void)
{
	const char *log = view.source[VALUE_LOG].text;
	const char *report = view.source[VALUE_REPORT].text;
	const struct view_source *ring = &view.source[VALUE_RING_MAX];
	char path[PATH_MAX], message[80];
	uint32_t bytes;

	if (log && log_file(log, path, sizeof(path)))
		warn_of_file(VALUE_LOG, path, "log");
	if (report && *report)
		warn_of_file(VALUE_REPORT, report, "report");
	if (!ring->text || ring->profile ||
	    !value_rounds(VALUE_RING_MAX, ring->text, &bytes))
		return;
	snprintf(message, sizeof(message), SETTING_ROUNDED, bytes >> 10);
	warn_of_setting(VALUE_RING_MAX, ring->text, message);
}

static void warn_of_slip(void *context, const char *text, const char *meant)
{
	(void)context;
	warn_line("viaduct run: %s: " VARIABLE_SLIP, text, meant);
}

/* As the library will, but before there is a program that could be harmed. */
static int check_settings(void)
{
	view_load(&view);
	view.strict = true;
	view.complain = complain;
	view_resolve(&view);
	if (mistakes > MISTAKES_SHOWN)
		warn_line("viaduct run: %u mistakes more: `viaduct config --check` lists "
			  "all",
			  mistakes - MISTAKES_SHOWN);
	if (mistakes)
		return EXIT_USAGE;
	variable_slips(warn_of_slip, NULL);
	warn();
	return 0;
}

static int find(struct run *run)
{
	int rc = program_find(run->name, run->path, sizeof(run->path));
	char why[2 * PATH_MAX];

	if (rc == 0)
		return 0;
	rc = fault_of_program(rc, run->name, run->path, why, sizeof(why));
	warn_line("viaduct run: %s", why);
	return rc;
}

/* As execve would say, but with the name of what is missing. 0, or an exit status. */
static int check_interpreter(const struct run *run, const struct program *p)
{
	char missing[PATH_MAX];

	if (!interpreter_lacks(p, missing, sizeof(missing))) {
		if (!interpreter_barred(p))
			return 0;
		warn_line(
			"viaduct run: %s cannot be started, because its interpreter `%s` "
			"cannot be executed",
			run->path, p->path);
		return EXIT_REFUSED;
	}
	warn_line(
		"viaduct run: %s cannot be started, because its interpreter is missing: "
		"there is no `%s`%s",
		run->path, missing, interpreter_lacks_hint(missing));
	return EXIT_NOT_FOUND;
}

/* 0: preload. 1: run it plain. Else an exit status. */
static int judge(const struct run *run, struct program *p)
{
	struct answer a = {0};
	bool fits;
	int rc;

	program_inspect(run->path, true, p);
	rc = check_interpreter(run, p);
	if (rc)
		return rc;
	fits = explain_kind(p, p->path, false, &a);
	if (fits && p->kind == PROGRAM_STATIC && strcmp(p->path, run->path) != 0) {
		warn_line("viaduct run: %s is a script, and what runs it, %s, is a "
			  "statically "
			  "linked program: start that one, with the script as its "
			  "argument.",
			  run->path, p->path);
		return EXIT_REFUSED;
	}
	if (!fits && !run->tcp_anyway) {
		warn_line("viaduct run: %s %s To run it on TCP: viaduct run --tcp-anyway "
			  "-- %s",
			  a.points[0].text, a.points[0].remedy, run->name);
		return EXIT_REFUSED;
	}
	if (fits)
		return 0;
	log_init(view.source[VALUE_LOG].text);
	log_info("run: %s It runs on TCP, as asked.", a.points[0].text);
	return 1;
}

/* What is started for a statically linked program, and is told of it by a variable. */
static char loader[PATH_MAX];

static int find_loader(const struct run *run, const char *library)
{
	if (library_find_start(library, loader, sizeof(loader)) == 0)
		return setenv("VIADUCT_START_PROGRAM", run->path, 1) ? EXIT_REFUSED : 0;
	warn_line("viaduct run: %s is missing: build or install it", loader);
	return EXIT_REFUSED;
}

static int preload(const struct run *run, const struct program *p)
{
	static char library[PATH_MAX], module[PATH_MAX];
	bool musl = p->kind == PROGRAM_MUSL;
	int rc = musl ? library_find_musl(library, sizeof(library))
		      : library_find(library, sizeof(library));

	if (rc == 0) {
		bool calls = !musl &&
			     library_find_rpc(library, module, sizeof(module)) == 0 &&
			     explain_needs(p->path, LIBRARY_LIBTIRPC);

		rc = library_preload(library, calls ? module : NULL);
	}
	if (rc == -ENOENT && self_lacks_proc())
		warn_line("viaduct run: the library is not in " VD_LIBDIR
			  ", and the command does not find its own "
			  "folder: " SELF_NO_PROC);
	else if (rc == -ENOENT)
		warn_line("viaduct run: libviaduct-preload.so is neither beside this "
			  "command "
			  "nor in " VD_LIBDIR ": build or install it");
	else if (rc == -EINVAL)
		warn_line("viaduct run: %s cannot be preloaded, because its path has a "
			  "space, "
			  "a colon or a dollar sign in it: move it",
			  library);
	else if (rc)
		warn_line("viaduct run: the environment cannot be set up: %s",
			  strerror(-rc));
	if (rc)
		return EXIT_REFUSED;
	return p->kind == PROGRAM_STATIC ? find_loader(run, library) : 0;
}

int cmd_run(int argc, char **argv)
{
	static struct run run;
	static struct program program;
	int rc = parse(argc, argv, &run);

	if (rc)
		return rc;
	argv += optind;
	run.name = argv[0];
	rc = check_settings();
	if (rc == 0 && run.summary && view.source[VALUE_REPORT].text)
		rc = usage_error("run", "--summary has a report of its own: leave %s out",
				 view.source[VALUE_REPORT].text);
	if (rc == 0)
		rc = find(&run);
	if (rc)
		return rc;
	rc = judge(&run, &program);
	if (rc == 0)
		rc = preload(&run, &program);
	if (rc > 1)
		return rc;
	rc = run.summary ? summary_begin(run.name) : SUMMARY_GO_ON;
	if (rc != SUMMARY_GO_ON)
		return rc;
	if (*loader)
		execv(loader, argv);
	else if (program.refused) /* execvp would give it to the shell, as a script. */
		execv(run.path, argv);
	else
		execvp(argv[0], argv);
	rc = errno;
	warn_line("viaduct run: %s cannot be started: %s", run.path, strerror(rc));
	return rc == ENOENT ? EXIT_NOT_FOUND : EXIT_REFUSED;
}
