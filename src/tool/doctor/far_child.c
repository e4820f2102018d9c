/* SPDX-License-Identifier: Apache-2.0 */
/* The two ends of the connection that two doctors test: a client and a server like any others. */
#include <errno.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

#include "tool/doctor/far.h"
#include "tool/floor.h"

enum {
	/* A prime: what is shifted, repeated or left out is another piece of it. */
	PATTERN_BYTES = 65521,
	STREAM_BYTES_FIRST = 64 << 10,
	ROUNDS_MAX = 100000,
	ACCEPT_NAP_US = 10000,
	LOOKS_MAX = 4,	     /* of one connection: each costs much, and one is needed */
	REDIRECT_LEAST = 15, /* answers of each size and way */
	REDIRECT_MOST = 200,
	REDIRECT_MS = 600, /* for each size, unless that is too short for the least */
	REDIRECT_WARM = 10,
	REDIRECT_WARM_US = 20000,
	FIRST_PIECE = 64,
};
const uint32_t far_sizes[FAR_SIZES] = {16 << 10, 64 << 10, 256 << 10};

static const uint8_t magic[8] = {'V', 'D', 'd', 'o', 'c', 't', 'o', 'r'};
static uint8_t pattern[2 * PATTERN_BYTES]; /* twice, so that it can be read around */

static void make_pattern(void)
{
	uint64_t x = 1;

	for (int i = 0; i < PATTERN_BYTES; i++) {
		x = x * 6364136223846793005u + 1442695040888963407u;
		pattern[i] = pattern[i + PATTERN_BYTES] = (uint8_t)(x >> 56);
	}
}

/* ---- bytes, over the connection and over the pipes ---- */

static int send_all(int fd, const void *what, size_t bytes)
{
	for (size_t at = 0; at < bytes;) {
		ssize_t n = send(fd, (const char *)what + at, bytes - at, MSG_NOSIGNAL);

		if (n < 0 && errno != EINTR)
			return -errno;
		at += n > 0 ? (size_t)n : 0;
	}
	return 0;
}

/* So much has come in `n`: 0, -EPIPE at the end, or -errno. */
static int came(ssize_t n, size_t *at)
{
	if (n == 0)
		return -EPIPE;
	if (n < 0 && errno != EINTR)
		return -errno;
	*at += n > 0 ? (size_t)n : 0;
	return 0;
}

/* 0, -EPIPE at the end, or -errno. */
static int receive_all(int fd, void *what, size_t bytes)
{
	int r = 0;

	for (size_t at = 0; at < bytes && r == 0;)
		r = came(recv(fd, (char *)what + at, bytes - at, 0), &at);
	return r;
}

static bool read_all(void *what, size_t bytes)
{
	for (size_t at = 0; at < bytes;) {
		ssize_t n = read(0, (char *)what + at, bytes - at);

		if (n == 0 || (n < 0 && errno != EINTR))
			return false;
		at += n > 0 ? (size_t)n : 0;
	}
	return true;
}

static bool write_all(const void *what, size_t bytes)
{
	return write(1, what, bytes) == (ssize_t)bytes; /* within PIPE_BUF */
}

static int send_pattern(int fd, uint32_t bytes)
{
	int r = 0;

	for (uint32_t at = 0; at < bytes && r == 0;) {
		uint32_t n = bytes - at < PATTERN_BYTES ? bytes - at : PATTERN_BYTES;

		r = send_all(fd, pattern, n);
		at += n;
	}
	return r;
}

static size_t good_bytes(const uint8_t *in, const uint8_t *right, size_t bytes)
{
	size_t i = 0;

	if (memcmp(in, right, bytes) == 0)
		return bytes;
	while (in[i] == right[i])
		i++;
	return i;
}

/* All of it is read; *good: up to the first byte that is not the pattern's. */
static int receive_pattern(int fd, uint32_t bytes, uint64_t *good)
{
	static uint8_t in[PATTERN_BYTES];

	*good = 0;
	for (uint32_t at = 0; at < bytes;) {
		uint32_t left = bytes - at;
		ssize_t n = recv(fd, in, left < sizeof(in) ? left : sizeof(in), 0);

		if (n == 0)
			return -EPIPE;
		if (n < 0 && errno != EINTR)
			return -errno;
		if (n > 0 && *good == at)
			*good += good_bytes(in, pattern + at % PATTERN_BYTES, (size_t)n);
		at += n > 0 ? (uint32_t)n : 0;
	}
	return 0;
}

static void prepare(int fd)
{
	struct timeval limit = {.tv_sec = FAR_IDLE_S};
	int on = 1;

	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
}

/* ---- who asks ---- */

static int request(int fd, enum far_kind kind, uint32_t bytes)
{
	struct far_request q = {
		.version = FAR_VERSION, .kind = (uint8_t)kind, .bytes = bytes};

	memcpy(q.magic, magic, sizeof(magic));
	return send_all(fd, &q, sizeof(q));
}

