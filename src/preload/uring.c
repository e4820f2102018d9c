/* SPDX-License-Identifier: Apache-2.0 */
/* liburing, whose system calls go past the C library: its rings are looked into first.
 *
 * A ring that is for files alone leaves the connections where they are. From the first entry that
 * may concern a socket or an epoll instance, all connections are the kernel's.
 */
#include <dlfcn.h>
#include <link.h>
#include <linux/io_uring.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/kernel.h"
#include "base/atomic.h"
#include "base/log.h"
#include "base/sigsafe.h"
#include "preload/hook.h"
#include "settings/config.h"

/* How the library's own struct io_uring begins, in all its versions. */
struct io_uring {
	unsigned *head, *tail, *mask, *entries, *flags, *dropped, *array;
	struct io_uring_sqe *sqes;
	unsigned sqe_head, sqe_tail;
};

#ifndef IORING_SETUP_NO_MMAP
#define IORING_SETUP_NO_MMAP (1u << 14)
#endif

/* With other flags the kernel takes entries by itself, or they lie otherwise. */
#define FLAGS_KNOWN                                                                      \
	(IORING_SETUP_IOPOLL | IORING_SETUP_CQSIZE | IORING_SETUP_CLAMP |                \
	 IORING_SETUP_ATTACH_WQ | IORING_SETUP_R_DISABLED | IORING_SETUP_SUBMIT_ALL |    \
	 IORING_SETUP_COOP_TASKRUN | IORING_SETUP_TASKRUN_FLAG | IORING_SETUP_CQE32 |    \
	 IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN | IORING_SETUP_NO_MMAP)

/* Its version definitions: one for the file, and one for each release from 2.0 to 2.15. A later one
 * may have calls that are not below. */
#define VERSIONS_KNOWN 17

static _Atomic bool all_gone;

void uring_all_go(void)
{
	if (atomic_load(&all_gone))
		return;
	hook_refuse_all(VD_REASON_IO_URING);
	atomic_store(&all_gone, true);
}

void uring_entering(unsigned to_submit)
{
	/* They lie where the program has put them. */
	if (to_submit != 0)
		uring_all_go();
}

/* ---- bare system calls ---- */

bool uring_refused(void)
{
	static _Atomic bool told;

	if (!hook_active || !config_refuses_rings())
		return false;
	if (!hook_is_borrowed() && !exchange_relaxed(&told, true))
		log_info("io_uring: a ring that was asked for by syscall() is refused "
			 "(ENOSYS); the setting io_uring = leave lets it through");
	return true;
}

/* A ring may be there all the same: liburing's, or one that was inherited. */
bool uring_missing(unsigned fd, bool by_index)
{
	static const char kind[] = "anon_inode:[io_uring]";
	char name[32], file[sizeof(kind)];
	int saved = errno;
	ssize_t n;

	if (by_index || !hook_active || !config_refuses_rings())
		return false;
	snprintf(name, sizeof(name), "/proc/self/fd/%u", fd);
	n = kernel_readlink(name, file, sizeof(file));
	if (n < 0 && kernel_access("/proc/self/fd", F_OK) < 0)
		n = sizeof(kind) - 1; /* in doubt it is one */
	else if (n > 0 && memcmp(file, kind, (size_t)n) != 0)
		n = 0;
	errno = saved;
	return n != sizeof(kind) - 1;
}

/* ---- the library ---- */

static bool is_known(void *function)
{
	struct link_map *map;
	Dl_info info;

	if (!dladdr1(function, &info, (void **)&map, RTLD_DL_LINKMAP))
		return false;
	for (const ElfW(Dyn) *d = map->l_ld; d->d_tag != DT_NULL; d++)
		if (d->d_tag == DT_VERDEFNUM)
			return d->d_un.d_val <= VERSIONS_KNOWN;
	return false;
}

