/* SPDX-License-Identifier: Apache-2.0 */
/* Tells processes how the kernel rewrites the addresses of their own connections. */
#include <errno.h>
#include <linux/capability.h>
#include <linux/sockios.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/near_helper.h"
#include "daemon/translator.h"

/*
 * docs/near.md, "How addresses are rewritten". A process shows nothing: the namespace is that of the socket by which it
 * has come, and the user that of whoever has connected it. A child of a child enters namespaces and asks; viaductd then
 * gives up the right to enter them. The child between the two, which is made before anybody has come and hears nobody,
 * keeps that right, and makes the other one anew. Neither holds anything of strangers'. A process that has asked is not
 * read until it is answered.
 */
static struct {
	pid_t pid;
	int fd; /* -1: none */
} keeper = {.fd = -1};

/* The one that asks. */
static struct {
	int fd; /* -1: none now */
	int process;
	uint64_t moved_ms;
} child = {.fd = -1};

/* ---- rights ---- */

struct rights {
	struct __user_cap_header_struct head;
	struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3];
};

static bool rights_get(struct rights *r)
{
	*r = (struct rights){.head = {.version = _LINUX_CAPABILITY_VERSION_3}};
	return syscall(SYS_capget, &r->head, r->data) == 0;
}

static bool rights_have(const struct rights *r, unsigned cap)
{
	return r->data[CAP_TO_INDEX(cap)].effective & CAP_TO_MASK(cap);
}

static void leave_out(struct rights *r, unsigned cap)
{
	struct __user_cap_data_struct *d = &r->data[CAP_TO_INDEX(cap)];

	d->effective &= ~CAP_TO_MASK(cap);
	d->permitted &= ~CAP_TO_MASK(cap);
	d->inheritable &= ~CAP_TO_MASK(cap);
}

/* For good: whoever takes viaductd over by what comes from outside has them not. By CAP_NET_ADMIN the kernel says in
 * which namespace a process's socket is, for the child. */
static int give_up(struct rights *r)
{
	leave_out(r, CAP_SYS_ADMIN);
	if (keeper.fd < 0)
		leave_out(r, CAP_NET_ADMIN);
	return syscall(SYS_capset, &r->head, r->data) < 0 ? -errno : 0;
}

/* ---- the children ---- */

/* Nobody who has asked is answered by the one that has gone: where another is to come, they ask again. */
static void refuse_all(struct relay *r, enum local_status status)
{
	for (uint32_t i = 0; r->translating > 0 && i < RELAY_CLIENTS; i++) {
		struct relay_client *c = &r->client[i];
		struct relay_ref ref = {i, c->turn};

		if (!client_of(r, ref) || !c->translates)
			continue;
		near_client_translated(r,
				       &(struct translate_report){.client = ref,
								  .id = c->translates_id,
								  .status = status});
	}
	r->translating = 0;
}

static void forget(struct relay *r)
{
	loop_unwatch(r, child.fd);
	close(child.fd);
	close(child.process);
	child.fd = -1;
}

/* The one that asks has hung, or has died. */
static void lose(struct relay *r)
{
	log_error("the child that asks conntrack has ended: another one is to come");
	syscall(SYS_pidfd_send_signal, child.process, SIGKILL, NULL, 0);
	forget(r);
	refuse_all(r, LOCAL_FULL);
}

/* Nobody else may enter namespaces. */
static void lose_keeper(struct relay *r)
{
	log_error("the child that makes those that ask conntrack has ended: restart "
		  "viaductd, and until then nobody is told how addresses are rewritten");
	loop_unwatch(r, keeper.fd);
	close(keeper.fd);
	keeper.fd = -1;
	if (child.fd >= 0)
		forget(r);
	refuse_all(r, LOCAL_RIGHTS);
}

static void take(struct relay *r, int flags)
{
	struct near_fds ways;
	char byte;
	ssize_t n = near_line_receive(keeper.fd, &byte, sizeof(byte), flags, &ways);

	if (n == -EAGAIN)
		return;
	if (n <= 0) {
		lose_keeper(r);
		return;
	}
	if (ways.count != NEAR_PLACE_FDS)
		return;
	/* Its end may lie unread. */
	if (child.fd >= 0)
		lose(r);
	child.fd = ways.fd[TRANSLATE_LINE];
	child.process = ways.fd[TRANSLATE_PROCESS];
	if (loop_watch(r, child.fd, RELAY_TRANSLATOR, 0, 0, false, true) < 0)
		lose(r);
}

