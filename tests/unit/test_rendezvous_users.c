/* SPDX-License-Identifier: Apache-2.0 */
/* Who may meet whom: users and namespaces, by the kernel's word. */
#include <fcntl.h>
#include <sched.h>
#include <sys/prctl.h>

#include "base/real.h"
#include "rendezvous/farbell.h"
#include "rendezvous/name.h"
#include "unit/rendezvous_pair.h"
#include "unit/test.h"

enum { USER_A = 12345, USER_B = 23456 };

#define NEED_ROOT()                                                                      \
	do {                                                                             \
		if (geteuid() != 0)                                                      \
			SKIP("needs root");                                              \
	} while (0)

static void become(uid_t user)
{
	REQUIRE(setresgid(user, user, user) == 0 && setresuid(user, user, user) == 0);
}

/* Two processes tell each other how far they are. */
struct steps {
	int to_child[2], to_parent[2];
};

static void steps_init(struct steps *s)
{
	REQUIRE(pipe2(s->to_child, O_CLOEXEC) == 0 &&
		pipe2(s->to_parent, O_CLOEXEC) == 0);
}

static void steps_close(struct steps *s)
{
	for (int i = 0; i < 2; i++) {
		close(s->to_child[i]);
		close(s->to_parent[i]);
	}
}

static void tell(int fds[2], int value)
{
	REQUIRE(write(fds[1], &value, sizeof(value)) == sizeof(value));
}

/* A dead writer must end the wait: each side closes the end it does not write to. */
static int hear(int fds[2])
{
	int value = 0;

	return read(fds[0], &value, sizeof(value)) == sizeof(value) ? value : -1;
}

struct meeting {
	struct steps steps;
	struct pair p;
	uid_t user;  /* of the connecting child */
	int unshare; /* namespaces that the child leaves */
	int collect; /* expected of meet_collect in the child */
};

static bool late_change;    /* the child changes its user after its connect */
static uid_t acceptor_user; /* of the parent, once it has begun that child */
static uid_t acting_user;   /* the same behind its accept, and it may be root again */

static void connector_body(void *arg)
{
	struct meeting *m = arg;
	struct meet_segment c;
	int name = -1, fd;

	if (m->user && !late_change)
		become(m->user);
	fd = pair_connect(AF_INET, "127.0.0.1", m->p.port, 0);
	if (m->user && late_change)
		become(m->user);
	CHECK_EQ(meet_publish(fd, &name), 1);
	tell(m->steps.to_parent, 1);
	CHECK_EQ(hear(m->steps.to_child), 1);
	CHECK_EQ(meet_collect(fd, &name, NULL, &c), m->collect);
	if (m->collect == 1) {
		atomic_store(&c.wire->dir[0].consumed, 99);
		CHECK_EQ(c.far_bell >= 0, m->user != 0 || acting_user);
		farbell_ring(c.far_bell);
	}
	tell(m->steps.to_parent, 2);
	CHECK_EQ(hear(m->steps.to_child), 2);
}

static void connector_child(void *arg)
{
	struct meeting *m = arg;

	close(m->steps.to_child[1]);
	close(m->steps.to_parent[0]);
	if (m->unshare) {
		REQUIRE(unshare(m->unshare) == 0);
		/* A pid namespace is entered by the next child only. */
		CHECK_EQ(child_wait(child_start(connector_body, m)), 0);
		return;
	}
	connector_body(m);
}

