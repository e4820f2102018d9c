/* SPDX-License-Identifier: Apache-2.0 */
/* Joins /proc and the kernel's list of sockets, for processes outside Viaduct, too. */
#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tool/cli.h"
#include "tool/explain/world.h"

static int compare(uint64_t a, uint64_t b)
{
	return a < b ? -1 : a > b;
}

static int by_inode(const void *a, const void *b)
{
	const struct observe_holder *x = a, *y = b;

	return compare(x->inode, y->inode);
}

static int sockets_by_inode(const void *a, const void *b)
{
	const struct observe_socket *x = a, *y = b;

	return compare(x->inode, y->inode);
}

static int compare_end(const struct observe_end *a, const struct observe_end *b)
{
	int c = memcmp(&a->addr, &b->addr, sizeof(a->addr));

	return c ? c : (int)a->port - (int)b->port;
}

static int by_ends(const void *a, const void *b)
{
	const struct observe_socket *x = *(const struct observe_socket *const *)a;
	const struct observe_socket *y = *(const struct observe_socket *const *)b;
	int c = compare_end(&x->local, &y->local);

	return c ? c : compare_end(&x->peer, &y->peer);
}

static uint64_t netns_of(pid_t pid)
{
	struct stat st;
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/ns/net", (int)pid);
	return stat(path, &st) == 0 ? st.st_ino : 0;
}

static int take(pid_t pid, struct world *w)
{
	uint64_t own = netns_of(getpid());
	int r = observe_scan(&w->processes, &w->holders, &w->hidden);

	w->netns = pid ? netns_of(pid) : own;
	if (w->netns == 0) /* it does not tell: most are in our own */
		w->netns = own;
	if (r == 0)
		r = observe_sockets(&w->sockets, w->netns == own ? 0 : pid, w->netns);
	if (r < 0)
		return r;
	w->by_ends = need(calloc(w->sockets.count + 1, sizeof(*w->by_ends)));
	if (w->holders.count)
		qsort(w->holders.items, w->holders.count, sizeof(struct observe_holder),
		      by_inode);
	if (w->sockets.count)
		qsort(w->sockets.items, w->sockets.count, sizeof(struct observe_socket),
		      sockets_by_inode);
	for (size_t i = 0; i < w->sockets.count; i++)
		w->by_ends[i] = (struct observe_socket *)w->sockets.items + i;
	qsort(w->by_ends, w->sockets.count, sizeof(*w->by_ends), by_ends);
	return 0;
}

int world_take(pid_t pid, struct world *w)
{
	char message[200] = "";
	int r;

	memset(w, 0, sizeof(*w));
	w->processes.item_bytes = sizeof(struct observe_process);
	w->holders.item_bytes = sizeof(struct observe_holder);
	w->sockets.item_bytes = w->elsewhere.item_bytes = sizeof(struct observe_socket);
	r = observe_take(&w->o, message, sizeof(message));
	if (r == 0)
		r = take(pid, w);
	if (r == 0)
		return 0;
	warn_line("viaduct explain: %s%s",
		  *message ? message : "connections cannot be listed: ",
		  *message ? "" : strerror(-r));
	world_finish(w);
	return r;
}

void world_finish(struct world *w)
{
	observe_free(&w->o);
	free(w->processes.items);
	free(w->holders.items);
	free(w->sockets.items);
	free(w->elsewhere.items);
	free(w->by_ends);
}

const struct observe_socket *world_socket(const struct world *w, uint64_t inode)
{
	const struct observe_socket key = {.inode = inode};

	return inode && w->sockets.count
		       ? bsearch(&key, w->sockets.items, w->sockets.count, sizeof(key),
				 sockets_by_inode)
		       : NULL;
}

const struct observe_socket *world_other(const struct world *w,
					 const struct observe_socket *s)
{
	const struct observe_socket key = {.local = s->peer, .peer = s->local};
	const struct observe_socket *at = &key, **found;

	found = bsearch(&at, w->by_ends, w->sockets.count, sizeof(at), by_ends);
	return found ? *found : NULL;
}