static int begin(struct relay *r, const struct rights *rights)
{
	int pair[2], e;

	if (!rights_have(rights, CAP_NET_ADMIN)) {
		log_info("it tells nobody how addresses are rewritten: that needs "
			 "CAP_NET_ADMIN, and CAP_SYS_ADMIN for other network "
			 "namespaces");
		return 0;
	}
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return -errno;
	keeper.pid = fork();
	if (keeper.pid == 0) {
		keys_forget(&r->keys);
		translate_keeper(pair[1]);
	}
	close(pair[1]);
	e = keeper.pid < 0 ? -errno
			   : loop_watch(r, pair[0], RELAY_TRANSLATOR, 0, 0, false, true);
	if (e < 0) {
		close(pair[0]);
		return e;
	}
	keeper.fd = pair[0];
	take(r, 0);
	if (!rights_have(rights, CAP_SYS_ADMIN))
		log_info("it tells how addresses are rewritten in its own network "
			 "namespace alone: others need CAP_SYS_ADMIN");
	return 0;
}

int translate_open(struct relay *r)
{
	struct rights rights;
	int e, kept;

	if (!rights_get(&rights))
		return 0;
	e = *r->settings.near ? begin(r, &rights) : 0;
	kept = give_up(&rights);
	return e < 0 ? e : kept;
}

/* ---- questions ---- */

static enum local_status judge(struct relay *r, const struct relay_client *c,
			       const struct local_message *m)
{
	struct settings_party party = client_party(c);

	if (!bucket_take_uid(&r->by_uid, c->owner.uid, r->now_ms))
		return LOCAL_RATE;
	if (m->local.port == 0 || m->peer.port == 0)
		return LOCAL_ADDRESS;
	if (!settings_allow(&r->settings, &party, &m->local, &m->peer))
		return LOCAL_RULE;
	if (child.fd >= 0)
		return LOCAL_OK;
	return keeper.fd >= 0 ? LOCAL_FULL : LOCAL_RIGHTS;
}

/* The namespace of the socket by which the process has come. */
static enum local_status hand_on(const struct relay_client *c,
				 const struct translate_order *order)
{
	struct near_fds fds = {.count = 0};
	enum local_status status = LOCAL_OK;

	if (!order->is_own_space) {
		fds.fd[0] = ioctl(c->fd, SIOCGSKNS);
		fds.count = 1;
	}
	if (fds.count && fds.fd[0] < 0)
		return errno == EPERM ? LOCAL_RIGHTS : LOCAL_FULL;
	if (near_line_send(child.fd, order, sizeof(*order), &fds) < 0)
		status = LOCAL_FULL;
	if (fds.count)
		close(fds.fd[0]);
	return status;
}

bool translate_has_room(const struct relay *r)
{
	return r->translating < RELAY_TRANSLATING;
}

enum local_status translate_ask(struct relay *r, struct relay_ref ref,
				const struct local_message *m)
{
	struct relay_client *c = &r->client[ref.index];
	enum local_status status = judge(r, c, m);
	struct local_translate t;
	struct translate_order order;

	if (status != LOCAL_OK)
		return status;
	memcpy(&t, m->hello, sizeof(t));
	memset(&order, 0, sizeof(order));
	order.client = ref;
	order.id = m->id;
	order.uid = c->owner.uid;
	order.cookie = t.cookie;
	order.accepted = t.accepted;
	order.is_own_space = c->owner.same_netns;
	order.local = m->local;
	order.peer = m->peer;
	status = owner_has_number(&c->owner) ? hand_on(c, &order) : LOCAL_OWNER;
	if (status != LOCAL_OK)
		return status;
	if (r->translating++ == 0)
		child.moved_ms = r->now_ms;
	c->translates = true;
	c->translates_id = m->id;
	return LOCAL_OK;
}

static void hear(struct relay *r)
{
	struct translate_report report;
	struct near_fds fds;
	ssize_t n =
		near_line_receive(child.fd, &report, sizeof(report), MSG_DONTWAIT, &fds);

	if (n == -EAGAIN)
		return;
	if (n != (ssize_t)sizeof(report)) {
		lose(r);
		return;
	}
	r->translating--;
	child.moved_ms = r->now_ms;
	near_client_translated(r, &report);
}

void translate_ready(struct relay *r)
{
	if (child.fd >= 0)
		hear(r);
	if (keeper.fd >= 0)
		take(r, MSG_DONTWAIT);
}

void translate_tick(struct relay *r)
{
	if (keeper.fd < 0 && keeper.pid > 0 && waitpid(keeper.pid, NULL, WNOHANG) != 0)
		keeper.pid = 0;
	if (child.fd >= 0 && r->translating > 0 &&
	    r->now_ms - child.moved_ms >= RELAY_CHILD_MS)
		lose(r);
}
