/* SPDX-License-Identifier: Apache-2.0 */
/* syscall(): the numbers of interposed calls go the way of their names. */
#include <fcntl.h>
#include <linux/aio_abi.h>
#include <linux/bpf.h>
#include <linux/io_uring.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/pidfd.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/kernel.h"
#include "base/sigsafe.h"
#include "preload/hook.h"
#include "preload/syscall.h"
#include "readiness/ready.h"

/* A system call's number and its six arguments. */
struct sys {
	long nr, a[6];
};
#define INT(i)	 ((int)x->a[i])
#define UNS(i)	 ((unsigned)x->a[i])
#define SIZE(i)	 ((size_t)x->a[i])
#define PTR(i)	 ((void *)x->a[i])
#define LEN(i)	 ((socklen_t)x->a[i])
#define NOT_MINE HOOK_NOT_MINE

/* Which function below looks after a number: all others go straight to the kernel. */
enum kind { PASS = 0, IO, OPTION, ANY, WAIT, CREATE, OTHER };

/* clang-format off */
const uint8_t hook_kinds[] = {
	[SYS_read] = IO,
	[SYS_write] = IO,
	[SYS_readv] = IO,
	[SYS_writev] = IO,
	[SYS_preadv2] = IO,
	[SYS_pwritev2] = IO,
	[SYS_recvfrom] = IO,
	[SYS_sendto] = IO,
	[SYS_recvmmsg] = IO,
	[SYS_connect] = OPTION,
	[SYS_listen] = OPTION,
	[SYS_shutdown] = OPTION,
	[SYS_getsockopt] = OPTION,
	[SYS_setsockopt] = OPTION,
	[SYS_fcntl] = OPTION,
	[SYS_ioctl] = OPTION,
	[SYS_accept] = ANY,
	[SYS_accept4] = ANY,
	[SYS_socket] = ANY,
	[SYS_recvmsg] = ANY,
	[SYS_sendmsg] = ANY,
	[SYS_sendmmsg] = ANY,
	[SYS_sendfile] = ANY,
	[SYS_splice] = ANY,
	[SYS_close] = ANY,
	[SYS_close_range] = ANY,
	[SYS_dup] = ANY,
	[SYS_dup2] = ANY,
	[SYS_dup3] = ANY,
	[SYS_epoll_create] = ANY,
	[SYS_epoll_create1] = ANY,
	[SYS_epoll_ctl] = ANY,
	[SYS_pidfd_getfd] = ANY,
	[SYS_unshare] = ANY,
	[SYS_execve] = ANY,
	[SYS_execveat] = ANY,
	[SYS_exit_group] = ANY,
	[SYS_mlockall] = ANY,
	[SYS_setrlimit] = OTHER,
	[SYS_prctl] = OTHER,
	[SYS_seccomp] = OTHER,
	[SYS_prlimit64] = OTHER,
	[SYS_setuid] = OTHER,
	[SYS_setreuid] = OTHER,
	[SYS_setresuid] = OTHER,
	[SYS_setgid] = OTHER,
	[SYS_setregid] = OTHER,
	[SYS_setresgid] = OTHER,
	[SYS_capset] = OTHER,
	[SYS_setns] = OTHER,
	[SYS_chroot] = OTHER,
	[SYS_pivot_root] = OTHER,
	[SYS_landlock_restrict_self] = OTHER,
	[SYS_munlockall] = ANY,
	[SYS_poll] = WAIT,
	[SYS_ppoll] = WAIT,
	[SYS_select] = WAIT,
	[SYS_pselect6] = WAIT,
	[SYS_epoll_wait] = WAIT,
	[SYS_epoll_pwait] = WAIT,
	[SYS_epoll_pwait2] = WAIT,
	[SYS_pipe] = CREATE,
	[SYS_pipe2] = CREATE,
	[SYS_socketpair] = CREATE,
	[SYS_open] = CREATE,
	[SYS_openat] = CREATE,
	[SYS_openat2] = CREATE,
	[SYS_creat] = CREATE,
	[SYS_eventfd] = CREATE,
	[SYS_eventfd2] = CREATE,
	[SYS_timerfd_create] = CREATE,
	[SYS_signalfd] = CREATE,
	[SYS_signalfd4] = CREATE,
	[SYS_inotify_init] = CREATE,
	[SYS_inotify_init1] = CREATE,
	[SYS_memfd_create] = CREATE,
	[SYS_pidfd_open] = CREATE,
	[SYS_userfaultfd] = CREATE,
	[SYS_perf_event_open] = CREATE,
	[SYS_open_by_handle_at] = CREATE,
	[SYS_io_uring_setup] = OTHER,
	[SYS_io_uring_enter] = OTHER,
	[SYS_io_uring_register] = OTHER,
	[SYS_io_submit] = OTHER,
	[SYS_bpf] = OTHER,
	[SYS_fork] = OTHER,
	[SYS_clone] = OTHER,
	[SYS_clone3] = OTHER,
};
/* clang-format on */
const uint64_t hook_kinds_count = sizeof(hook_kinds);

