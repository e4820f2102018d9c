/* SPDX-License-Identifier: Apache-2.0 */
/* What one image of a process leaves to the next: VIADUCT_CARRY, and the memory that it names. Who
 * sets the variable may also choose the descriptors: preload/carry.c (take_up), conn/exec_carry.c
 * (carry_in, marks_fit), and the reads that follow.
 * Not reached: what the image before does (the tests of exec do that), and several connections. */
#include <fcntl.h>
#include <linux/sockios.h>
#include <sys/ioctl.h>

#include "fuzz/rig.h"
#include "unit/conn_pair.h"

/* With what is static in both. */
#define note carry_note
#include "conn/exec_carry.c"
#include "preload/carry.c"

/* In the place of the library's. */
bool foreign_takes(enum program_kind kind)
{
	return kind == PROGRAM_OK;
}

bool start_exec_takes(const char *path, char *const envp[])
{
	return path && envp && false;
}

void hook_known(int fd)
{
	FUZZ_CHECK(fd_sock(fd));
}

enum { ACCEPTED = 1, READY = 2, PEER_ENDS = 4, LOOSE_MEMORY = 8, PEER_SENDS = 16 };
enum { CHANGES_MOST = 16, TEXT_MOST = 256, PAGE = WIRE_HEADER_BYTES };

static int listener = -1;
static struct sockaddr_in at;

/*
 * An input: flags; how many bytes were unread, in 16 each (2 bytes); changes of the memory's first
 * page: how many, and a word's number and its value of each; the rest is the variable, with F, M
 * and C for the right descriptors and cookie.
 */
size_t fuzz_seed(unsigned n, uint8_t out[FUZZ_MAX])
{
	static const struct {
		uint8_t flags;
		uint16_t bytes;
		const char *text;
	} seeds[] = {
		{0, 100, "F:M:C"},
		{ACCEPTED | PEER_SENDS, 20000, "F:M:C,F:M:C"},
		{READY | PEER_ENDS, 1200, "F:M:C"},
		{LOOSE_MEMORY, 5, "5:M:C,F:M:C,7:8:9"},
		{ACCEPTED | READY, 1, "-1:99999999999:18446744073709551616"},
	};

	if (n >= sizeof(seeds) / sizeof(seeds[0]))
		return 0;
	out[0] = seeds[n].flags;
	memcpy(out + 1, &seeds[n].bytes, 2);
	out[3] = 0;
	memcpy(out + 4, seeds[n].text, strlen(seeds[n].text));
	return 4 + strlen(seeds[n].text);
}

/* One connection for many inputs, as long as none has left anything in the kernel. */
static struct pair kept = {-1, -1};

