/* SPDX-License-Identifier: Apache-2.0 */
/* Conformance: each call that receives, with each flag, in each state of the connection. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <unistd.h>

#include "conform/grid_state.h"

#define UNKNOWN_FLAG 0x800000
#define MOST	     100

struct taken {
	uint8_t bytes[2][MOST];
	size_t lens[2]; /* of each message; TRUNC gives what was not copied */
	char extra[128];
};

static void split(struct iovec iov[2], uint8_t *buf, size_t len)
{
	iov[0] = (struct iovec){buf, len / 3};
	iov[1] = (struct iovec){buf + len / 3, len - len / 3};
}

static ssize_t run_read(int fd, struct taken *t, size_t len, int flags)
{
	(void)flags;
	return read(fd, t->bytes[0], len);
}

static ssize_t run_readv(int fd, struct taken *t, size_t len, int flags)
{
	struct iovec iov[2];
	(void)flags;
	split(iov, t->bytes[0], len);
	return readv(fd, iov, 2);
}

static ssize_t run_recv(int fd, struct taken *t, size_t len, int flags)
{
	return recv(fd, t->bytes[0], len, flags);
}

static ssize_t run_recvfrom(int fd, struct taken *t, size_t len, int flags)
{
	struct sockaddr_storage name;
	socklen_t name_len = sizeof name;
	ssize_t n = recvfrom(fd, t->bytes[0], len, flags, (struct sockaddr *)&name,
			     &name_len);
	snprintf(t->extra, sizeof t->extra, " name %u", name_len);
	return n;
}

static void say_header(struct taken *t, const struct msghdr *msg)
{
	size_t at = strlen(t->extra);
	snprintf(t->extra + at, sizeof t->extra - at, " flags %#x name %u control %zu",
		 (unsigned)msg->msg_flags, msg->msg_namelen, msg->msg_controllen);
}

static ssize_t run_recvmsg(int fd, struct taken *t, size_t len, int flags)
{
	struct sockaddr_storage name;
	struct iovec iov[2];
	char control[64];
	struct msghdr msg = {.msg_name = &name,
			     .msg_namelen = sizeof name,
			     .msg_iov = iov,
			     .msg_iovlen = 2,
			     .msg_control = control,
			     .msg_controllen = sizeof control,
			     .msg_flags = 0x5a5a};
	split(iov, t->bytes[0], len);
	ssize_t n = recvmsg(fd, &msg, flags);
	say_header(t, &msg);
	return n;
}

static ssize_t run_recvmmsg(int fd, struct taken *t, size_t len, int flags)
{
	struct iovec iov[2] = {{t->bytes[0], len}, {t->bytes[1], len}};
	struct mmsghdr msgs[2] = {{.msg_hdr = {.msg_iov = iov, .msg_iovlen = 1}},
				  {.msg_hdr = {.msg_iov = iov + 1, .msg_iovlen = 1}}};
	int n = recvmmsg(fd, msgs, 2, flags, NULL);
	/* Fewer messages, and the rest by the next call, are no difference. */
	if (n == 1 && recvmmsg(fd, msgs + 1, 1, flags | MSG_DONTWAIT, NULL) == 1)
		n = 2;
	if (n == 2 && msgs[1].msg_len == 0)
		n = 1;
	for (int i = 0; i < n; i++) {
		t->lens[i] = msgs[i].msg_len;
		say_header(t, &msgs[i].msg_hdr);
	}
	return n;
}

static const struct grid_call {
	const char *name;
	ssize_t (*run)(int fd, struct taken *t, size_t len, int flags);
	bool bare; /* takes no flags */
} calls[] = {
	{"read", run_read, true},	 {"readv", run_readv, true},
	{"recv", run_recv, false},	 {"recvfrom", run_recvfrom, false},
	{"recvmsg", run_recvmsg, false}, {"recvmmsg", run_recvmmsg, false},
};

