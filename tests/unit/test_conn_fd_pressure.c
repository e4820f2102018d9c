/* SPDX-License-Identifier: Apache-2.0 */
/* A call that met EMFILE is made again when a thread of the process is giving numbers back. */
#include "unit/test.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include "base/fds.h"
#include "conn/table.h"
#include "unit/conn_pair.h"

static bool no_more(void)
{
	return false;
}

static int adopted(void)
{
	int fd = fds_adopt(dup(0));
	REQUIRE(fd >= 0);
	return fd;
}

/* Its last one was closed after the call had failed, and nothing is left to count. */
STREAM_TEST(a_number_closed_since_the_call)
{
	int fd = adopted();
	struct sock_room room = {fds_given(), false};
	CHECK(!sock_make_room(1, 0, &room, no_more));
	fds_close(fd);
	CHECK(sock_make_room(1, 0, &room, no_more));
	CHECK(!sock_make_room(1, 0, &room, no_more));
}

/* ---- a thread that is stopped in its close ---- */

struct closer {
	int fd;
	_Atomic int listener; /* -1: not yet, -2: there is none */
	pthread_t thread;
};

static void *close_stopped(void *arg)
{
	struct closer *c = arg;
	struct sock_filter ops[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_close, 0, 3),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS,
			 offsetof(struct seccomp_data, args[0])),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)c->fd, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog filter = {sizeof(ops) / sizeof(*ops), ops};
	prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
	long listener = syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER,
				SECCOMP_FILTER_FLAG_NEW_LISTENER, &filter);
	atomic_store(&c->listener, listener < 0 ? -2 : (int)listener);
	fds_close(c->fd);
	return NULL;
}

static void *make_room(void *arg)
{
	struct call *c = arg;
	atomic_store(&c->tid, gettid());
	c->result = sock_make_room(1, 0, c->buf, no_more);
	atomic_store(&c->done, true);
	return NULL;
}

STREAM_TEST(a_number_that_is_being_closed)
{
	struct closer closer = {.fd = adopted(), .listener = -1};
	struct sock_room room = {fds_given(), false};
	struct call asks = {.buf = &room};
	struct seccomp_notif stopped = {0};
	int listener;
	REQUIRE(pthread_create(&closer.thread, NULL, close_stopped, &closer) == 0);
	while ((listener = atomic_load(&closer.listener)) == -1)
		usleep(1000);
	if (listener < 0) {
		pthread_join(closer.thread, NULL);
		SKIP("no filter of system calls here");
	}
	REQUIRE(ioctl(listener, SECCOMP_IOCTL_NOTIF_RECV, &stopped) == 0);
	call_start(&asks, make_room);
	CHECK(!atomic_load(&asks.done));
	struct seccomp_notif_resp go_on = {.id = stopped.id,
					   .flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE};
	REQUIRE(ioctl(listener, SECCOMP_IOCTL_NOTIF_SEND, &go_on) == 0);
	CHECK_EQ(call_end(&asks), true);
	pthread_join(closer.thread, NULL);
	close(listener);
}

/* ---- a thread that sleeps on the doorbells ---- */

/* Down to TCP for good, as if a thread were asleep on b. */
static struct pair down_asleep(void)
{
	struct pair p = pair_open_up();
	struct sock *a = fd_sock(p.a), *b = fd_sock(p.b);
	uint64_t rings;
	REQUIRE(sock_hold(b, p.b));
	sock_arm(b, EPOLLIN);
	sock_down(a, p.a, VD_REASON_FD_LIMIT);
	sock_service(b, p.b);
	sock_service(a, p.a);
	sock_service(b, p.b);
	REQUIRE(phase_of(a->slot) == SLOT_FINAL && a->bell < 0);
	REQUIRE(phase_of(b->slot) == SLOT_FINAL && b->bell >= 0);
	/* Whatever has rung until now: it has looked, and slept again. */
	REQUIRE(poll(&(struct pollfd){.fd = b->bell, .events = POLLIN}, 1, 0) == 0 ||
		read(b->bell, &rings, sizeof(rings)) == sizeof(rings));
	return p;
}

static void wake(struct sock *s)
{
	sock_disarm(s, EPOLLIN);
	sock_unhold(s);
}

STREAM_TEST(who_sleeps_there_is_rung)
{
	struct pair p = down_asleep();
	struct sock *b = fd_sock(p.b);
	bells_release(b);
	REQUIRE(b->bell >= 0);
	CHECK_EQ(poll(&(struct pollfd){.fd = b->bell, .events = POLLIN}, 1, 0), 1);
	wake(b);
	CHECK_EQ(b->bell, -1);
	pair_close(&p);
}

/* Longer than peers are waited for. */
static void *wake_late(void *arg)
{
	usleep(300000);
	wake(arg);
	return NULL;
}

STREAM_TEST(who_wants_for_a_processor_is_waited_for)
{
	struct sock_room room = {0, false};
	pthread_t thread;
	table_give_back();
	FDS_SETTLED();
	struct pair p = down_asleep();
	meet_give_back();
	room.given = fds_given();
	REQUIRE(pthread_create(&thread, NULL, wake_late, fd_sock(p.b)) == 0);
	CHECK(sock_make_room(2, fds_limit() - 1, &room, no_more));
	pthread_join(thread, NULL);
	CHECK_EQ(fd_sock(p.b)->bell, -1);
	pair_close(&p);
}
