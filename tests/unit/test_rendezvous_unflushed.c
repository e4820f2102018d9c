/* SPDX-License-Identifier: Apache-2.0 */
/* A peer of another user sends a file whose closing never ends: nobody waits for it. */
#include <fcntl.h>
#include <linux/fuse.h>
#include <poll.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/uio.h>

#include "rendezvous/stranger.h"
#include "unit/rendezvous_stranger.h"

enum { NO_PORT = 0x7fffffff };

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

/* A closer has the program's table until it ends, which is a moment after the program. */
static void await_port(int port)
{
	union pair_addr a;
	socklen_t len = pair_address(&a, AF_INET, "127.0.0.1", port);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;

	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	while (bind(fd, &a.any, len) < 0)
		usleep(1000);
	close(fd);
}

/* A process that is left behind with such a file has nothing of the program's. */
TEST(port_of_a_killed_program_is_free)
{
	struct service s;
	int port, status;
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
	await_port(port);
	close(s.port[0]);
	liar_end(&s.liar, liar, 0);
}
