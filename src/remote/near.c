/* SPDX-License-Identifier: Apache-2.0 */
/* The two ends of a connection between network namespaces of one host find each other. */
#include <errno.h>
#include <linux/netlink.h>
#include <netinet/in.h>
#include <string.h>

#include "base/fds.h"
#include "base/kernel.h"
#include "base/log.h"
#include "base/low.h"
#include "base/real.h"
#include "base/reason.h"
#include "base/sections.h"
#include "base/tcp.h"
#include "daemon_client/local.h"
#include "remote/near.h"
#include "remote/owed.h"
#include "remote/parts.h"
#include "remote/presence.h"
#include "rendezvous/endpoint_pair.h"
#include "rendezvous/socket_cache.h"
#include "rendezvous/stranger.h"

const char *near_socket = "/run/viaduct/near/near.sock";
static int line = -1;
static struct owed owed;
static struct presence presence;
static uint64_t tried_ms;
static uint32_t last_id;

bool near_is_here(void)
{
	return presence_look(&presence, near_socket);
}

/* ---- the line to viaductd ---- */

static int open_line(void)
{
	int fd = presence_line(near_socket, &tried_ms);

	if (fd < 0)
		return fd;
	line = fd;
	return 0;
}

/* What was asked is asked anew, by whichever daemon is there then. */
static void lose_line(void)
{
	log_debug("viaductd has ended the connection for namespaces");
	fds_close(line);
	line = -1;
	owed.count = 0;
	for (int i = 0; i < across_used; i++)
		if (across_pool[i].near.state == NEAR_ASKS)
			across_pool[i].near.state = NEAR_NEW;
}

/* 0 where that was said, or -errno: nothing was, and the line may be no more. */
static int said(int r)
{
	if (r < 0 && r != -EAGAIN)
		lose_line();
	return r;
}

/* A MEET. */
static int say(const struct peer *a, const int fds[NEAR_FDS])
{
	union {
		char bytes[CMSG_SPACE(NEAR_FDS * sizeof(int))];
		struct cmsghdr head;
	} control = {.head = {.cmsg_len = CMSG_LEN(NEAR_FDS * sizeof(int)),
			      .cmsg_level = SOL_SOCKET,
			      .cmsg_type = SCM_RIGHTS}};
	const struct local_meet meet = {a->role == ACROSS_ACCEPTED};
	struct local_message m;
	struct iovec iov = {&m, LOCAL_HEAD_BYTES + sizeof(meet)};
	struct msghdr msg = {.msg_iov = &iov,
			     .msg_iovlen = 1,
			     .msg_control = control.bytes,
			     .msg_controllen = sizeof(control.bytes)};
	ssize_t n = owed_say(&owed, line);

	if (n < 0)
		return said((int)n);
	memset(&m, 0, LOCAL_HEAD_BYTES);
	m.version = LOCAL_PROTOCOL;
	m.type = LOCAL_MEET;
	m.id = a->near.id;
	m.local = a->local;
	m.peer = a->peer;
	memcpy(m.hello, &meet, sizeof(meet));
	memcpy(CMSG_DATA(&control.head), fds, NEAR_FDS * sizeof(int));
	n = kernel_sendmsg(line, &msg, MSG_DONTWAIT | MSG_NOSIGNAL);
	/* Of the descriptors there may be too many under way: the next try may find fewer. */
	return n == -ETOOMANYREFS ? (int)n : said(n < 0 ? (int)n : 0);
}

/* ---- what is asked ---- */

/* A datagram socket of the connection's namespace, at its own address; or -errno. */
static int make_probe(const struct peer *a, uint64_t netns)
{
	struct sockaddr_in in = {.sin_family = AF_INET};
	struct sockaddr_in6 in6 = {.sin6_family = AF_INET6};
	bool v4 = name_is_v4(&a->local);
	int fd = kept_socket(v4 ? AF_INET : AF_INET6, SOCK_DGRAM, IPPROTO_UDP, netns), r;

	if (fd < 0)
		return fd;
	memcpy(&in.sin_addr, a->local.addr + 12, 4);
	memcpy(&in6.sin6_addr, a->local.addr, 16);
	r = v4 ? REAL(bind)(fd, (struct sockaddr *)&in, sizeof(in))
	       : REAL(bind)(fd, (struct sockaddr *)&in6, sizeof(in6));
	if (r == 0)
		return fd;
	r = -errno;
	fds_close(fd);
	return r;
}

