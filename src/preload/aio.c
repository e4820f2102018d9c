/* SPDX-License-Identifier: Apache-2.0 */
/* Asynchronous I/O: threads of libc's move the bytes past us, so TCP it is. */
#include <aio.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/kernel.h"
#include "preload/hook.h"

/*
 * The peer sends once more over TCP what is unread in the ring, at its next call. Where it makes none
 * in time, only a read through us can get those bytes. Under TCP such a read would not have to wait,
 * and so it is done at once, before aio_read returns.
 */

/* ---- what libc does at the end of a request ---- */

struct notice {
	void (*run)(union sigval value);
	union sigval value;
};

static void *notice_main(void *arg)
{
	struct notice n = *(struct notice *)arg;

	free(arg);
	n.run(n.value);
	return NULL;
}

static void notify_thread(const struct sigevent *ev)
{
	pthread_attr_t own, *attributes = ev->sigev_notify_attributes;
	struct notice *n = malloc(sizeof(*n));
	pthread_t thread;

	if (!n)
		return;
	*n = (struct notice){ev->sigev_notify_function, ev->sigev_value};
	pthread_attr_init(&own);
	pthread_attr_setdetachstate(&own, PTHREAD_CREATE_DETACHED);
	if (pthread_create(&thread, attributes ? attributes : &own, notice_main, n) != 0)
		free(n);
	pthread_attr_destroy(&own);
}

static void notify(const struct sigevent *ev)
{
	siginfo_t info = {.si_signo = ev->sigev_signo, .si_code = SI_ASYNCIO};

	if (ev->sigev_notify == SIGEV_THREAD)
		notify_thread(ev);
	if (ev->sigev_notify != SIGEV_SIGNAL)
		return;
	info.si_pid = kernel_getpid();
	info.si_uid = kernel_getuid();
	info.si_value = ev->sigev_value;
	REAL(syscall)(SYS_rt_sigqueueinfo, info.si_pid, ev->sigev_signo, &info);
}

static void complete(struct aiocb *cb, ssize_t result, int error)
{
	cb->__return_value = result;
	/* Whoever sees that it has ended finds the result. */
	__atomic_store_n(&cb->__error_code, result < 0 ? error : 0, __ATOMIC_RELEASE);
	notify(&cb->aio_sigevent);
}

/* ---- requests ---- */

/* What libc refuses, as it looks at nothing else before. */
static bool is_refused(const struct aiocb *cb)
{
#ifdef __GLIBC__
	return cb->aio_reqprio < 0 || cb->aio_reqprio > sysconf(_SC_AIO_PRIO_DELTA_MAX);
#else
	(void)cb;
	return false;
#endif
}

static ssize_t receive(struct sock *s, const struct aiocb *cb)
{
	int fd = cb->aio_fildes, flags = MSG_DONTWAIT;
	struct iovec iov = {(void *)cb->aio_buf, cb->aio_nbytes < SOCK_MOVE_MAX
							 ? cb->aio_nbytes
							 : SOCK_MOVE_MAX};

	return HOOK_DEAF(HOOK_RX(s, fd, REAL(recv)(fd, iov.iov_base, iov.iov_len, flags),
				 rx_recv(s, fd, &iov, 1, flags)));
}

/* The connection goes to TCP. True: it is a read, which is done. */
static bool is_done_here(struct aiocb *cb, bool reads)
{
	struct sock *s = fd_sock(cb->aio_fildes);
	int saved = errno;
	ssize_t n;

	if (!s || is_refused(cb))
		return false;
	if (hook_take_down(s, cb->aio_fildes, VD_REASON_AIO) <= 0 || !reads ||
	    cb->aio_nbytes == 0 || fd_sock(cb->aio_fildes) != s)
		return false;
	n = receive(s, cb);
	/* Nothing: it is on TCP by now, or another thread was faster. */
	if (n >= 0 || errno != EAGAIN)
		complete(cb, n, errno);
	else
		reads = false;
	errno = saved;
	return reads;
}

HOOK int aio_read(struct aiocb *cb)
{
	return is_done_here(cb, true) ? 0 : REAL(aio_read)(cb);
}

HOOK int aio_read64(struct aiocb64 *cb)
{
	return aio_read((struct aiocb *)cb);
}

HOOK int aio_write(struct aiocb *cb)
{
	is_done_here(cb, false);
	return REAL(aio_write)(cb);
}

HOOK int aio_write64(struct aiocb64 *cb)
{
	return aio_write((struct aiocb *)cb);
}

/* Those that are left for libc. *failed: one that was done here has. */
static void list_rest(struct aiocb *const list[], int count, struct aiocb *rest[],
		      bool *failed)
{
	for (int i = 0; i < count; i++) {
		struct aiocb *cb = list[i];

		rest[i] = cb;
		if (!cb || cb->aio_lio_opcode == LIO_NOP ||
		    !is_done_here(cb, cb->aio_lio_opcode == LIO_READ))
			continue;
		rest[i] = NULL;
		*failed |= cb->__error_code != 0;
	}
}

HOOK int lio_listio(int mode, struct aiocb *const list[], int count, struct sigevent *sig)
{
	struct aiocb **rest = NULL;
	bool failed = false;
	int result;

	if ((mode == LIO_WAIT || mode == LIO_NOWAIT) && count > 0)
		rest = calloc((size_t)count, sizeof(struct aiocb *));
	if (rest)
		list_rest(list, count, rest, &failed);
	result = REAL(lio_listio)(mode, rest ? rest : list, count, sig);
	free(rest);
	if (failed && mode == LIO_WAIT && result == 0)
		result = (int)ret_errno(-EIO);
	return result;
}

HOOK int lio_listio64(int mode, struct aiocb64 *const list[], int count,
		      struct sigevent *sig)
{
	return lio_listio(mode, (struct aiocb *const *)list, count, sig);
}