const struct observe_holder *world_holders(const struct world *w, uint64_t inode,
					   size_t *count)
{
	const struct observe_holder key = {.inode = inode}, *all = w->holders.items, *h;

	*count = 0;
	h = inode && w->holders.count
		    ? bsearch(&key, all, w->holders.count, sizeof(key), by_inode)
		    : NULL;
	if (!h)
		return NULL;
	while (h > all && h[-1].inode == inode)
		h--;
	while (h + *count < all + w->holders.count && h[*count].inode == inode)
		(*count)++;
	return h;
}

const struct observe_process *world_process(const struct world *w,
					    const struct observe_holder *h)
{
	const struct observe_process *all = w->processes.items;

	return observe_process(&w->o, all[h->process].pid);
}

const struct observe_conn *world_conn(const struct world *w, pid_t pid, int fd)
{
	size_t low = 0, high = w->o.conn_count; /* they are in this order */

	while (low < high) {
		size_t mid = (low + high) / 2;
		const struct observe_conn *c = &w->o.conns[mid];

		if (c->process->pid == pid && c->fd == fd)
			return c;
		if (c->process->pid < pid || (c->process->pid == pid && c->fd < fd))
			low = mid + 1;
		else
			high = mid;
	}
	return NULL;
}

struct link world_link(const struct world *w, const struct observe_socket *s)
{
	struct link l = {.fd = -1, .socket = s};
	size_t count;
	const struct observe_holder *h = world_holders(w, s->inode, &count);

	for (size_t i = 0; i < count; i++) {
		const struct observe_process *p = world_process(w, &h[i]);

		if (!p || (l.owner && (l.owner->viaduct || !p->viaduct)))
			continue;
		l.owner = p;
		l.fd = h[i].fd;
	}
	if (l.owner && l.owner->viaduct)
		l.conn = world_conn(w, l.owner->pid, l.fd);
	return l;
}

/* The sockets of all other network namespaces that we may enter. */
static void look_elsewhere(struct world *w)
{
	enum { NAMESPACES_MAX = 64 };
	uint64_t done[NAMESPACES_MAX] = {w->netns};
	size_t count = 1;

	w->elsewhere_known = true;
	for (size_t i = 0; i < w->o.process_count && count < NAMESPACES_MAX; i++) {
		const struct observe_process *p = &w->o.processes[i];
		bool known = p->netns == 0;

		for (size_t d = 0; d < count; d++)
			known |= done[d] == p->netns;
		if (known)
			continue;
		done[count++] = p->netns;
		observe_sockets(&w->elsewhere, p->pid, p->netns);
	}
}

const struct observe_process *world_elsewhere(struct world *w,
					      const struct observe_socket *s)
{
	const struct observe_socket *all;

	if (!w->elsewhere_known)
		look_elsewhere(w);
	all = w->elsewhere.items;
	for (size_t i = 0; i < w->elsewhere.count; i++) {
		size_t count;
		const struct observe_holder *h;

		if (compare_end(&all[i].local, &s->peer) != 0 ||
		    compare_end(&all[i].peer, &s->local) != 0)
			continue;
		h = world_holders(w, all[i].inode, &count);
		if (count)
			return world_process(w, h);
	}
	return NULL;
}

bool address_is_here(const struct in6_addr *addr, uint32_t scope)
{
	struct sockaddr_in6 in6 = {
		.sin6_family = AF_INET6, .sin6_addr = *addr, .sin6_scope_id = scope};
	struct sockaddr_in in = {.sin_family = AF_INET};
	bool v4 = IN6_IS_ADDR_V4MAPPED(addr), here;
	int fd = socket(v4 ? AF_INET : AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	memcpy(&in.sin_addr, addr->s6_addr + 12, 4);
	here = fd >= 0 && bind(fd, v4 ? (struct sockaddr *)&in : (struct sockaddr *)&in6,
			       v4 ? sizeof(in) : sizeof(in6)) == 0;
	if (fd >= 0)
		close(fd);
	return here;
}
