/* SPDX-License-Identifier: Apache-2.0 */
/* Programs that this command starts, waits for and ends, with all that they started. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "measure/pair.h"
#include "tool/floor.h"

enum { GRACE_MS = 5000, LOOK_MS = 5, OUTPUT_BYTES = 2000, DESCENDANTS_MAX = 1024 };

void child_adopt_orphans(void)
{
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	listen_spare();
}

static void become(const struct child *c, char *const *argv, int cpu, pid_t parent)
{
	int null = open("/dev/null", O_RDONLY);
	sigset_t none;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(127);
	setpgid(0, 0);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	if (cpu >= 0) {
		cpu_set_t set;
		CPU_ZERO(&set);
		CPU_SET((unsigned)cpu, &set);
		sched_setaffinity(0, sizeof(set), &set);
	}
	dup2(null, STDIN_FILENO);
	dup2(c->output, STDOUT_FILENO);
	dup2(c->output, STDERR_FILENO);
	if (null > STDERR_FILENO)
		close(null);
	execvp(argv[0], argv);
	dprintf(STDERR_FILENO, "%s cannot be started: %s\n", argv[0], strerror(errno));
	_exit(127);
}

int child_start(struct child *c, char *const *argv, int cpu)
{
	pid_t parent = getpid();
	int err;

	memset(c, 0, sizeof(*c));
	c->pid = c->pidfd = -1;
	c->output = memfd_create("output", MFD_CLOEXEC);
	if (c->output < 0)
		return -errno;
	fcntl(c->output, F_SETFL, O_APPEND);
	c->pid = fork();
	if (c->pid == 0)
		become(c, argv, cpu, parent);
	err = c->pid < 0 ? -errno : 0;
	if (!err) {
		setpgid(c->pid, c->pid); /* here too: whoever is first */
		c->pidfd = (int)syscall(SYS_pidfd_open, c->pid, 0);
		err = c->pidfd < 0 ? -errno : 0;
	}
	if (err)
		child_finish(c);
	return err;
}

static double cpu_s_of(const struct rusage *ru)
{
	return (double)(ru->ru_utime.tv_sec + ru->ru_stime.tv_sec) +
	       (double)(ru->ru_utime.tv_usec + ru->ru_stime.tv_usec) / 1e6;
}

static bool reap(struct child *c)
{
	struct rusage ru;
	if (wait4(c->pid, &c->status, 0, &ru) != c->pid)
		return false;
	c->cpu_s += cpu_s_of(&ru);
	c->pid = -1;
	return true;
}

int child_wait(struct child *c, int timeout_ms)
{
	struct pollfd p = {.fd = c->pidfd, .events = POLLIN};
	int n;

	if (c->pid < 0)
		return 0;
	do
		n = poll(&p, 1, timeout_ms);
	while (n < 0 && errno == EINTR);
	if (n <= 0)
		return -ETIMEDOUT;
	reap(c);
	return 0;
}

static void signal_all(int signal)
{
	static pid_t pids[DESCENDANTS_MAX];
	unsigned n = listen_descendants(pids, DESCENDANTS_MAX);
	for (unsigned i = 0; i < n && i < DESCENDANTS_MAX; i++)
		kill(pids[i], signal);
}

static void reap_all(struct child *c)
{
	struct rusage ru;
	int status;
	pid_t pid;

	while ((pid = wait4(-1, &status, WNOHANG, &ru)) > 0) {
		c->cpu_s += cpu_s_of(&ru);
		if (pid == c->pid)
			c->status = status;
	}
}

void child_stop_all(struct child *c)
{
	uint64_t kill_at = floor_now_ns() + GRACE_MS * 1000000ull;
	bool killed = false;
	pid_t pid;

	signal_all(SIGTERM);
	for (;;) {
		reap_all(c);
		if (!listen_descendants(&pid, 1))
			break;
		poll(NULL, 0, LOOK_MS); /* there is no one thing to wait for */
		if (floor_now_ns() < kill_at)
			continue;
		if (killed)
			break; /* not even that ends it */
		killed = true;
		signal_all(SIGKILL);
		kill_at = floor_now_ns() + GRACE_MS * 1000000ull;
	}
	c->pid = -1;
}

void child_kill(struct child *c)
{
	if (c->pid <= 0)
		return;
	kill(-c->pid, SIGKILL);
	reap(c);
}

void child_read_output(const struct child *c, char *buf, size_t size)
{
	off_t end = lseek(c->output, 0, SEEK_END);
	off_t from = end > (off_t)size - 1 ? end - (off_t)size + 1 : 0;
	ssize_t n = pread(c->output, buf, size - 1, from);
	buf[n > 0 ? n : 0] = 0;
}

void child_print_output(const struct child *c, FILE *to)
{
	char buf[OUTPUT_BYTES];
	char *save;

	child_read_output(c, buf, sizeof(buf));
	if (!*buf)
		fprintf(to, "    (it wrote nothing)\n");
	for (char *line = strtok_r(buf, "\n", &save); line;
	     line = strtok_r(NULL, "\n", &save))
		fprintf(to, "    %s\n", line);
}

void child_finish(struct child *c)
{
	if (c->output >= 0)
		close(c->output);
	if (c->pidfd >= 0)
		close(c->pidfd);
	c->output = c->pidfd = -1;
}

const char *child_format_status(char buf[64], int status)
{
	if (WIFSIGNALED(status))
		snprintf(buf, 64, "was killed by signal %d (%s)", WTERMSIG(status),
			 strsignal(WTERMSIG(status)));
	else
		snprintf(buf, 64, "ended with status %d", WEXITSTATUS(status));
	return buf;
}
