/* SPDX-License-Identifier: Apache-2.0 */
/* Preloaded: stands before libc by many names, and finds libc's own when it is first asked, by a load with
 * RTLD_DEEPBIND, as cwrap's libraries do. */
#include <dlfcn.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <unistd.h>

#define SEEN  __attribute__((visibility("default")))
#define FLAGS RTLD_LAZY | RTLD_DEEPBIND

/* WRAPPER_LOADS is the path of a library that is loaded, too, in a call that Viaduct makes amid an upgrade. */
static void *find(const char *name)
{
#ifdef WRAPPER_LOADS
	if (strcmp(name, "getsockopt") == 0)
		dlopen(WRAPPER_LOADS, FLAGS);
#endif
	return dlsym(dlopen("libc.so.6", FLAGS), name);
}

#define WRAP(ret, name, params, ...)                                                     \
	SEEN ret name params                                                             \
	{                                                                                \
		static ret(*own) params;                                                 \
		if (!own)                                                                \
			*(void **)&own = find(#name);                                    \
		return own(__VA_ARGS__);                                                 \
	}

WRAP(uid_t, geteuid, (void))
WRAP(int, getresuid, (uid_t * real, uid_t *effective, uid_t *saved), real, effective,
     saved)
WRAP(int, getrlimit, (__rlimit_resource_t what, struct rlimit *limit), what, limit)
/* WRAPPER_FEW: what only Viaduct asked for. */
#ifndef WRAPPER_FEW
WRAP(uid_t, getuid, (void))
WRAP(gid_t, getegid, (void))
WRAP(pid_t, getpid, (void))
WRAP(int, kill, (pid_t pid, int sig), pid, sig)
WRAP(int, access, (const char *path, int mode), path, mode)
WRAP(ssize_t, readlink, (const char *path, char *to, size_t size), path, to, size)
WRAP(int, getsockname, (int fd, struct sockaddr *name, socklen_t *len), fd, name, len)
WRAP(int, getpeername, (int fd, struct sockaddr *name, socklen_t *len), fd, name, len)
/* Which we stand before, too. */
WRAP(int, getsockopt, (int fd, int level, int name, void *value, socklen_t *len), fd,
     level, name, value, len)
WRAP(int, setsockopt, (int fd, int level, int name, const void *value, socklen_t len), fd,
     level, name, value, len)
WRAP(int, shutdown, (int fd, int how), fd, how)
WRAP(ssize_t, recv, (int fd, void *buf, size_t len, int flags), fd, buf, len, flags)
WRAP(ssize_t, send, (int fd, const void *buf, size_t len, int flags), fd, buf, len, flags)
#endif
