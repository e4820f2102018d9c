/* SPDX-License-Identifier: Apache-2.0 */
/* exec and posix_spawn: the next image does not know the ring of what it inherits. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <spawn.h>
#include <stdarg.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/kernel.h"
#include "base/log.h"
#include "conn/exec_carry.h"
#include "conn/loan.h"
#include "conn/passed.h"
#include "conn/report.h"
#include "preload/carry.h"
#include "preload/exec_given.h"
#include "preload/exec_kept.h"
#include "preload/exec_room.h"
#include "preload/foreign.h"
#include "preload/hook.h"
#include "preload/lent.h"
#include "preload/start_exec.h"
#include "preload/withheld.h"
#include "readiness/ready.h"

#define EXEC_WAIT_MS 500

/* Threads of the parent go on with the memory of a child of vfork, and not with its descriptors. */
static bool survives(struct sock *s, int fd)
{
	int flags = s ? REAL(fcntl64)(fd, F_GETFD) : -1;

	return flags >= 0 && (!(flags & FD_CLOEXEC) || withheld_is(s, fd)) &&
	       sock_is_at(s, fd);
}

static ssize_t wait_until(struct sock *s, int fd, int64_t end)
{
	int64_t left = end - hook_now_ms();

	return sock_down_wait(s, fd, VD_REASON_EXEC, left > 0 ? (int)left : 0);
}

/* Nobody gets what lies unread: for those who keep the connection it is as if nobody had asked. */
static void sever(struct sock *s, int fd, uint32_t generation)
{
	/* The numbers of a child of vfork are its own, whatever its parent's threads close. */
	if (hook_is_borrowed()) {
		if (sock_hold(s, fd)) {
			if (sock_is_at(s, fd))
				sock_keep_over(s, fd);
			sock_unhold(s);
		}
		sock_sever(s, fd);
		return;
	}
	sock_keep_over(s, fd);
	if (!sock_number_begin(s, fd, generation))
		return;
	bool others = sock_sever(s, fd);
	sock_number_end(s);
	/* It is another file now. The last of the others is to know that nobody else is left. */
	if (others)
		fd_forget(fd);
}

/* Others may be about to close it, as a parent behind its fork: then the bytes are this process's alone. */
static bool carry_once_alone(struct leaving *l, struct sock *s, int fd, int64_t end)
{
	while (!hook_is_borrowed() && !slot_is_held_alone(s->slot, BUT_CLOSING) &&
	       hook_now_ms() < end)
		kernel_poll(NULL, 0, 1);
	return carry_along(l, s, fd);
}

/* Of the exec that this thread prepares. */
static _Thread_local int own_token __attribute__((tls_model("initial-exec")));

/* It goes back to TCP for good. */
static bool survives_unlent(struct sock *s, int fd)
{
	return survives(s, fd) && !loan_is_done(own_token, s, fd);
}

static bool any_survives(void)
{
	for (int fd = 0; fd < fd_limit(); fd++)
		if (survives(fd_sock(fd), fd))
			return true;
	return false;
}

/* File actions may change the folder before a child looks for it. */
static bool goes_elsewhere(const char *path)
{
	return *path != '/' && strchr(path, '/');
}

/* What an image gets that will be preloaded, too, comes back when that has closed it, or has ended. Returns the token. */
static int exec_lend(const struct leaving *target, struct leaving *l, int64_t end)
{
	bool holds = lent_is_any(), some = hook_active && any_survives();
	int error = 0, token;
	bool is_followed = (holds || some) && !lent_closes &&
			   (l || !goes_elsewhere(target->path)) &&
			   carry_is_followed(target, &error);

	/* A shell looks for its programs so. */
	if (l && (error == -ENOENT || error == -ENOTDIR)) {
		l->error = error;
		return 0;
	}
	token = some && is_followed ? loan_begin() : -1;
	if (holds)
		lent_leaving(is_followed, !l);
	if (token < 0)
		return 0;
	if (!loan_each(token, !l || hook_is_borrowed(), survives))
		return token;
	for (int fd = 0; fd < fd_limit(); fd++) {
		struct sock *s = fd_sock(fd);
		uint32_t generation = s ? sock_generation(s) : 0;
		int64_t left = end - hook_now_ms();

		if (!survives(s, fd))
			continue;
		sock_passed(s);
		loan_wait(s, fd, left > 0 ? (int)left : 0);
		if (loan_is_done(token, s, fd))
			withheld_pass(s, fd, generation);
	}
	return token;
}

