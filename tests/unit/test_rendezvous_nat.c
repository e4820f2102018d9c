/* SPDX-License-Identifier: Apache-2.0 */
/* The rendezvous where the kernel tracks connections, and over a real link. */
#include <net/if.h>

#include "unit/rendezvous_netns.h"

/* Address translation in the kernel does not keep apart whom it does not concern. */
NETNS_TEST(tracked_but_not_rewritten)
{
	struct meet_segment c, s;
	struct pair p;

	enter_netns();
	need(shell(redirect));
	pair_open(&p);
	pair_meet(&p, &c, &s);
	meet_finish(&c);
	meet_finish(&s);
	pair_close(&p);
	pair_open_as(&p, AF_INET6, "::1", AF_INET6, "::1");
	pair_meet(&p, &c, &s);
	meet_finish(&c);
	meet_finish(&s);
	pair_close(&p);
}

NETNS_TEST(link_local)
{
	struct meet_segment c, s;
	struct pair p;
	union pair_addr a;
	socklen_t len;

	enter_netns();
	need(shell(
		"ip link add d0 type veth peer name d1 && "
		"ip link set d0 addrgenmode none && ip link set d1 addrgenmode none && "
		"ip link set d0 up && ip link set d1 up && "
		"ip addr add fe80::1/64 dev d0 nodad"));
	p.listener = pair_listen(AF_INET6, NULL, 0);
	p.port = pair_local_port(p.listener);
	p.announced = meet_announce(p.listener);
	p.client = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
	len = pair_address(&a, AF_INET6, "fe80::1", p.port);
	a.in6.sin6_scope_id = if_nametoindex("d0");
	REQUIRE(connect(p.client, &a.any, len) == 0);
	p.server = accept4(p.listener, NULL, NULL, SOCK_CLOEXEC);
	pair_meet(&p, &c, &s);
	meet_finish(&c);
	meet_finish(&s);
	pair_close(&p);
}

/* ---- a peer on another host, and a thread that leaves the namespace ---- */

static void serve_far_away(void *arg)
{
	int *pipes = arg, listener, fd;
	char byte;

	enter_netns();
	REQUIRE(write(pipes[1], "n", 1) == 1);
	REQUIRE(read(pipes[2], &byte, 1) == 1); /* the link is there */
	need(shell("ip addr add 10.9.0.2/24 dev far && ip link set far up"));
	listener = pair_listen(AF_INET, "10.9.0.2", 5000);
	REQUIRE(write(pipes[1], "l", 1) == 1);
	fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
	CHECK_EQ(read(fd, &byte, 1), 0);
}

NETNS_TEST(peer_in_another_namespace)
{
	int pipes[4], client, decoy, announced, name = -1;
	char command[256], byte;
	pid_t pid;

	enter_netns();
	REQUIRE(pipe2(pipes, O_CLOEXEC) == 0 && pipe2(pipes + 2, O_CLOEXEC) == 0);
	pid = child_start(serve_far_away, pipes);
	close(pipes[1]);
	REQUIRE(read(pipes[0], &byte, 1) == 1);
	snprintf(command, sizeof(command),
		 "ip link add near type veth peer name far netns %d && "
		 "ip addr add 10.9.0.1/24 dev near && ip link set near up",
		 (int)pid);
	need(shell(command));
	REQUIRE(write(pipes[3], "g", 1) == 1);
	REQUIRE(read(pipes[0], &byte, 1) == 1);
	/* The same port is served here as well, so the hint alone misleads. */
	decoy = pair_listen(AF_INET, "127.0.0.1", 5000);
	announced = meet_announce(decoy);
	client = pair_connect(AF_INET, "10.9.0.2", 5000, 0);
	CHECK_EQ(meet_publish(client, &name), -VD_REASON_REMOTE_PEER);
	CHECK_EQ(name, -1);
	meet_unannounce(announced);
	close(client);
	CHECK_EQ(child_wait(pid), 0);
}

NETNS_TEST(thread_left_the_namespace)
{
	struct meet_segment c, s;
	struct pair p;
	int name = -1, home;

	enter_netns();
	home = open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC);
	pair_open(&p);
	CHECK_EQ(meet_offer(p.server, NULL, &s), 0);
	CHECK_EQ(meet_publish(p.client, &name), 1);
	enter_netns();
	/* Kept sockets still belong to the old namespace, and new ones cannot be had. */
	CHECK_EQ(meet_announce(p.listener), -1);
	CHECK_EQ(meet_publish(p.client, &name), -VD_REASON_REMOTE_PEER);
	need(setns(home, CLONE_NEWNET) == 0);
	CHECK_EQ(meet_offer(p.server, NULL, &s), 1);
	CHECK_EQ(meet_collect(p.client, &name, NULL, &c), 1);
	meet_finish(&c);
	meet_finish(&s);
	close(home);
	pair_close(&p);
}
