/* SPDX-License-Identifier: Apache-2.0 */
/* Starts a program by a call of its choice; alone it says which library it was started with.
 *
 * usage: starts [CALL PROGRAM]
 */
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <wordexp.h>

static int say(void)
{
	const char *list = getenv("LD_PRELOAD"),
		   *slash = list ? strrchr(list, '/') : NULL;

	if (getenv("ALL"))
		puts(list ? list : "nothing");
	else
		puts(slash ? slash + 1 : "nothing");
	return 3;
}

static int ended(pid_t pid)
{
	int status = 0;

	waitpid(pid, &status, 0);
	return WEXITSTATUS(status);
}

static int by_popen(const char *program)
{
	FILE *f = popen(program, "r");
	char line[4096];

	while (f && fgets(line, sizeof(line), f))
		fputs(line, stdout);
	return f ? WEXITSTATUS(pclose(f)) : 1;
}

static int by_wordexp(const char *program)
{
	char text[4200];
	wordexp_t w;

	snprintf(text, sizeof(text), "$(%s)", program);
	if (wordexp(text, &w, 0) != 0)
		return 1;
	puts(w.we_wordv[0]);
	wordfree(&w);
	return 3;
}

int main(int argc, char **argv)
{
	char *const next[] = {argc > 2 ? argv[2] : NULL, NULL};
	const char *call = argc > 2 ? argv[1] : "";
	char folder[4096];
	pid_t pid;

	if (argc < 3)
		return say();
	if (!strcmp(call, "execv"))
		execv(next[0], next);
	if (!strcmp(call, "execlp"))
		execlp(next[0], next[0], (char *)NULL);
	if (!strcmp(call, "fexecve"))
		fexecve(open(next[0], O_RDONLY | O_CLOEXEC), next, environ);
	if (!strcmp(call, "syscall"))
		syscall(SYS_execve, next[0], next, environ);
	if (!strcmp(call, "system"))
		return WEXITSTATUS(system(next[0]));
	if (!strcmp(call, "popen"))
		return by_popen(next[0]);
	if (!strcmp(call, "wordexp"))
		return by_wordexp(next[0]);
	if (!strcmp(call, "vfork")) {
		pid = vfork();
		if (pid == 0) {
			execv(next[0], next);
			_exit(1);
		}
		return ended(pid);
	}
	if (!strcmp(call, "posix_spawn"))
		return posix_spawn(&pid, next[0], NULL, NULL, next, environ) ? 1
									     : ended(pid);
	if (!strcmp(call, "posix_spawnp")) {
		char *name = strrchr(next[0], '/') + 1;

		snprintf(folder, sizeof(folder), "%.*s", (int)(name - next[0]), next[0]);
		setenv("PATH", folder, 1);
		return posix_spawnp(&pid, name, NULL, NULL, next, environ) ? 1
									   : ended(pid);
	}
	return 1;
}
