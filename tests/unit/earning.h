/* SPDX-License-Identifier: Apache-2.0 */
/* Connections that earn an upgrade, for tests of the policy: no port has taught anything yet. */
#ifndef UNIT_EARNING_H
#define UNIT_EARNING_H

#include "unit/test.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include "base/clock.h"
#include "conn/conn.h"

enum { OPERATIONS = 16, DOUBLINGS = 6 };

static bool others_want_it;

static long preempted(void)
{
	static long times;
	return times += others_want_it;
}

__attribute__((constructor)) static void settings(void)
{
	unsetenv("VIADUCT_UPGRADE_AFTER"); /* the default: OPERATIONS */
	setenv("VIADUCT_CONFIG", "", 1);
	earn_preempted = preempted;
}

struct ends {
	int a, b; /* connected, accepted */
};

static int listening(struct sockaddr_in *at)
{
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	socklen_t len = sizeof(*at);
	*at = (struct sockaddr_in){.sin_family = AF_INET,
				   .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	REQUIRE(bind(fd, (struct sockaddr *)at, len) == 0 && listen(fd, 4) == 0);
	REQUIRE(getsockname(fd, (struct sockaddr *)at, &len) == 0);
	return fd;
}

/* Nothing is known of any port. */
static int first_listening(struct sockaddr_in *at)
{
	if (!fd_table)
		REQUIRE(fd_table_init() == 0);
	for (int i = 0; i < SLOT_RECORDS; i++)
		atomic_store(&slot_records()[i], 0);
	atomic_store(&slot_costs()->turn_ns, 0);
	atomic_store(&slot_costs()->upgrade_ns, 0);
	return listening(at);
}

/* The last segment came from another processor, as far as the kernel tells. */
static void set_sender_cpu(int fd, int cpu)
{
	REQUIRE(setsockopt(fd, SOL_SOCKET, SO_INCOMING_CPU, &cpu, sizeof(cpu)) == 0);
}

#define NO_CPU_OF_OURS 100000

static struct ends connection(int listener, const struct sockaddr_in *at)
{
	struct ends e = {.a = socket(AF_INET, SOCK_STREAM, 0)};
	REQUIRE(fd_open_socket(e.a, false));
	fd_connecting(fd_sock(e.a), e.a);
	REQUIRE(connect(e.a, (const struct sockaddr *)at, sizeof(*at)) == 0);
	e.b = accept(listener, NULL, NULL);
	REQUIRE(e.b >= 0 && fd_open_accepted(e.b, false));
	set_sender_cpu(e.a, NO_CPU_OF_OURS);
	set_sender_cpu(e.b, NO_CPU_OF_OURS);
	return e;
}

static void ended(struct ends e)
{
	close(e.a);
	fd_forget(e.a);
	close(e.b);
	fd_forget(e.b);
}

static unsigned asked;

/* As each operation on TCP does it. */
static bool is_enough(struct sock *s, int fd, bool sends)
{
	if (earn_goes_on(s->slot, sends))
		return false;
	asked++;
	return earn_enough(s, fd, sends);
}

static uint64_t own_ns; /* time of this processor so far */

static int test_clock(clockid_t clock, struct timespec *t)
{
	if (clock != CLOCK_THREAD_CPUTIME_ID)
		return clock_gettime(clock, t);
	*t = (struct timespec){(time_t)(own_ns / 1000000000),
			       (long)(own_ns % 1000000000)};
	return 0;
}

#endif
