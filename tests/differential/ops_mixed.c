/* SPDX-License-Identifier: Apache-2.0 */
/* Operations of many calls: talk that earns an upgrade, descriptors that go to a peer. */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "differential.h"

/* Back and forth, after which the connection is upgraded by default. */
static void op_talk(struct dice *d)
{
	struct descriptor *other, *s = any_sound_pair(d, &other);
	if (!s || unread(s) || unread(other) || room_to_send(s, true) < 1000) {
		tell("nothing");
		return;
	}
	char buf[512];
	unsigned turns = 10 + dice(d, 120), right = 0;
	for (unsigned i = 0; i < 2 * turns; i++) {
		struct descriptor *from = i % 2 ? other : s, *to = i % 2 ? s : other;
		size_t len = 1 + dice(d, 400);
		memset(buf, (int)i, sizeof buf);
		if (send(from->fd, buf, len, MSG_DONTWAIT) != (ssize_t)len)
			break;
		settle();
		memset(buf, 0, sizeof buf);
		ssize_t n = recv(to->fd, buf, sizeof buf, MSG_DONTWAIT);
		right +=
			n == (ssize_t)len && buf[0] == (char)i && buf[len - 1] == (char)i;
	}
	tell("(%d, %d) %u of %u", s->fd, other->fd, right, 2 * turns);
}

static int set_tcp(int fd, int name, int value)
{
	return setsockopt(fd, IPPROTO_TCP, name, &value, sizeof value);
}

/* Messages of two pieces each, back and forth: the connection goes up and stays corked, or not. */
static void op_held_talk(struct dice *d)
{
	struct descriptor *other, *s = any_sound_pair(d, &other);
	if (!s || unread(s) || unread(other) || room_to_send(s, true) < 1000) {
		tell("nothing");
		return;
	}
	uint8_t buf[512], got[512];
	bool cork = once_in(d, 2), once = once_in(d, 2);
	unsigned turns = 10 + dice(d, 60), right = 0;
	for (unsigned i = 0; i < turns; i++) {
		size_t head = 1 + dice(d, 200), rest = 1 + dice(d, 200);
		memset(buf, (int)i, head + rest);
		if (cork && (i == 0 || !once))
			set_tcp(s->fd, TCP_CORK, 1);
		ssize_t n = send(s->fd, buf, head, cork ? 0 : MSG_MORE);
		n += send(s->fd, buf + head, rest, 0);
		if (cork)
			set_tcp(s->fd, once ? TCP_NODELAY : TCP_CORK, once);
		settle();
		ssize_t m = recv(other->fd, got, sizeof got, MSG_DONTWAIT);
		right +=
			n == (ssize_t)(head + rest) && m == n && got[m - 1] == (uint8_t)i;
		if (send(other->fd, buf, 1, MSG_DONTWAIT) != 1)
			break;
		settle();
		right += recv(s->fd, got, sizeof got, MSG_DONTWAIT) == 1;
	}
	set_tcp(s->fd, TCP_CORK, 0);
	tell("%s(%d, %d) %u of %u", cork ? "CORK" : "MORE", s->fd, other->fd, right,
	     2 * turns);
}

static void op_give(struct dice *d)
{
	struct descriptor *s = any_of(d, SOCKET);
	int peer = (int)dice(d, PEERS);
	bool keep = once_in(d, 2);
	if (!s || getpid() != peer_pid(-1) || perform_depth || unread(s)) {
		tell("nothing");
		return;
	}
	int held = 0;
	for (int i = 0; i < shared->ends; i++)
		held += shared->end[i].holders;
	if (held > 2 * MOST_DESCRIPTORS / 3) {
		tell("enough in all");
		return;
	}
	int fd = s->fd;
	ssize_t n = peer_give(peer, s);
	tell("(%d to %d) = %s", fd, peer, n < 0 ? result(n) : "given");
	if (!keep) {
		tell("close(%d) = %s", fd, result(close(fd)));
		descriptor_gone(s);
	}
}

/* A peer that is stopped answers nobody, and its connections go on. */
static void op_stopped(struct dice *d)
{
	int peer = (int)dice(d, PEERS);
	if (getpid() != peer_pid(-1) || perform_depth || !once_in(d, 2)) {
		tell("nothing");
		return;
	}
	siginfo_t info;
	NEED(kill(peer_pid(peer), SIGSTOP) == 0);
	NEED(waitid(P_PID, (id_t)peer_pid(peer), &info, WSTOPPED) == 0);
	struct descriptor *s = any_of(d, SOCKET);
	if (s && room_to_send(s, true) > 100) {
		char buf[64];
		fill_bytes(s, buf, sizeof buf);
		ssize_t n = send(s->fd, buf, sizeof buf, MSG_DONTWAIT);
		tell("send(%d) = %s", s->fd, result(n));
		was_sent(s, n);
	}
	NEED(kill(peer_pid(peer), SIGCONT) == 0);
}

const struct op ops_mixed[] = {
	{"talk", op_talk, 14}, {"held-talk", op_held_talk, 3},
	{"give", op_give, 3},  {"stopped", op_stopped, 2},
	{NULL, NULL, 0},
};