/* The request and its bytes leave together, as a message of a program would. */
static int round_trip(int fd, uint32_t turn)
{
	struct {
		struct far_request q;
		uint8_t bytes[FAR_ECHO_BYTES];
	} out = {
		.q = {.version = FAR_VERSION, .kind = FAR_ECHO, .bytes = FAR_ECHO_BYTES}};
	uint8_t in[FAR_ECHO_BYTES];
	int r;

	memcpy(out.q.magic, magic, sizeof(magic));
	memcpy(out.bytes, pattern + turn % PATTERN_BYTES, sizeof(out.bytes));
	r = send_all(fd, &out, sizeof(out));
	if (r == 0)
		r = receive_all(fd, in, sizeof(in));
	if (r == 0 && memcmp(in, out.bytes, sizeof(in)) != 0)
		r = -EBADMSG;
	return r;
}

static int echo(int fd, uint32_t ms, struct far_result *out)
{
	static double took_us[ROUNDS_MAX];
	static uint32_t turn;
	uint64_t start = floor_now_ns(), end = start + (uint64_t)ms * 1000000, now;
	size_t n = 0;
	int r;

	do {
		r = round_trip(fd, ++turn);
		if (r < 0)
			return r;
		now = floor_now_ns();
		took_us[n++] = (double)(now - start) / 1e3;
		start = now;
	} while (now < end && n < ROUNDS_MAX);
	out->value = median_of(took_us, n);
	out->bytes = 2 * FAR_ECHO_BYTES * n;
	return 0;
}

static int stream_out(int fd, uint32_t bytes)
{
	struct far_count count;
	int r = request(fd, FAR_TAKE, bytes);

	if (r == 0)
		r = send_pattern(fd, bytes);
	if (r == 0)
		r = receive_all(fd, &count, sizeof(count));
	return r == 0 && count.good != bytes ? -EBADMSG : r;
}

static int stream_in(int fd, uint32_t bytes)
{
	uint64_t good = 0;
	int r = request(fd, FAR_GIVE, bytes);

	if (r == 0)
		r = receive_pattern(fd, bytes, &good);
	return r == 0 && good != bytes ? -EBADMSG : r;
}

/* Twice as much each time, until it takes long enough to be measured. */
static int stream(int fd, int (*one)(int, uint32_t), struct far_result *out)
{
	for (uint32_t bytes = STREAM_BYTES_FIRST;; bytes *= 2) {
		uint64_t start = floor_now_ns(), took;
		int r = one(fd, bytes);

		if (r < 0)
			return r;
		took = floor_now_ns() - start;
		out->bytes += bytes;
		out->value = (double)bytes * 1e9 / (double)(took ? took : 1);
		if (took >= (uint64_t)FAR_STREAM_MS * 1000000 || bytes == FAR_BYTES_MAX)
			return 0;
	}
}

/* ---- by the ring, and redirected ---- */

/* Room in two pieces, of which the first is small, is not offered to the peer. */
static int receive_answer(int fd, uint8_t *in, size_t bytes, bool redirected)
{
	int r = 0;

	for (size_t at = 0; at < bytes && r == 0;) {
		size_t left = bytes - at;
		size_t first = redirected || left < FIRST_PIECE ? left : FIRST_PIECE - 1;
		struct iovec parts[2] = {{in + at, first},
					 {in + at + first, left - first}};
		struct msghdr msg = {.msg_iov = parts,
				     .msg_iovlen = left > first ? 2 : 1};

		r = came(recvmsg(fd, &msg, 0), &at);
	}
	return r;
}

static bool is_pattern(const uint8_t *in, size_t bytes)
{
	for (size_t at = 0; at < bytes; at += PATTERN_BYTES)
		if (memcmp(in + at, pattern,
			   bytes - at < PATTERN_BYTES ? bytes - at : PATTERN_BYTES) != 0)
			return false;
	return true;
}

static int time_answer(int fd, uint32_t bytes, bool redirected, double *us)
{
	static uint8_t in[256 << 10];
	uint64_t start = floor_now_ns();
	int r = request(fd, FAR_GIVE, bytes);

	if (r == 0)
		r = receive_answer(fd, in, bytes, redirected);
	*us = (double)(floor_now_ns() - start) / 1e3;
	return r == 0 && !is_pattern(in, bytes) ? -EBADMSG : r;
}

static int time_answers(int fd, uint32_t bytes, double medians[2])
{
	static double us[2][REDIRECT_MOST];
	uint64_t end = floor_now_ns() + (uint64_t)REDIRECT_MS * 1000000;
	size_t n = 0;
	int r = 0;

	while (n < REDIRECT_MOST && (n < REDIRECT_LEAST || floor_now_ns() < end)) {
		/* In turns, of which each way is first in every other one. */
		for (size_t i = 0; i < 2 && r == 0; i++)
			r = time_answer(fd, bytes, (n + i) % 2, &us[(n + i) % 2][n]);
		if (r < 0)
			return r;
		n++;
	}
	for (int i = 0; i < 2; i++)
		medians[i] = median_of(us[i], n);
	return 0;
}

