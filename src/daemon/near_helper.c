/* SPDX-License-Identifier: Apache-2.0 */
/* The children that touch what strangers have sent: who has one, and what becomes of those that hang. */
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/near_helper.h"

static struct helper {
	pid_t pid; /* 0: free */
	int fd;	   /* -1: given up; it may not have ended yet */
	uint32_t uid, turn;
	struct relay_ref client;
	unsigned asked; /* orders without a report */
	uint64_t
		moved_ms; /* its last report, or its first order since it had none; or when it was given up */
} helpers[RELAY_NEAR_CHILDREN];

static bool is_of(const struct helper *h, struct relay_ref client)
{
	return h->pid && h->fd >= 0 && h->client.index == client.index &&
	       h->client.turn == client.turn;
}

static struct helper *helper_of(struct relay_ref client)
{
	for (int i = 0; i < RELAY_NEAR_CHILDREN; i++)
		if (is_of(&helpers[i], client))
			return &helpers[i];
	return NULL;
}

static void reap(struct relay *r, struct helper *h)
{
	if (!h->pid || h->fd >= 0 || waitpid(h->pid, NULL, WNOHANG) == 0)
		return;
	h->pid = 0;
	r->helpers--;
}

/* It ends by itself where nothing hangs. */
static void give_up(struct relay *r, struct helper *h)
{
	loop_unwatch(r, h->fd);
	close(h->fd);
	h->fd = -1;
	h->turn++;
	h->moved_ms = r->now_ms;
	reap(r, h);
}

/* One that has nothing to do gives its place to somebody else: of that user; or of anybody, where that
 * user has no right to more. */
static void make_room(struct relay *r, const uint32_t *uid)
{
	struct helper *idle = NULL;

	for (int i = 0; i < RELAY_NEAR_CHILDREN; i++) {
		struct helper *h = &helpers[i];

		if (h->pid && h->fd >= 0 && h->asked == 0 && (!uid || h->uid == *uid) &&
		    (!idle || h->moved_ms < idle->moved_ms))
			idle = h;
	}
	if (!idle)
		return;
	give_up(r, idle);
	/* It has nothing whose closing takes time, and waits for orders. */
	if (idle->pid && waitpid(idle->pid, NULL, 0) == idle->pid) {
		idle->pid = 0;
		r->helpers--;
	}
}

static bool has_share(struct relay *r, uint32_t uid, unsigned *hung)
{
	struct share share = {.uid = uid};

	*hung = 0;
	for (int i = 0; i < RELAY_NEAR_CHILDREN; i++) {
		struct helper *h = &helpers[i];

		reap(r, h);
		if (!h->pid)
			continue;
		share_count(&share, h->uid);
		*hung += h->uid == uid && h->fd < 0 &&
			 r->now_ms - h->moved_ms >= RELAY_CHILD_MS;
	}
	return share_is_left(&share, RELAY_NEAR_CHILDREN_UID, RELAY_NEAR_CHILDREN);
}

enum near_room near_helper_room(struct relay *r, struct relay_ref client)
{
	uint32_t uid = r->client[client.index].owner.uid;
	unsigned hung;
	bool share;

	if (helper_of(client))
		return NEAR_ROOM;
	share = has_share(r, uid, &hung);
	if (hung >= RELAY_NEAR_HUNG_UID)
		return NEAR_NO_ROOM;
	if (!share)
		make_room(r, &uid);
	else if (r->helpers == RELAY_NEAR_CHILDREN)
		make_room(r, NULL);
	return r->helpers < RELAY_NEAR_CHILDREN && has_share(r, uid, &hung)
		       ? NEAR_ROOM
		       : NEAR_ROOM_LATER;
}

static struct helper *make(struct relay *r, struct relay_ref client)
{
	const struct relay_client *c = &r->client[client.index];
	struct helper *h = helpers;
	int pair[2], e;