static long pass(const struct sys *x)
{
	return REAL(syscall)(x->nr, x->a[0], x->a[1], x->a[2], x->a[3], x->a[4], x->a[5]);
}

/* Calls on a socket of ours. Others go to the kernel as they are: a name in libc may be a
 * cancellation point, or treat its arguments otherwise than the bare call. */
static long io_call(const struct sys *x)
{
	switch (x->nr) {
	case SYS_read:
		return read(INT(0), PTR(1), SIZE(2));
	case SYS_write:
		return write(INT(0), PTR(1), SIZE(2));
	case SYS_readv:
		return readv(INT(0), PTR(1), INT(2));
	case SYS_writev:
		return writev(INT(0), PTR(1), INT(2));
	case SYS_preadv2:
		return preadv2(INT(0), PTR(1), INT(2), x->a[3], INT(5));
	case SYS_pwritev2:
		return pwritev2(INT(0), PTR(1), INT(2), x->a[3], INT(5));
	case SYS_recvfrom:
		return recvfrom(INT(0), PTR(1), SIZE(2), INT(3), PTR(4), PTR(5));
	case SYS_sendto:
		return sendto(INT(0), PTR(1), SIZE(2), INT(3), PTR(4), LEN(5));
	case SYS_recvmmsg:
		return recvmmsg(INT(0), PTR(1), UNS(2), INT(3), PTR(4));
	default:
		return NOT_MINE;
	}
}

static long option_call(const struct sys *x)
{
	switch (x->nr) {
	case SYS_connect:
		return connect(INT(0), PTR(1), LEN(2));
	case SYS_listen:
		return listen(INT(0), INT(1));
	case SYS_shutdown:
		return shutdown(INT(0), INT(1));
	case SYS_getsockopt:
		return getsockopt(INT(0), INT(1), INT(2), PTR(3), PTR(4));
	case SYS_setsockopt:
		return setsockopt(INT(0), INT(1), INT(2), PTR(3), LEN(4));
	case SYS_fcntl:
		return fcntl(INT(0), INT(1), x->a[2]);
	case SYS_ioctl:
		return ioctl(INT(0), (unsigned long)x->a[1], x->a[2]);
	default:
		return NOT_MINE;
	}
}

/* Calls that concern us whatever the descriptor is. */
static long any_call(const struct sys *x)
{
	switch (x->nr) {
	/* The listener need not be known: another process may have made it. */
	case SYS_accept:
		return hook_accepted(INT(0), (int)HOOK_MAKE(pass(x)), false);
	case SYS_accept4:
		return hook_accepted(INT(0), (int)HOOK_MAKE(pass(x)),
				     UNS(3) & SOCK_NONBLOCK);
	case SYS_socket:
		return socket(INT(0), INT(1), INT(2));
	case SYS_recvmsg:
		return recvmsg(INT(0), PTR(1), INT(2));
	case SYS_sendmsg:
		return sendmsg(INT(0), PTR(1), INT(2));
	case SYS_sendmmsg:
		return sendmmsg(INT(0), PTR(1), UNS(2), INT(3));
	case SYS_sendfile:
		return sendfile(INT(0), INT(1), PTR(2), SIZE(3));
	case SYS_splice:
		return splice(INT(0), PTR(1), INT(2), PTR(3), SIZE(4), UNS(5));
	case SYS_close:
		return close(INT(0));
	case SYS_close_range:
		return close_range(UNS(0), UNS(1), INT(2));
	case SYS_dup:
		return dup(INT(0));
	case SYS_dup2:
		return dup2(INT(0), INT(1));
	case SYS_dup3:
		return dup3(INT(0), INT(1), INT(2));
	case SYS_epoll_create:
		return epoll_create(INT(0));
	case SYS_epoll_create1:
		return epoll_create1(INT(0));
	case SYS_epoll_ctl:
		return epoll_ctl(INT(0), INT(1), INT(2), PTR(3));
	case SYS_mlockall:
		return mlockall(INT(0));
	case SYS_munlockall:
		return munlockall();
	case SYS_pidfd_getfd:
		return pidfd_getfd(INT(0), INT(1), UNS(2));
	case SYS_unshare:
		return unshare(INT(0));
	case SYS_execve:
		return execve(PTR(0), PTR(1), PTR(2));
	case SYS_execveat:
		return execveat(INT(0), PTR(1), PTR(2), PTR(3), INT(4));
	case SYS_exit_group:
		_exit(INT(0));
	default:
		return NOT_MINE;
	}
}