/* Descriptors that survive go back to TCP, because the next image does not know them. `l` is that of
 * this process, `w` that of a child: then this image stays, and reads on. False: too many that
 * cannot go back are to be withheld from the child. */
static bool exec_prepare(const struct leaving *target, struct leaving *l,
			 struct spawning *w)
{
	int saved = errno;
	bool good = true;
	int64_t end = 0;

	passed_copied();
	/* What a child of vfork finds in memory is its parent's, which stays. */
	ready_leaving(l != NULL && !hook_is_borrowed());
	if (l)
		withheld_pass_all();
	end = hook_now_ms() + EXEC_WAIT_MS; /* for all of them */
	int token = exec_lend(target, l, end);
	/* Without one of its own it gets nothing that is lent: another image may have that. */
	bool (*goes)(struct sock * s, int fd) = token ? survives_unlent : survives;
	own_token = token;
	*(l ? &l->token : &w->token) = token;
	if (l && l->error) {
		errno = saved;
		return true;
	}
	if (!sock_hand_over_each(goes, VD_REASON_EXEC))
		end = 0;
	for (int fd = 0; end && fd < fd_limit(); fd++) {
		struct sock *s = fd_sock(fd);
		uint32_t generation = s ? sock_generation(s) : 0;

		if (!goes(s, fd))
			continue;
		sock_passed(s);
		/* What goes along must not be asked for again. */
		if (l && carry_has(l, s))
			continue;
		if (wait_until(s, fd, end) <= 0)
			withheld_pass(s, fd, generation);
		else if (!l)
			good = withheld_begin(w, s, fd, generation) && good;
		else if (!carry_once_alone(l, s, fd, end) && !l->error &&
			 wait_until(s, fd, end + HOOK_UNREAD_MS) > 0)
			sever(s, fd, generation);
	}
	errno = saved;
	return good;
}

bool hook_spawning(struct spawning *w, const char *path, bool search, char *const envp[])
{
	const struct leaving target = {
		.dir = AT_FDCWD, .path = path, .search = search, .envp = envp};

	*w = (struct spawning){0};
	if (exec_prepare(&target, NULL, w))
		return true;
	hook_spawned(w);
	errno = EAGAIN;
	return false;
}

bool hook_spawning_shell(struct spawning *w)
{
	return hook_spawning(w, "/bin/sh", false, environ);
}

void hook_spawned(const struct spawning *w)
{
	int saved = errno;

	if (w->token)
		loan_end(w->token);
	withheld_end(w);
	errno = saved;
}

/* With memory that cannot be read it fails: nothing is to be given up for it. */
static bool can_begin(const char *path, char *const argv[], char *const envp[])
{
	/* Else there is nothing to give up: the kernel looks at what we do not. */
	bool gives_up = hook_active || left_any();

	return (!gives_up ||
		(exec_string_is_good(path) && exec_strings_are_good(argv))) &&
	       exec_strings_are_good(envp);
}

/* Returns the environment for the new image. */
static char *const *exec_begin(struct leaving *l)
{
	exec_prepare(l, l, NULL);
	if (!hook_is_borrowed()) {
		hook_report();
		sock_exec(true);
	}
	return carry_environment(l);
}

static int exec_failed(struct leaving *l, int result)
{
	int saved = errno;

	carry_failed(l);
	if (l->token)
		loan_end(l->token);
	if (!hook_is_borrowed()) {
		sock_exec(false);
		report_reopen();
		ready_staying();
	}
	errno = saved;
	return result;
}