static void open_tcp(void)
{
	if (listener < 0) {
		socklen_t len = sizeof(at);

		if (!fd_table_size)
			FUZZ_CHECK(fd_table_init() == 0);
		at = (struct sockaddr_in){.sin_family = AF_INET,
					  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
		listener = pair_socket();
		FUZZ_CHECK(bind(listener, (struct sockaddr *)&at, len) == 0 &&
			   listen(listener, 4) == 0 &&
			   getsockname(listener, (struct sockaddr *)&at, &len) == 0);
	}
	kept.a = pair_socket();
	FUZZ_CHECK(connect(kept.a, (struct sockaddr *)&at, sizeof(at)) == 0);
	kept.b = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
	FUZZ_CHECK(kept.b >= 0);
}

static void close_tcp(void)
{
	static const struct linger reset = {.l_onoff = 1};

	setsockopt(kept.a, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
	pair_close(&kept);
	kept.a = -1;
}

/* What the carried end has sent is thrown away. */
static bool is_as_new(void)
{
	char bytes[64];
	int state, unread = 0;

	while (recv(kept.a, bytes, sizeof(bytes), MSG_DONTWAIT) > 0)
		;
	/* Not if an input has named their numbers. */
	return !fd_sock(kept.a) && !fd_sock(kept.b) && tcp_state(kept.b, &state) == 0 &&
	       state == TCP_ESTABLISHED && tcp_state(kept.a, &state) == 0 &&
	       state == TCP_ESTABLISHED && ioctl(kept.b, SIOCINQ, &unread) == 0 &&
	       unread == 0;
}

/* As carry_out leaves it. */
static void fill_memory(struct wire *w, unsigned flags, uint64_t bytes, uint64_t cookie)
{
	enum tcp_role role = flags & ACCEPTED ? TCP_ROLE_ACCEPTED : TCP_ROLE_CONNECTED;
	unsigned in = direction_in(role);
	struct wire_dir *d = &w->dir[in];
	struct ring_tx tx;
	struct ring_span to;

	ring_tx_init(&tx, WIRE_AREAS - 1);
	for (uint64_t done = 0; done < bytes; done += to.len) {
		FUZZ_CHECK(ring_tx_span(&tx, d, (uint8_t *)w + wire_area_offset(in, 0),
					bytes - done, &to) == 0);
		if (to.len == 0)
			FUZZ_CHECK(ring_tx_grow(&tx, d));
		if (to.len > bytes - done)
			to.len = bytes - done;
		memset(to.data, 'r', to.len);
		ring_tx_commit(&tx, d, to.len, false);
	}
	d->down_at = bytes;
	d->ready_epoch = d->up_epoch = d->down_epoch = 1;
	*note_of(w) = (struct note){.cookie = cookie,
				    .role = role,
				    .gate = flags & READY ? GATE_READY : GATE_RING,
				    .timeout_ns = {TIMEOUT_NEVER, TIMEOUT_NEVER}};
}

static int make_memory(struct fuzz_bytes *b, unsigned flags, uint64_t cookie)
{
	uint64_t bytes = fuzz_number(b, 2) * 16;
	unsigned changes = (unsigned)fuzz_number(b, 1) % CHANGES_MOST;
	static struct meet_segment seg;
	static uint8_t head[PAGE];

	/* An input may have named its number. */
	if (!seg.wire || fcntl(seg.memfd, F_GET_SEALS) < 0) {
		FUZZ_CHECK(segment_alone(&seg) == 1);
		memcpy(head, seg.wire, PAGE);
	}
	memcpy(seg.wire, head, PAGE);
	fill_memory(seg.wire, flags, bytes ? bytes : 1, cookie);
	while (changes--) {
		size_t word = fuzz_number(b, 2) % (PAGE / 4);

		((uint32_t *)seg.wire)[word] = (uint32_t)fuzz_number(b, 4);
	}
	return flags & LOOSE_MEMORY ? memfd_create("fuzz", MFD_CLOEXEC)
				    : fcntl(seg.memfd, F_DUPFD_CLOEXEC, 3);
}

static char *expand(struct fuzz_bytes *b, int fd, int memfd, uint64_t cookie)
{
	static char text[24 * TEXT_MOST];
	char *to = text;

	for (int i = 0; i < TEXT_MOST && b->left > 0; i++) {
		char c = (char)fuzz_number(b, 1);

		if (c == 'F' || c == 'M')
			to += sprintf(to, "%d", c == 'F' ? fd : memfd);
		else if (c == 'C')
			to += sprintf(to, "%llu", (unsigned long long)cookie);
		else
			*to++ = c;
	}
	*to = '\0';
	return text;
}

static bool is_end(ssize_t n)
{
	return n == 0 || n == -EAGAIN || n == -ECONNRESET || n == -EPIPE ||
	       n == -ENOTCONN || n == -ECONNABORTED;
}

/* What it says is unread comes, and ends: bytes of the memory and of TCP, and no others. */
static void use(int fd)
{
	static uint8_t buf[70000];
	uint64_t most = 2 * WIRE_DIR_DATA_BYTES, all = 0;
	ssize_t n;

	(void)sock_level(fd_sock(fd), fd);
	do {
		memset(buf, 0xee, 1000);
		n = st_recv(fd, buf, all % 2 ? sizeof(buf) : 999, MSG_DONTWAIT);
		FUZZ_CHECK(n > 0 || is_end(n));
		for (ssize_t i = 0; i < n && i < 1000; i++)
			FUZZ_CHECK(buf[i] == 'r' || buf[i] == 't' || buf[i] == 0);
		FUZZ_CHECK(n >= 1000 || buf[n > 0 ? n : 0] == 0xee);
		all += n > 0 ? (uint64_t)n : 0;
	} while (n > 0 && all < most);
	FUZZ_CHECK(all < most);
	n = st_send(fd, "x", 1, MSG_DONTWAIT | MSG_NOSIGNAL);
	FUZZ_CHECK(n == 1 || is_end(n));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fuzz_bytes b = {data, size};
	unsigned flags = (unsigned)fuzz_number(&b, 1);
	static unsigned spender;
	uint64_t cookie;
	int memfd, fd;

	/* They spend the connection. */
	if (!fuzz_is_turn(&spender))
		flags &= ~(unsigned)(PEER_ENDS | PEER_SENDS);

	if (kept.a < 0)
		open_tcp();
	fd = fcntl(kept.b, F_DUPFD_CLOEXEC, 3);
	FUZZ_CHECK(fd >= 0 && tcp_cookie(fd, &cookie) == 0);
	memfd = make_memory(&b, flags, cookie);
	if (flags & PEER_SENDS)
		FUZZ_CHECK(send(kept.a, "tttttttt", 8, 0) == 8);
	if (flags & PEER_ENDS)
		shutdown(kept.a, SHUT_WR);
	take_up(expand(&b, fd, memfd, cookie));
	if (fd_sock(fd))
		use(fd);
	st_close(fd);
	/* Unless it was taken: then the number may be anybody's. */
	if (fcntl(memfd, F_GET_SEALS) >= 0)
		close(memfd);
	if (!is_as_new())
		close_tcp();
	return 0;
}
