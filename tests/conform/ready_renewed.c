/* SPDX-License-Identifier: Apache-2.0 */
/* What wakes an edge-triggered registration after it has been changed to ask for other events. */
#include <sys/socket.h>
#include <unistd.h>

#include "conform/cases.h"
#include "conform/ready_epoll.h"

static void take_all(int fd, size_t bytes)
{
	static char room[65536];

	while (bytes > 0) {
		ssize_t n = recv(fd, room, sizeof(room), 0);

		NEED(n > 0);
		bytes -= (size_t)n;
	}
}

/* With `anew` it is deleted and added. */
static void renew_both(int ep, const int fd[2], uint32_t mask, bool anew)
{
	for (int i = 0; i < 2; i++) {
		if (anew)
			NEED(ep_ctl(ep, EPOLL_CTL_DEL, fd[i], 0, 0) == 0);
		NEED(ep_ctl(ep, anew ? EPOLL_CTL_ADD : EPOLL_CTL_MOD, fd[i],
			    mask | EPOLLET, (uint64_t)i | MAY_REPEAT) == 0);
	}
	ep_show(ep, 0);
}

static void in_turn_renewed(uint32_t one, uint32_t other, bool anew, bool warm)
{
	struct pair p = warm ? pair_warm_open() : pair_open();
	int ep = ep_open(), fd[2] = {p.c, p.s};
	uint64_t at[2] = {0, 0};

	for (int i = 0; i < 2; i++)
		ep_add(ep, fd[i], one | EPOLLET, (uint64_t)i | MAY_REPEAT);
	ep_drain(ep);
	for (int i = 0; i < 40; i++) {
		int to = ~i & 1;

		if (i % 10 == 0)
			renew_both(ep, fd, i / 10 % 2 ? one : other, anew);
		send_pattern(fd[!to], at[to], 10);
		wait_inq(fd[to], 10);
		ep_show(ep, 0);
		recv_pattern(fd[to], at[to], 10);
		at[to] += 10;
		ep_show(ep, 0);
	}
	close(ep);
	pair_close(p);
}

/* What a registration is changed to ask for is what wakes it from then on. */
CASE(key_of_bytes_renewed, DIRECT)
{
	static const uint32_t some[] = {EPOLLIN, EPOLLOUT, EPOLLRDHUP, EPOLLIN | EPOLLOUT,
					0};

	for (size_t i = 0; i < 5; i++)
		for (size_t j = 0; j < 20; j++) {
			say("%zu, %zu", i, j);
			in_turn_renewed(some[i], some[j / 4], j & 1, j & 2);
		}
}

/* Room that comes after it has been asked for is told, and none before that. */
CASE(key_of_room_renewed, DIRECT)
{
	struct pair p = pair_warm_open();
	int fd[2] = {p.c, p.s};

	for (int i = 0; i < 2; i++) {
		int ep = ep_open();
		size_t sent;

		ep_add(ep, fd[i], EPOLLIN | EPOLLET, 1);
		ep_drain(ep);
		for (int round = 0; round < 3; round++) {
			sent = send_until_full(fd[i]);
			take_all(fd[!i], sent);
			ep_show(ep, 0);
			sent = send_until_full(fd[i]);
			ep_mod(ep, fd[i], EPOLLOUT | EPOLLET, 2);
			ep_drain(ep);
			sent += send_until_full(fd[i]);
			take_all(fd[!i], sent);
			ep_show(ep, SOON);
			ep_mod(ep, fd[i], EPOLLIN | EPOLLET, 3);
			ep_show(ep, 0);
		}
		close(ep);
	}
	pair_close(p);
}
