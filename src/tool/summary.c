/* SPDX-License-Identifier: Apache-2.0 */
/* Waits for the program, and adds up what its processes have reported. */
#include "tool/summary.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tool/cli.h"
#include "tool/reported.h"

static char folder[256], report[300];

static int make_folder(void)
{
	const char *tmp = getenv("TMPDIR");

	snprintf(folder, sizeof(folder), "%s/viaduct-run.XXXXXX",
		 tmp && *tmp ? tmp : "/tmp");
	if (!mkdtemp(folder))
		return -errno;
	snprintf(report, sizeof(report), "%s/report", folder);
	return setenv("VIADUCT_REPORT", report, 1) ? -ENOMEM : 0;
}

/* The signals that are meant for the program, and the one that tells of its end. */
static void waited_for(sigset_t *set)
{
	static const int signals[] = {SIGINT,  SIGQUIT, SIGTERM, SIGHUP,
				      SIGUSR1, SIGUSR2, SIGCHLD};

	sigemptyset(set);
	for (size_t i = 0; i < sizeof(signals) / sizeof(signals[0]); i++)
		sigaddset(set, signals[i]);
}

/* What the terminal sends has come to the program, too. */
static int wait_for(pid_t pid, const sigset_t *set)
{
	siginfo_t info;
	int status;

	while (waitpid(pid, &status, WNOHANG) == 0)
		if (sigwaitinfo(set, &info) > 0 && info.si_signo != SIGCHLD &&
		    info.si_code != SI_KERNEL)
			kill(pid, info.si_signo);
	return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

static void print(const char *program)
{
	struct reported sum = {0};
	char text[1024] = "";

	reported_add(&sum, report);
	reported_paths(&sum, "", text, sizeof(text));
	warn_line("viaduct run: %s: %s", program, text);
	reported_reasons(stderr, &sum);
}

int summary_begin(const char *program)
{
	struct sigaction old, usual = {.sa_handler = SIG_DFL};
	int rc = make_folder();
	sigset_t set, before;
	pid_t pid;

	if (rc) {
		warn_line("viaduct run: no folder for the summary, %s: %s", folder,
			  strerror(-rc));
		return EXIT_REFUSED;
	}
	waited_for(&set);
	sigprocmask(SIG_BLOCK, &set, &before);
	sigaction(SIGCHLD, &usual, &old); /* where it is ignored, nobody waits */
	pid = fork();
	if (pid == 0) {
		sigaction(SIGCHLD, &old, NULL);
		sigprocmask(SIG_SETMASK, &before, NULL);
		return SUMMARY_GO_ON;
	}
	if (pid < 0) {
		warn_line("viaduct run: the program cannot be started: %s",
			  strerror(errno));
		rc = EXIT_REFUSED;
	} else {
		rc = wait_for(pid, &set);
		print(program);
	}
	unlink(report);
	rmdir(folder);
	return rc;
}