/* A library that a plugin brought is not in the order that RTLD_NEXT follows. */
static void *plugins(const char *name)
{
	static const char *const files[] = {"liburing.so.2", "liburing-ffi.so.2",
					    "liburing.so.1"};
	void *found = NULL;

	for (size_t i = 0; !found && i < sizeof(files) / sizeof(files[0]); i++) {
		void *library = dlopen(files[i], RTLD_LAZY | RTLD_NOLOAD);

		if (!library)
			continue;
		found = dlsym(library, name);
		dlclose(library);
	}
	return found;
}

/* The library stays where it is from then on: so its address can be kept. */
static bool pin(void *function)
{
	Dl_info info;

	return dladdr(function, &info) &&
	       dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE);
}

static void *next_of(const char *name, void *_Atomic *kept)
{
	void *next = load_relaxed(kept);

	if (next)
		return next;
	/* Not earlier: it may be loaded late. */
	next = dlsym(RTLD_NEXT, name);
	if (!next)
		next = plugins(name);
	if (next && pin(next))
		store_relaxed(kept, next);
	return next;
}

/* ---- what a ring is told ---- */

/* Whether no socket of ours, and no epoll instance, has to do with it. */
static bool is_of_files(const struct io_uring_sqe *e)
{
	switch (e->opcode) {
	case IORING_OP_READ:
	case IORING_OP_READV:
	case IORING_OP_READ_FIXED:
	case IORING_OP_WRITE:
	case IORING_OP_WRITEV:
	case IORING_OP_WRITE_FIXED:
	case IORING_OP_FSYNC:
	case IORING_OP_SYNC_FILE_RANGE:
	case IORING_OP_FALLOCATE:
	case IORING_OP_FADVISE:
	case IORING_OP_MADVISE:
	case IORING_OP_STATX:
	case IORING_OP_RENAMEAT:
	case IORING_OP_UNLINKAT:
	case IORING_OP_MKDIRAT:
	case IORING_OP_SYMLINKAT:
	case IORING_OP_LINKAT:
	case IORING_OP_NOP:
	case IORING_OP_TIMEOUT:
	case IORING_OP_TIMEOUT_REMOVE:
	case IORING_OP_LINK_TIMEOUT:
	case IORING_OP_ASYNC_CANCEL:
		break;
	default:
		return false;
	}
	/* An index of registered files stands for none of ours: see below. */
	return e->flags & IOSQE_FIXED_FILE || !fd_sock(e->fd);
}

/* What the kernel has not taken yet: it may take all of that now. */
static void submitting(const struct io_uring *ring)
{
	if (load_relaxed(&all_gone))
		return;
	for (unsigned at = *ring->head; at != ring->sqe_tail; at++) {
		if (!is_of_files(&ring->sqes[at & *ring->mask])) {
			uring_all_go();
			return;
		}
	}
}

/* Their numbers mean nothing from then on. A pointer that is bad is the kernel's to refuse. */
static void registering(const int *files, unsigned count)
{
	int fd;

	for (unsigned i = 0; i < count && crit_copy(&fd, files + i, sizeof(fd)) >= 0;
	     i++) {
		if (fd_sock(fd)) {
			uring_all_go();
			return;
		}
	}
}

static void setting_up(void *function, unsigned flags)
{
	if (flags & ~(unsigned)FLAGS_KNOWN || !is_known(function))
		uring_all_go();
}

/* ---- its functions ---- */

