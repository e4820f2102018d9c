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
#include "unit/stream_pair.h"

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
