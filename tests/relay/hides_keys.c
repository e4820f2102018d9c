/* SPDX-License-Identifier: Apache-2.0 */
/* Runs `viaductd --check` under ptrace: nobody may look into it any more when it opens its keys. */
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#define REQUIRE(condition)                                                               \
	do {                                                                             \
		if (!(condition)) {                                                      \
			fprintf(stderr, "not so: %s\n", #condition);                     \
			exit(1);                                                         \
		}                                                                        \
	} while (0)

static char folder[] = "/tmp/viaduct-keys-XXXXXX", conf[64], key[64];

static void write_file(const char *path, const char *text, mode_t mode)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, mode);

	REQUIRE(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text));
	close(fd);
}

static bool names_the_keys(pid_t pid, unsigned long at)
{
	char text[sizeof(key)] = "";
	struct iovec here = {text, strlen(key) + 1},
		     there = {(void *)at, strlen(key) + 1};

	return process_vm_readv(pid, &here, 1, &there, 1, 0) > 0 && !strcmp(text, key);
}

/* At the entry of a call. */
static void look(pid_t pid, bool *hidden, bool *seen)
{
	struct user_regs_struct r;

	REQUIRE(ptrace(PTRACE_GETREGS, pid, 0, &r) == 0);
	if (r.orig_rax == SYS_prctl && r.rdi == PR_SET_DUMPABLE && r.rsi == 0)
		*hidden = true;
	if ((r.orig_rax == SYS_openat && names_the_keys(pid, r.rsi)) ||
	    (r.orig_rax == SYS_open && names_the_keys(pid, r.rdi))) {
		*seen = true;
		REQUIRE(*hidden);
	}
}

int main(int argc, char **argv)
{
	if (geteuid() != 0) {
		puts("needs root, who alone may look into it once it has hidden itself");
		return 77;
	}
	bool entry = true, hidden = false, seen = false;
	char text[256];
	int status;
	pid_t pid;

	REQUIRE(argc == 2 && mkdtemp(folder));
	snprintf(conf, sizeof(conf), "%s/conf", folder);
	snprintf(key, sizeof(key), "%s/key", folder);
	snprintf(text, sizeof(text), "key-file = %s\n", key);
	write_file(conf, text, 0600);
	snprintf(text, sizeof(text), "one = %064d\n", 1);
	write_file(key, text, 0600);
	pid = fork();
	if (pid == 0) {
		ptrace(PTRACE_TRACEME, 0, 0, 0);
		execl(argv[1], argv[1], "--check", "--config", conf, NULL);
		_exit(127);
	}
	REQUIRE(waitpid(pid, &status, 0) == pid && WIFSTOPPED(status));
	REQUIRE(ptrace(PTRACE_SETOPTIONS, pid, 0, PTRACE_O_TRACESYSGOOD) == 0);
	while (ptrace(PTRACE_SYSCALL, pid, 0, 0) == 0 &&
	       waitpid(pid, &status, 0) == pid && WIFSTOPPED(status)) {
		if (WSTOPSIG(status) != (SIGTRAP | 0x80))
			continue;
		if (entry)
			look(pid, &hidden, &seen);
		entry = !entry;
	}
	REQUIRE(seen);
	REQUIRE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	unlink(conf);
	unlink(key);
	rmdir(folder);
	return 0;
}
