/* SPDX-License-Identifier: Apache-2.0 */
/* Descriptors whose closing never ends, from other users: nobody waits for them. */
#include <fcntl.h>
#include <poll.h>
#include <linux/fuse.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>

#include "rendezvous/stranger.h"
#include "unit/rendezvous_forgery.h"
#include "unit/test.h"
#include "base/real.h"

enum {
	STRANGER = 12345,
	NO_PORT = 0x7fffffff,
	LONG = 1000000,
	VISITORS_LINGER = 80 /* more than there are places */
};

#define NEED_ROOT()                                                                      \
	do {                                                                             \
		if (geteuid() != 0)                                                      \
			SKIP("needs root");                                              \
	} while (0)

static void become_stranger(void)
{
	REQUIRE(setresgid(STRANGER, STRANGER, STRANGER) == 0 &&
		setresuid(STRANGER, STRANGER, STRANGER) == 0);
}

static bool send_fds(int sock, const void *data, size_t len, const int *fds, int count)
{
	char control[CMSG_SPACE(8 * sizeof(int))] = {0};
	struct iovec iov = {.iov_base = (void *)data, .iov_len = len};
	struct msghdr msg = {.msg_iov = &iov,
			     .msg_iovlen = 1,
			     .msg_control = control,
			     .msg_controllen = CMSG_SPACE((size_t)count * sizeof(int))};
	struct cmsghdr *c = CMSG_FIRSTHDR(&msg);

	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN((size_t)count * sizeof(int));
	memcpy(CMSG_DATA(c), fds, (size_t)count * sizeof(int));
	return sendmsg(sock, &msg, MSG_NOSIGNAL) == (ssize_t)len;
}

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