/* What cannot be executed need not be tried: nothing has been given up for it. */
static int exec_refused(const struct leaving *l)
{
	errno = -l->error;
	return -1;
}

HOOK int execve(const char *path, char *const argv[], char *const envp[])
{
	struct leaving l = {.dir = AT_FDCWD, .path = path, .envp = envp};
	const char *named = path;
	char *const *given;
	EXEC_ROOMS;

	if (!can_begin(path, argv, envp))
		return REAL(execve)(path, argv, envp);
	l.envp = KEPT_ENVIRONMENT(envp);
	given = envp = FOREIGN_ENVIRONMENT(AT_FDCWD, path, false, exec_begin(&l));
	if (l.error)
		return exec_failed(&l, exec_refused(&l));
	START_EXEC(path, START_EXEC_PATH, envp);
	/* Where the loader cannot be executed, the program may be: on TCP. */
	if (path != named)
		REAL(execve)(path, argv, envp);
	return exec_failed(&l, REAL(execve)(named, argv, given));
}

HOOK int execv(const char *path, char *const argv[])
{
	return execve(path, argv, environ);
}

HOOK int execvpe(const char *file, char *const argv[], char *const envp[])
{
	struct leaving l = {.dir = AT_FDCWD, .path = file, .search = true, .envp = envp};
	const char *named = file;
	char *const *given;
	EXEC_ROOMS;

	if (!can_begin(file, argv, envp))
		return REAL(execvpe)(file, argv, envp);
	l.envp = KEPT_ENVIRONMENT(envp);
	given = envp = FOREIGN_ENVIRONMENT(AT_FDCWD, file, true, exec_begin(&l));
	if (l.error)
		return exec_failed(&l, exec_refused(&l));
	START_EXEC(file, START_EXEC_SEARCH, envp);
	if (file != named)
		REAL(execvpe)(file, argv, envp);
	return exec_failed(&l, REAL(execvpe)(named, argv, given));
}

HOOK int execvp(const char *file, char *const argv[])
{
	return execvpe(file, argv, environ);
}

HOOK int fexecve(int fd, char *const argv[], char *const envp[])
{
	struct leaving l = {.dir = fd, .path = "", .envp = envp};
	EXEC_ROOMS;

	if (!can_begin("", argv, envp))
		return REAL(fexecve)(fd, argv, envp);
	l.envp = KEPT_ENVIRONMENT(envp);
	envp = FOREIGN_ENVIRONMENT(fd, "", false, exec_begin(&l));
	return exec_failed(&l, REAL(fexecve)(fd, argv, envp));
}

HOOK int execveat(int dir, const char *path, char *const argv[], char *const envp[],
		  int flags)
{
	struct leaving l = {.dir = dir, .path = path, .envp = envp};
	EXEC_ROOMS;

	if (!can_begin(path, argv, envp))
		return (int)REAL(syscall)(SYS_execveat, dir, path, argv, envp, flags);
	l.envp = KEPT_ENVIRONMENT(envp);
	envp = FOREIGN_ENVIRONMENT(dir, path, false, exec_begin(&l));
	if (l.error)
		return exec_failed(&l, exec_refused(&l));
	return exec_failed(
		&l, (int)REAL(syscall)(SYS_execveat, dir, path, argv, envp, flags));
}

/*
 * The arguments of execl and its kin, as a vector on the stack of the caller: after vfork
 * or in a signal handler there may be no heap. `env` is true when one more follows.
 */
#define EXEC_VECTOR(argv, envp, first, env)                                              \
	va_list ap_;                                                                     \
	size_t count_ = 1;                                                               \
	char **argv, *const *envp = environ;                                             \
	va_start(ap_, first);                                                            \
	while (va_arg(ap_, char *))                                                      \
		count_++;                                                                \
	va_end(ap_);                                                                     \
	argv = __builtin_alloca((count_ + 1) * sizeof(char *));                          \
	argv[0] = (char *)first;                                                         \
	va_start(ap_, first);                                                            \
	for (size_t i_ = 1; i_ <= count_; i_++)                                          \
		argv[i_] = va_arg(ap_, char *);                                          \
	if (env)                                                                         \
		envp = va_arg(ap_, char *const *);                                       \
	va_end(ap_)

