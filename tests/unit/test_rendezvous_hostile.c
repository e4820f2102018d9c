/* SPDX-License-Identifier: Apache-2.0 */
/* The rendezvous with a peer that lies: each lie is refused, and leaves nothing behind. */
#include <fcntl.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/timerfd.h>

#include "unit/rendezvous_forgery.h"
#include "unit/test.h"

MEET_TEST(honest_forgery_is_taken)
{
	struct forgery f;

	forgery_begin(&f);
	forgery_send(&f);
	forgery_end(&f, 1);
}

/* ---- the message ---- */

#define LIE(id, reason, ...)                                                             \
	MEET_TEST(id)                                                                    \
	{                                                                                \
		struct forgery f;                                                        \
		forgery_begin(&f);                                                       \
		__VA_ARGS__;                                                             \
		forgery_send(&f);                                                        \
		forgery_end(&f, -(reason));                                              \
	}

LIE(wrong_magic, VD_REASON_HELLO, f.hello.magic ^= 1)
LIE(wrong_version, VD_REASON_VERSION, f.hello.version++)
LIE(wrong_hello_size, VD_REASON_VERSION, f.hello.hello_bytes += 8)
LIE(wrong_header_size, VD_REASON_VERSION, f.hello.header_bytes += 64)
LIE(wrong_dir_size, VD_REASON_VERSION, f.hello.dir_bytes += 64)
LIE(wrong_area_size, VD_REASON_VERSION, f.hello.area_bytes[2] *= 2)
LIE(wrong_total, VD_REASON_VERSION, f.hello.total_bytes += 4096)
LIE(wrong_client, VD_REASON_IDENTITY, f.hello.client.port ^= 1)
LIE(wrong_server, VD_REASON_IDENTITY, f.hello.server.addr[15] ^= 1)
LIE(wrong_client_as_seen, VD_REASON_IDENTITY, f.hello.seen_client.port ^= 1)
LIE(wrong_server_as_seen, VD_REASON_IDENTITY, f.hello.seen_server.port ^= 1)
/* Where the kernel rewrites nothing, nobody is believed who says that it does. */
LIE(wrong_server_as_shown, VD_REASON_IDENTITY, f.hello.seen_server.port ^= 1;
    f.hello.is_shown = 1)
LIE(wrong_connector_cookie, VD_REASON_IDENTITY, f.hello.connector_cookie++)
LIE(wrong_acceptor_cookie, VD_REASON_IDENTITY, f.hello.acceptor_cookie++)
LIE(wrong_netns, VD_REASON_IDENTITY, f.hello.netns++)
LIE(acked_more_than_arrived, VD_REASON_IDENTITY, f.hello.counts.acked = 51)
LIE(received_more_than_written, VD_REASON_IDENTITY, f.hello.counts.received = 101)
/* Whoever declines says why, by a number that may be anything. */
LIE(declined, VD_REASON_OPTION, f.hello.declined = VD_REASON_OPTION)
LIE(declined_as_too_short, VD_REASON_PEER_ASKED, f.hello.declined = VD_REASON_SHORT)
LIE(declined_past_the_list, VD_REASON_PEER_ASKED, f.hello.declined = VD_REASON_COUNT)
LIE(declined_at_random, VD_REASON_PEER_ASKED, f.hello.declined = UINT16_MAX)
LIE(declined_for_another, VD_REASON_IDENTITY, f.hello.declined = VD_REASON_OPTION;
    f.hello.connector_cookie++)
LIE(wrong_magic_in_the_memory, VD_REASON_HELLO, f.seg.wire->magic++)
LIE(wrong_version_in_the_memory, VD_REASON_HELLO, f.seg.wire->version++)
LIE(wrong_area_in_the_memory, VD_REASON_HELLO, f.seg.wire->area_bytes[0]--)

/* Sends len bytes of data with the descriptors. */
static void send_raw(const struct pair *p, const void *data, size_t len, const int *fds,
		     int count)
{
	char control[CMSG_SPACE(16 * sizeof(int))] = {0};
	struct iovec iov = {.iov_base = (void *)data, .iov_len = len};
	struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
	int sock = pair_visit(p);

	REQUIRE(sock >= 0 && count <= 16);
	if (count) {
		size_t bytes = (size_t)count * sizeof(int);
		struct cmsghdr *c = (struct cmsghdr *)control;
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(bytes);
		memcpy(CMSG_DATA(c), fds, bytes);
		msg.msg_control = control;
		msg.msg_controllen = CMSG_SPACE(bytes);
	}
	CHECK_EQ(sendmsg(sock, &msg, MSG_NOSIGNAL), len);
	close(sock);
}