/* Once they have all gone, nothing is left of what came. */
static void await_leftovers(struct leftovers before)
{
	while (leftovers_settle().fds > before.fds)
		usleep(1000);
	CHECK_EQ(leftovers_count().fds, before.fds);
	FDS_SETTLED();
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

static void wait_for(int fd)
{
	char byte;

	CHECK_EQ(read(fd, &byte, 1), 0);
}

/* Leaves sockets that linger with the name, and none of them anywhere else. */
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

/* One visit after the other until nobody has the other end of `go`: sockets that linger, then a harmless file,
 * which is no memory. */
static void visit_on_and_on(void *arg)
{
	struct visit *v = arg;
	struct pollfd go = {.fd = v->go[0]};
	int null = open("/dev/null", O_RDONLY | O_CLOEXEC), other;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	become_stranger();
	for (int i = 0; i < VISITORS_LINGER; i++) {
		int fd = make_lingering(&other);

		while (!is_left_there(v, fd))
			usleep(100);
		close(fd);
	}
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
	do
		r = meet_publish(p.client, &name);
	while (r == -VD_REASON_FULL);
	CHECK_EQ(r, 1);
	CHECK_EQ(meet_offer(p.server, NULL, &s), 1);
	CHECK_EQ(meet_collect(p.client, &name, NULL, &c), 1);
	CHECK_EQ(meet_attached(p.server, &s), 1);
	meet_finish(&c);
	meet_finish(&s);
	pair_close(&p);
	await_leftovers(before);
}

/* ---- the peer itself, of another user, sends a file that is never flushed ---- */

static void answer(int dev, uint64_t unique, const void *data, size_t len)
{
	struct fuse_out_header head = {.len = (uint32_t)(sizeof(head) + len),
				       .unique = unique};
	struct iovec iov[2] = {{&head, sizeof(head)}, {(void *)data, len}};

	REQUIRE(writev(dev, iov, 2) == (ssize_t)head.len);
}

static struct fuse_attr attributes(uint64_t node)
{
	return (struct fuse_attr){.ino = node,
				  .mode = node == 1 ? S_IFDIR | 0755 : S_IFREG | 0666,
				  .nlink = 1};
}

/* Until nobody has the other end of that pipe. */
static bool is_wanted(int dev, int until)
{
	struct pollfd either[2] = {{.fd = dev, .events = POLLIN}, {.fd = until}};

	return poll(either, 2, -1) > 0 && !either[1].revents;
}

/* One file system with one file. */
static void serve(int dev, int until)
{
	static char request[1 << 17];
	const struct fuse_in_header *in = (const void *)request;

	while (is_wanted(dev, until) && read(dev, request, sizeof(request)) > 0) {
		const struct fuse_init_in *init = (const void *)(in + 1);
		struct fuse_init_out hello = {.major = FUSE_KERNEL_VERSION,
					      .minor = init->minor,
					      .max_write = 4096};
		struct fuse_entry_out entry = {.nodeid = 2, .attr = attributes(2)};
		struct fuse_attr_out attr = {.attr = attributes(in->nodeid)};
		struct fuse_open_out open = {.fh = 1};

		if (in->opcode == FUSE_INIT)
			answer(dev, in->unique, &hello, sizeof(hello));
		else if (in->opcode == FUSE_LOOKUP)
			answer(dev, in->unique, &entry, sizeof(entry));
		else if (in->opcode == FUSE_GETATTR)
			answer(dev, in->unique, &attr, sizeof(attr));
		else if (in->opcode == FUSE_OPEN)
			answer(dev, in->unique, &open, sizeof(open));
		/* All else waits for ever. */
	}
}

/* A descriptor of that file, which a child serves while this process has *wanted. Or -1. */
static int open_unflushed(int *wanted)
{
	char folder[] = "/tmp/viaduct-test-XXXXXX", path[64], options[128];
	int dev = open("/dev/fuse", O_RDWR | O_CLOEXEC), until[2], fd;

	if (dev < 0 || pipe2(until, O_CLOEXEC) != 0 || unshare(CLONE_NEWNS) != 0 ||
	    mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 || !mkdtemp(folder))
		return -1;
	snprintf(options, sizeof(options), "fd=%d,rootmode=40000,user_id=0,group_id=0",
		 dev);
	fd = mount("viaduct", folder, "fuse", MS_NOSUID | MS_NODEV, options);
	if (fd == 0) {
		pid_t pid = fork();

		REQUIRE(pid >= 0);
		if (pid == 0) {
			REQUIRE(dup2(dev, 0) == 0 && dup2(until[0], 1) == 1);
			REQUIRE(close_range(3, ~0u, 0) == 0);
			serve(0, 1);
			_exit(0);
		}
		*wanted = until[1];
		snprintf(path, sizeof(path), "%s/file", folder);
		fd = open(path, O_RDWR | O_CLOEXEC);
		umount2(folder, MNT_DETACH);
	}
	close(dev);
	rmdir(folder);
	return fd;
}

struct liar {
	int port[2], ready[2], go[2];
};

static struct hello honest_hello(int server)
{
	struct name_tuple t;
	struct hello h;

	hello_init(&h);
	REQUIRE(tcp_netns_cookie(server, &h.netns) == 0);
	REQUIRE(tcp_cookie(server, &h.acceptor_cookie) == 0);
	REQUIRE(name_of_connection(server, TCP_ROLE_ACCEPTED, &t) == 0);
	h.client = t.client;
	h.server = t.server;
	REQUIRE(hello_counts(server, TCP_ROLE_ACCEPTED, &h.counts) == 0);
	h.acceptor_port = NO_PORT;
	return h;
}

/* Accepts, and offers the file. */
static void lie(void *arg)
{
	struct liar *l = arg;
	struct pair p = {.announced = -1};
	struct hello h;
	int sock, port, file, wanted = -1;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	file = open_unflushed(&wanted);
	if (file < 0)
		_exit(77);
	become_stranger();
	p.listener = pair_listen(AF_INET, "127.0.0.1", 0);
	p.port = pair_local_port(p.listener);
	p.announced = meet_announce(p.listener);
	port = p.port;
	REQUIRE(write(l->port[1], &port, sizeof(port)) == sizeof(port));
	p.server = accept4(p.listener, NULL, NULL, SOCK_CLOEXEC);
	REQUIRE(p.server >= 0);
	REQUIRE(read(p.server, &port, 1) == 1);
	sock = pair_visit(&p);
	REQUIRE(sock >= 0);
	h = honest_hello(p.server);
	REQUIRE(send_fds(sock, &h, sizeof(h), &file, 1));
	close(l->ready[1]);
	close(l->go[1]);
	wait_for(l->go[0]);
	/* Now every flush of it ends: else who has the file could not end either. */
	close(wanted);
	while (wait(NULL) > 0)
		;
}

static pid_t liar_begin(struct liar *l, int *port)
{
	pid_t pid;

	REQUIRE(pipe2(l->port, O_CLOEXEC) == 0 && pipe2(l->ready, O_CLOEXEC) == 0 &&
		pipe2(l->go, O_CLOEXEC) == 0);
	pid = child_start(lie, l);
	close(l->port[1]);
	close(l->ready[1]);
	close(l->go[0]);
	if (read(l->port[0], port, sizeof(*port)) != sizeof(*port))
		*port = -1;
	return pid;
}

static void liar_end(struct liar *l, pid_t pid, int status)
{
	close(l->port[0]);
	close(l->ready[0]);
	close(l->go[1]);
	CHECK_EQ(child_wait(pid), status);
}

/* What it offers is refused. */
static void hear_liar(struct liar *l, int port)
{
	int fd = pair_connect(AF_INET, "127.0.0.1", port, 0), name = -1;
	struct meet_segment c;

	CHECK_EQ(meet_publish(fd, &name), 1);
	CHECK_EQ(write(fd, "x", 1), 1);
	wait_for(l->ready[0]);
	CHECK_EQ(meet_collect(fd, &name, NULL, &c), -VD_REASON_HELLO);
	CHECK_EQ(name, -1);
	close(fd);
}

TEST(peer_that_sends_a_file_that_is_never_flushed)
{
	struct leftovers before;
	struct liar l;
	int port;
	pid_t pid;

	NEED_ROOT();
	before = leftovers_settle();
	pid = liar_begin(&l, &port);
	if (port < 0) {
		liar_end(&l, pid, 77);
		SKIP("no FUSE to be had");
	}
	hear_liar(&l, port);
	before.fds += 3; /* pipes to the liar: the file never had a number here */
	await_leftovers(before);
	liar_end(&l, pid, 0);
	FDS_SETTLED();
	CHECK(!stranger_is_full());
}

struct service {
	struct liar liar;
	int liar_port, port[2];
};

/* Listens, and hears the liar. */
static void serve_until_killed(void *arg)
{
	struct service *s = arg;
	int listener = pair_listen(AF_INET, "127.0.0.1", 0),
	    port = pair_local_port(listener);

	hear_liar(&s->liar, s->liar_port);
	REQUIRE(write(s->port[1], &port, sizeof(port)) == sizeof(port));
	pause();
}

/* A process that is left behind with such a file has nothing of the program's. */
TEST(port_of_a_killed_program_is_free)
{
	struct service s;
	int port, status, listener;
	pid_t liar, pid;

	NEED_ROOT();
	liar = liar_begin(&s.liar, &s.liar_port);
	if (s.liar_port < 0) {
		liar_end(&s.liar, liar, 77);
		SKIP("no FUSE to be had");
	}
	REQUIRE(pipe2(s.port, O_CLOEXEC) == 0);
	pid = child_start(serve_until_killed, &s);
	close(s.port[1]);
	REQUIRE(read(s.port[0], &port, sizeof(port)) == sizeof(port));
	REQUIRE(kill(pid, SIGKILL) == 0);
	REQUIRE(waitpid(pid, &status, 0) == pid);
	listener = pair_listen(AF_INET, "127.0.0.1", port);
	CHECK(listener >= 0);
	close(listener);
	close(s.port[0]);
	liar_end(&s.liar, liar, 0);
}
