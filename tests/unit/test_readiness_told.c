/* SPDX-License-Identifier: Apache-2.0 */
/* epoll instances from inside: who fills TCP's room while an upgrade looks what has been told. */
#include <netinet/tcp.h>
#include <sys/epoll.h>

#include "unit/test.h"

#include "base/real.h"
#include "readiness/epoll.h"
#include "unit/readiness_instance.h"

static struct squeeze {
	int ep, fd, at, asks;
	bool done;
} squeeze;

/* As another thread, which is told of the room there is, until there is none. */
static void fill(void)
{
	static const char bytes[4096];
	struct epoll_event ev;

	for (int i = 0; i < 10; i++) {
		while (send(squeeze.fd, bytes, sizeof(bytes), MSG_DONTWAIT) > 0)
			;
		usleep(2000);
	}
	while (epoll_wait(squeeze.ep, &ev, 1, 0) > 0)
		;
	squeeze.done = true;
}

static int fill_amid(int fd, int level, int name, void *value, socklen_t *len)
{
	if (fd == squeeze.fd && level == IPPROTO_TCP && name == TCP_INFO &&
	    epoll_locked() && ++squeeze.asks == squeeze.at)
		fill();
	return getsockopt(fd, level, name, value, len);
}

static bool room_is_told(int at)
{
	struct sock_pair p = pair_make();
	int ep = ep_open(), small = 4096, told = 0;
	struct epoll_event ev;
	char bytes[4096];

	squeeze = (struct squeeze){.ep = ep, .fd = p.s, .at = at};
	REQUIRE(setsockopt(p.s, SOL_SOCKET, SO_SNDBUF, &small, sizeof(small)) == 0 &&
		setsockopt(p.c, SOL_SOCKET, SO_RCVBUF, &small, sizeof(small)) == 0);
	CHECK_EQ(ep_ctl(ep, EPOLL_CTL_ADD, p.s, EPOLLOUT | EPOLLET, 1), 0);
	CHECK_EQ(ep_wait(ep, &ev, 1, 0), 1);
	real_table.getsockopt = fill_amid;
	for (int i = 0; i < 200 && !reg_of(ep, p.s)->converted; i++) {
		CHECK_EQ(pair_send(p.c, "x", 1, 0), 1);
		CHECK_EQ(pair_recv(p.s, bytes, 1, 0), 1);
		if (reg_of(ep, p.s)->converted)
			break;
		CHECK_EQ(pair_send(p.s, "y", 1, MSG_DONTWAIT), 1);
		CHECK_EQ(pair_recv(p.c, bytes, 1, 0), 1);
	}
	real_table.getsockopt = getsockopt;
	if (squeeze.done)
		CHECK_EQ(ep_wait(ep, &ev, 1, 0), 0);
	for (int i = 0; i < 20000 && told < squeeze.done; i++)
		if (pair_recv(p.c, bytes, sizeof(bytes), MSG_DONTWAIT) <= 0)
			told += ep_wait(ep, &ev, 1, 1);
	CHECK_EQ(told, squeeze.done);
	ep_close(ep);
	pair_close(p);
	return squeeze.done;
}

TEST(room_that_is_filled_at_an_upgrade_is_told)
{
	int at = 1;

	while (room_is_told(at))
		at++;
	CHECK(at > 2);
}