HOOK int execl(const char *path, const char *arg, ...)
{
	EXEC_VECTOR(argv, envp, arg, false);
	return execve(path, argv, envp);
}

HOOK int execle(const char *path, const char *arg, ...)
{
	EXEC_VECTOR(argv, envp, arg, true);
	return execve(path, argv, envp);
}

HOOK int execlp(const char *file, const char *arg, ...)
{
	EXEC_VECTOR(argv, envp, arg, false);
	return execvpe(file, argv, envp);
}

HOOK int posix_spawn(pid_t *pid, const char *path,
		     const posix_spawn_file_actions_t *actions,
		     const posix_spawnattr_t *attr, char *const argv[],
		     char *const envp[])
{
	const char *named = path;
	char *const *given = envp;
	struct spawning w = {0};
	int r = EAGAIN;
	EXEC_ROOMS;

	if (can_begin(path, argv, envp)) {
		envp = KEPT_ENVIRONMENT(envp);
		given = envp = FOREIGN_ENVIRONMENT(AT_FDCWD, path, false, envp);
		START_EXEC(path, START_EXEC_PATH_OF_CHILD, envp);
		if (!hook_spawning(&w, named, false, given))
			return r;
	}
	r = REAL(posix_spawn)(pid, path, actions, attr, argv, envp);
	if (r != 0 && path != named)
		r = REAL(posix_spawn)(pid, named, actions, attr, argv, given);
	hook_spawned(&w);
	return r;
}

HOOK int posix_spawnp(pid_t *pid, const char *file,
		      const posix_spawn_file_actions_t *actions,
		      const posix_spawnattr_t *attr, char *const argv[],
		      char *const envp[])
{
	const char *named = file;
	char *const *given = envp;
	struct spawning w = {0};
	int r = EAGAIN;
	EXEC_ROOMS;

	if (can_begin(file, argv, envp)) {
		envp = KEPT_ENVIRONMENT(envp);
		given = envp = FOREIGN_ENVIRONMENT(AT_FDCWD, file, true, envp);
		START_EXEC(file, START_EXEC_SEARCH_OF_CHILD, envp);
		if (!hook_spawning(&w, named, true, given))
			return r;
	}
	r = REAL(posix_spawnp)(pid, file, actions, attr, argv, envp);
	if (r != 0 && file != named)
		r = REAL(posix_spawnp)(pid, named, actions, attr, argv, given);
	hook_spawned(&w);
	return r;
}

/* libc has them since 2.39 only. */
typedef int pidfd_spawn_call(int *pidfd, const char *path,
			     const posix_spawn_file_actions_t *actions,
			     const posix_spawnattr_t *attr, char *const argv[],
			     char *const envp[]);

/*
 * Looked up at the call, not with the other names of libc: a search in vain allocates memory, and
 * the others may be looked up by an allocator that has just begun.
 */
static pidfd_spawn_call *pidfd_spawn_of(const char *name)
{
	pidfd_spawn_call *call;

	*(void **)&call = real_late(name);
	return call;
}

int pidfd_spawn(int *pidfd, const char *path, const posix_spawn_file_actions_t *actions,
		const posix_spawnattr_t *attr, char *const argv[], char *const envp[]);
int pidfd_spawnp(int *pidfd, const char *file, const posix_spawn_file_actions_t *actions,
		 const posix_spawnattr_t *attr, char *const argv[], char *const envp[]);