static void check_meeting(uid_t child_user, int child_unshare, int offer, int collect)
{
	struct meeting m = {
		.user = child_user, .unshare = child_unshare, .collect = collect};
	struct meet_segment s;
	pid_t pid;

	m.p.listener = pair_listen(AF_INET, "127.0.0.1", 0);
	m.p.port = pair_local_port(m.p.listener);
	m.p.announced = meet_announce(m.p.listener);
	steps_init(&m.steps);
	pid = child_start(connector_child, &m);
	if (acceptor_user)
		become(acceptor_user);
	close(m.steps.to_parent[1]);
	close(m.steps.to_child[0]);
	m.p.server = accept4(m.p.listener, NULL, NULL, SOCK_CLOEXEC);
	REQUIRE(m.p.server >= 0);
	if (acting_user)
		REQUIRE(setresuid(acting_user, acting_user, 0) == 0);
	CHECK_EQ(hear(m.steps.to_parent), 1);
	CHECK_EQ(meet_offer(m.p.server, NULL, &s), offer);
	tell(m.steps.to_child, 1);
	CHECK_EQ(hear(m.steps.to_parent), 2);
	if (offer == 1) {
		CHECK_EQ(meet_attached(m.p.server, &s), collect);
		CHECK_EQ(atomic_load(&s.wire->dir[0].consumed), collect == 1 ? 99 : 0);
		CHECK_EQ(s.far_bell >= 0, child_user != 0 || acting_user);
		CHECK_EQ(farbell_answer(s.far_bell), child_user != 0 || acting_user);
		meet_finish(&s);
	}
	if (acting_user)
		REQUIRE(setresuid(0, 0, 0) == 0);
	tell(m.steps.to_child, 2);
	CHECK_EQ(child_wait(pid), 0);
	close(m.steps.to_parent[0]);
	close(m.steps.to_child[1]);
	close(m.p.server);
	close(m.p.listener);
	meet_unannounce(m.p.announced);
}

MEET_TEST(two_processes_of_one_user)
{
	check_meeting(0, 0, 1, 1);
}

MEET_TEST(two_users_by_the_kernels_word)
{
	NEED_ROOT();
	check_meeting(USER_A, 0, 1, 1);
}

/* Processes that changed their user hide their namespaces from each other. */
static void servants(void *arg)
{
	(void)arg;
	become(USER_A);
	CHECK_EQ(prctl(PR_GET_DUMPABLE), 0);
	check_meeting(0, 0, 1, 1);
}

MEET_TEST(two_processes_that_changed_to_one_user)
{
	NEED_ROOT();
	CHECK_EQ(child_wait(child_start(servants, NULL)), 0);
}

/* The kernel vouches for the user who made the socket, not for who uses it now. */
MEET_TEST(change_of_user_after_the_connect)
{
	NEED_ROOT();
	late_change = true;
	check_meeting(USER_A, 0, -VD_REASON_UID, -VD_REASON_UID);
	late_change = false;
}

/* As smbd, which takes the users of its clients in turn: the kernel lets it state whose the socket is. */
MEET_TEST(acceptor_that_acts_as_another_user)
{
	NEED_ROOT();
	acting_user = USER_B;
	check_meeting(0, 0, 1, 1);
	check_meeting(USER_A, 0, 1, 1);
	check_meeting(USER_B, 0, 1, 1);
	acting_user = 0;
}

MEET_TEST(other_pid_namespace)
{
	NEED_UNSHARE(CLONE_NEWPID);
	check_meeting(0, CLONE_NEWPID, -VD_REASON_NAMESPACE, 0);
}

/*
 * A user's process in a container is not the same as his on the host, though all that the kernel says of the sockets is
 * that they belong to him. Neither hiding where it is nor being another user makes it so.
 */
MEET_TEST(other_pid_namespace_of_another_user)
{
	NEED_ROOT();
	NEED_UNSHARE(CLONE_NEWPID);
	check_meeting(USER_A, CLONE_NEWPID, -VD_REASON_NAMESPACE, 0);
}

static void hidden(void *arg)
{
	(void)arg;
	acceptor_user = USER_A;
	check_meeting(USER_A, CLONE_NEWPID, -VD_REASON_NAMESPACE, 0);
}

MEET_TEST(other_pid_namespace_that_is_hidden)
{
	NEED_ROOT();
	NEED_UNSHARE(CLONE_NEWPID);
	CHECK_EQ(child_wait(child_start(hidden, NULL)), 0);
}

static int before_linux_6_5(int fd, int level, int name, void *value, socklen_t *len)
{
	const int peer_pidfd = 77;

	if (level == SOL_SOCKET && name == peer_pidfd) {
		errno = ENOPROTOOPT;
		return -1;
	}
	return getsockopt(fd, level, name, value, len);
}

MEET_TEST(pid_namespaces_on_an_old_kernel)
{
	NEED_ROOT();
	NEED_UNSHARE(CLONE_NEWPID);
	real_table.getsockopt = before_linux_6_5;
	check_meeting(0, 0, 1, 1);
	check_meeting(USER_A, 0, 1, 1);
	check_meeting(USER_A, CLONE_NEWPID, -VD_REASON_NAMESPACE, 0);
	CHECK_EQ(child_wait(child_start(hidden, NULL)), 0);
	real_table.getsockopt = getsockopt;
}

