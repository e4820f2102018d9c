/* SPDX-License-Identifier: Apache-2.0 */
/* Descriptors whose closing never ends, from other users: nobody waits for them. */
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>

#include "rendezvous/stranger.h"
#include "unit/rendezvous_stranger.h"
#include "base/real.h"

enum {
	LONG = 1000000,
	VISITORS_LINGER = 80 /* more than there are places */
};

/* A TCP socket whose last close lasts as long as `other` does not read: it is never read. */
static int make_lingering(int *other)
{
	static const char bytes[65536];
	struct linger on = {.l_onoff = 1, .l_linger = LONG};
	int listener = pair_listen(AF_INET, "127.0.0.1", 0);
	int fd = pair_connect(AF_INET, "127.0.0.1", pair_local_port(listener), 0);

	*other = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
	REQUIRE(*other >= 0);
	close(listener);
	while (send(fd, bytes, sizeof(bytes), MSG_DONTWAIT) > 0)
		;
	REQUIRE(setsockopt(fd, SOL_SOCKET, SO_LINGER, &on, sizeof(on)) == 0);
	return fd;
}

/* ---- who squats on the name cannot send ---- */

static struct {
	int listener, visitor, refused, asked;
} squatter;

/* The acceptor asks who listens there when it has connected. */
static int send_when_asked(int fd, int level, int name, void *value, socklen_t *len)
{
	if (level == SOL_SOCKET && name == SO_PEERCRED && squatter.asked++ == 0) {
		squatter.visitor = accept4(squatter.listener, NULL, NULL, SOCK_CLOEXEC);
		REQUIRE(squatter.visitor >= 0);
		if (!send_fds(squatter.visitor, "x", 1, &squatter.visitor, 1))
			squatter.refused = errno;
	}
	return getsockopt(fd, level, name, value, len);
}

MEET_TEST(acceptor_takes_nothing)
{
	struct name_tuple t;
	struct sockaddr_un name;
	struct meet_segment s;
	struct pair p;
	socklen_t len;

	pair_open(&p);
	REQUIRE(name_of_connection(p.client, TCP_ROLE_CONNECTED, &t) == 0);
	len = name_address(&t, &name);
	squatter.listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	REQUIRE(bind(squatter.listener, (struct sockaddr *)&name, len) == 0);
	REQUIRE(listen(squatter.listener, 4) == 0);
	real_table.getsockopt = send_when_asked;
	CHECK_EQ(meet_offer(p.server, NULL, &s), 1);
	real_table.getsockopt = getsockopt;
	CHECK(squatter.asked > 0);
	CHECK_EQ(squatter.refused, EPIPE);
	meet_finish(&s);
	close(squatter.visitor);
	close(squatter.listener);
	pair_close(&p);
}

/* ---- a stranger visits ---- */

struct visit {
	struct sockaddr_un name;
	socklen_t len;
	int ready[2], go[2];
};

static void leave_lingering_as_we_are(void *arg)
{
	struct visit *v = arg;
	int others[3], visits[3];

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	for (int i = 0; i < 3; i++) {
		int fd = make_lingering(&others[i]);

		visits[i] = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
		REQUIRE(connect(visits[i], (struct sockaddr *)&v->name, v->len) == 0);
		REQUIRE(send_fds(visits[i], "x", 1, &fd, 1));
		/* Not the last. */
		close(fd);
	}
	close(v->ready[1]);
	close(v->go[1]);
	wait_for(v->go[0]);
}

static void leave_lingering(void *arg)
{
	become_stranger();
	leave_lingering_as_we_are(arg);
}

/* As a process of our user in a container: it cannot stop us. */
static void leave_lingering_from_elsewhere(void *arg)
{
	const struct visit *v = arg;
	pid_t pid;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	REQUIRE(unshare(CLONE_NEWPID) == 0);
	/* It is entered by the next child only. */
	pid = child_start(leave_lingering_as_we_are, arg);
	close(v->ready[1]);
	close(v->go[1]);
	CHECK_EQ(child_wait(pid), 0);
}

static pid_t visit_begin(struct visit *v, const struct pair *p, void (*leave)(void *))
{
	struct name_tuple t;
	pid_t pid;

	REQUIRE(name_of_connection(p->client, TCP_ROLE_CONNECTED, &t) == 0);
	v->len = name_address(&t, &v->name);
	REQUIRE(pipe2(v->ready, O_CLOEXEC) == 0 && pipe2(v->go, O_CLOEXEC) == 0);
	pid = child_start(leave, v);
	close(v->ready[1]);
	close(v->go[0]);
	wait_for(v->ready[0]);
	return pid;
}

static void visit_end(struct visit *v, pid_t pid)
{
	close(v->ready[0]);
	close(v->go[1]);
	CHECK_EQ(child_wait(pid), 0);
}

static void check_visitors(void (*leave)(void *))
{
	struct leftovers before;
	struct meet_segment c, s;
	struct visit v;
	struct pair p;
	int name = -1;
	pid_t pid;

	NEED_ROOT();
	before = leftovers_settle();
	pair_open(&p);
	CHECK_EQ(meet_publish(p.client, &name), 1);
	pid = visit_begin(&v, &p, leave);
	CHECK_EQ(meet_offer(p.server, NULL, &s), 1);
	CHECK_EQ(meet_collect(p.client, &name, NULL, &c), 1);
	CHECK_EQ(meet_attached(p.server, &s), 1);
	visit_end(&v, pid);
	meet_finish(&c);
	meet_finish(&s);
	pair_close(&p);
	await_leftovers(before);
	CHECK(!stranger_is_full());
}

