/* SPDX-License-Identifier: Apache-2.0 */
/* An offer between two processes of one host: the hello, the descriptors that come with it, and
 * the memory, as a forger who stands in the acceptor's place sends them: rendezvous/hello.c, segment.c,
 * connector.c.
 * Not reached: forgers of other users and namespaces (ident.c), since the forger is this process;
 * full tables of descriptors; the acceptor's side, which is told nothing but words of the memory. */
#include "fuzz/rig.h"
#include "unit/rendezvous_forgery.h"

#include <dirent.h>
#include <fcntl.h>

/* What stands for a descriptor in an input. */
enum {
	FD_MEMORY,
	FD_BELL,
	FD_PEER_BELL,
	FD_SMALL,
	FD_LOOSE,
	FD_PIPE,
	FD_TCP,
	FD_FOLDER,
	FDS
};
enum { NAME_VISITORS = 1, VISITOR_STAYS = 2, AT_PLACE = 4, IN_TWO = 8 };
enum { FDS_MOST = 8, CHANGES_MOST = 16 };

static struct forgery f;
static int fds[FDS];
static int fds_before;

static int count_fds(void)
{
	DIR *dir = opendir("/proc/self/fd");
	int n = 0;

	FUZZ_CHECK(dir);
	while (readdir(dir))
		n++;
	closedir(dir);
	return n;
}

