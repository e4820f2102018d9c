/* SPDX-License-Identifier: Apache-2.0 */
/* Operations that are wrong: bad pointers, bad numbers, bad flags. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "differential.h"

/* A page with another behind it that nobody may touch. */
void *bad_page(void)
{
	static char *pages;
	if (!pages) {
		pages = mmap(NULL, 8192, PROT_READ | PROT_WRITE,
			     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		NEED(pages != MAP_FAILED);
		NEED(mprotect(pages + 4096, 4096, PROT_NONE) == 0);
	}
	return pages + 4096;
}

static void *a_bad_pointer(struct dice *d)
{
	switch (dice(d, 3)) {
	case 0:
		return NULL;
	case 1:
		return (void *)-4096L;
	default:
		return bad_page();
	}
}

static void op_wrong_send(struct dice *d)
{
	struct descriptor *s = any_of(d, SOCKET);
	void *bad = a_bad_pointer(d);
	unsigned way = dice(d, 4);
	if (!s || room_to_send(s, true) < 5000) {
		tell("nothing");
		return;
	}
	struct iovec v[2] = {{bad, 10}, {bad, 10}};
	struct msghdr m = {.msg_iov = v, .msg_iovlen = 2};
	ssize_t n;
	if (way == 0)
		n = send(s->fd, bad, 10, MSG_DONTWAIT);
	else if (way == 1)
		n = sendmsg(s->fd, &m, MSG_DONTWAIT);
	else if (way == 2)
		n = sendmsg(s->fd, a_bad_pointer(d), MSG_DONTWAIT);
	else
		n = write(s->fd, bad, 10);
	tell("%u(%d) = %s", way, s->fd, result(n));
	was_sent(s, n);
}

static void op_wrong_receive(struct dice *d)
{
	struct descriptor *s = any_of(d, SOCKET);
	void *bad = a_bad_pointer(d);
	unsigned way = dice(d, 4);
	if (!s) {
		tell("nothing");
		return;
	}
	struct iovec v[2] = {{bad, 10}, {bad, 10}};
	struct msghdr m = {.msg_iov = v, .msg_iovlen = 2};
	ssize_t n;
	if (way == 0)
		n = recv(s->fd, bad, 10, MSG_DONTWAIT);
	else if (way == 1)
		n = recvmsg(s->fd, &m, MSG_DONTWAIT);
	else if (way == 2)
		n = recvmsg(s->fd, a_bad_pointer(d), MSG_DONTWAIT);
	else
		n = recv(s->fd, bad, 10, MSG_DONTWAIT | MSG_PEEK);
	tell("%u(%d) = %s", way, s->fd, result(n));
	was_received(s, n);
}

static void op_wrong_call(struct dice *d)
{
	struct descriptor *s = any_of(d, SOCKET), *e = any_of(d, EPOLL);
	void *bad = a_bad_pointer(d);
	int fd = s ? s->fd : 150, r, number = once_in(d, 2) ? 150 : -1;
	char buf[8];
	switch (dice(d, 14)) {
	case 0:
		r = ioctl(fd, FIONREAD, bad);
		tell("FIONREAD(%d, bad) = %s", fd, result(r));
		break;
	case 1:
		r = poll(bad, 1, 0);
		tell("poll(bad) = %s", result(r));
		break;
	case 2:
		r = (int)read(number, buf, 1);
		tell("read(%d) = %s", number, result(r));
		break;
	case 3:
		r = (int)send(number, buf, 1, 0);
		tell("send(%d) = %s", number, result(r));
		break;
	case 4:
		r = close(number);
		tell("close(%d) = %s", number, result(r));
		break;
	case 5:
		r = setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, bad, 4);
		tell("setsockopt(%d, bad) = %s", fd, result(r));
		break;
	case 6:
		r = getsockopt(fd, SOL_SOCKET, SO_TYPE, buf, bad);
		tell("getsockopt(%d, bad) = %s", fd, result(r));
		break;
	case 7:
		r = epoll_ctl(e ? e->fd : fd, EPOLL_CTL_ADD, fd, bad);
		tell("epoll_ctl(%d, ADD, %d, bad) = %s", e ? e->fd : fd, fd, result(r));
		break;
	case 8:
		r = epoll_ctl(fd, EPOLL_CTL_DEL, fd, NULL);
		tell("epoll_ctl(%d, DEL, itself) = %s", fd, result(r));
		break;
	case 9:
		r = ioctl(fd, 0x1234, 0);
		tell("ioctl(%d, 0x1234) = %s", fd, result(r));
		break;
	case 10:
		r = (int)lseek(fd, 0, SEEK_CUR);
		tell("lseek(%d) = %s", fd, result(r));
		break;
	case 11:
		r = (int)pread(fd, buf, 1, 0);
		tell("pread(%d) = %s", fd, result(r));
		break;
	case 12:
		r = listen(fd, 1);
		tell("listen(%d) = %s", fd, result(r));
		break;
	default:
		r = fcntl(fd, F_DUPFD, -1);
		tell("F_DUPFD(%d, -1) = %s", fd, result(r));
	}
}

const struct op ops_wrong[] = {
	{"wrong-send", op_wrong_send, 3},
	{"wrong-receive", op_wrong_receive, 3},
	{"wrong-call", op_wrong_call, 8},
	{NULL, NULL, 0},
};