/* Before the library's own: look. */
#define INTERPOSED(look, name, params, ...)                                              \
	int name params;                                                                 \
	HOOK int name params                                                             \
	{                                                                                \
		static void *_Atomic kept;                                               \
		int(*next) params;                                                       \
                                                                                         \
		*(void **)&next = next_of(#name, &kept);                                 \
		if (!next)                                                               \
			return -ENOSYS;                                                  \
		look;                                                                    \
		return next(__VA_ARGS__);                                                \
	}

struct __kernel_timespec;

INTERPOSED(setting_up(next, flags), io_uring_queue_init,
	   (unsigned entries, struct io_uring *ring, unsigned flags), entries, ring,
	   flags)
INTERPOSED(setting_up(next, p->flags), io_uring_queue_init_params,
	   (unsigned entries, struct io_uring *ring, struct io_uring_params *p), entries,
	   ring, p)
INTERPOSED(setting_up(next, p->flags), io_uring_queue_init_mem,
	   (unsigned entries, struct io_uring *ring, struct io_uring_params *p, void *buf,
	    size_t size),
	   entries, ring, p, buf, size)

INTERPOSED(submitting(ring), io_uring_submit, (struct io_uring * ring), ring)
INTERPOSED(submitting(ring), io_uring_submit_and_wait,
	   (struct io_uring * ring, unsigned wait_nr), ring, wait_nr)
INTERPOSED(submitting(ring), io_uring_submit_and_get_events, (struct io_uring * ring),
	   ring)
INTERPOSED(submitting(ring), io_uring_submit_and_wait_timeout,
	   (struct io_uring * ring, struct io_uring_cqe **cqe, unsigned wait_nr,
	    struct __kernel_timespec *ts, sigset_t *sigmask),
	   ring, cqe, wait_nr, ts, sigmask)
INTERPOSED(submitting(ring), io_uring_submit_and_wait_min_timeout,
	   (struct io_uring * ring, struct io_uring_cqe **cqe, unsigned wait_nr,
	    struct __kernel_timespec *ts, unsigned min_wait, sigset_t *sigmask),
	   ring, cqe, wait_nr, ts, min_wait, sigmask)
INTERPOSED(submitting(ring), io_uring_submit_and_wait_reg,
	   (struct io_uring * ring, struct io_uring_cqe **cqe, unsigned wait_nr,
	    int reg_index),
	   ring, cqe, wait_nr, reg_index)
/* On old kernels these submit, too. */
INTERPOSED(submitting(ring), io_uring_wait_cqes,
	   (struct io_uring * ring, struct io_uring_cqe **cqe, unsigned wait_nr,
	    struct __kernel_timespec *ts, sigset_t *sigmask),
	   ring, cqe, wait_nr, ts, sigmask)
INTERPOSED(submitting(ring), io_uring_wait_cqes_min_timeout,
	   (struct io_uring * ring, struct io_uring_cqe **cqe, unsigned wait_nr,
	    struct __kernel_timespec *ts, unsigned min_wait, sigset_t *sigmask),
	   ring, cqe, wait_nr, ts, min_wait, sigmask)
INTERPOSED(submitting(ring), io_uring_wait_cqe_timeout,
	   (struct io_uring * ring, struct io_uring_cqe **cqe,
	    struct __kernel_timespec *ts),
	   ring, cqe, ts)

INTERPOSED(registering(files, count), io_uring_register_files,
	   (struct io_uring * ring, const int *files, unsigned count), ring, files, count)
INTERPOSED(registering(files, count), io_uring_register_files_tags,
	   (struct io_uring * ring, const int *files, const uint64_t *tags,
	    unsigned count),
	   ring, files, tags, count)
INTERPOSED(registering(files, count), io_uring_register_files_update,
	   (struct io_uring * ring, unsigned off, const int *files, unsigned count), ring,
	   off, files, count)
INTERPOSED(registering(files, count), io_uring_register_files_update_tag,
	   (struct io_uring * ring, unsigned off, const int *files, const uint64_t *tags,
	    unsigned count),
	   ring, off, files, tags, count)

/* The bare system calls, which a program with code of its own for its rings makes. */
INTERPOSED(uring_all_go(), io_uring_setup, (unsigned entries, struct io_uring_params *p),
	   entries, p)
INTERPOSED(uring_all_go(), io_uring_register,
	   (unsigned fd, unsigned opcode, const void *arg, unsigned count), fd, opcode,
	   arg, count)
INTERPOSED(uring_entering(to_submit), io_uring_enter,
	   (unsigned fd, unsigned to_submit, unsigned least, unsigned flags,
	    sigset_t *sigmask),
	   fd, to_submit, least, flags, sigmask)
INTERPOSED(uring_entering(to_submit), io_uring_enter2,
	   (unsigned fd, unsigned to_submit, unsigned least, unsigned flags,
	    sigset_t *sigmask, size_t size),
	   fd, to_submit, least, flags, sigmask, size)
