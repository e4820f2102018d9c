/* SPDX-License-Identifier: Apache-2.0 */
/* The checks of viaductd's socket for other network namespaces of this host. */
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tool/doctor/way.h"

#define NEAR_SOCKET "/run/viaduct/near/near.sock"

static const char meaning[] =
	"Connections with other network namespaces of this host stay on TCP.";

static bool answers; /* as the first of these checks has found */

/* Where it is not set up, that is as most hosts are. */
static void tell_none(struct finding *f)
{
	found_word(f, "none");
	found(f, "no viaductd is asked about other network namespaces: there is no %s",
	      NEAR_SOCKET);
	found_trouble(f, FINDING_NOTE, meaning,
		      "Where pods or containers of this host talk to each other: set "
		      "`near-socket` in viaductd.conf, and mount its folder into them.");
}

static void tell_fault(struct finding *f, int error)
{
	found_word(f, strerror(-error));
	found(f, "viaductd for other network namespaces: %s: %s", NEAR_SOCKET,
	      strerror(-error));
	if (error == -EACCES)
		found_trouble(f, FINDING_PROBLEM, meaning,
			      "Let this user reach it: the folder needs `chmod a+x`.");
	else if (error == -ECONNREFUSED)
		found_trouble(f, FINDING_PROBLEM, meaning,
			      "Start viaductd, or its socket: `systemctl enable --now "
			      "viaductd.socket`. If it runs: set `near-socket = %s`, and "
			      "mount its folder, not the socket.",
			      NEAR_SOCKET);
	else if (error == -EBUSY || error == -EAGAIN)
		found_trouble(f, FINDING_PROBLEM, meaning,
			      "It has too much to do: see its log.");
	else if (error == -EPROTO || error == -EPROTONOSUPPORT || error == -EPIPE)
		found_trouble(f, FINDING_PROBLEM, meaning,
			      "It is of another version than this command, or it has "
			      "hung up on this user: see its log.");
	else
		found_trouble(f, FINDING_PROBLEM, meaning,
			      "It is stopped or hangs: see its log, and restart it.");
}

void check_near(struct finding *f)
{
	/* Where no socket can be made at all, an earlier check says so. */
	int r = access(NEAR_SOCKET, F_OK) == 0 ? 0 : -errno;

	if (r == 0)
		r = relay_greet(NEAR_SOCKET);
	if (r == -ENOENT || r == -ENOTDIR) {
		tell_none(f);
	} else if (r < 0) {
		tell_fault(f, r);
	} else {
		answers = true;
		found_word(f, "running");
		found(f, "viaductd answers about other network namespaces of this host");
	}
}

/* ---- how addresses are rewritten ---- */

enum { ANSWER_LIMIT_MS = 4000 }; /* it gives up on its child after three seconds */

static const char stays[] = "Where the kernel rewrites a connection's addresses, as for "
			    "a sidecar, and neither "
			    "end has CAP_NET_ADMIN, it stays on TCP.";

/* A TCP connection of our own. 0 or -errno. */
static int connect_self(int fds[2])
{
	struct sockaddr_in name = {.sin_family = AF_INET,
				   .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t size = sizeof(name);
	int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), r = 0;

	fds[0] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	fds[1] = -1;
	if (bind(listener, (struct sockaddr *)&name, size) < 0 ||
	    listen(listener, 1) < 0 ||
	    getsockname(listener, (struct sockaddr *)&name, &size) < 0 ||
	    connect(fds[0], (struct sockaddr *)&name, size) < 0)
		r = -errno;
	if (r == 0)
		fds[1] = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
	if (r == 0 && fds[1] < 0)
		r = -errno;
	close(listener);
	return r;
}

/* The status that it gives, or -errno. */
static int ask_about(int line, int tcp)
{
	struct local_translate t = {0};
	struct local_message m;
	struct name_tuple ends;
	struct pollfd p = {.fd = line, .events = POLLIN};
	int r = name_of_connection(tcp, TCP_ROLE_CONNECTED, &ends);

	if (r == 0)
		r = tcp_cookie(tcp, &t.cookie);
	if (r == 0)
		r = caller_say(line, LOCAL_TRANSLATE, 1, &ends.client, &ends.server,
			       LOCAL_OK, &t, sizeof(t));
	if (r == 0 && poll(&p, 1, ANSWER_LIMIT_MS) <= 0)
		r = -ETIMEDOUT;
	if (r == 0)
		r = caller_hear(line, &m);
	return r < 0 ? r : m.status;
}

static int ask_rewritten(void)
{
	int line = caller_open(NEAR_SOCKET), fds[2], r;

	if (line < 0)
		return line;
	r = connect_self(fds);
	if (r == 0)
		r = ask_about(line, fds[0]);
	close(line);
	close(fds[0]);
	close(fds[1]);
	return r;
}

void check_rewritten(struct finding *f)
{
	int r = answers ? ask_rewritten() : -ENOENT;

	/* Our own connection is not rewritten, and may not be tracked. */
	if (r == LOCAL_OK || r == LOCAL_UNSEEN) {
		found_word(f, "told");
		found(f, "viaductd tells how the kernel rewrites addresses here");
		return;
	}
	found_word(f, "not told");
	found(f, "nobody tells how the kernel rewrites addresses: %s",
	      r < 0 ? strerror(-r) : local_status_text((unsigned)r));
	if (r == LOCAL_RIGHTS)
		found_trouble(
			f, FINDING_NOTE, stays,
			"Give viaductd CAP_NET_ADMIN, and CAP_SYS_ADMIN for other "
			"network namespaces: AmbientCapabilities= of its service; see "
			"viaductd(8).");
	else if (r == LOCAL_MALFORMED)
		found_trouble(
			f, FINDING_NOTE, stays,
			"viaductd is older than this command: restart the new one.");
	else
		found_trouble(f, FINDING_NOTE, stays,
			      "Where there is a service mesh: set `near-socket` in "
			      "viaductd.conf, and let viaductd have CAP_NET_ADMIN and "
			      "CAP_SYS_ADMIN; see viaductd(8).");
}
