/* SPDX-License-Identifier: Apache-2.0 */
/* Checks by trial: a program under the library, and a connection that is to be upgraded. */
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/reason.h"
#include "tool/doctor/doctor.h"
#include "tool/library.h"
#include "tool/self.h"

/* On a machine that is busy beyond measure a program may take seconds to start. */
enum { TRIAL_LIMIT_S = 10, CANNOT_START = 127, REPORT_BYTES = 8192 };

struct trial {
	char *const *argv;
	char report[REPORT_BYTES]; /* the lines of all its processes */
	int status;		   /* as waitpid gives it */
};

extern char **environ;

/* Nothing of the caller's own settings, be they in a file, and nothing that is written to the
 * terminal. */
static void clear_settings(void)
{
	for (char **at = environ; *at;) {
		char name[64];
		size_t len = strcspn(*at, "=");

		if (strncmp(*at, "VIADUCT", 7) || len >= sizeof(name)) {
			at++;
			continue;
		}
		memcpy(name, *at, len);
		name[len] = 0;
		unsetenv(name); /* moves the others up */
	}
	setenv("VIADUCT_CONFIG", "", 1);
}

static void become(const struct trial *t, const char *library, int report_fd)
{
	static const struct itimerval limit = {.it_value.tv_sec = TRIAL_LIMIT_S};
	char report[40];
	int null = open("/dev/null", O_RDWR);

	for (int fd = 0; fd < 3; fd++)
		if (null >= 0)
			dup2(null, fd);
	signal(SIGALRM, SIG_DFL);
	setitimer(ITIMER_REAL, &limit, NULL); /* stays over exec */
	clear_settings();
	/* By a pipe: no folder need be writable. */
	snprintf(report, sizeof(report), "/proc/self/fd/%d", report_fd);
	if (setenv("VIADUCT_REPORT", report, 1) == 0 &&
	    setenv("VIADUCT_UPGRADE_AFTER", "0", 1) == 0 &&
	    setenv("VIADUCT_LOG", "off", 1) == 0 && library_preload(library, NULL) == 0)
		execvp(t->argv[0], t->argv);
	_exit(CANNOT_START);
}

static void collect(struct trial *t, int fd)
{
	size_t have = 0;
	ssize_t n;

	while (have < sizeof(t->report) - 1 &&
	       ((n = read(fd, t->report + have, sizeof(t->report) - 1 - have)) > 0 ||
		(n < 0 && errno == EINTR)))
		have += n > 0 ? (size_t)n : 0;
	t->report[have] = 0;
}

/* Runs it to its end. 0 or -errno. */
static int try_run(struct trial *t, const char *library)
{
	int pipe_fds[2], err;
	pid_t pid;

	if (pipe2(pipe_fds, O_CLOEXEC) != 0)
		return -errno;
	fflush(NULL);
	pid = fork();
	err = errno;
	if (pid == 0) {
		/* Above the three that go to /dev/null, and open over exec. */
		int fd = fcntl(pipe_fds[1], F_DUPFD, 3);

		become(t, library, fd);
	}
	close(pipe_fds[1]);
	if (pid > 0)
		collect(t, pipe_fds[0]);
	close(pipe_fds[0]);
	if (pid < 0)
		return -err;
	while (waitpid(pid, &t->status, 0) < 0)
		if (errno != EINTR)
			return -errno;
	return 0;
}

void check_library(struct finding *f)
{
	char path[PATH_MAX];

	if (library_find(path, sizeof(path)) == 0) {
		found_word(f, path);
		found(f, "%s", path);
		return;
	}
	found(f,
	      "libviaduct-preload.so is neither beside this command nor in " VD_LIBDIR);
	found_trouble(f, FINDING_PROBLEM, "No program can be run under Viaduct.",
		      "Install Viaduct, `make install`, or keep the library and this "
		      "command in one folder.");
}

/* How it ended, for "it ...". */
static void format_end(char *buf, size_t size, int status)
{
	if (WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM)
		snprintf(buf, size, "did not end within %d s", TRIAL_LIMIT_S);
	else if (WIFSIGNALED(status))
		snprintf(buf, size, "was killed by signal %d, %s", WTERMSIG(status),
			 strsignal(WTERMSIG(status)));
	else if (WEXITSTATUS(status) == CANNOT_START)
		snprintf(buf, size, "could not be started");
	else
		snprintf(buf, size, "ended with status %d", WEXITSTATUS(status));
}

