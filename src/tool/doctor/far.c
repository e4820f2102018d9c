/* SPDX-License-Identifier: Apache-2.0 */
/* The child that has an end of the tested connection: started under the library, and looked at. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "conn/slot.h"
#include "tool/doctor/far.h"
#include "tool/floor.h"
#include "tool/library.h"
#include "tool/self.h"

enum {
	CONNECT_LIMIT_MS = 3000,
	/* The slowest: five seconds of the other viaductd's, or ten of a stuck connection. */
	ORDER_LIMIT_MS = 15000,
	SETTLE_LIMIT = 100,
	SETTLE_STEP_MS = 50,
	CLOSE_LIMIT_MS = 4000, /* a link is drained at the end */
};

/* ---- its life ---- */

/* With all settings of the user's, since these are what programs get; but at once, and without
 * leaving anything. */
static void become(char *const argv[], const char *library, enum far_how how,
		   const int pipes[2], pid_t parent)
{
	static const char *const set[FAR_HOWS][2] = {
		[FAR_BY_RING] = {"VIADUCT_REDIRECT", "off"},
		[FAR_REDIRECTED] = {"VIADUCT_REDIRECT", "64"},
		[FAR_BY_TCP] = {"VIADUCT", "off"},
	};
	/* Above the three that are to be its own, whatever was open. */
	int in = fcntl(pipes[0], F_DUPFD_CLOEXEC, 3);
	int out = fcntl(pipes[1], F_DUPFD_CLOEXEC, 3);
	int null = open("/dev/null", O_RDWR);

	prctl(PR_SET_PDEATHSIG, SIGTERM);
	signal(SIGPIPE, SIG_DFL);
	if (null >= 0 && getppid() == parent && dup2(in, 0) == 0 && dup2(out, 1) == 1 &&
	    dup2(null, 2) == 2 && setenv("VIADUCT_REPORT", "", 1) == 0 &&
	    setenv("VIADUCT_LOG", "off", 1) == 0 &&
	    setenv("VIADUCT_UPGRADE_AFTER", "0", 1) == 0 &&
	    (how == FAR_AS_SET || setenv(set[how][0], set[how][1], 1) == 0) &&
	    library_preload(library, NULL) == 0)
		execv(self_program(), argv);
	_exit(1);
}

int far_start(struct far_child *c, char *const argv[], enum far_how how)
{
	char library[PATH_MAX];
	int to[2], from[2], r = library_find(library, sizeof(library));
	pid_t parent = getpid();

	if (r < 0)
		return r;
	if (pipe2(to, O_CLOEXEC) != 0)
		return -errno;
	if (pipe2(from, O_CLOEXEC) != 0) {
		r = -errno;
		close(to[0]);
		close(to[1]);
		return r;
	}
	fflush(NULL);
	c->pid = fork();
	r = c->pid < 0 ? -errno : 0;
	if (c->pid == 0)
		become(argv, library, how, (int[2]){to[0], from[1]}, parent);
	close(to[0]);
	close(from[1]);
	c->to = to[1];
	c->from = from[0];
	if (r < 0) {
		close(c->to);
		close(c->from);
		c->pid = 0;
	}
	return r;
}

void far_end(struct far_child *c, int limit_ms)
{
	struct pollfd p = {.fd = c->from, .events = POLLIN};
	char last[64];

	if (c->pid <= 0)
		return;
	close(c->to);
	/* Its pipe ends with it. */
	while (poll(&p, 1, limit_ms) > 0 && read(c->from, last, sizeof(last)) > 0)
		;
	kill(c->pid, SIGKILL);
	close(c->from);
	while (waitpid(c->pid, NULL, 0) < 0 && errno == EINTR)
		;
	c->pid = 0;
}

int far_tell(const struct far_child *c, const void *what, size_t bytes)
{
	/* Short enough for a pipe to take whole. */
	return write(c->to, what, bytes) == (ssize_t)bytes ? 0 : -EPIPE;
}