MEET_TEST(other_user_namespace)
{
	NEED_UNSHARE(CLONE_NEWUSER);
	check_meeting(0, CLONE_NEWUSER, -VD_REASON_NAMESPACE, 0);
}

/* ---- squatters and strangers: root's connection, somebody else's rendezvous ---- */

struct intruder {
	struct steps steps;
	struct sockaddr_un name;
	socklen_t name_len;
};

static void intruder_init(struct intruder *in, const struct pair *p)
{
	struct name_tuple t;

	REQUIRE(name_of_connection(p->client, TCP_ROLE_CONNECTED, &t) == 0);
	in->name_len = name_address(&t, &in->name);
	steps_init(&in->steps);
}

static void squat(void *arg)
{
	struct intruder *in = arg;
	int fd;

	become(USER_A);
	fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	REQUIRE(bind(fd, (struct sockaddr *)&in->name, in->name_len) == 0);
	REQUIRE(listen(fd, 4) == 0);
	close(in->steps.to_child[1]);
	tell(in->steps.to_parent, 1);
	CHECK_EQ(hear(in->steps.to_child), 1);
}

MEET_TEST(squatter_of_another_user)
{
	struct meet_segment s;
	struct intruder in;
	struct pair p;
	int name = -1;
	pid_t pid;

	NEED_ROOT();
	pair_open(&p);
	intruder_init(&in, &p);
	pid = child_start(squat, &in);
	CHECK_EQ(hear(in.steps.to_parent), 1);
	CHECK_EQ(meet_publish(p.client, &name), -VD_REASON_IDENTITY);
	CHECK_EQ(name, -1);
	CHECK_EQ(meet_offer(p.server, NULL, &s), -VD_REASON_UID);
	tell(in.steps.to_child, 1);
	CHECK_EQ(child_wait(pid), 0);
	steps_close(&in.steps);
	pair_close(&p);
}

/* Visits with a message that would end the matter, came it from the right user. */
static void intrude(void *arg)
{
	struct intruder *in = arg;
	int fd;

	become(USER_A);
	for (int i = 0; i < 3; i++) {
		fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
		REQUIRE(connect(fd, (struct sockaddr *)&in->name, in->name_len) == 0);
		CHECK_EQ(send(fd, "rubbish", 7, 0), 7);
	}
	close(in->steps.to_child[1]);
	tell(in->steps.to_parent, 1);
	CHECK_EQ(hear(in->steps.to_child), 1);
}

/* Where no user is stated the kernel says 65534, who may be the socket's. */
MEET_TEST(no_user_is_not_nobody)
{
	struct meet_segment c;
	struct intruder in;
	struct pair p;
	int name = -1;
	pid_t pid;

	NEED_ROOT();
	REQUIRE(seteuid(65534) == 0);
	pair_open(&p);
	REQUIRE(seteuid(0) == 0);
	CHECK_EQ(meet_publish(p.client, &name), 1);
	intruder_init(&in, &p);
	pid = child_start(intrude, &in);
	CHECK_EQ(hear(in.steps.to_parent), 1);
	CHECK_EQ(meet_collect(p.client, &name, NULL, &c), 0);
	CHECK_EQ(c.turned_away, VD_REASON_UID);
	meet_unpublish(name);
	tell(in.steps.to_child, 1);
	CHECK_EQ(child_wait(pid), 0);
	steps_close(&in.steps);
	pair_close(&p);
}

MEET_TEST(strangers_do_not_keep_the_acceptor_out)
{
	struct meet_segment c, s;
	struct intruder in;
	struct pair p;
	int name = -1;
	pid_t pid;

	NEED_ROOT();
	pair_open(&p);
	CHECK_EQ(meet_publish(p.client, &name), 1);
	intruder_init(&in, &p);
	pid = child_start(intrude, &in);
	CHECK_EQ(hear(in.steps.to_parent), 1);
	CHECK_EQ(meet_offer(p.server, NULL, &s), 1);
	CHECK_EQ(meet_collect(p.client, &name, NULL, &c), 1);
	CHECK_EQ(meet_attached(p.server, &s), 1);
	tell(in.steps.to_child, 1);
	CHECK_EQ(child_wait(pid), 0);
	steps_close(&in.steps);
	meet_finish(&c);
	meet_finish(&s);
	pair_close(&p);
}