static int redirect(int fd, struct far_result *out)
{
	double us;
	int r = 0;

	/* The link for it is made at the first of them. */
	for (int i = 0; i < REDIRECT_WARM && r == 0; i++) {
		r = time_answer(fd, far_sizes[0], true, &us);
		usleep(REDIRECT_WARM_US);
	}
	for (int i = 0; i < FAR_SIZES && r == 0; i++)
		r = time_answers(fd, far_sizes[i], out->us[i]);
	return r;
}

static int connect_to(const struct name_end *end, int *fd)
{
	struct sockaddr_storage to;
	socklen_t bytes;

	way_address(end, &to, &bytes);
	*fd = socket(to.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (*fd < 0 || connect(*fd, (struct sockaddr *)&to, bytes) != 0)
		return -errno;
	prepare(*fd);
	return 0;
}

int far_carry_out(int *fd, const struct far_order *o, struct far_result *out)
{
	int r;

	switch (o->what) {
	case FAR_DO_START:
		return 0;
	case FAR_DO_CONNECT:
		return connect_to(&o->end, fd);
	case FAR_DO_ECHO:
		return echo(*fd, o->ms, out);
	case FAR_DO_TAKE:
		return stream(*fd, stream_out, out);
	case FAR_DO_GIVE:
		return stream(*fd, stream_in, out);
	case FAR_DO_REDIRECT:
		return redirect(*fd, out);
	case FAR_DO_LOOK:
		r = request(*fd, FAR_LOOK, 0);
		return r ? r : receive_all(*fd, &out->view, sizeof(out->view));
	default:
		return close(*fd) == 0 ? 0 : -errno;
	}
}

int doctor_far_ask(void)
{
	struct far_order o;
	int fd = -1;

	make_pattern();
	while (read_all(&o, sizeof(o))) {
		struct far_result out = {0};

		out.error = far_carry_out(&fd, &o, &out);
		if (!write_all(&out, sizeof(out)) || o.what == FAR_DO_CLOSE)
			break;
	}
	return 0;
}

/* ---- who answers ---- */

static int answer_look(int fd)
{
	struct far_event e = {.what = FAR_LOOKS};
	struct far_view view;
	struct name_tuple t;

	if (name_of_connection(fd, TCP_ROLE_CONNECTED, &t) < 0)
		return -ENOTCONN;
	e.local = t.client; /* own end first, whoever has connected */
	e.peer = t.server;
	if (!write_all(&e, sizeof(e)) || !read_all(&view, sizeof(view)))
		exit(1); /* without its parent it is nothing */
	return send_all(fd, &view, sizeof(view));
}

static int answer_take(int fd, uint32_t bytes)
{
	struct far_count count;
	int r = receive_pattern(fd, bytes, &count.good);

	return r ? r : send_all(fd, &count, sizeof(count));
}

static int answer(int fd, const struct far_request *q)
{
	uint8_t bytes[FAR_ECHO_BYTES];
	int r;

	if (memcmp(q->magic, magic, sizeof(magic)) != 0 || q->version != FAR_VERSION ||
	    q->bytes > FAR_BYTES_MAX)
		return -EPROTO;
	switch (q->kind) {
	case FAR_ECHO:
		if (q->bytes > sizeof(bytes))
			return -EPROTO;
		r = receive_all(fd, bytes, q->bytes);
		return r ? r : send_all(fd, bytes, q->bytes);
	case FAR_TAKE:
		return answer_take(fd, q->bytes);
	case FAR_GIVE:
		return send_pattern(fd, q->bytes);
	case FAR_LOOK:
		return answer_look(fd);
	default:
		return -EPROTO;
	}
}

void far_serve(int fd)
{
	struct far_event e = {.what = FAR_CAME};
	struct far_request q;
	struct name_tuple t;
	int looks = 0;

	prepare(fd);
	if (name_of_connection(fd, TCP_ROLE_CONNECTED, &t) == 0) {
		e.peer = t.server;
		if (!write_all(&e, sizeof(e)))
			exit(1);
	}
	while (receive_all(fd, &q, sizeof(q)) == 0 &&
	       (q.kind != FAR_LOOK || looks++ < LOOKS_MAX) && answer(fd, &q) == 0)
		;
	close(fd);
}

/* For both families, where there are two. -errno. */
static int listen_on(uint16_t port)
{
	struct name_end any = {.port = htons(port)};
	struct sockaddr_storage at;
	socklen_t bytes;
	int on = 1, off = 0, r;
	int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd < 0) {
		any.addr[10] = any.addr[11] = 0xff;
		fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	} else {
		setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
	}
	if (fd < 0)
		return -errno;
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	way_address(&any, &at, &bytes);
	if (bind(fd, (struct sockaddr *)&at, bytes) == 0 && listen(fd, 8) == 0)
		return fd;
	r = -errno;
	close(fd);
	return r;
}

int doctor_far_answer(uint16_t port)
{
	int listener = listen_on(port), fd;
	struct far_event e = {.what = FAR_LISTENS, .error = listener < 0 ? listener : 0};

	make_pattern();
	if (!write_all(&e, sizeof(e)) || listener < 0)
		return 1;
	for (;;) {
		fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
		if (fd >= 0)
			far_serve(fd);
		else
			usleep(ACCEPT_NAP_US); /* no descriptors: not at once again */
	}
}
