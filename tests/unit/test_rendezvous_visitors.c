/* SPDX-License-Identifier: Apache-2.0 */
/* The rendezvous disturbed: visitors, hang-ups, lying connectors, re-used addresses. */
#include <pthread.h>
#include <sched.h>
#include <time.h>

#include "unit/rendezvous_forgery.h"
#include "unit/test.h"
#include "base/real.h"

/* ---- visitors ---- */

MEET_TEST(silent_visitors_do_not_keep_the_acceptor_out)
{
	struct meet_segment c, s;
	struct pair p;
	int name = -1, silent[3], gone;

	pair_open(&p);
	CHECK_EQ(meet_publish(p.client, &name), 1);
	gone = pair_visit(&p);
	close(gone);
	for (int i = 0; i < 3; i++)
		REQUIRE((silent[i] = pair_visit(&p)) >= 0);
	CHECK_EQ(meet_collect(p.client, &name, NULL, &c), 0);
	CHECK_EQ(meet_offer(p.server, NULL, &s), 1);
	CHECK_EQ(meet_collect(p.client, &name, NULL, &c), 1);
	CHECK_EQ(meet_attached(p.server, &s), 1);
	/* A late word of a silent one is not heard. */
	CHECK_EQ(send(silent[0], "x", 1, MSG_NOSIGNAL), -1);
	CHECK_EQ(errno, EPIPE);
	for (int i = 0; i < 3; i++)
		close(silent[i]);
	meet_finish(&c);
	meet_finish(&s);
	pair_close(&p);
}

/* Of a sender that is gone at once the kernel may say first that it is gone. One look in some
 * thousands meets that. Each hello waits for two threads to run: on a busy machine there are as many as
 * the time has room for. */
enum { HASTY_HELLOS = 100000, HASTY_SECONDS = 10, HASTY_NONE = -1, HASTY_OVER = -2 };

static void *speak_and_go(void *arg)
{
	_Atomic int *sock = arg;
	const struct meet_segment seg = {.memfd = 0};
	struct hello h;
	int fd;

	hello_init(&h);
	h.acceptor_port = 1;
	while ((fd = atomic_exchange(sock, HASTY_NONE)) != HASTY_OVER) {
		if (fd == HASTY_NONE) {
			sched_yield();
			continue;
		}
		REQUIRE(hello_send(fd, &h, &seg, IDENT_AS_IT_IS) == 0);
		close(fd);
	}
	return NULL;
}

MEET_TEST(who_speaks_and_goes_is_heard)
{
	_Atomic int sock = HASTY_NONE;
	time_t end = time(NULL) + HASTY_SECONDS;
	pthread_t thread;

	REQUIRE(pthread_create(&thread, NULL, speak_and_go, &sock) == 0);
	for (int i = 0; i < HASTY_HELLOS && time(NULL) < end; i++) {
		int ends[2], fds[SEGMENT_FDS], r;
		struct hello h;

		REQUIRE(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends) == 0);
		atomic_store(&sock, ends[1]);
		while ((r = hello_receive(ends[0], &h, fds)) == 0)
			sched_yield();
		REQUIRE(r == 1 && h.acceptor_port == 1);
		fds_close(fds[SEGMENT_MEMFD]);
		close(ends[0]);
	}
	atomic_store(&sock, HASTY_OVER);
	pthread_join(thread, NULL);
}

/* ---- between two steps of one end, the other end acts ---- */

static struct {
	struct forgery *f;
	struct meet_segment *out;
	int sock, result, calls;
} meanwhile;

/* The connector looks when the acceptor has connected but not yet spoken. */
static int ask_after_collect(int fd, int level, int name, void *value, socklen_t *len)
{
	if (level == SOL_SOCKET && name == SO_PEERCRED && meanwhile.calls++ == 0)
		meanwhile.result = meet_collect(meanwhile.f->pair.client,
						&meanwhile.f->name, NULL, meanwhile.out);
	return getsockopt(fd, level, name, value, len);
}

MEET_TEST(hello_to_a_connector_that_has_hung_up)
{
	struct meet_segment s, c;
	struct forgery f;

	forgery_begin(&f);
	meanwhile.f = &f;
	meanwhile.out = &c;
	meanwhile.calls = 0;
	real_table.getsockopt = ask_after_collect;
	CHECK_EQ(meet_offer(f.pair.server, NULL, &s), 1);
	real_table.getsockopt = getsockopt;
	/* It hung up; so the hello came on another visit. */
	CHECK(meanwhile.calls > 0);
	CHECK_EQ(meanwhile.result, 0);
	CHECK_EQ(meet_collect(f.pair.client, &f.name, NULL, &c), 1);
	CHECK_EQ(meet_attached(f.pair.server, &s), 1);
	meet_finish(&s);
	meet_finish(&c);
	meet_finish(&f.seg);
	pair_close(&f.pair);
}