/* Calls whose result is a new descriptor, or, for a pair, which write two. */
static long create_call(const struct sys *x)
{
	long result;
	int *pair = NULL;

	switch (x->nr) {
	case SYS_pipe:
	case SYS_pipe2:
		pair = PTR(0);
		break;
	case SYS_socketpair:
		pair = PTR(3);
		break;
	case SYS_open:
	case SYS_openat:
	case SYS_openat2:
	case SYS_creat:
	case SYS_eventfd:
	case SYS_eventfd2:
	case SYS_timerfd_create:
	case SYS_signalfd:
	case SYS_signalfd4:
	case SYS_inotify_init:
	case SYS_inotify_init1:
	case SYS_memfd_create:
	case SYS_pidfd_open:
	case SYS_userfaultfd:
	case SYS_perf_event_open:
	case SYS_open_by_handle_at:
		break;
	default:
		return NOT_MINE;
	}
	result = HOOK_MAKE(pass(x));
	if (result < 0)
		return result;
	if (pair) {
		hook_opened(pair[0]);
		hook_opened(pair[1]);
	} else {
		hook_opened((int)result);
	}
	return result;
}

/* Kernel asynchronous I/O: the descriptors are in the list. */
static void aio_submitting(const struct sys *x)
{
	struct iocb *const *list = PTR(2);
	const struct iocb *at;
	struct iocb block;

	if (!hook_active && !left_any())
		return;
	/* At a bad pointer the kernel stops as well. */
	for (long i = 0; i < x->a[1] && crit_copy(&at, list + i, sizeof(at)) == 0 &&
			 crit_copy(&block, at, sizeof(block)) == 0;
	     i++) {
		struct sock *s = fd_sock((int)block.aio_fildes);

		if (block.aio_lio_opcode == IOCB_CMD_POLL)
			ready_watched((int)block.aio_fildes);
		if (s)
			hook_take_down(s, (int)block.aio_fildes, VD_REASON_AIO);
	}
}

static __attribute__((noinline)) bool is_sockmap(int map, size_t *value_bytes)
{
	struct bpf_map_info info = {0};
	union bpf_attr ask = {.info = {.bpf_fd = (uint32_t)map,
				       .info_len = sizeof(info),
				       .info = (uintptr_t)&info}};

	if (kernel_call4(SYS_bpf, BPF_OBJ_GET_INFO_BY_FD, (long)&ask, sizeof(ask), 0) < 0)
		return false;
	*value_bytes = info.value_size;
	return info.type == BPF_MAP_TYPE_SOCKMAP || info.type == BPF_MAP_TYPE_SOCKHASH;
}

/* A socket is put into a sockmap, whose programs take what comes by TCP, and ask nobody. */
static __attribute__((noinline)) void bpf_updating(const struct sys *x)
{
	bool one = x->a[0] == BPF_MAP_UPDATE_ELEM, many = x->a[0] == BPF_MAP_UPDATE_BATCH;
	union bpf_attr attr = {0};
	size_t bytes = SIZE(2) < sizeof(attr) ? SIZE(2) : sizeof(attr), each = 0;
	const char *at;
	int fd, count, map;

	if (!hook_active || (!one && !many) || crit_copy(&attr, PTR(1), bytes) != 0)
		return;
	at = (const char *)(uintptr_t)(one ? attr.value : attr.batch.values);
	count = one ? 1 : (int)attr.batch.count;
	map = (int)(one ? attr.map_fd : attr.batch.map_fd);
	for (int i = 0; i < count; i++) {
		/* The size of one, unless it is known: the first is at the begin. */
		struct sock *s = crit_copy(&fd, at + (size_t)i * each, sizeof(fd)) == 0
					 ? fd_sock(fd)
					 : NULL;

		if ((s || many) && each == 0 && !is_sockmap(map, &each))
			return;
		if (s)
			hook_take_down_unread(s, fd, VD_REASON_PROTOCOL);
	}
}