/* True when there is a library to try; false when it was told that there is none. */
static bool library_for(struct finding *f, char path[PATH_MAX])
{
	if (library_find(path, PATH_MAX) == 0)
		return true;
	found(f, "not tried, as there is no library");
	found_trouble(f, FINDING_PROBLEM, "No program can be run under Viaduct.",
		      "Look at `library` above first.");
	return false;
}

void check_preload(struct finding *f)
{
	static char *const argv[] = {(char *)"true", NULL};
	static struct trial t = {.argv = argv};
	char library[PATH_MAX], end[80];
	int r;

	if (!library_for(f, library))
		return;
	r = strpbrk(library, " \t\n:$") ? -EINVAL : try_run(&t, library);
	if (r == 0 && t.status == 0 && strstr(t.report, "\"program\":")) {
		found(f, "`true` ran under it and left its report");
		return;
	}
	if (r < 0)
		found(f, "`true` cannot be run under it: %s", strerror(-r));
	else if (t.status != 0) {
		format_end(end, sizeof(end), t.status);
		found(f, "`true`, run under it, %s", end);
	} else {
		found(f, "`true` ran, but without it");
	}
	found_trouble(
		f, FINDING_PROBLEM, "Programs run without Viaduct, or not at all.",
		r == -EINVAL
			? "Move it: its path has a space, a colon or a dollar sign "
			  "in it, and the loader takes such a path apart."
			: "See what the loader says: `viaduct run -- true`; if it is "
			  "from another system, build it here.");
}

static uint64_t sum_of(const char *report, const char *name)
{
	char key[40];
	uint64_t sum = 0;

	snprintf(key, sizeof(key), "\"%s\":", name);
	for (const char *at = report; (at = strstr(at, key)); at += strlen(key))
		sum += strtoull(at + strlen(key), NULL, 10);
	return sum;
}

/* The first reason that the report names; VD_REASON_NONE when there is none. */
static uint32_t reason_in(const char *report)
{
	for (const char *at = report; (at = strstr(at, "\"reasons\":{\"")); at++)
		for (uint32_t i = 1; i < VD_REASON_COUNT; i++) {
			const char *name = reason_name(i), *there = strchr(at, '{') + 2;

			if (!strncmp(there, name, strlen(name)) &&
			    there[strlen(name)] == '"')
				return i;
		}
	return VD_REASON_NONE;
}

static void tell_stayed(struct finding *f, const struct trial *t)
{
	static const char meaning[] = "Nothing is gained here: connections stay on TCP.";
	uint32_t reason = reason_in(t->report);
	char end[80];

	if (t->status != 0) {
		format_end(end, sizeof(end), t->status);
		found(f, "a connection between two processes under it was tried: it %s",
		      end);
		found_word(f, end);
	} else {
		found(f, "a connection between two processes stayed on TCP: %s",
		      reason ? reason_text(reason) : "no reason was given");
		found_word(f, reason ? reason_name(reason) : "");
	}
	if (t->status == 0 && reason)
		found_trouble(f, FINDING_PROBLEM, meaning, "%c%s.",
			      toupper((unsigned char)reason_remedy(reason)[0]),
			      reason_remedy(reason) + 1);
	else
		found_trouble(
			f, FINDING_PROBLEM, meaning,
			"Mend the problems above; with none there, see what the log "
			"says: `viaduct run --log debug:stderr`.");
}

void check_direct_path(struct finding *f)
{
	static char *argv[] = {NULL, (char *)"doctor", (char *)"--ends", NULL};
	static struct trial t = {.argv = argv};
	char library[PATH_MAX];
	uint64_t direct, tcp;
	int r;

	if (!library_for(f, library) || !loopback_for(f))
		return;
	argv[0] = (char *)self_program();
	r = try_run(&t, library);
	if (r < 0) {
		found_refused(f, "starting two processes", -r);
		return;
	}
	direct = sum_of(t.report, "tx_direct_bytes");
	tcp = sum_of(t.report, "tx_tcp_bytes");
	if (t.status != 0 || direct == 0) {
		tell_stayed(f, &t);
		return;
	}
	found_number(f, (double)direct, "bytes");
	found(f, "%.0f of %.0f bytes between two processes went through shared memory",
	      f->number, (double)(direct + tcp));
}