	while (h < helpers + RELAY_NEAR_CHILDREN && h->pid)
		h++;
	if (h == helpers + RELAY_NEAR_CHILDREN ||
	    socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return NULL;
	h->pid = fork();
	if (h->pid == 0) {
		keys_forget(&r->keys); /* it takes what strangers send */
		near_child(c->fd, pair[1], c->owner.uid);
	}
	close(pair[1]);
	if (h->pid < 0) {
		h->pid = 0;
		close(pair[0]);
		return NULL;
	}
	r->helpers++;
	h->fd = pair[0];
	h->uid = c->owner.uid;
	h->client = client;
	h->asked = 0;
	h->moved_ms = r->now_ms;
	e = loop_watch(r, h->fd, RELAY_NEAR_HELPER, (uint32_t)(h - helpers), h->turn,
		       false, true);
	if (e == 0)
		return h;
	give_up(r, h);
	return NULL;
}

bool near_helper_order(struct relay *r, struct relay_ref client,
		       const struct near_order *order, int fd)
{
	const struct near_fds fds = {.fd = {fd}, .count = fd >= 0};
	struct helper *h = helper_of(client);

	if (!h && near_helper_room(r, client) == NEAR_ROOM)
		h = make(r, client);
	if (!h || h->asked >= RELAY_NEAR_ORDERS ||
	    near_line_send(h->fd, order, sizeof(*order), &fds) < 0)
		return false;
	if (h->asked++ == 0)
		h->moved_ms = r->now_ms;
	return true;
}

/* It has hung, or has died. */
static void lose(struct relay *r, struct helper *h, const char *why)
{
	struct relay_ref client = h->client;
	const struct relay_client *c = client_of(r, client);

	kill(h->pid, SIGKILL);
	give_up(r, h);
	if (!c)
		return;
	notice(r, "process %d (%s) of user %u is ended: %s", (int)c->owner.pid,
	       c->owner.program, c->owner.uid, why);
	client_end(r, client.index);
}

static void hand_out(struct relay *r, struct relay_ref client, struct near_report *report,
		     struct near_fds *fds)
{
	if (report->kind == ORDER_STEP) {
		near_stepped(r, report->near, report->round, report->result == 1);
	} else if (report->kind == ORDER_HOLDS) {
		near_held(r, report->near, report->round, report->result == 1);
	} else if (fds->count == NEAR_PLACE_FDS) {
		report->place.diag = fds->fd[NEAR_DIAG];
		report->place.probe = fds->fd[1];
		near_taken(r, client, report->result, &report->m, LOCAL_OK,
			   &report->place);
	} else {
		near_taken(r, client, report->result, &report->m,
			   report->status ? report->status : LOCAL_NETNS, NULL);
	}
}

void near_helper_ready(struct relay *r, struct relay_ref ref)
{
	struct helper *h = &helpers[ref.index];
	struct near_report report;
	struct near_fds fds;
	ssize_t n;

	if (!h->pid || h->fd < 0 || h->turn != ref.turn)
		return;
	n = near_line_receive(h->fd, &report, sizeof(report), MSG_DONTWAIT, &fds);
	if (n == -EAGAIN)
		return;
	if (n != (ssize_t)sizeof(report)) {
		lose(r, h, "a child that was to look at its descriptors has ended");
		return;
	}
	h->asked--;
	h->moved_ms = r->now_ms;
	hand_out(r, h->client, &report, &fds);
}

void near_helper_client_gone(struct relay *r, struct relay_ref client)
{
	struct helper *h = helper_of(client);

	if (!h)
		return;
	if (h->asked > 0)
		kill(h->pid, SIGKILL);
	give_up(r, h);
}

void near_helper_tick(struct relay *r)
{
	for (int i = 0; r->helpers && i < RELAY_NEAR_CHILDREN; i++) {
		struct helper *h = &helpers[i];
		uint64_t still = r->now_ms - h->moved_ms;

		reap(r, h);
		if (!h->pid || h->fd < 0)
			continue;
		if (h->asked > 0 && still >= RELAY_CHILD_MS)
			lose(r, h, "what it has shown of itself does not answer");
		else if (h->asked == 0 && still >= RELAY_CHILD_IDLE_MS)
			give_up(r, h);
	}
}
