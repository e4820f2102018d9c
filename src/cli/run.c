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
#include "base/view.h"
#include "cli/cli.h"
#include "cli/library.h"
#include "base/program.h"
#include "cli/setting.h"

enum { OPT_TCP_ANYWAY = 256, OPT_HELP, OPT_SETTING };

struct run {
	bool tcp_anyway;
	const char *name; /* as given */
	char path[PATH_MAX];
};

static int help(void)
{
	printf("usage: viaduct run [OPTION...] [--] PROGRAM [ARGUMENT...]\n\n");
	for (size_t i = 0; i < setting_count; i++) {
		char left[64];

		snprintf(left, sizeof(left), "--%s %s", settings[i].option,
			 settings[i].argument ? settings[i].argument : "");
		printf("  %-22s %s\n", left, settings[i].help);
	}
	printf("  %-22s run a program that cannot be preloaded on plain TCP\n",
	       "--tcp-anyway");
	printf("  %-22s print this\n", "--help");
	printf("\nEach option sets an environment variable, which stands above the "
	       "files of "
	       "viaduct.conf(5);\nsee viaduct-run(1).\n");
	return 0;
}

static int parse(int argc, char **argv, struct run *run)
{
	struct option options[SETTINGS_MAX + 3] = {0};
	size_t n = 0;
	int c;

	for (; n < setting_count; n++)
		options[n] =
			(struct option){settings[n].option, settings[n].argument ? 1 : 0,
					NULL, OPT_SETTING + (int)n};
	options[n++] = (struct option){"tcp-anyway", 0, NULL, OPT_TCP_ANYWAY};
	options[n++] = (struct option){"help", 0, NULL, OPT_HELP};

	optind = 1;
	argv[0] = (char *)"viaduct run"; /* getopt's messages begin with it */
	while ((c = getopt_long(argc, argv, "+h", options, NULL)) != -1) {
		if (c == OPT_TCP_ANYWAY)
			run->tcp_anyway = true;
		else if (c == OPT_HELP || c == 'h')
			exit(help());
		else if (c < OPT_SETTING)
			return usage_error("run", NULL);
		else if (setting_apply(&settings[c - OPT_SETTING], optarg))
			return EXIT_USAGE;
	}
	return optind < argc ? 0 : usage_error("run", "no program was named");
}

static struct view view;
static bool mistakes;

static void complain(struct view *v, enum view_effect effect, const char *file,
		     const char *place, const char *message)
{
	(void)v;
	/* Variables as ever: the library skips a bad one. Files of others are no mistake. */
	if (!file || effect == VIEW_FOREIGN)
		return;
	fprintf(stderr, "viaduct run: %s: %s\n", place, message);
	mistakes = true;
}

/* As the library will, but before there is a program that could be harmed. */
static int check_files(void)
{
	view_load(&view);
	view.strict = true;
	view.complain = complain;
	view_resolve(&view);
	return mistakes ? EXIT_USAGE : 0;
}

static int find(struct run *run)
{
	int rc = program_find(run->name, run->path, sizeof(run->path));

	if (rc == 0)
		return 0;
	if (rc == -EACCES) {
		fprintf(stderr,
			"viaduct run: %s cannot be executed: make it an executable "
			"file\n",
			run->path);
		return EXIT_REFUSED;
	}
	fprintf(stderr, "viaduct run: there is no program `%s`: check the name%s\n",
		run->name, strchr(run->name, '/') ? "" : " and PATH");
	return EXIT_NOT_FOUND;
}

/* Why a preload cannot work there; NULL when it can. */
static const char *obstacle(enum program_kind kind)
{
	switch (kind) {
	case PROGRAM_STATIC:
		return "is statically linked, so no library can be preloaded into it";
	case PROGRAM_PRIVILEGED:
		return "gains privileges when it starts, and the loader preloads nothing "
		       "into such a program";
	case PROGRAM_OTHER_CLASS:
		return "is built for another kind of processor than libviaduct.so";
	case PROGRAM_OTHER_LIBC:
		return "does not use the GNU C library, which libviaduct.so needs";
	case PROGRAM_GO:
		return "makes its system calls past the C library, as all programs in Go "
		       "do, so that its connections cannot be followed";
	case PROGRAM_OK:
	case PROGRAM_UNREADABLE:
		break;
	}
	return NULL;
}

/* 0: preload. 1: run it plain. Else an exit status. */
static int judge(const struct run *run)
{
	static struct program p;
	const char *why;

	program_inspect(run->path, true, &p);
	why = obstacle(p.kind);
	if (!why)
		return 0;
	if (run->tcp_anyway) {
		log_init(view.source[VALUE_LOG].text);
		log_info("run: %s %s; it runs on TCP, as asked", p.path, why);
		return 1;
	}
	fprintf(stderr,
		"viaduct run: %s %s%s%s%s: use a program without that, or give "
		"--tcp-anyway to run it on TCP\n",
		p.path, why, *p.detail ? " (" : "", p.detail, *p.detail ? ")" : "");
	return EXIT_REFUSED;
}

static int preload(void)
{
	static char library[PATH_MAX];
	int rc = library_find(library, sizeof(library));

	if (rc == 0)
		rc = library_preload(library);
	if (rc == -ENOENT)
		fprintf(stderr,
			"viaduct run: libviaduct.so is neither beside this command "
			"nor in " VD_LIBDIR ": build or install it\n");
	else if (rc == -EINVAL)
		fprintf(stderr,
			"viaduct run: %s cannot be preloaded, because its path has a "
			"space, "
			"a colon or a dollar sign in it: move it\n",
			library);
	else if (rc)
		fprintf(stderr, "viaduct run: the environment cannot be set up: %s\n",
			strerror(-rc));
	return rc ? EXIT_REFUSED : 0;
}

int cmd_run(int argc, char **argv)
{
	static struct run run;
	int rc = parse(argc, argv, &run);

	if (rc)
		return rc;
	argv += optind;
	run.name = argv[0];
	rc = check_files();
	if (rc == 0)
		rc = find(&run);
	if (rc)
		return rc;
	rc = judge(&run);
	if (rc == 0)
		rc = preload();
	if (rc > 1)
		return rc;
	execvp(argv[0], argv);
	rc = errno;
	fprintf(stderr, "viaduct run: %s cannot be started: %s\n", run.path,
		strerror(rc));
	return rc == ENOENT ? EXIT_NOT_FOUND : EXIT_REFUSED;
}
