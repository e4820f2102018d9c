/* SPDX-License-Identifier: Apache-2.0 */
/* What Viaduct writes on its own account kills no program, and takes no signal of its. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include "base/log.h"
#include "base/quiet.h"
#include "conn/report.h"
#include "unit/child.h"

static bool is_waiting(int sig)
{
	sigset_t set;

	return sigpending(&set) == 0 && sigismember(&set, sig) == 1;
}

static void closed_pipe(void *arg)
{
	int fds[2];
	sigset_t set, now;

	(void)arg;
	REQUIRE(pipe(fds) == 0 && close(fds[0]) == 0);
	CHECK_EQ(quiet_write(fds[1], "x", 1), -EPIPE);
	CHECK(sigprocmask(SIG_BLOCK, NULL, &now) == 0 && !sigismember(&now, SIGPIPE));
	/* The program blocks it, and one waits. */
	sigemptyset(&set);
	sigaddset(&set, SIGPIPE);
	sigprocmask(SIG_BLOCK, &set, NULL);
	CHECK_EQ(quiet_write(fds[1], "x", 1), -EPIPE);
	CHECK(!is_waiting(SIGPIPE));
	raise(SIGPIPE);
	CHECK_EQ(quiet_write(fds[1], "x", 1), -EPIPE);
	CHECK(is_waiting(SIGPIPE));
}

TEST(a_pipe_without_a_reader)
{
	CHILD(closed_pipe, NULL);
}

static void too_large(void *arg)
{
	struct rlimit limit = {0, RLIM_INFINITY};
	int fd = memfd_create("quiet", MFD_CLOEXEC);

	(void)arg;
	REQUIRE(fd >= 0 && setrlimit(RLIMIT_FSIZE, &limit) == 0);
	CHECK_EQ(quiet_truncate(fd, 4096), -EFBIG);
	CHECK_EQ(quiet_write(fd, "x", 1), -EFBIG);
	CHECK(!is_waiting(SIGXFSZ));
}

TEST(a_file_size_limit)
{
	CHILD(too_large, NULL);
}

static char folder[] = "/tmp/viaduct-quiet-XXXXXX";

/* The log and the report, where the limit has been reached. */
static void full(void *arg)
{
	struct rlimit limit = {0, RLIM_INFINITY};
	char log[64], report[64];

	(void)arg;
	snprintf(log, sizeof(log), "debug:%s/log", folder);
	snprintf(report, sizeof(report), "%s/report", folder);
	setenv("VIADUCT_REPORT", report, 1);
	log_init(log);
	REQUIRE(setrlimit(RLIMIT_FSIZE, &limit) == 0);
	log_info("a line");
	report_write();
}

TEST(log_and_report)
{
	char command[64];

	REQUIRE(mkdtemp(folder));
	CHILD(full, NULL);
	snprintf(command, sizeof(command), "rm -r %s", folder);
	REQUIRE(system(command) == 0);
}