/* IORING_REGISTER_USE_REGISTERED_RING: older headers lack it. */
#define REGISTER_BY_INDEX (1u << 31)

/* False when the program is to believe that there is no io_uring. */
static bool uring_call(const struct sys *x)
{
	switch (x->nr) {
	case SYS_io_uring_setup:
		if (uring_refused())
			return false;
		uring_all_go();
		return true;
	case SYS_io_uring_register:
		if (uring_missing(UNS(0), UNS(1) & REGISTER_BY_INDEX))
			return false;
		uring_all_go();
		return true;
	case SYS_io_uring_enter:
		if (uring_missing(UNS(0), UNS(3) & IORING_ENTER_REGISTERED_RING))
			return false;
		uring_entering(UNS(1));
		return true;
	default:
		return true;
	}
}

/* Of a call that has succeeded. */
static unsigned long clone_flags(const struct sys *x)
{
	if (x->nr == SYS_clone3)
		return *(const uint64_t *)x->a[0];
	return x->nr == SYS_clone ? (unsigned long)x->a[0] : 0;
}

static long other_call(const struct sys *x)
{
	/* The stub below lets only those come here that copy the memory. */
	bool forks = x->nr == SYS_fork || x->nr == SYS_clone || x->nr == SYS_clone3;
	struct hook_fork outer;
	long result;

	if (!uring_call(x))
		return ret_errno(-ENOSYS);
	if (x->nr == SYS_io_submit)
		aio_submitting(x);
	if (x->nr == SYS_bpf)
		bpf_updating(x);
	if (x->nr == SYS_seccomp)
		seccomp_setting((unsigned long)x->a[0], (unsigned long)x->a[1], PTR(2));
	if (x->nr == SYS_prctl)
		seccomp_prctl((unsigned long)x->a[0], (unsigned long)x->a[1], PTR(2));
	credentials_syscall(x->nr, x->a);
	if (x->nr == SYS_setrlimit)
		return LIMIT_CHANGE(0, UNS(0), PTR(1), pass(x));
	if (x->nr == SYS_prlimit64)
		return LIMIT_CHANGE(INT(0), UNS(1), PTR(2), pass(x));
	if (!forks)
		return pass(x);
	outer = hook_fork_begin();
	hook_forking();
	result = pass(x);
	if (result == 0) {
		hook_forked_child();
		credentials_namespaces(clone_flags(x));
	}
	hook_fork_end(outer, (pid_t)result);
	return result;
}

/* Commands that are the same by name, for any descriptor: they make one, or find which are there. */
static bool concerns_numbers(const struct sys *x)
{
	int cmd = INT(1);

	return x->nr == SYS_fcntl &&
	       (cmd == F_DUPFD || cmd == F_DUPFD_CLOEXEC || cmd == F_GETFD ||
		cmd == F_SETFD || cmd == F_GETFL || cmd == F_SETFL);
}

static long named_call(struct sys *x, enum kind kind)
{
	switch (kind) {
	case IO:
		return io_call(x);
	case OPTION:
		return option_call(x);
	case ANY:
		return any_call(x);
	default:
		return syscall_wait(x->nr, x->a);
	}
}

bool hook_has_no_cancel;

__attribute__((used)) long hook_syscall(long nr, long a, long b, long c, long d, long e,
					long f)
{
	struct sys x = {nr, {a, b, c, d, e, f}};
	enum kind kind = nr >= 0 && nr < (long)sizeof(hook_kinds) ? hook_kinds[nr] : PASS;
	long result;

	if (kind == CREATE)
		return create_call(&x);
	if (kind == OTHER)
		return other_call(&x);
	if (kind == PASS ||
	    ((kind == IO || kind == OPTION) && !fd_sock((int)a) && !concerns_numbers(&x)))
		return pass(&x);
	/* A child of vfork may leave for another program, and its parent's thread with it. */
	result = hook_is_borrowed() || hook_has_no_cancel
			 ? named_call(&x, kind)
			 : HOOK_DEAF(named_call(&x, kind));
	return result == NOT_MINE ? pass(&x) : result;
}
