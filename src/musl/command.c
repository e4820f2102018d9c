/* SPDX-License-Identifier: Apache-2.0 */
/* system, popen and their kin on musl: the shell may be a program of the other C library. */
#include <errno.h>
#include <fcntl.h>
#include <paths.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <wordexp.h>

#include "base/lock.h"
#include "musl/command.h"
#include "preload/foreign.h"
#include "preload/hook.h"

/*
 * musl starts the shell past every symbol of ours, with `environ` as it is. A shell of glibc must not find
 * this library in LD_PRELOAD, but the other one, or none. So where the shell is such a one, system and
 * popen are done here, by our posix_spawn, as musl does them by its own.
 */
static bool shell_is_foreign(void)
{
	bool swaps;

	return foreign_room(AT_FDCWD, _PATH_BSHELL, false, environ, &swaps) > 0;
}

static int spawn_shell(pid_t *pid, const posix_spawn_file_actions_t *actions,
		       const posix_spawnattr_t *attr, const char *command)
{
	char *const argv[] = {(char *)"sh", (char *)"-c", (char *)command, NULL};

	return posix_spawn(pid, _PATH_BSHELL, actions, attr, argv, environ);
}

/* ---- system ---- */

static int wait_for(pid_t pid)
{
	int status = -1;

	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			return -1;
	return status;
}

static int run_shell(const char *command)
{
	const struct sigaction ignore = {.sa_handler = SIG_IGN};
	struct sigaction was_int, was_quit;
	posix_spawnattr_t attr;
	sigset_t child, was, usual;
	int error, status = -1;
	pid_t pid;

	pthread_testcancel();
	sigaction(SIGINT, &ignore, &was_int);
	sigaction(SIGQUIT, &ignore, &was_quit);
	sigemptyset(&child);
	sigaddset(&child, SIGCHLD);
	sigprocmask(SIG_BLOCK, &child, &was);
	sigemptyset(&usual);
	if (was_int.sa_handler != SIG_IGN)
		sigaddset(&usual, SIGINT);
	if (was_quit.sa_handler != SIG_IGN)
		sigaddset(&usual, SIGQUIT);
	posix_spawnattr_init(&attr);
	posix_spawnattr_setsigmask(&attr, &was);
	posix_spawnattr_setsigdefault(&attr, &usual);
	posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK);
	error = spawn_shell(&pid, NULL, &attr, command);
	posix_spawnattr_destroy(&attr);
	if (error == 0)
		status = wait_for(pid);
	sigaction(SIGINT, &was_int, NULL);
	sigaction(SIGQUIT, &was_quit, NULL);
	sigprocmask(SIG_SETMASK, &was, NULL);
	if (error)
		errno = error;
	return status;
}

HOOK int system(const char *command)
{
	struct spawning w = {0};
	int r;

	if (command && shell_is_foreign())
		return run_shell(command);
	if (command && !hook_spawning_shell(&w))
		return -1;
	r = REAL_LATE(system)(command);
	hook_spawned(&w);
	return r;
}

/* ---- popen ---- */

/* The streams of shells that were started here. */
struct piped {
	struct piped *next;
	FILE *f;
	int fd; /* of f: to ask f for it would wait for who reads there */
	pid_t pid;
};
static struct piped *piped;
static struct lock piped_lock;

static void forked(void)
{
	/* Its owner may be a thread that lives in the parent only. */
	store_relaxed(&piped_lock.word, 0);
}

/* Takes it out of the list; NULL: it is not there. */
static struct piped *piped_take(FILE *f)
{
	struct piped **at = &piped, *found;

	lock_take(&piped_lock);
	while (*at && (*at)->f != f)
		at = &(*at)->next;
	found = *at;
	if (found)
		*at = found->next;
	lock_drop(&piped_lock);
	return found;
}

static void piped_put(struct piped *p)
{
	lock_take(&piped_lock);
	p->next = piped;
	piped = p;
	lock_drop(&piped_lock);
}

/* A stream that fclose ends is none of popen's any more. */
void command_closing(FILE *f)
{
	if (__builtin_expect(piped != NULL, 0))
		free(piped_take(f));
}

/* The child's end becomes its number, and the streams of earlier calls are not for it. */
static int spawn_piped(pid_t *pid, int end, int number, const char *command)
{
	posix_spawn_file_actions_t actions;
	int error = posix_spawn_file_actions_init(&actions);

	if (error)
		return error;
	lock_take(&piped_lock);
	for (struct piped *p = piped; p && !error; p = p->next)
		error = posix_spawn_file_actions_addclose(&actions, p->fd);
	lock_drop(&piped_lock);
	if (!error)
		error = posix_spawn_file_actions_adddup2(&actions, end, number);
	if (!error)
		error = spawn_shell(pid, &actions, NULL, command);
	posix_spawn_file_actions_destroy(&actions);
	return error;
}

static FILE *open_shell(const char *command, const char *mode)
{
	bool reads = *mode == 'r';
	struct piped *p;
	int ends[2], error;

	if (!reads && *mode != 'w') {
		errno = EINVAL;
		return NULL;
	}
	p = malloc(sizeof(*p));
	if (!p)
		return NULL;
	if (pipe2(ends, O_CLOEXEC) != 0) {
		free(p);
		return NULL;
	}
	p->fd = ends[!reads];
	p->f = fdopen(ends[!reads], mode);
	error = p->f ? spawn_piped(&p->pid, ends[reads], reads ? STDOUT_FILENO : 0,
				   command)
		     : errno;
	close(ends[reads]);
	if (!error) {
		if (!strchr(mode, 'e'))
			fcntl(ends[!reads], F_SETFD, 0);
		piped_put(p);
		return p->f;
	}
	if (p->f)
		fclose(p->f);
	else
		close(ends[!reads]);
	free(p);
	errno = error;
	return NULL;
}

HOOK FILE *popen(const char *command, const char *mode)
{
	struct spawning w;
	FILE *f;

	if (shell_is_foreign())
		return open_shell(command, mode);
	if (!hook_spawning_shell(&w))
		return NULL;
	f = REAL_LATE(popen)(command, mode);
	hook_spawned(&w);
	return f;
}

HOOK int pclose(FILE *f)
{
	struct piped *p = piped ? piped_take(f) : NULL;
	pid_t pid;

	if (!p)
		return REAL_LATE(pclose)(f);
	pid = p->pid;
	free(p);
	fclose(f);
	return wait_for(pid);
}

/* ---- wordexp ---- */

/* With what the child of wordexp is to start the shell. */
static _Thread_local char *const *shell_environment
	__attribute__((tls_model("initial-exec")));

/* musl forks, and execs past us. In the child the memory is its own. */
static void forked_child(void)
{
	forked();
	if (shell_environment)
		environ = (char **)shell_environment;
}

__attribute__((constructor)) static void command_init(void)
{
	pthread_atfork(NULL, NULL, forked_child);
}

HOOK int wordexp(const char *words, wordexp_t *to, int flags)
{
	struct spawning w = {0};
	char *const *envp = environ;
	int r;
	EXEC_ROOMS;

	if (words)
		envp = FOREIGN_ENVIRONMENT(AT_FDCWD, _PATH_BSHELL, false, envp);
	/* There is a shell whatever the words are. */
	if (words && !hook_spawning_shell(&w))
		return WRDE_NOSPACE;
	shell_environment = envp == environ ? NULL : envp;
	r = REAL_LATE(wordexp)(words, to, flags);
	shell_environment = NULL;
	hook_spawned(&w);
	return r;
}