static void check_raw_from(uint32_t port, size_t len, int fd_count)
{
	struct forgery f;
	char data[2 * sizeof(struct hello)] = {0};
	int fds[16];

	forgery_begin(&f);
	f.hello.acceptor_port = port;
	memcpy(data, &f.hello, sizeof(f.hello));
	for (int i = 0; i < 16; i++)
		fds[i] = i % 3 == 0   ? f.seg.memfd
			 : i % 3 == 1 ? f.seg.bell
				      : f.seg.peer_bell;
	send_raw(&f.pair, data, len, fds, fd_count);
	forgery_end(&f, -VD_REASON_HELLO);
}

MEET_TEST(declined_with_descriptors)
{
	struct forgery f;

	forgery_begin(&f);
	f.hello.declined = VD_REASON_OPTION;
	send_raw(&f.pair, &f.hello, sizeof(f.hello),
		 (int[]){f.seg.memfd, f.seg.bell, f.seg.peer_bell}, 3);
	forgery_end(&f, -VD_REASON_HELLO);
}

static void check_raw(size_t len, int fd_count)
{
	check_raw_from(0, len, fd_count);
}

MEET_TEST(message_too_short)
{
	check_raw(sizeof(struct hello) - 1, 3);
}

MEET_TEST(message_too_long)
{
	check_raw(sizeof(struct hello) + 1, 3);
}

MEET_TEST(one_byte)
{
	check_raw(1, 0);
}

MEET_TEST(no_descriptors)
{
	check_raw(sizeof(struct hello), 0);
}

MEET_TEST(one_descriptor)
{
	check_raw(sizeof(struct hello), 1);
}

/* Between users it is one: the memory, and no doorbell. */
MEET_TEST(far_bell_without_descriptors)
{
	check_raw_from(UINT32_MAX, sizeof(struct hello), 0);
}

MEET_TEST(far_bell_and_others_with_it)
{
	check_raw_from(UINT32_MAX, sizeof(struct hello), 3);
}

MEET_TEST(two_descriptors)
{
	check_raw(sizeof(struct hello), 2);
}

MEET_TEST(four_descriptors)
{
	check_raw(sizeof(struct hello), 4);
}

MEET_TEST(sixteen_descriptors)
{
	check_raw(sizeof(struct hello), 16);
}

MEET_TEST(empty_message_with_descriptors)
{
	struct meet_segment c;
	struct forgery f;
	int fds[2];

	forgery_begin(&f);
	fds[0] = f.seg.memfd;
	fds[1] = f.seg.bell;
	send_raw(&f.pair, "", 0, fds, 2);
	/* Not a word: the next visitor may be the right one. */
	CHECK_EQ(meet_collect(f.pair.client, &f.name, NULL, &c), 0);
	forgery_send(&f);
	forgery_end(&f, 1);
}

/* ---- the memory ---- */

enum { ALL_SEALS = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL };

static void check_memory(int fd)
{
	struct forgery f;

	REQUIRE(fd >= 0);
	forgery_begin(&f);
	fds_close(f.seg.memfd);
	f.seg.memfd = fd;
	forgery_send(&f);
	forgery_end(&f, -VD_REASON_HELLO);
}

/* Gives a file what an honest segment begins with, so that only the file is at fault. */
static int with_header(int fd)
{
	struct meet_segment honest;

	REQUIRE(segment_create(false, 0, NULL, &honest) == 1);
	REQUIRE(pwrite(fd, honest.wire, sizeof(struct wire), 0) == sizeof(struct wire));
	meet_finish(&honest);
	return fd;
}

static int make_memfd(unsigned flags, off_t size, int seals)
{
	int fd = memfd_create("hostile", MFD_CLOEXEC | MFD_ALLOW_SEALING | flags);

	if (fd >= 0 && !(flags & MFD_HUGETLB))
		with_header(fd);
	if (fd >= 0 && ftruncate(fd, size) == 0 && fcntl(fd, F_ADD_SEALS, seals) == 0)
		return fd;
	if (fd >= 0)
		close(fd);
	return -1;
}

MEET_TEST(memory_as_it_should_be)
{
	struct forgery f;

	forgery_begin(&f);
	fds_close(f.seg.memfd);
	f.seg.memfd = make_memfd(0, WIRE_TOTAL_BYTES, ALL_SEALS);
	forgery_send(&f);
	forgery_end(&f, 1);
}

MEET_TEST(memory_without_seals)
{
	check_memory(make_memfd(0, WIRE_TOTAL_BYTES, 0));
}

MEET_TEST(memory_that_can_shrink)
{
	check_memory(make_memfd(0, WIRE_TOTAL_BYTES, F_SEAL_GROW | F_SEAL_SEAL));
}

MEET_TEST(memory_that_can_grow)
{
	check_memory(make_memfd(0, WIRE_TOTAL_BYTES, F_SEAL_SHRINK | F_SEAL_SEAL));
}

MEET_TEST(memory_that_can_be_sealed_further)
{
	check_memory(make_memfd(0, WIRE_TOTAL_BYTES, F_SEAL_SHRINK | F_SEAL_GROW));
}

