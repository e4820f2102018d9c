/* SPDX-License-Identifier: Apache-2.0 */
/* Whether viaductd is there, while it is started anew. */
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "unit/test.h"

#include "base/clock.h"
#include "remote/presence.h"

static char name[64];

static void make(void)
{
	int fd;

	snprintf(name, sizeof(name), "/tmp/viaduct-presence-%d", (int)getpid());
	fd = open(name, O_CREAT | O_RDWR | O_CLOEXEC, 0600);
	REQUIRE(fd >= 0);
	close(fd);
}

/* Another look is due. */
static bool look_again(struct presence *p)
{
	p->looked_ms = clock_coarse_ms() - RETRY_MS;
	return presence_look(p, name);
}

TEST(a_daemon_that_was_never_there_is_not)
{
	struct presence p = {0};

	CHECK(!presence_look(&p, "/nonexistent"));
	CHECK(!presence_look(&p, "/nonexistent"));
}

TEST(a_daemon_that_comes_is_seen)
{
	struct presence p = {0};

	CHECK(!presence_look(&p, "/nonexistent"));
	make();
	CHECK(look_again(&p));
	unlink(name);
}

/* One that begins removes the name that another has left, and makes its own. */
TEST(a_name_that_is_away_for_a_moment_is_waited_for)
{
	struct presence p = {0};

	make();
	CHECK(presence_look(&p, name));
	unlink(name);
	CHECK(look_again(&p));
	CHECK(look_again(&p));
	/* Seen by another thread, later than this one has asked for the time. */
	p.there_ms = clock_coarse_ms() + 1000;
	CHECK(look_again(&p));
}

TEST(a_daemon_that_does_not_come_back_is_gone)
{
	struct presence p = {0};

	make();
	CHECK(presence_look(&p, name));
	unlink(name);
	p.there_ms -= GONE_MS + 1;
	CHECK(!look_again(&p));
	/* By another clock than ours, as in a child in a time namespace. */
	p.there_ms = clock_coarse_ms() + GONE_MS + 1000;
	CHECK(!look_again(&p));
	make();
	CHECK(look_again(&p));
	unlink(name);
}
