/* SPDX-License-Identifier: Apache-2.0 */
/* Asynchronous I/O while the peer, which has sent something, makes no call on the connection. */
#include <aio.h>
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "conform/cases.h"

/* It sends, then waits past the connection until the other end has read, and then for an answer. */
struct idle {
	struct signal_pipe sent, read;
	pid_t pid;
	int fd;
};

static void idle_peer(int fd, void *arg)
{
	struct idle *at = arg;
	char got[8];

	send_all(fd, "0123456789", 10);
	signal_send(at->sent);
	signal_wait(at->read);
	recv_all(fd, got, 6);
	say("%.6s", got);
	send_all(fd, "more", 4);
	say_result("end", recv(fd, got, 1, 0));
}

static struct idle idle_start(void)
{
	struct idle at = {.sent = signal_pipe(), .read = signal_pipe()};

	at.fd = peer_start(idle_peer, &at, &at.pid);
	signal_wait(at.sent);
	return at;
}

static struct aiocb request(int fd, int opcode, void *buf, size_t len)
{
	struct aiocb cb;

	memset(&cb, 0, sizeof(cb));
	cb.aio_fildes = fd;
	cb.aio_buf = buf;
	cb.aio_nbytes = len;
	cb.aio_lio_opcode = opcode;
	cb.aio_sigevent.sigev_notify = SIGEV_NONE;
	return cb;
}

static void say_end(struct aiocb *cb)
{
	const struct aiocb *list[1] = {cb};

	while (aio_error(cb) == EINPROGRESS)
		aio_suspend(list, 1, NULL);
	errno = aio_error(cb);
	say_result("ended", aio_return(cb));
}

static void idle_end(struct idle *at)
{
	char got[8];
	struct aiocb out = request(at->fd, LIO_WRITE, "answer", 6),
		     in = request(at->fd, LIO_READ, got, 8);

	signal_send(at->read);
	say_result("write", aio_write(&out));
	say_end(&out);
	say_result("read", aio_read(&in));
	say_end(&in);
	say("%.4s", got);
	NEED(close(at->fd) == 0);
	say("status %d", child_status(at->pid));
}

CASE(aio_of_idle_peer, DIRECT)
{
	struct idle at = idle_start();
	char got[16] = "";
	struct aiocb a = request(at.fd, LIO_READ, got, 4),
		     b = request(at.fd, LIO_READ, got + 4, 12);

	a.aio_reqprio = -1;
	say_result("read", aio_read(&a));
	a.aio_reqprio = 0;
	say_result("read", aio_read(&a));
	say_end(&a);
	say_result("read", aio_read(&b));
	say_end(&b);
	say("%s", got);
	idle_end(&at);
}

CASE(aio_of_idle_peer_nowhere, DIRECT)
{
	struct idle at = idle_start();
	char got[16] = "";
	struct aiocb a = request(at.fd, LIO_READ, (void *)1, 4);

	say_result("read", aio_read(&a));
	say_end(&a);
	recv_all(at.fd, got, 10);
	say("%s", got);
	idle_end(&at);
}

static struct signal_pipe told;
static volatile int told_code, told_value;

static void on_signal(int number, siginfo_t *info, void *context)
{
	(void)number;
	(void)context;
	told_code = info->si_code;
	told_value = info->si_value.sival_int;
	signal_send(told);
}

static void on_end(union sigval value)
{
	told_value = value.sival_int;
	signal_send(told);
}

/* Each way to be told of the end. */
static void tell_by(struct sigevent ev)
{
	struct idle at = idle_start();
	char got[16] = "";
	struct aiocb a = request(at.fd, LIO_READ, got, 10);

	told = signal_pipe();
	ev.sigev_value.sival_int = 17;
	a.aio_sigevent = ev;
	say_result("read", aio_read(&a));
	signal_wait(told);
	say("%d %d", told_code == SI_ASYNCIO, told_value);
	say_end(&a);
	say("%s", got);
	idle_end(&at);
}

CASE(aio_of_idle_peer_tells, DIRECT)
{
	struct sigaction sa = {.sa_sigaction = on_signal, .sa_flags = SA_SIGINFO};

	NEED(sigaction(SIGUSR1, &sa, NULL) == 0);
	tell_by((struct sigevent){.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1});
	told_code = 0;
	tell_by((struct sigevent){.sigev_notify = SIGEV_THREAD,
				  .sigev_notify_function = on_end});
}

/* Several at once; fails: one of them has nowhere to write to. */
static void list(int mode, bool fails)
{
	struct idle at = idle_start();
	char got[16] = "";
	struct aiocb a = request(at.fd, LIO_READ, got, 4),
		     b = request(at.fd, LIO_NOP, NULL, 0),
		     c = request(at.fd, LIO_READ, fails ? (void *)1 : got + 4, 6);
	struct aiocb *all[] = {&a, NULL, &b, &c};
	struct sigevent ev = {.sigev_notify = SIGEV_THREAD,
			      .sigev_notify_function = on_end,
			      .sigev_value.sival_int = 5};

	told = signal_pipe();
	say_result("wrong", lio_listio(77, all, 4, NULL));
	say_result("list", lio_listio(mode, all, 4, mode == LIO_NOWAIT ? &ev : NULL));
	if (mode == LIO_NOWAIT) {
		signal_wait(told);
		say("%d", told_value);
	}
	say_end(&a);
	say_end(&c);
	if (fails)
		recv_all(at.fd, got + 4, 6);
	say("%s", got);
	idle_end(&at);
}

CASE(aio_of_idle_peer_listed, DIRECT)
{
	list(LIO_WAIT, false);
	list(LIO_WAIT, true);
	list(LIO_NOWAIT, false);
}