MEET_TEST(memory_that_nobody_can_write)
{
	check_memory(make_memfd(0, WIRE_TOTAL_BYTES, ALL_SEALS | F_SEAL_WRITE));
}

MEET_TEST(memory_too_short)
{
	check_memory(make_memfd(0, WIRE_TOTAL_BYTES - 4096, ALL_SEALS));
}

MEET_TEST(memory_too_long)
{
	check_memory(make_memfd(0, WIRE_TOTAL_BYTES + 4096, ALL_SEALS));
}

MEET_TEST(huge_pages)
{
	off_t huge = 2 << 20;
	int fd =
		make_memfd(MFD_HUGETLB,
			   ((off_t)WIRE_TOTAL_BYTES + huge - 1) / huge * huge, ALL_SEALS);

	if (fd < 0)
		SKIP("no hugetlbfs here");
	check_memory(fd);
}

MEET_TEST(memory_for_reading_only)
{
	char path[64];
	int fd = make_memfd(0, WIRE_TOTAL_BYTES, ALL_SEALS), read_only;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	read_only = open(path, O_RDONLY | O_CLOEXEC);
	close(fd);
	check_memory(read_only);
}

MEET_TEST(ordinary_file)
{
	char path[] = "/tmp/viaduct-hostile-XXXXXX";
	int fd = mkostemp(path, O_CLOEXEC);

	REQUIRE(fd >= 0 && ftruncate(fd, WIRE_TOTAL_BYTES) == 0);
	unlink(path);
	check_memory(with_header(fd));
}

MEET_TEST(pipe_as_memory)
{
	int fds[2];

	REQUIRE(pipe2(fds, O_CLOEXEC) == 0);
	close(fds[1]);
	check_memory(fds[0]);
}

/* ---- the doorbells ---- */

static void check_bell(int fd)
{
	for (int which = 0; which < 2; which++) {
		struct forgery f;
		int copy = fcntl(fd, F_DUPFD_CLOEXEC, 3);

		REQUIRE(copy >= 0);
		forgery_begin(&f);
		fds_close(which ? f.seg.bell : f.seg.peer_bell);
		*(which ? &f.seg.bell : &f.seg.peer_bell) = copy;
		forgery_send(&f);
		forgery_end(&f, -VD_REASON_HELLO);
	}
	close(fd);
}

MEET_TEST(pipe_as_bell)
{
	int fds[2];

	REQUIRE(pipe2(fds, O_CLOEXEC | O_NONBLOCK) == 0);
	check_bell(fds[0]);
	check_bell(fds[1]);
}

MEET_TEST(timerfd_as_bell)
{
	check_bell(timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC));
}

MEET_TEST(blocking_timerfd_as_bell)
{
	check_bell(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC));
}

MEET_TEST(epoll_as_bell)
{
	check_bell(epoll_create1(EPOLL_CLOEXEC));
}

MEET_TEST(socket_as_bell)
{
	int fds[2];

	REQUIRE(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) == 0);
	check_bell(fds[0]);
	close(fds[1]);
}

MEET_TEST(blocking_bell_is_made_nonblocking)
{
	struct meet_segment c;
	struct forgery f;

	forgery_begin(&f);
	REQUIRE(fcntl(f.seg.bell, F_SETFL, O_RDWR) == 0);
	REQUIRE(fcntl(f.seg.peer_bell, F_SETFL, O_RDWR) == 0);
	forgery_send(&f);
	REQUIRE(meet_collect(f.pair.client, &f.name, NULL, &c) == 1);
	CHECK(fcntl(c.bell, F_GETFL) & O_NONBLOCK);
	CHECK(fcntl(c.peer_bell, F_GETFL) & O_NONBLOCK);
	meet_finish(&c);
	meet_finish(&f.seg);
	pair_close(&f.pair);
}

/* ---- limits ---- */

MEET_TEST(no_room_for_descriptors)
{
	struct rlimit old, low;
	struct meet_segment c;
	struct forgery f;
	int lowest, r;

	forgery_begin(&f);
	forgery_send(&f);
	lowest = dup(0);
	close(lowest);
	REQUIRE(getrlimit(RLIMIT_NOFILE, &old) == 0);
	low = old;
	for (rlim_t room = 0; room < 4; room++) {
		low.rlim_cur = (rlim_t)lowest + room;
		REQUIRE(setrlimit(RLIMIT_NOFILE, &low) == 0);
		r = meet_collect(f.pair.client, &f.name, NULL, &c);
		REQUIRE(setrlimit(RLIMIT_NOFILE, &old) == 0);
		CHECK_EQ(r, -VD_REASON_FD_LIMIT);
		CHECK_EQ(f.name, -1);
		/* What nobody could accept is closed by a process of its own, and the name with it. */
		while ((r = meet_publish(f.pair.client, &f.name)) == -VD_REASON_IDENTITY)
			usleep(1000);
		REQUIRE(r == 1);
		forgery_send(&f);
	}
	forgery_end(&f, 1);
}