/* What shows where the connection is: NEAR_FDS descriptors. 0 or -errno. */
static int show(const struct peer *a, int fd, int fds[NEAR_FDS])
{
	uint64_t netns;
	int r = tcp_netns_cookie(fd, &netns);

	if (r < 0)
		return r;
	fds[NEAR_DIAG] = r = kept_socket(AF_NETLINK, SOCK_RAW, NETLINK_SOCK_DIAG, netns);
	if (r >= 0)
		fds[NEAR_PROBE] = r = make_probe(a, netns);
	if (r >= 0)
		fds[NEAR_SPACE] = r =
			LOW_MADE(fds_adopt, kernel_open("/proc/thread-self/ns/net",
							O_RDONLY | O_CLOEXEC, 0));
	return r < 0 ? r : 0;
}

static void ask(struct peer *a, int fd)
{
	int fds[NEAR_FDS] = {-1, -1, -1}, r;

	r = line < 0 ? open_line() : 0;
	if (r == 0)
		r = show(a, fd, fds);
	if (r == 0) {
		a->near.id = ++last_id;
		r = say(a, fds);
	}
	if (r == 0)
		a->near.state = NEAR_ASKS;
	else if (r == -ENONET || r == -EMFILE)
		a->refused = party_errno(r);
	else
		a->not_before_ms = clock_coarse_ms() + RETRY_MS;
	for (int i = 0; i < NEAR_FDS; i++)
		fds_close(fds[i]);
}

/* ---- what is answered ---- */

static struct peer *by_id(uint32_t id)
{
	for (int i = 0; i < across_used; i++)
		if (across_pool[i].near.state == NEAR_ASKS &&
		    across_pool[i].near.id == id)
			return &across_pool[i];
	return NULL;
}

static void take_done(struct peer *a, const struct local_message *m)
{
	if (m->status == LOCAL_OK)
		return;
	log_debug("not between namespaces: %s", local_status_text(m->status));
	a->near.state = NEAR_NEW;
	if (m->status == LOCAL_RATE || m->status == LOCAL_FULL)
		a->not_before_ms =
			clock_coarse_ms() + (m->wait_ms ? m->wait_ms : RETRY_MS);
	else if (m->status == LOCAL_RULE)
		a->refused = -VD_REASON_RULE;
	else if (m->status == LOCAL_NETNS || m->status == LOCAL_OWNER)
		a->refused = -VD_REASON_NAMESPACE;
	else
		a->refused = -VD_REASON_RELAY;
}

/* The peer may have sent something by the line already, and what that is decides how long its end takes. The
 * bell takes no descriptors. */
static void drop_met(const int fds[NEAR_MET_FDS])
{
	if (fds[NEAR_LINE] >= 0)
		stranger_close(fds[NEAR_LINE]);
	if (fds[NEAR_BELL] >= 0)
		fds_close(fds[NEAR_BELL]);
}

/* It is raised already, where there is room: otherwise to close it may take long. */
static int adopt_line(int fd)
{
	if (fds_is_ours(fd))
		return fd;
	stranger_close(fd);
	return -EMFILE;
}

static void take_met(struct peer *a, const struct local_message *m,
		     const int fds[NEAR_MET_FDS])
{
	struct local_met met;

	memcpy(&met, m->hello, sizeof(met));
	a->uid = m->uid;
	a->near.met = (struct meet_near){.line = adopt_line(fds[NEAR_LINE]),
					 .bell = fds_adopt(fds[NEAR_BELL]),
					 .cookie = met.cookie,
					 .netns = met.netns};
	a->near.state = NEAR_MET;
	if (a->near.met.line < 0 || a->near.met.bell < 0)
		a->refused = -VD_REASON_FD_LIMIT;
}

/* One message, and the descriptors that come with a MET. 1, 0 nothing there, or -errno. */
static int hear_one(struct local_message *m, int fds[NEAR_MET_FDS])
{
	union {
		char bytes[CMSG_SPACE(NEAR_MET_FDS * sizeof(int))];
		struct cmsghdr head;
	} control;
	struct iovec iov = {m, sizeof(*m)};
	struct msghdr msg = {.msg_iov = &iov,
			     .msg_iovlen = 1,
			     .msg_control = control.bytes,
			     .msg_controllen = sizeof(control.bytes)};
	ssize_t n = fds_receive(line, &msg);
	struct cmsghdr *c = n > 0 ? CMSG_FIRSTHDR(&msg) : NULL;
	size_t bytes = 0;

	fds[0] = fds[1] = -1;
	if (n == -EAGAIN || n == -EINTR)
		return 0;
	if (c && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS)
		bytes = c->cmsg_len - CMSG_LEN(0);
	if (bytes > 0 && bytes <= NEAR_MET_FDS * sizeof(int))
		memcpy(fds, CMSG_DATA(c), bytes);
	return n > 0 && local_check(m, (size_t)n, false) == LOCAL_OK ? 1 : -EPIPE;
}