/* The acceptor speaks when the connector has just decided to hang up. */
static int shutdown_after_hello(int fd, int how)
{
	real_table.shutdown = shutdown;
	CHECK_EQ(hello_send(meanwhile.sock, &meanwhile.f->hello, &meanwhile.f->seg,
			    IDENT_AS_IT_IS),
		 0);
	return shutdown(fd, how);
}

MEET_TEST(hello_in_the_last_moment)
{
	struct forgery f;

	forgery_begin(&f);
	meanwhile.f = &f;
	meanwhile.sock = pair_visit(&f.pair);
	REQUIRE(meanwhile.sock >= 0);
	real_table.shutdown = shutdown_after_hello;
	forgery_end(&f, 1);
	CHECK(real_table.shutdown == shutdown);
	real_table.shutdown = shutdown;
	close(meanwhile.sock);
}

MEET_TEST(full_queue_means_later)
{
	struct meet_segment c, s;
	struct pair p;
	int name = -1, visitors[16], count = 0;

	pair_open(&p);
	CHECK_EQ(meet_publish(p.client, &name), 1);
	while (count < 16 && (visitors[count] = pair_visit(&p)) >= 0)
		count++;
	CHECK(count < 16);
	CHECK_EQ(meet_offer(p.server, NULL, &s), 0);
	while (count > 0)
		close(visitors[--count]);
	CHECK_EQ(meet_collect(p.client, &name, NULL, &c), 0);
	CHECK_EQ(meet_offer(p.server, NULL, &s), 1);
	CHECK_EQ(meet_collect(p.client, &name, NULL, &c), 1);
	meet_finish(&c);
	meet_finish(&s);
	pair_close(&p);
}

/* ---- a hostile connector ---- */

static void check_attached(uint64_t acked, uint64_t received, uint32_t state, int verdict)
{
	struct meet_segment s;
	struct pair p;
	int name = -1;

	pair_open(&p);
	pair_talk(&p, 100);
	CHECK_EQ(meet_publish(p.client, &name), 1);
	CHECK_EQ(meet_offer(p.server, NULL, &s), 1);
	s.wire->connector_counts.acked = acked;
	s.wire->connector_counts.received = received;
	atomic_store(&s.wire->handshake, state);
	CHECK_EQ(meet_attached(p.server, &s), verdict);
	meet_finish(&s);
	fds_close(name);
	pair_close(&p);
}

MEET_TEST(connector_counts)
{
	check_attached(100, 50, WIRE_ATTACHED, 1);
	check_attached(101, 50, WIRE_ATTACHED, -VD_REASON_IDENTITY);
	check_attached(100, 51, WIRE_ATTACHED, -VD_REASON_IDENTITY);
	check_attached(UINT64_MAX, UINT64_MAX, WIRE_ATTACHED, -VD_REASON_IDENTITY);
	check_attached(0, 0, WIRE_ABANDONED, -VD_REASON_PEER_ASKED);
	check_attached(0, 0, 7, -VD_REASON_CORRUPT);
}

MEET_TEST(end_of_the_connection_before_it_attached)
{
	struct linger now = {.l_onoff = 1, .l_linger = 0};
	struct meet_segment s;
	struct pair p;
	int name = -1;

	pair_open(&p);
	CHECK_EQ(meet_publish(p.client, &name), 1);
	CHECK_EQ(meet_offer(p.server, NULL, &s), 1);
	setsockopt(p.client, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
	close(p.client);
	p.client = -1;
	CHECK_EQ(meet_attached(p.server, &s), 0);
	CHECK_EQ(meet_abandon(&s), 1);
	fds_close(name);
	pair_close(&p);
}

/* The name outlives its connection, and another connection gets the same addresses. */
MEET_TEST(stale_name)
{
	struct linger now = {.l_onoff = 1, .l_linger = 0};
	struct meet_segment c, s;
	struct forgery f;
	uint16_t port;

	forgery_begin(&f);
	port = pair_local_port(f.pair.client);
	/* A second descriptor keeps the old socket, though its connection is over. */
	setsockopt(f.pair.server, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
	close(f.pair.server);
	int old = f.pair.client;
	f.pair.client = pair_connect(AF_INET, "127.0.0.1", f.pair.port, port);
	f.pair.server = accept4(f.pair.listener, NULL, NULL, SOCK_CLOEXEC);
	REQUIRE(f.pair.server >= 0);
	CHECK_EQ(meet_offer(f.pair.server, NULL, &s), 1);
	CHECK_EQ(meet_collect(old, &f.name, NULL, &c), -VD_REASON_IDENTITY);
	CHECK_EQ(meet_attached(f.pair.server, &s), 0);
	CHECK_EQ(meet_abandon(&s), 1);
	/* And with the old offer sent to the new connection. */
	CHECK_EQ(meet_publish(f.pair.client, &f.name), 1);
	forgery_send(&f);
	close(old);
	forgery_end(&f, -VD_REASON_IDENTITY);
}