HOOK int pidfd_spawn(int *pidfd, const char *path,
		     const posix_spawn_file_actions_t *actions,
		     const posix_spawnattr_t *attr, char *const argv[],
		     char *const envp[])
{
	pidfd_spawn_call *call = pidfd_spawn_of("pidfd_spawn");
	const char *named = path;
	char *const *given = envp;
	struct spawning w = {0};
	int r = EAGAIN;
	EXEC_ROOMS;

	if (!call)
		return ENOSYS;
	if (can_begin(path, argv, envp)) {
		envp = KEPT_ENVIRONMENT(envp);
		given = envp = FOREIGN_ENVIRONMENT(AT_FDCWD, path, false, envp);
		START_EXEC(path, START_EXEC_PATH_OF_CHILD, envp);
		if (!hook_spawning(&w, named, false, given))
			return r;
	}
	r = call(pidfd, path, actions, attr, argv, envp);
	if (r != 0 && path != named)
		r = call(pidfd, named, actions, attr, argv, given);
	hook_spawned(&w);
	return r;
}

HOOK int pidfd_spawnp(int *pidfd, const char *file,
		      const posix_spawn_file_actions_t *actions,
		      const posix_spawnattr_t *attr, char *const argv[],
		      char *const envp[])
{
	pidfd_spawn_call *call = pidfd_spawn_of("pidfd_spawnp");
	const char *named = file;
	char *const *given = envp;
	struct spawning w = {0};
	int r = EAGAIN;
	EXEC_ROOMS;

	if (!call)
		return ENOSYS;
	if (can_begin(file, argv, envp)) {
		envp = KEPT_ENVIRONMENT(envp);
		given = envp = FOREIGN_ENVIRONMENT(AT_FDCWD, file, true, envp);
		START_EXEC(file, START_EXEC_SEARCH_OF_CHILD, envp);
		if (!hook_spawning(&w, named, true, given))
			return r;
	}
	r = call(pidfd, file, actions, attr, argv, envp);
	if (r != 0 && file != named)
		r = call(pidfd, named, actions, attr, argv, given);
	hook_spawned(&w);
	return r;
}

typedef int add_close(posix_spawn_file_actions_t *actions, int fd);

/* In the child, by libc: also what tells what it has been lent. */
HOOK int posix_spawn_file_actions_addclose(posix_spawn_file_actions_t *actions, int fd)
{
	add_close *call;

	lent_is_closed_in_children(fd, fd);
	*(void **)&call = real_late("posix_spawn_file_actions_addclose");
	return call ? call(actions, fd) : ENOSYS;
}

#ifdef __GLIBC__
typedef int add_closefrom(posix_spawn_file_actions_t *actions, int from);
int posix_spawn_file_actions_addclosefrom_np(posix_spawn_file_actions_t *actions,
					     int from);

HOOK int posix_spawn_file_actions_addclosefrom_np(posix_spawn_file_actions_t *actions,
						  int from)
{
	add_closefrom *call;

	lent_is_closed_in_children(from, INT_MAX);
	*(void **)&call = real_late("posix_spawn_file_actions_addclosefrom_np");
	return call ? call(actions, from) : ENOSYS;
}
#endif

typedef int add_open(posix_spawn_file_actions_t *actions, int fd, const char *path,
		     int flags, mode_t mode);

HOOK int posix_spawn_file_actions_addopen(posix_spawn_file_actions_t *actions, int fd,
					  const char *path, int flags, mode_t mode)
{
	add_open *call;

	lent_is_closed_in_children(fd, fd);
	*(void **)&call = real_late("posix_spawn_file_actions_addopen");
	return call ? call(actions, fd, path, flags, mode) : ENOSYS;
}

/* A descriptor that is close-on-exec reaches the new image by this. */
HOOK int posix_spawn_file_actions_adddup2(posix_spawn_file_actions_t *actions, int fd,
					  int newfd)
{
	struct sock *s = fd_sock(fd);
	int saved = errno;
	bool stranded = s && hook_is_stranded(s, fd, VD_REASON_EXEC);

	lent_is_closed_in_children(newfd, newfd);
	ready_goes_along(fd);
	errno = saved;
	/* The child gets what can neither be read nor written, so that it misses nothing silently. */
	if (stranded)
		return posix_spawn_file_actions_addopen(actions, newfd, "/", O_PATH, 0);
	return REAL(posix_spawn_file_actions_adddup2)(actions, fd, newfd);
}