static void hear(void)
{
	struct local_message m;
	int fds[NEAR_MET_FDS], r;

	if (line >= 0 && owed.count > 0)
		said(owed_say(&owed, line));
	while (line >= 0 && (r = hear_one(&m, fds)) != 0) {
		struct peer *a = r == 1 ? by_id(m.id) : NULL;

		if (r < 0)
			lose_line();
		else if (a && m.type == LOCAL_DONE)
			take_done(a, &m);
		if (a && m.type == LOCAL_MET && fds[NEAR_BELL] >= 0) {
			take_met(a, &m, fds);
			continue;
		}
		/* There was no room for it here, and it does not come again. */
		if (a && m.type == LOCAL_MET)
			a->refused = -VD_REASON_FD_LIMIT;
		/* For a connection that is over by now. */
		drop_met(fds);
	}
}

/* ---- a meeting ---- */

int near_begin(const struct name_end *local, const struct name_end *peer,
	       enum across_role role, struct peer **out)
{
	struct across_guard g;
	struct peer *a;

	if (!local_ends_fit(local, peer))
		return -VD_REASON_REMOTE_PEER;
	g = across_enter();
	a = across_take_handle();
	if (a) {
		a->state = ACROSS_KNOWN; /* in use, and no business of the other files' */
		a->role = role;
		a->local = *local;
		a->peer = *peer;
		a->request = 0;
		a->refused = 0;
		a->not_before_ms = 0;
		a->link = NULL;
		a->wire = NULL;
		a->owner = (struct across_owner){0};
		a->owes = false;
		a->near = (struct near){.is_used = true, .met = {.line = -1, .bell = -1}};
		*out = a;
	}
	across_leave(g);
	return a ? 1 : -VD_REASON_FULL;
}

bool near_has(const struct peer *a)
{
	return a->near.is_used;
}

static int go_on(struct peer *a, int fd, void *place, struct meet_segment *seg)
{
	bool accepted = a->role == ACROSS_ACCEPTED;
	int r;

	if (a->near.state == NEAR_NEW && clock_coarse_ms() >= a->not_before_ms)
		ask(a, fd);
	if (a->refused || a->near.state != NEAR_MET)
		return a->refused;
	r = accepted ? meet_near_offer(fd, &a->near.met, place, seg)
		     : meet_near_collect(fd, &a->near.met, place, seg);
	if (r == 0 && a->near.met.line < 0) {
		meet_near_drop(&a->near.met);
		a->near.state = NEAR_NEW;
		a->not_before_ms = clock_coarse_ms() + RETRY_MS;
	}
	return r == 1 && accepted ? 2 : r;
}

int near_step(struct peer *a, int fd, void *place, struct meet_segment *seg)
{
	struct across_guard g = across_enter();
	int r;

	hear();
	r = go_on(a, fd, place, seg);
	across_leave(g);
	return r;
}

static bool is_anything_asked(void)
{
	for (int i = 0; i < across_used; i++)
		if (across_pool[i].near.state == NEAR_ASKS)
			return true;
	return false;
}

void near_end(struct peer *a)
{
	struct across_guard g = across_enter();

	/* Answers that nobody reads would end the line one day. */
	hear();
	if (a->near.state == NEAR_ASKS && line >= 0)
		said(owed_withdraw(&owed, line, &a->local, &a->peer));
	meet_near_drop(&a->near.met);
	a->near = (struct near){.met = a->near.met};
	a->state = ACROSS_FREE;
	/* Nobody may ever come by to say it, and the end of the line withdraws all. */
	if (owed.count > 0 && !is_anything_asked())
		lose_line();
	across_leave(g);
}

FORK_CODE void near_forked(void)
{
	if (tried_ms == 0)
		return;
	/* The daemon knows the parent by it. */
	fds_close(line);
	line = -1;
	owed.count = 0;
	tried_ms = 0;
	for (int i = 0; i < across_used; i++) {
		struct meet_near *met = &across_pool[i].near.met;

		if (!across_pool[i].near.is_used)
			continue;
		/* They are the parent's, too: nothing but the numbers goes. */
		fds_close(met->line);
		fds_close(met->bell);
		met->line = met->bell = -1;
	}
}
