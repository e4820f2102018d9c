/* SPDX-License-Identifier: Apache-2.0 */
/* The process that enters network namespaces for viaductd, and asks conntrack about one connection each time; and
 * another one, which makes it and hears nobody, so that it can be made anew. */
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/tcp.h"
#include "daemon/near_helper.h"
#include "daemon/translator.h"
#include "rendezvous/conntrack.h"
#include "rendezvous/diag.h"
#include "rendezvous/socket_cache.h"

#define LINE 0 /* the only descriptor that each has of its parent's */
/* From the end of one to the next: doubled each time, until one has lived for the longest. */
#define NAP_LEAST_MS 1000
#define NAP_MOST_MS  60000

static int home; /* viaductd's network namespace */

/* Of all that root may, it needs two rights. */
static void keep_two_rights(void)
{
	struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct own[_LINUX_CAPABILITY_U32S_3];
	const uint32_t two = CAP_TO_MASK(CAP_NET_ADMIN) | CAP_TO_MASK(CAP_SYS_ADMIN);

	if (syscall(SYS_capget, &head, own) < 0)
		return;
	own[0].permitted &= two;
	own[0].effective &= two;
	own[1].permitted = own[1].effective = 0;
	own[0].inheritable = own[1].inheritable = 0;
	syscall(SYS_capset, &head, own);
}

static bool has_both_ends(const struct diag_socket *s)
{
	return s->state != TCP_SYN_SENT && s->state != TCP_SYN_RECV;
}

static bool is_asked_socket(const struct translate_order *o, uint64_t netns)
{
	struct diag_socket s;

	return diag_lookup(netns, &o->local, &o->peer, 0, &s) == 1 && has_both_ends(&s) &&
	       s.inode != 0 && s.cookie == o->cookie && s.uid == o->uid;
}

static bool is_same(const struct name_tuple *a, const struct name_tuple *b)
{
	return name_end_equal(&a->client, &b->client) &&
	       name_end_equal(&a->server, &b->server);
}

/*
 * The entry leads from a socket that is there to a socket that is there, be it that nobody has accepted it yet. It is looked at before and after the second
 * one, and the first one after that: so all three have been there at one moment, and belong together.
 */
static enum local_status find(const struct translate_order *o, uint64_t netns,
			      struct translate_report *out)
{
	enum tcp_role role = o->accepted ? TCP_ROLE_ACCEPTED : TCP_ROLE_CONNECTED;
	const struct name_tuple own = {.client = o->accepted ? o->peer : o->local,
				       .server = o->accepted ? o->local : o->peer};
	struct name_tuple other, again;
	struct diag_socket s;
	int r;

	if (!is_asked_socket(o, netns))
		return LOCAL_OWNER;
	r = conntrack_ask(netns, &own, role, &other);
	if (r == -EPERM)
		return LOCAL_RIGHTS;
	if (r != 1)
		return LOCAL_UNSEEN;
	out->local = o->accepted ? other.client : other.server;
	out->peer = o->accepted ? other.server : other.client;
	if (diag_lookup(netns, &out->local, &out->peer, 0, &s) != 1 ||
	    !has_both_ends(&s) || s.cookie == o->cookie ||
	    conntrack_ask(netns, &own, role, &again) != 1 || !is_same(&other, &again))
		return LOCAL_UNSEEN;
	out->cookie = s.cookie;
	return is_asked_socket(o, netns) ? LOCAL_OK : LOCAL_OWNER;
}

static enum local_status find_here(const struct translate_order *o,
				   struct translate_report *out)
{
	uint64_t netns;
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0), r;

	if (fd < 0)
		return LOCAL_FULL;
	r = tcp_netns_cookie(fd, &netns);
	close(fd);
	return r < 0 ? LOCAL_UNSEEN : find(o, netns, out);
}

/* What it makes there is gone when it has come home, so that it keeps no namespace. */
static enum local_status find_there(const struct translate_order *o, int space,
				    struct translate_report *out)
{
	enum local_status status;

	if (setns(space, CLONE_NEWNET) < 0)
		return errno == EPERM ? LOCAL_RIGHTS : LOCAL_FULL;
	status = find_here(o, out);
	if (setns(home, CLONE_NEWNET) < 0)
		_exit(1);
	kept_close_all();
	return status;
}

static void carry_out(const struct translate_order *o, const struct near_fds *fds)
{
	struct translate_report found = {0}, report = {0};
	int space = fds->count == 1 ? fds->fd[0] : -1;

	if (o->is_own_space)
		report.status = find_here(o, &found);
	else
		report.status = space >= 0 ? find_there(o, space, &found) : LOCAL_FULL;
	if (space >= 0)
		close(space);
	/* Nothing of what was looked at on the way. */
	if (report.status == LOCAL_OK) {
		report.local = found.local;
		report.peer = found.peer;
		report.cookie = found.cookie;
	}
	report.client = o->client;
	report.id = o->id;
	if (near_line_send(LINE, &report, sizeof(report), NULL) < 0)
		_exit(1);
}

static void keep_nothing_but(int line)
{
	line = fcntl(line, F_DUPFD, LINE + 1);
	if (dup2(line, LINE) < 0 || close_range(LINE + 1, ~0u, 0) < 0)
		_exit(1);
}

static _Noreturn void work(int line)
{
	struct translate_order order;
	struct near_fds fds;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	keep_nothing_but(line);
	home = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
	while (near_line_receive(LINE, &order, sizeof(order), 0, &fds) ==
	       (ssize_t)sizeof(order))
		carry_out(&order, &fds);
	_exit(0);
}

/* ---- who makes it ---- */

/* One that asks, in ways->fd; or none. Its number, which is this process's to wait for, or -1. */
static pid_t make(struct near_fds *ways)
{
	int pair[2], process;
	pid_t pid;

	ways->count = 0;
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return -1;
	pid = fork();
	if (pid == 0)
		work(pair[1]);
	close(pair[1]);
	process = pid < 0 ? -1 : (int)syscall(SYS_pidfd_open, pid, 0);
	if (process < 0) {
		close(pair[0]); /* by which it ends */
		return pid;
	}
	ways->fd[TRANSLATE_LINE] = pair[0];
	ways->fd[TRANSLATE_PROCESS] = process;
	ways->count = NEAR_PLACE_FDS;
	return pid;
}

static void make_and_wait(void)
{
	const char byte = 0;
	struct near_fds ways;
	pid_t pid = make(&ways);

	if (near_line_send(LINE, &byte, sizeof(byte), &ways) < 0)
		_exit(0);
	while (ways.count > 0)
		close(ways.fd[--ways.count]);
	while (pid > 0 && waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		;
}

void translate_keeper(int line)
{
	int nap_ms = NAP_LEAST_MS;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	keep_two_rights();
	log_level_now = LOG_OFF; /* its number is another descriptor's soon */
	keep_nothing_but(line);
	/* Those that were kept are closed by now, and are to be forgotten before their numbers are used again. */
	kept_close_all();
	for (;;) {
		uint64_t began_ms = loop_clock_ms();

		make_and_wait();
		if (loop_clock_ms() - began_ms >= NAP_MOST_MS)
			nap_ms = NAP_LEAST_MS;
		poll(NULL, 0, nap_ms);
		nap_ms = 2 * nap_ms < NAP_MOST_MS ? 2 * nap_ms : NAP_MOST_MS;
	}
}