static const struct {
	const char *name;
	int flags;
} flag_sets[] = {
	{"0", 0},
	{"PEEK", MSG_PEEK},
	{"WAITALL", MSG_WAITALL},
	{"TRUNC", MSG_TRUNC},
	{"DONTWAIT", MSG_DONTWAIT},
	{"PEEK TRUNC", MSG_PEEK | MSG_TRUNC},
	{"PEEK WAITALL", MSG_PEEK | MSG_WAITALL},
	{"WAITALL TRUNC", MSG_WAITALL | MSG_TRUNC},
	{"WAITALL DONTWAIT", MSG_WAITALL | MSG_DONTWAIT},
	{"WAITFORONE", MSG_WAITFORONE},
	{"OOB", MSG_OOB},
	{"OOB PEEK", MSG_OOB | MSG_PEEK},
	{"ERRQUEUE", MSG_ERRQUEUE},
	{"CMSG_CLOEXEC", MSG_CMSG_CLOEXEC},
	{"NOSIGNAL", MSG_NOSIGNAL},
	{"unknown", UNKNOWN_FLAG},
};

static const size_t sizes[] = {0, 1, 10, MOST};

/* One of the grid's points. */
struct point {
	const struct grid_call *call;
	const struct grid_state *state;
	const char *flags_name;
	int flags;
	size_t len;
	bool nonblock;
	enum stage stage;
};

/* How far the call went in the stream; what it wrote, and nothing else, is as it must be. */
static size_t check_taken(const struct point *at, const struct taken *t)
{
	size_t off = 0;
	for (int i = 0; i < 2; i++) {
		size_t n = t->lens[i] < at->len ? t->lens[i] : at->len;
		if (at->flags & MSG_TRUNC)
			n = 0;
		for (size_t k = 0; k < MOST; k++) {
			uint8_t want =
				k < n ? at->flags & MSG_OOB ? '!' : pattern(off + k) : 0;
			if (t->bytes[i][k] != want)
				broken("wrong bytes were taken");
		}
		if (!(at->flags & (MSG_PEEK | MSG_OOB)))
			off += t->lens[i];
	}
	return off;
}

static void visit(const struct point *at)
{
	struct timeval tick = {0, 1};
	struct pair p = state_open(at->state, at->stage);
	struct taken t = {.extra = ""};
	char what[512];
	if (at->nonblock)
		nonblock(p.s, true);
	else /* where it would wait, it does so for a tick */
		NEED(setsockopt(p.s, SOL_SOCKET, SO_RCVTIMEO, &tick, sizeof tick) == 0);
	errno = 0;
	ssize_t n = at->call->run(p.s, &t, at->len, at->flags);
	if (n > 0 && at->call->run != run_recvmmsg)
		t.lens[0] = (size_t)n;
	snprintf(what, sizeof what, "%s, %s, %s of %zu%s: %zd %s (%zu, %zu)%s",
		 at->state->name, at->call->name, at->flags_name, at->len,
		 at->nonblock ? ", nonblocking" : "", n, n < 0 ? errno_name(errno) : "",
		 t.lens[0], t.lens[1], t.extra);
	nonblock(p.s, false);
	say_rest(at->state, p, what, check_taken(at, &t));
	state_close(p);
}

static void grid(enum stage stage, size_t first_size)
{
	alarm(GRID_SECONDS);
	struct point at = {.stage = stage};
	for (size_t c = 0; c < COUNT_OF(calls); c++)
		for (size_t s = 0; s < grid_states_count; s++)
			for (size_t f = 0; f < (calls[c].bare ? 1 : COUNT_OF(flag_sets));
			     f++)
				for (size_t k = 2 * first_size; k < 2 * COUNT_OF(sizes);
				     k++) {
					if (!grid_visits())
						continue;
					at.call = &calls[c];
					at.state = &grid_states[s];
					at.flags_name = flag_sets[f].name;
					at.flags = flag_sets[f].flags;
					at.len = sizes[k / 2];
					at.nonblock = k % 2 == 1;
					visit(&at);
				}
}

CASE(grid_recv_cold, ANYWAY)
{
	grid(COLD, 3);
}

CASE(grid_recv_warm, DIRECT)
{
	grid(WARM, 0);
}

CASE(grid_recv_bounced, DIRECT)
{
	grid(BOUNCED, 3);
}

CASE(grid_recv_one_way, DIRECT)
{
	grid(ONE_WAY, 3);
}

CASE(grid_recv_other_way, DIRECT)
{
	grid(OTHER_WAY, 3);
}

CASE(grid_recv_midway, DIRECT)
{
	grid(MIDWAY, 2);
}
