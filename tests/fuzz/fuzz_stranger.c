/* SPDX-License-Identifier: Apache-2.0 */
/* Messages with descriptors from a process of another user: rendezvous/stranger.c, hello.c.
 * Nothing but memory files and eventfds gets a number, and nothing is left behind.
 * Not reached: a place for none of its processes, and descriptors whose closing hangs
 * (test_rendezvous_strangers.c has both). */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fds.h"
#include "fuzz/fuzz.h"
#include "rendezvous/stranger.h"

enum { KINDS = 8, FDS_MOST = 5, MESSAGES = 3 };
enum { ENDS_FIRST = 1, SHUTS = 2 }; /* what the stranger does before it is heard */

static int kinds[KINDS];
static unsigned fds_before;

static unsigned count_fds(void)
{
	DIR *dir = opendir("/proc/self/fd");
	unsigned n = 0;

	FUZZ_CHECK(dir);
	while (readdir(dir))
		n++;
	closedir(dir);
	return n;
}

static void begin(void)
{
	static char page[4096];
	int pair[2];

	kinds[0] = memfd_create("a", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	kinds[1] = memfd_create("b", MFD_CLOEXEC);
	kinds[2] = eventfd(0, EFD_CLOEXEC);
	FUZZ_CHECK(pwrite(kinds[1], page, sizeof(page), 0) == sizeof(page));
	FUZZ_CHECK(pipe2(pair, O_CLOEXEC) == 0);
	kinds[3] = pair[0];
	kinds[4] = open("/dev/null", O_RDONLY | O_CLOEXEC);
	kinds[5] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	kinds[6] = epoll_create1(EPOLL_CLOEXEC);
	kinds[7] = open("/", O_PATH | O_CLOEXEC);
}

static bool is_harmless_kind(int fd)
{
	char path[32], name[64];
	ssize_t n;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	n = readlink(path, name, sizeof(name) - 1);
	FUZZ_CHECK(n > 0);
	name[n] = '\0';
	return !strncmp(name, "/memfd:", 7) || !strcmp(name, "anon_inode:[eventfd]");
}

static void send_one(int sock, struct fuzz_bytes *b)
{
	char control[CMSG_SPACE(FDS_MOST * sizeof(int))] = {0};
	unsigned count = (unsigned)fuzz_number(b, 1) % (FDS_MOST + 1);
	size_t len = (size_t)fuzz_number(b, 1);
	uint8_t text[256];
	struct iovec iov = {.iov_base = text, .iov_len = len};
	struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
	struct cmsghdr *c;
	int fds[FDS_MOST];

	for (unsigned i = 0; i < count; i++)
		fds[i] = kinds[fuzz_number(b, 1) % KINDS];
	fuzz_take(b, text, len);
	if (count) {
		msg.msg_control = control;
		msg.msg_controllen = CMSG_SPACE(count * sizeof(int));
		c = CMSG_FIRSTHDR(&msg);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(count * sizeof(int));
		memcpy(CMSG_DATA(c), fds, count * sizeof(int));
	}
	FUZZ_CHECK(sendmsg(sock, &msg, MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)len);
}

size_t fuzz_seed(unsigned n, uint8_t out[FUZZ_MAX])
{
	/* flags, messages; descriptors, length, their kinds */
	static const uint8_t heads[][8] = {
		{0, 1, 1, sizeof(struct hello), 0},
		{0, 1, 3, sizeof(struct hello), 0, 2, 2},
		{ENDS_FIRST, 2, 0, 0, 1, sizeof(struct hello), 0},
		{0, 1, 1, sizeof(struct hello), 4},
	};
	static const size_t lens[] = {5, 7, 7, 5};
	struct hello h;

	if (n >= sizeof(lens) / sizeof(lens[0]))
		return 0;
	hello_init(&h);
	h.acceptor_port = n != 1;
	memcpy(out, heads[n], lens[n]);
	memcpy(out + lens[n], &h, sizeof(h));
	return lens[n] + sizeof(h);
}

static void hear(int sock)
{
	int fds[SEGMENT_FDS];
	struct hello h;
	int r = stranger_hello(sock, &h, fds);

	FUZZ_CHECK(r == 1 || r == 0 || r == -EPIPE || r == -EPROTO);
	for (int i = 0; r == 1 && i < SEGMENT_FDS; i++) {
		FUZZ_CHECK((fds[i] >= 0) == (i == SEGMENT_MEMFD || !h.acceptor_port));
		FUZZ_CHECK(fds[i] < 0 || is_harmless_kind(fds[i]));
		fds_close(fds[i]);
	}
}

/* Once its processes have ended, there is what there was. */
static void check_fds(void)
{
	while (stranger_is_full())
		sched_yield();
	if (!fds_before)
		fds_before = count_fds();
	FUZZ_CHECK(count_fds() == fds_before);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fuzz_bytes b = {data, size};
	static unsigned turn;
	unsigned flags, count;
	int pair[2];

	if (!kinds[KINDS - 1])
		begin();
	FUZZ_CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0,
			      pair) == 0);
	flags = (unsigned)fuzz_number(&b, 1);
	count = (unsigned)fuzz_number(&b, 1) % (MESSAGES + 1);
	for (unsigned i = 0; i < count; i++)
		send_one(pair[0], &b);
	if (flags & SHUTS)
		shutdown(pair[0], SHUT_RDWR);
	if (flags & ENDS_FIRST)
		close(pair[0]);
	hear(pair[1]);
	stranger_close(pair[1]);
	if (!(flags & ENDS_FIRST))
		close(pair[0]);
	if (fuzz_is_turn(&turn))
		check_fds();
	return 0;
}
