/* SPDX-License-Identifier: Apache-2.0 */
/* viaduct explain: why a program or a connection is, or is not, on the direct path. */
#include <getopt.h>
#include <stdlib.h>
#include <string.h>

#include "tool/cli.h"
#include "tool/explain/explain.h"
#include "tool/explain/world.h"
#include "tool/self.h"

enum { STATUS_ACCELERATED = 0, STATUS_TCP = 1 };
enum { OPT_JSON = 256, OPT_LIBS, OPT_HELP };

static int help(void)
{
	printf("usage: viaduct explain [--json] PID[:FD]\n"
	       "       viaduct explain [--json] HOST:PORT\n"
	       "       viaduct explain [--json] [--libs] -- PROGRAM [ARGUMENT...]\n\n"
	       "Says why a connection, a process or a program is accelerated or on\n"
	       "TCP, and what to do. PROGRAM is looked at, not started.\n\n"
	       "  --json   one JSON object instead of sentences\n"
	       "  --libs   look into the program's libraries, too\n"
	       "  --help   print this\n\n"
	       "Exit status: 0 accelerated, or it would be; 1 not; 2 when the command "
	       "line is\nwrong or names nothing that is there. See "
	       "viaduct-explain(1).\n");
	return 0;
}

static int print(const char *subject, bool json, const struct answer *a)
{
	if (json)
		answer_json(stdout, subject, a);
	else
		answer_print(stdout, a);
	if (fflush(stdout) || ferror(stdout)) {
		fprintf(stderr, "viaduct explain: the answer cannot be written\n");
		return EXIT_USAGE;
	}
	return a->accelerated ? STATUS_ACCELERATED : STATUS_TCP;
}

/* A whole number, and nothing else. */
static bool number(const char *text, size_t len, int *value)
{
	long v = 0;

	for (size_t i = 0; i < len; i++) {
		if (text[i] < '0' || text[i] > '9' || v > INT_MAX / 10 - 1)
			return false;
		v = v * 10 + (text[i] - '0');
	}
	*value = (int)v;
	return len > 0;
}

/* PID, PID:FD, HOST:PORT or [HOST]:PORT. */
static int explain_running(const char *text, struct answer *a)
{
	const char *colon = strrchr(text, ':'), *port = colon ? colon + 1 : "";
	size_t len = colon ? (size_t)(colon - text) : strlen(text);
	char *host;
	int pid, fd = -1, rc;
	bool is_pid;

	is_pid = number(text, len, &pid) && (!colon || number(port, strlen(port), &fd));
	if (!is_pid &&
	    (!colon || !*port ||
	     (*text == '[' ? text[len - 1] != ']' : memchr(text, ':', len) != NULL)))
		return usage_error("explain",
				   "`%s` is neither PID, PID:FD nor HOST:PORT "
				   "([HOST]:PORT for IPv6); put `--` before a program",
				   text);
	if (self_lacks_proc()) {
		warn_line("viaduct explain: " SELF_NO_PROC);
		return EXIT_USAGE;
	}
	if (is_pid)
		return explain_pid(pid, fd, a);
	if (*text == '[' && len > 1 && text[len - 1] == ']')
		host = text_of("%.*s", (int)len - 2, text + 1);
	else
		host = text_of("%.*s", (int)len, text);
	rc = explain_port(host, port, a);
	free(host);
	return rc;
}

int cmd_explain(int argc, char **argv)
{
	static const struct option options[] = {{"json", 0, NULL, OPT_JSON},
						{"libs", 0, NULL, OPT_LIBS},
						{"help", 0, NULL, OPT_HELP},
						{NULL, 0, NULL, 0}};
	bool json = false, libs = false;
	struct answer a = {0};
	int c, rc;

	optind = 1;
	argv[0] = (char *)"viaduct explain"; /* getopt's messages begin with it */
	while ((c = getopt_long(argc, argv, "+h", options, NULL)) != -1) {
		if (c == OPT_JSON)
			json = true;
		else if (c == OPT_LIBS)
			libs = true;
		else
			return c == OPT_HELP || c == 'h' ? help()
							 : usage_error("explain", NULL);
	}
	if (optind == argc)
		return usage_error("explain", "nothing to explain was named");
	if (!strcmp(argv[optind - 1], "--")) {
		rc = explain_program(argv + optind, libs, &a);
	} else if (optind + 1 < argc || libs) {
		return usage_error("explain", "put `--` before a program");
	} else {
		rc = explain_running(argv[optind], &a);
	}
	return rc ? rc : print(argv[optind], json, &a);
}
