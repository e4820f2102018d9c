/* SPDX-License-Identifier: Apache-2.0 */
/* What the library says to viaductd about peers in other network namespaces, with one that is slow. */
#include <arpa/inet.h>
#include <sched.h>
#include <sys/ioctl.h>

#include "unit/test.h"

#include "daemon_client/local.h"
#include "remote/near.h"
#include "remote/parts.h"

#define ASKED	 450
#define OWN_PORT 5000

/* The daemon's end of the line, and a connection that stands for all. */
static int listener = -1, line = -1, tcp = -1;
static struct name_end here, there;

static struct name_end end_at(const char *text, uint16_t port)
{
	struct name_end end = {.addr = {[10] = 0xff, [11] = 0xff}, .port = htons(port)};

	REQUIRE(inet_pton(AF_INET, text, end.addr + 12) == 1);
	return end;
}

static bool enter(void)
{
	if (unshare(CLONE_NEWNET) < 0)
		return false;
	return system("ip link set lo up && ip addr add 10.9.0.1/32 dev lo") == 0;
}

static bool begin(void)
{
	static struct sockaddr_un name = {.sun_family = AF_UNIX};

	if (listener < 0 && !enter())
		return false;
	if (listener < 0) {
		listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
		snprintf(name.sun_path, sizeof(name.sun_path), "/tmp/viaduct-near-%d",
			 (int)getpid());
		REQUIRE(bind(listener, (struct sockaddr *)&name, sizeof(name)) == 0);
		REQUIRE(listen(listener, 4) == 0);
		near_socket = name.sun_path;
		tcp = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
		here = end_at("10.9.0.1", 0);
		there = end_at("10.9.0.2", OWN_PORT);
		FDS_SETTLED();
	}
	usleep(1100000); /* so long after the last try */
	return true;
}

static struct peer *ask(uint16_t port)
{
	struct meet_segment seg;
	struct peer *a;

	here.port = htons(port);
	REQUIRE(near_begin(&here, &there, ACROSS_CONNECTED, &a) == 1);
	CHECK_EQ(near_step(a, tcp, NULL, &seg), 0);
	return a;
}

static void take_line(void)
{
	line = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	REQUIRE(line >= 0);
}

/* Reads all that is there, without the descriptors: a bit for each port that is asked about, or was.
 * -1: the end has come; else how many are asked about now. */
static int hear(bool asks[ASKED], bool answers)
{
	struct local_message m;
	ssize_t n;
	int left = 0;

	while ((n = recv(line, &m, sizeof(m), MSG_DONTWAIT)) > 0) {
		int port = ntohs(m.local.port);

		CHECK_EQ(local_check(&m, (size_t)n, true), LOCAL_OK);
		REQUIRE(port < ASKED);
		asks[port] = m.type == LOCAL_MEET;
		m = (struct local_message){
			.version = LOCAL_PROTOCOL, .type = LOCAL_DONE, .id = m.id};
		if (answers)
			CHECK_EQ(send(line, &m, LOCAL_HEAD_BYTES, MSG_DONTWAIT),
				 LOCAL_HEAD_BYTES);
	}
	for (int i = 0; i < ASKED; i++)
		left += asks[i];
	return n == 0 ? -1 : left;
}

/*
 * The library closes its own end with the next look, and finds no other daemon. Not by close alone: a process that
 * closes a stranger's descriptor has a copy of this one, as long as it has not ended.
 */
static void hang_up(void)
{
	const char *name = near_socket;

	shutdown(line, SHUT_RDWR);
	close(line);
	near_socket = "/nonexistent";
	near_end(ask(1));
	near_socket = name;
}

/* As many as there was room for are asked about; the others are withdrawn when there is. */
TEST(a_daemon_that_is_slow_hears_of_each_end)
{
	static struct peer *a[ASKED];
	bool asks[ASKED] = {false};
	struct meet_segment seg;

	if (!begin())
		SKIP("no network namespace: needs root");
	for (int i = 1; i < ASKED; i++)
		a[i] = ask((uint16_t)i);
	take_line();
	for (int i = 2; i < ASKED; i++)
		near_end(a[i]);
	CHECK(hear(asks, false) > 100);
	for (int i = 0; i < ASKED; i++) {
		near_step(a[1], tcp, NULL, &seg);
		hear(asks, false);
	}
	CHECK_EQ(hear(asks, false), 1);
	CHECK(asks[1]);
	near_end(a[1]);
	hang_up();
}