TEST(visitors_that_leave_sockets_that_linger)
{
	check_visitors(leave_lingering);
}

TEST(visitors_of_our_user_in_another_pid_namespace)
{
	NEED_ROOT();
	NEED_UNSHARE(CLONE_NEWPID);
	check_visitors(leave_lingering_from_elsewhere);
}

static void check_name_given_up(void (*leave)(void *))
{
	struct leftovers before;
	struct visit v;
	struct pair p;
	int name = -1;
	pid_t pid;

	NEED_ROOT();
	before = leftovers_settle();
	pair_open(&p);
	CHECK_EQ(meet_publish(p.client, &name), 1);
	pid = visit_begin(&v, &p, leave);
	meet_unpublish(name);
	visit_end(&v, pid);
	pair_close(&p);
	await_leftovers(before);
}

TEST(name_that_is_given_up_with_visitors)
{
	check_name_given_up(leave_lingering);
}

TEST(name_that_is_given_up_with_visitors_in_another_pid_namespace)
{
	NEED_ROOT();
	NEED_UNSHARE(CLONE_NEWPID);
	check_name_given_up(leave_lingering_from_elsewhere);
}

static bool is_left_there(const struct visit *v, int fd)
{
	int visit = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	bool is_left = connect(visit, (struct sockaddr *)&v->name, v->len) == 0 &&
		       send_fds(visit, "x", 1, &fd, 1);

	close(visit);
	return is_left;
}

/*
 * The socket is closed elsewhere by then, perhaps: who closes it last, and goes on living, lingers. So a process that ends
 * leaves it there, and is the last to have it here.
 */
static void leave_one_lingering(const struct visit *v)
{
	int other, closed[2], fd = make_lingering(&other);
	pid_t pid;
	char none;

	REQUIRE(pipe2(closed, O_CLOEXEC) == 0);
	pid = fork();
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		close(closed[1]);
		while (read(closed[0], &none, 1) < 0)
			;
		while (!is_left_there(v, fd))
			usleep(100);
		_exit(0);
	}
	close(fd);
	close(closed[0]);
	close(closed[1]);
	waitpid(pid, NULL, 0);
}

/* One visit after the other until nobody has the other end of `go`: sockets that linger, then a harmless file,
 * which is no memory. */
static void visit_on_and_on(void *arg)
{
	struct visit *v = arg;
	struct pollfd go = {.fd = v->go[0]};
	int null = open("/dev/null", O_RDONLY | O_CLOEXEC);

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	become_stranger();
	for (int i = 0; i < VISITORS_LINGER; i++)
		leave_one_lingering(v);
	close(v->ready[1]);
	close(v->go[1]);
	while (poll(&go, 1, 0) == 0)
		is_left_there(v, null);
}

/* While they come the name may be given up (reason `full`). What has no place waits for one. */
static void collect_until(struct pair *p, int *name, int ready)
{
	struct pollfd all_came = {.fd = ready};
	struct meet_segment c;

	while (poll(&all_came, 1, 0) == 0) {
		int r = *name < 0 ? meet_publish(p->client, name)
				  : meet_collect(p->client, name, NULL, &c);

		CHECK((*name >= 0 && r >= 0) || r == -VD_REASON_FULL);
	}
}

TEST(more_lingering_visitors_than_places)
{
	struct leftovers before;
	struct meet_segment c, s;
	struct name_tuple t;
	struct visit v;
	struct pair p;
	int name = -1, r;
	pid_t pid;

	NEED_ROOT();
	before = leftovers_settle();
	pair_open(&p);
	REQUIRE(name_of_connection(p.client, TCP_ROLE_CONNECTED, &t) == 0);
	v.len = name_address(&t, &v.name);
	REQUIRE(pipe2(v.ready, O_CLOEXEC) == 0 && pipe2(v.go, O_CLOEXEC) == 0);
	CHECK_EQ(meet_publish(p.client, &name), 1);
	pid = child_start(visit_on_and_on, &v);
	close(v.ready[1]);
	close(v.go[0]);
	collect_until(&p, &name, v.ready[0]);
	visit_end(&v, pid);
	/* They have gone: nothing of theirs is left, and the two meet. */
	if (name >= 0)
		meet_unpublish(name);
	name = -1;
	do /* a closer has the name until it ends, a moment later: somebody else's */
		r = meet_publish(p.client, &name);
	while (r == -VD_REASON_FULL || r == -VD_REASON_IDENTITY);
	CHECK_EQ(r, 1);
	CHECK_EQ(meet_offer(p.server, NULL, &s), 1);
	CHECK_EQ(meet_collect(p.client, &name, NULL, &c), 1);
	CHECK_EQ(meet_attached(p.server, &s), 1);
	meet_finish(&c);
	meet_finish(&s);
	pair_close(&p);
	await_leftovers(before);
}
