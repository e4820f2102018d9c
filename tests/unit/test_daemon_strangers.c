/* SPDX-License-Identifier: Apache-2.0 */
/* The children of viaductd that have to do with strangers: who takes one from whom, and how many there are. */
#include <arpa/inet.h>
#include <errno.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/wait.h>

#include "daemon/near_helper.h"
#include "unit/test.h"

enum {
	GREEDY = RELAY_NEAR_CHILDREN,
	GREEDY_UID = 9,
	FIRST_UID = 2000,
	START_MS = 100000
};

static struct relay r;

static void nothing(int number)
{
	(void)number;
}

static void begin(void)
{
	const struct sigaction alarm = {.sa_handler = nothing}; /* closer_guard's */

	REQUIRE(sigaction(SIGALRM, &alarm, NULL) == 0);
	memset(&r, 0, sizeof(r));
	for (int i = 0; i < RELAY_CLIENTS; i++)
		r.client[i].fd = -1;
	r.now_ms = START_MS;
	r.by_uid.per_second = 1;
	r.epoll = epoll_create1(EPOLL_CLOEXEC);
	REQUIRE(r.epoll >= 0);
}

static struct relay_ref ref_of(uint32_t client)
{
	return (struct relay_ref){client, r.client[client].turn};
}

/* The process's end of its line. */
static int come(uint32_t client, uint32_t uid)
{
	struct relay_client *c = &r.client[client];
	int pair[2];

	REQUIRE(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) == 0);
	c->fd = pair[0];
	c->owner.uid = uid;
	c->near = c->rights = true;
	c->first = -1;
	r.clients++;
	REQUIRE(loop_watch(&r, c->fd, RELAY_CLIENT, client, c->turn, false, true) == 0);
	return pair[1];
}

/* What the next child that has something to say says. */
static void hear_child(void)
{
	struct epoll_event e;

	REQUIRE(epoll_wait(r.epoll, &e, 1, -1) == 1);
	near_helper_ready(&r, (struct relay_ref){(uint32_t)e.data.u64 & 0xffffff,
						 (uint32_t)(e.data.u64 >> 32)});
}

static void end_all(const int *lines, int count)
{
	for (int i = 0; i < count; i++) {
		client_end(&r, (uint32_t)i);
		close(lines[i]);
	}
	for (; r.helpers || r.unclosed || r.closers; usleep(1000)) {
		r.now_ms += RELAY_CLOSER_MS;
		near_helper_tick(&r);
		closer_tick(&r);
	}
	close(r.epoll);
}

static void ask_to_meet(int line)
{
	struct local_message m;
	const struct local_meet meet = {0};

	memset(&m, 0, sizeof(m));
	m.version = LOCAL_PROTOCOL;
	m.type = LOCAL_MEET;
	m.local = m.peer = (struct name_end){
		.addr = {[10] = 0xff, [11] = 0xff, [12] = 10}, .port = htons(1)};
	memcpy(m.hello, &meet, sizeof(meet));
	REQUIRE(send(line, &m, LOCAL_HEAD_BYTES + sizeof(meet), 0) > 0);
}

TEST(whoever_is_beyond_his_rate_takes_no_child_from_others)
{
	const struct near_order order = {.kind = ORDER_STEP};
	int lines[GREEDY + 1];

	begin();
	for (uint32_t i = 0; i < RELAY_NEAR_CHILDREN; i++) {
		lines[i] = come(i, FIRST_UID + i / RELAY_NEAR_CHILDREN_UID);
		REQUIRE(near_helper_order(&r, ref_of(i), &order, lines[i]));
		hear_child();
	}
	lines[GREEDY] = come(GREEDY, GREEDY_UID);
	while (bucket_take_uid(&r.by_uid, GREEDY_UID, r.now_ms))
		;
	/* All of them have nothing to do. */
	REQUIRE(r.helpers == RELAY_NEAR_CHILDREN);
	ask_to_meet(lines[GREEDY]);
	near_client_ready(&r, ref_of(GREEDY));
	CHECK(r.client[GREEDY].waits);
	CHECK_EQ(r.helpers, RELAY_NEAR_CHILDREN);
	/* Within his rate he gets the one that has had nothing to do for longest. */
	r.now_ms += 1000;
	near_client_tick(&r);
	CHECK(!r.client[GREEDY].waits);
	near_client_ready(&r, ref_of(GREEDY));
	CHECK(!r.client[GREEDY].waits);
	CHECK_EQ(r.helpers, RELAY_NEAR_CHILDREN);
	end_all(lines, GREEDY + 1);
}

static void take_one(void)
{
	int pair[2];

	REQUIRE(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) == 0);
	closer_take(&r, pair[0]);
	close(pair[1]);
}

TEST(sockets_of_strangers_are_closed_by_few_children)
{
	begin();
	take_one();
	r.now_ms += RELAY_CLOSER_MS;
	closer_tick(&r);
	CHECK_EQ(r.unclosed, 0);
	/* Whoever comes and goes all the time has not a child made each time. */
	for (int i = 0; i < RELAY_CLOSER_MS / RELAY_TICK_MS - 1; i++) {
		take_one();
		r.now_ms += RELAY_TICK_MS;
		closer_tick(&r);
		CHECK_EQ(r.unclosed, i + 1);
	}
	r.now_ms += RELAY_TICK_MS;
	closer_tick(&r);
	CHECK_EQ(r.unclosed, 0);
	/* But all at once are. */
	for (int i = 0; i < RELAY_CLOSER_SOCKETS; i++)
		take_one();
	CHECK_EQ(r.unclosed, 0);
	end_all(NULL, 0);
	CHECK_EQ(waitpid(-1, NULL, WNOHANG), -1);
	CHECK_EQ(errno, ECHILD);
}