int far_hear(const struct far_child *c, void *what, size_t bytes, int limit_ms)
{
	uint64_t end = floor_now_ns() + (uint64_t)limit_ms * 1000000;
	struct pollfd p = {.fd = c->from, .events = POLLIN};

	for (size_t have = 0; have < bytes;) {
		uint64_t now = floor_now_ns();
		ssize_t n;

		if (limit_ms >= 0 && now >= end)
			return -ETIMEDOUT;
		if (poll(&p, 1, limit_ms < 0 ? -1 : (int)((end - now) / 1000000) + 1) <=
		    0)
			continue;
		n = read(c->from, (char *)what + have, bytes - have);
		if (n == 0 || (n < 0 && errno != EINTR))
			return -EPIPE;
		have += n > 0 ? (size_t)n : 0;
	}
	return 0;
}

int far_order(const struct far_child *c, enum far_do what, uint32_t ms,
	      struct far_result *out)
{
	struct far_order o = {.what = what, .ms = ms, .end = answer_end()};
	int r = far_tell(c, &o, sizeof(o));

	if (r == 0)
		r = far_hear(c, out, sizeof(*out),
			     what == FAR_DO_CONNECT ? CONNECT_LIMIT_MS : ORDER_LIMIT_MS);
	return r == 0 ? out->error : r;
}

/* ---- a connection of its own ---- */

int far_start_asking(struct far_child *c, enum far_how how)
{
	static char *const argv[] = {(char *)"viaduct", (char *)"doctor",
				     (char *)"--far-ask", NULL};

	return far_start(c, argv, how);
}

int far_connect(struct far_child *c, enum far_how how)
{
	struct name_end peer = answer_end();
	struct far_path path = {0};
	struct far_result out;
	int r = far_start_asking(c, how);

	if (r == 0)
		r = far_order(c, FAR_DO_CONNECT, 0, &out);
	if (how == FAR_BY_TCP)
		return r;
	for (int i = 0; r == 0 && i < SETTLE_LIMIT; i++) {
		r = far_order(c, FAR_DO_ECHO, SETTLE_STEP_MS, &out);
		far_look(c, &peer, &path);
		if (path.tx == OBSERVE_RDMA && path.rx == OBSERVE_RDMA)
			return r;
	}
	return r < 0 ? r : -ENOLINK;
}

void far_close(struct far_child *c, bool well)
{
	struct far_result out;

	well = well && far_order(c, FAR_DO_CLOSE, 0, &out) == 0;
	far_end(c, well ? CLOSE_LIMIT_MS : 0);
}

/* ---- how it looks ---- */

static const struct observe_conn *find(const struct observe *seen, pid_t pid,
				       const struct name_end *peer)
{
	for (size_t i = 0; i < seen->conn_count; i++) {
		const struct observe_conn *c = &seen->conns[i];

		if (c->process->pid == pid && c->tcp_state != TCP_LISTEN &&
		    c->peer.port == ntohs(peer->port) &&
		    memcmp(&c->peer.addr, peer->addr, sizeof(peer->addr)) == 0)
			return c;
	}
	return NULL;
}

void far_look(const struct far_child *child, const struct name_end *peer,
	      struct far_path *out)
{
	const struct observe_conn *c;
	struct observe seen;
	char message[200];

	memset(out, 0, sizeof(*out));
	out->reason = VD_REASON_ROLE;
	if (observe_take(&seen, message, sizeof(message)) < 0)
		return;
	c = find(&seen, child->pid, peer);
	if (c) {
		out->is_seen = true;
		out->tx = c->tx;
		out->rx = c->rx;
		out->reason = c->reason;
		out->tx_direct_bytes = c->tx_direct_bytes;
		out->rx_direct_bytes = c->rx_direct_bytes;
		out->redirects = c->redirects;
		out->is_final = !c->known || c->phase == SLOT_FINAL;
	} else if (observe_process(&seen, child->pid) &&
		   !observe_process(&seen, child->pid)->viaduct) {
		out->is_final = true;
		out->reason = VD_REASON_OFF;
	}
	observe_free(&seen);
}
