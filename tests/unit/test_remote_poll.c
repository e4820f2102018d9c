/* SPDX-License-Identifier: Apache-2.0 */
/* poll of connections of other hosts: what a look asks of the device. */
#include <poll.h>

#include "unit/test.h"

#include "readiness/ready.h"
#include "unit/conn_pair.h"

enum { LOOKS = 50 };

__attribute__((constructor)) static void be_across(void)
{
	setenv("VD_TEST_REMOTE", "7", 0);
}

static uint64_t posted(int fd)
{
	struct across_guard g = across_enter();
	uint64_t n = link_posted(peer_of(fd_sock(fd))->link->link);

	across_leave(g);
	return n;
}

/* As libtirpc's services poll. */
static int look(int fd, short *revents)
{
	const struct timespec now = {0, 0};
	struct pollfd p = {.fd = fd,
			   .events = POLLIN | POLLPRI | POLLRDNORM | POLLRDBAND};
	int n = ready_poll(&p, 1, &now, NULL);

	*revents = p.revents;
	return n;
}

STREAM_TEST(a_look_for_urgent_data_writes_nothing_to_the_peer)
{
	struct pair p;
	uint64_t before;
	short revents;

	across_watch_all(LINK_WATCH_MAX);
	p = pair_open_up();
	across_settle();
	before = posted(p.b);
	for (int i = 0; i < LOOKS; i++)
		CHECK_EQ(look(p.b, &revents), 0);
	CHECK_EQ(posted(p.b), before);
	pair_close(&p);
	across_watch_all(ACROSS_WATCH_MS);
}