static void make_fds(void)
{
	int both[2];

	fds[FD_SMALL] = memfd_create("fuzz", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	fds[FD_LOOSE] = memfd_create("fuzz", MFD_CLOEXEC);
	FUZZ_CHECK(pipe(both) == 0 && ftruncate(fds[FD_SMALL], 4096) == 0 &&
		   ftruncate(fds[FD_LOOSE], WIRE_TOTAL_BYTES) == 0);
	fds[FD_PIPE] = both[0];
	fds[FD_FOLDER] = open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

/* One connection for all inputs; each has an offer of its own. */
static void begin(void)
{
	struct name_tuple t;

	f.name = -1;
	pair_open(&f.pair);
	pair_talk(&f.pair, 100);
	make_fds();
	hello_init(&f.hello);
	FUZZ_CHECK(tcp_netns_cookie(f.pair.server, &f.hello.netns) == 0);
	FUZZ_CHECK(tcp_cookie(f.pair.server, &f.hello.acceptor_cookie) == 0);
	FUZZ_CHECK(tcp_cookie(f.pair.client, &f.hello.connector_cookie) == 0);
	FUZZ_CHECK(name_of_connection(f.pair.server, TCP_ROLE_ACCEPTED, &t) == 0);
	f.hello.client = f.hello.seen_client = t.client;
	f.hello.server = f.hello.seen_server = t.server;
	FUZZ_CHECK(hello_counts(f.pair.server, TCP_ROLE_ACCEPTED, &f.hello.counts) == 0);
}

/*
 * An input: flags; the length of the message, less that of a hello; descriptors: how many, and
 * which; changes of the hello: how many, and an offset and what is added of each; changes of the
 * memory's header: how many, and an offset of 2 bytes and a word of each.
 */
size_t fuzz_seed(unsigned n, uint8_t out[FUZZ_MAX])
{
	static const uint8_t seeds[][18] = {
		{0, 0, 3, FD_MEMORY, FD_BELL, FD_PEER_BELL},
		{AT_PLACE | VISITOR_STAYS, 0, 3, FD_MEMORY, FD_BELL, FD_PEER_BELL},
		/* Of another user: the memory alone, and the number of a far bell. */
		{0, 0, 1, FD_MEMORY, 1, offsetof(struct hello, acceptor_port), 77},
		{IN_TWO, 0, 3, FD_MEMORY, FD_BELL, FD_PEER_BELL, 1,
		 offsetof(struct hello, version), 1},
		{NAME_VISITORS, 0, 3, FD_MEMORY, FD_BELL, FD_PEER_BELL, 0, 2, 0, 0, 1, 0,
		 0, 0, 8, 0},
		{0, 255, 4, FD_MEMORY, FD_TCP, FD_LOOSE, FD_FOLDER},
		{0, 0, 3, FD_MEMORY, FD_BELL, FD_PEER_BELL, 1,
		 offsetof(struct hello, is_shown) + 3, 1},
	};

	if (n >= sizeof(seeds) / sizeof(seeds[0]))
		return 0;
	memcpy(out, seeds[n], sizeof(seeds[n]));
	return sizeof(seeds[n]);
}

struct message {
	uint8_t bytes[2 * sizeof(struct hello)];
	size_t len;
	int fds[FDS_MOST];
	uint8_t kinds[FDS_MOST];
	unsigned count;
};

static void read_message(struct fuzz_bytes *b, struct message *m)
{
	unsigned changes;

	memcpy(m->bytes, &f.hello, sizeof(f.hello));
	m->len = sizeof(f.hello) + (size_t)(int8_t)fuzz_number(b, 1);
	m->count = (unsigned)fuzz_number(b, 1) % (FDS_MOST + 1);
	for (unsigned i = 0; i < m->count; i++) {
		m->kinds[i] = (uint8_t)fuzz_number(b, 1) % FDS;
		m->fds[i] = fds[m->kinds[i]];
	}
	changes = (unsigned)fuzz_number(b, 1) % CHANGES_MOST;
	while (changes--) {
		size_t at = fuzz_number(b, 1) % sizeof(m->bytes);

		m->bytes[at] = (uint8_t)(m->bytes[at] + fuzz_number(b, 1));
	}
}

static void change_memory(struct fuzz_bytes *b)
{
	unsigned changes = (unsigned)fuzz_number(b, 1) % CHANGES_MOST;

	while (changes--) {
		size_t at = fuzz_number(b, 2) % (WIRE_HEADER_BYTES / 4);

		((uint32_t *)f.seg.wire)[at] = (uint32_t)fuzz_number(b, 4);
	}
}

static void put_fds(struct msghdr *msg, const int *from, unsigned count)
{
	struct cmsghdr *c =
		(struct cmsghdr *)((char *)msg->msg_control + msg->msg_controllen);

	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(count * sizeof(int));
	memcpy(CMSG_DATA(c), from, count * sizeof(int));
	msg->msg_controllen += CMSG_SPACE(count * sizeof(int));
}

/* The visitor's socket, or -1. */
static int visit(const struct message *m, unsigned flags)
{
	char control[2 * CMSG_SPACE(FDS_MOST * sizeof(int))] = {0};
	struct iovec iov = {.iov_base = (void *)m->bytes, .iov_len = m->len};
	struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = control};
	unsigned first = flags & IN_TWO && m->count ? m->count / 2 : m->count;
	int sock = pair_visit(&f.pair);

	FUZZ_CHECK(sock >= 0);
	if (first)
		put_fds(&msg, m->fds, first);
	if (m->count > first)
		put_fds(&msg, m->fds + first, m->count - first);
	if (msg.msg_controllen == 0)
		msg.msg_control = NULL;
	FUZZ_CHECK(sendmsg(sock, &msg, MSG_NOSIGNAL) == (ssize_t)m->len);
	if (flags & VISITOR_STAYS)
		return sock;
	close(sock);
	return -1;
}

static bool is_bell(uint8_t kind)
{
	return kind == FD_BELL || kind == FD_PEER_BELL;
}

/* Taken: only what an honest acceptor could have sent. */
static void check_taken(const struct message *m, const struct meet_segment *s)
{
	struct hello h;
	struct wire_counts none = {0};

	memcpy(&h, m->bytes, sizeof(h));
	FUZZ_CHECK(m->len == sizeof(h) && m->kinds[0] == FD_MEMORY);
	FUZZ_CHECK(h.acceptor_port ? m->count == 1 && s->far_bell >= 0
				   : m->count == 3 && is_bell(m->kinds[1]) &&
					     is_bell(m->kinds[2]));
	FUZZ_CHECK(h.counts.acked <= f.hello.counts.acked + 1 &&
		   h.counts.received <= f.hello.counts.received + 1);
	/* A feature that is not known is not used; and who has shown what is not rewritten does not matter. */
	h.acceptor_port = h.features = h.is_shown = 0;
	h.counts = none;
	none = f.hello.counts;
	f.hello.counts = h.counts;
	FUZZ_CHECK(memcmp(&h, &f.hello, sizeof(h)) == 0);
	f.hello.counts = none;
	FUZZ_CHECK(s->wire->handshake == WIRE_ATTACHED);
}

static void collect(const struct message *m, unsigned flags)
{
	uint8_t *place = flags & AT_PLACE ? pair_place() : NULL;
	struct meet_segment c;
	int r = meet_collect(f.pair.client, &f.name, place, &c);

	if (r == 1) {
		check_taken(m, &c);
		FUZZ_CHECK(!place || (uint8_t *)c.wire == place);
		meet_finish(&c);
	}
	FUZZ_CHECK(r != 0 || f.name >= 0);
	FUZZ_CHECK(r == 0 || f.name == -1);
	if (r == 0)
		fds_close(f.name);
	if (!place)
		return;
	/* Whatever came, it is private memory again. */
	f.seg.wire->magic = 's';
	FUZZ_CHECK(*place != 's');
	place[WIRE_TOTAL_BYTES - 1] = 'q';
	munmap(place, WIRE_TOTAL_BYTES);
}

/* The same memory for all inputs, as an acceptor has it that has just made it. */
static void new_memory(void)
{
	static uint8_t head[WIRE_HEADER_BYTES];

	if (!f.seg.wire) {
		FUZZ_CHECK(segment_create(false, 0, NULL, &f.seg) == 1);
		memcpy(head, f.seg.wire, sizeof(head));
	}
	memcpy(f.seg.wire, head, sizeof(head));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fuzz_bytes b = {data, size};
	struct message m;
	unsigned flags;
	static unsigned turn;
	int stays, silent = -1;

	if (fds[FD_PIPE] == 0)
		begin();
	new_memory();
	fds[FD_MEMORY] = f.seg.memfd;
	fds[FD_BELL] = f.seg.bell;
	fds[FD_PEER_BELL] = f.seg.peer_bell;
	fds[FD_TCP] = f.pair.server;
	FUZZ_CHECK(meet_publish(f.pair.client, &f.name) == 1);
	flags = (unsigned)fuzz_number(&b, 1);
	read_message(&b, &m);
	change_memory(&b);
	if (flags & NAME_VISITORS) /* one that says nothing comes first */
		silent = pair_visit(&f.pair);
	stays = visit(&m, flags);
	collect(&m, flags);
	if (silent >= 0)
		close(silent);
	if (stays >= 0)
		close(stays);
	if (!fds_before)
		fds_before = count_fds();
	FUZZ_CHECK(!fuzz_is_turn(&turn) || count_fds() == fds_before);
	return 0;
}