/* A TCP socket that lingers, with bytes that nobody takes: who closes it last waits. */
static int slow_socket(int *peer)
{
	const struct linger lingers = {1, 300};
	struct sockaddr_in any = {.sin_family = AF_INET};
	socklen_t size = sizeof(any);
	int listens = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), slow;
	static char bytes[65536];

	REQUIRE(inet_pton(AF_INET, "127.0.0.1", &any.sin_addr) == 1);
	REQUIRE(bind(listens, (struct sockaddr *)&any, sizeof(any)) == 0);
	REQUIRE(listen(listens, 1) == 0);
	REQUIRE(getsockname(listens, (struct sockaddr *)&any, &size) == 0);
	slow = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	REQUIRE(connect(slow, (struct sockaddr *)&any, sizeof(any)) == 0);
	*peer = accept4(listens, NULL, NULL, SOCK_CLOEXEC);
	close(listens);
	while (send(slow, bytes, sizeof(bytes), MSG_DONTWAIT) > 0)
		;
	REQUIRE(setsockopt(slow, SOL_SOCKET, SO_LINGER, &lingers, sizeof(lingers)) == 0);
	return slow;
}

static void send_fds(int to, void *bytes, size_t size, const int *fds, int count)
{
	char control[CMSG_SPACE(NEAR_MET_FDS * sizeof(int))] = {0};
	struct iovec iov = {bytes, size};
	struct msghdr msg = {.msg_iov = &iov,
			     .msg_iovlen = 1,
			     .msg_control = control,
			     .msg_controllen = CMSG_SPACE((size_t)count * sizeof(int))};
	struct cmsghdr *c = CMSG_FIRSTHDR(&msg);

	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN((size_t)count * sizeof(int));
	memcpy(CMSG_DATA(c), fds, (size_t)count * sizeof(int));
	REQUIRE(sendmsg(to, &msg, 0) == (ssize_t)size);
}

/* What lies unread in the line to a peer is that peer's: nobody waits for it. */
TEST(a_way_to_a_peer_that_nobody_wants_any_more)
{
	bool asks[ASKED] = {false};
	int of_line[2], of_bell[2], slow, peer;
	struct local_message m = {.version = LOCAL_PROTOCOL, .type = LOCAL_MET};
	struct meet_segment seg;
	struct peer *a;

	if (!begin())
		SKIP("no network namespace: needs root");
	a = ask(1);
	take_line();
	hear(asks, false);
	slow = slow_socket(&peer);
	REQUIRE(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, of_line) == 0);
	REQUIRE(socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, of_bell) == 0);
	send_fds(of_line[1], "x", 1, &slow, 1);
	close(slow);
	m.id = a->near.id + 1000;
	send_fds(line, &m, LOCAL_HEAD_BYTES + sizeof(struct local_met),
		 (const int[]){of_line[0], of_bell[0]}, NEAR_MET_FDS);
	close(of_line[0]);
	close(of_line[1]);
	near_step(a, tcp, NULL, &seg);
	near_end(a);
	hang_up();
	close(peer);
	close(of_bell[0]);
	close(of_bell[1]);
}

/* Nobody comes by any more, and so the line's end says it. */
TEST(the_last_one_to_end_withdraws_all)
{
	static struct peer *a[ASKED];
	bool asks[ASKED] = {false};

	if (!begin())
		SKIP("no network namespace: needs root");
	for (int i = 1; i < ASKED; i++)
		a[i] = ask((uint16_t)i);
	take_line();
	for (int i = 1; i < ASKED; i++)
		near_end(a[i]);
	CHECK_EQ(hear(asks, false), -1);
	hang_up();
}

/* Whoever only closes reads, too. */
TEST(answers_do_not_pile_up)
{
	static struct peer *a[ASKED];
	bool asks[ASKED] = {false};
	int unread = -1;

	if (!begin())
		SKIP("no network namespace: needs root");
	a[1] = ask(1);
	take_line();
	for (int i = 2; i < ASKED; i++) {
		a[i] = ask((uint16_t)i);
		CHECK_EQ(hear(asks, true), i);
	}
	for (int i = 2; i < ASKED; i++) {
		near_end(a[i]);
		CHECK_EQ(hear(asks, true), ASKED - i);
	}
	near_end(a[1]);
	CHECK_EQ(hear(asks, false), 0);
	REQUIRE(ioctl(line, TIOCOUTQ, &unread) == 0);
	CHECK_EQ(unread, 0);
	hang_up();
}
