/* SPDX-License-Identifier: Apache-2.0 */
/* Puts together what /proc, the kernel's list of sockets and the tables say. */
#include "tool/observe/observe.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/tcp.h"
#include "tool/observe/table.h"

/* Behind struct observe's `memory`. */
struct parts {
	struct observe_list processes, holders, sockets, conns, calls;
	struct observe_family *families;
	size_t family_count;
	const struct observe_socket **by_ends; /* the sockets, sorted */
	uint64_t own_netns;
	int own_result; /* of listing its sockets */
};

/* Network namespaces that are looked into. */
enum { PLACES_MAX = 1024 };

#define ITEM(list, type, i) (&((type *)(list).items)[i])

/* ---- order ---- */

static int compare_u64(uint64_t a, uint64_t b)
{
	return a < b ? -1 : a > b;
}

static int compare_holders(const void *a, const void *b)
{
	const struct observe_holder *x = a, *y = b;

	int c = compare_u64(x->inode, y->inode);

	if (c == 0)
		c = compare_u64(x->process, y->process);
	return c ? c : x->fd - y->fd;
}

/* Of whoever has it. */
static int compare_inodes(const void *a, const void *b)
{
	const struct observe_holder *x = a, *y = b;

	return compare_u64(x->inode, y->inode);
}

static int compare_sockets(const void *a, const void *b)
{
	const struct observe_socket *x = a, *y = b;

	return compare_u64(x->inode, y->inode);
}

static int compare_end(const struct observe_end *a, const struct observe_end *b)
{
	int c = memcmp(&a->addr, &b->addr, sizeof(a->addr));

	return c ? c : (int)a->port - (int)b->port;
}

static int compare_ends(const void *a, const void *b)
{
	const struct observe_socket *x = *(const struct observe_socket *const *)a;
	const struct observe_socket *y = *(const struct observe_socket *const *)b;
	int c = compare_u64(x->netns, y->netns);

	if (c == 0)
		c = compare_end(&x->local, &y->local);
	return c ? c : compare_end(&x->peer, &y->peer);
}

static int compare_processes(const void *a, const void *b)
{
	const struct observe_process *x = a, *y = b;

	return x->pid < y->pid ? -1 : x->pid > y->pid;
}

static void sort_list(struct observe_list *list,
		      int (*compare)(const void *, const void *))
{
	if (list->count > 0)
		qsort(list->items, list->count, list->item_bytes, compare);
}

/* ---- what there is ---- */

static void find_families(struct parts *p)
{
	for (size_t i = 0; i < p->processes.count; i++) {
		struct observe_process *o = ITEM(p->processes, struct observe_process, i);
		const struct observe_family *f;

		if (!*o->table)
			continue;
		f = observe_family(p->families, &p->family_count, o);
		o->family = f;
		o->viaduct = f || (o->trouble && !o->gave_back);
		if (f)
			o->counted = observe_counts(f, o->own_pid, &o->counts);
	}
}

/* A network namespace other than our own. */
struct place {
	uint64_t netns;
	bool closed;
};

static struct place *place_of(struct parts *p, const struct observe_process *o,
			      struct place *places, size_t *count)
{
	struct place *at = &places[*count];

	for (size_t i = 0; i < *count; i++)
		if (places[i].netns == o->netns)
			return &places[i];
	if (*count == PLACES_MAX)
		return NULL;
	at->netns = o->netns;
	at->closed = observe_sockets(&p->sockets, o->pid, o->netns) < 0;
	(*count)++;
	return at;
}

/* The sockets of a namespace that cannot be entered stay unknown. */
static void list_sockets(struct parts *p)
{
	struct place places[PLACES_MAX];
	size_t count = 0;

	for (size_t i = 0; i < p->processes.count; i++) {
		struct observe_process *o = ITEM(p->processes, struct observe_process, i);
		const struct place *at;

		if (!o->viaduct || o->netns == 0 || o->netns == p->own_netns)
			continue;
		at = place_of(p, o, places, &count);
		if (!o->trouble && (!at || at->closed))
			o->trouble =
				"its network namespace may not be entered, so that its "
				"connections are not known";
	}
}

static int sort_sockets(struct parts *p)
{
	size_t n = p->sockets.count;

	p->by_ends = malloc((n + 1) * sizeof(*p->by_ends));
	if (!p->by_ends)
		return -ENOMEM;
	sort_list(&p->holders, compare_holders);
	sort_list(&p->sockets, compare_sockets);
	for (size_t i = 0; i < n; i++)
		p->by_ends[i] = ITEM(p->sockets, struct observe_socket, i);
	qsort(p->by_ends, n, sizeof(*p->by_ends), compare_ends);
	return 0;
}

static const struct observe_socket *socket_of(const struct parts *p, uint64_t inode)
{
	const struct observe_socket key = {.inode = inode};

	return p->sockets.count ? bsearch(&key, p->sockets.items, p->sockets.count,
					  sizeof(key), compare_sockets)
				: NULL;
}

static const struct observe_socket *other_end(const struct parts *p,
					      const struct observe_socket *s)
{
	const struct observe_socket key = {
		.netns = s->netns, .local = s->peer, .peer = s->local};
	const struct observe_socket *at = &key, **found;

	found = bsearch(&at, p->by_ends, p->sockets.count, sizeof(at), compare_ends);
	return found ? *found : NULL;
}

/* Who has it; of several rather one under Viaduct. */
static const struct observe_holder *holder_of(const struct parts *p, uint64_t inode)
{
	const struct observe_holder key = {.inode = inode}, *h, *best;
	const struct observe_holder *all = p->holders.items;

	h = inode ? bsearch(&key, all, p->holders.count, sizeof(key), compare_inodes)
		  : NULL;
	if (!h)
		return NULL;
	while (h > all && h[-1].inode == inode)
		h--;
	best = h;
	for (; h < all + p->holders.count && h->inode == inode; h++)
		if (ITEM(p->processes, struct observe_process, h->process)->viaduct &&
		    !ITEM(p->processes, struct observe_process, best->process)->viaduct)
			best = h;
	return best;
}

/* ---- one connection ---- */

static enum observe_path path_of(_Atomic uint32_t *gate, bool across)
{
	switch (gate_state(gate)) {
	case GATE_RING:
		return across ? OBSERVE_RDMA : OBSERVE_RING;
	case GATE_READY:
		return OBSERVE_SWITCHING;
	default:
		return OBSERVE_TCP;
	}
}

static uint32_t area_bytes(uint32_t area)
{
	return area < WIRE_AREAS ? wire_area_bytes(area) : 0;
}

/* Words that are read one after another may not fit together. */
static uint64_t behind(uint64_t end, uint64_t begin)
{
	return (int64_t)(end - begin) > 0 ? end - begin : 0;
}

/* Read once: the process may change it between a look that judges it and its use. */
static uint32_t once(const uint32_t *word)
{
	return __atomic_load_n(word, __ATOMIC_RELAXED);
}

static void read_rings(struct observe_conn *c, struct slot *sl)
{
	if (observe_is_direct(c->tx)) {
		uint32_t turn = once(&sl->tx.turn_seq) % WIRE_TURNS;

		c->tx_ring = area_bytes(once(&sl->tx.area[turn]));
		for (uint32_t area = 1;
		     area <= once(&sl->tx.area_touched) && area < WIRE_AREAS; area++)
			c->tx_grown += area_bytes(area);
		c->tx_fill = behind(sl->tx.produced, sl->tx.credit);
	}
	if (c->rx != OBSERVE_TCP) {
		c->rx_ring = area_bytes(once(&sl->rx.area));
		c->rx_fill = behind(sl->rx.seen, sl->rx.consumed);
	}
}

static void read_slot(struct observe_conn *c, const struct slot *seen)
{
	/* Nothing is stored: the mapping is read-only. */
	struct slot *sl = (struct slot *)(uintptr_t)seen;
	uint64_t calls;

	c->known = true;
	c->slot = seen;
	c->phase = atomic_load(&sl->phase);
	c->role = atomic_load(&sl->role);
	c->reason = atomic_load(&sl->reason);
	c->across = atomic_load(&sl->across);
	c->tx = path_of(&sl->gate_tx, c->across);
	c->rx = path_of(&sl->gate_rx, c->across);
	c->tx_direct_bytes = sl->tx.produced;
	c->rx_direct_bytes = sl->rx.consumed;
	c->tx_messages = sl->tx_messages;
	c->rx_messages = sl->rx_messages;
	c->switches = atomic_load(&sl->switches);
	c->doorbells = atomic_load(&sl->doorbells);
	c->sleeps = atomic_load(&sl->sleeps);
	c->redirects = atomic_load(&sl->redirects);
	c->native = atomic_load(&sl->native);
	for (int i = 0; i < NATIVE_COUNTS; i++)
		c->native_counts[i] = atomic_load(&sl->native_counts[i]);
	calls = (uint64_t)c->doorbells + c->sleeps;
	c->saved = behind(c->tx_messages + c->rx_messages, calls);
	read_rings(c, sl);
}

/* The kernel counts the SYN of who connected among the bytes acknowledged. */
static void count_tcp(struct observe_conn *c, const struct observe_socket *s)
{
	c->tx_tcp_bytes = s->bytes_acked + s->unsent;
	if (c->tx_tcp_bytes && c->role == TCP_ROLE_CONNECTED)
		c->tx_tcp_bytes--;
	c->rx_tcp_bytes = s->bytes_received;
	c->tx_tcp_segments = s->segments_out;
	c->rx_tcp_segments = s->segments_in;
}

static int add_conn(struct parts *p, const struct observe_holder *h,
		    const struct observe_socket *s)
{
	struct observe_process *o =
		ITEM(p->processes, struct observe_process, h->process);
	struct observe_conn *c = observe_add(&p->conns);
	const struct slot *sl;

	if (!c)
		return -ENOMEM;
	c->process = o;
	c->fd = h->fd;
	c->inode = h->inode;
	c->local = s->local;
	c->peer = s->peer;
	c->tcp_state = s->state;
	c->peer_fd = -1;
	c->reason = s->layered ? VD_REASON_PROTOCOL : VD_REASON_ROLE;
	sl = o->family ? observe_slot(o->family, s->cookie, h->fd, o->own_pid) : NULL;
	if (sl)
		read_slot(c, sl);
	count_tcp(c, s);
	return 0;
}

static int compare_conns(const void *a, const void *b)
{
	const struct observe_conn *x = a, *y = b;

	if (x->process != y->process)
		return x->process < y->process ? -1 : 1;
	return x->fd - y->fd;
}

/*
 * A socket whose cookie nobody has asked for is found by its first number alone: its other
 * numbers, here and in the processes of the family, get the same slot.
 */
static void know_copies(struct parts *p, struct observe_conn *c)
{
	const struct observe_holder *all = p->holders.items, *h;
	const struct observe_holder key = {.inode = c->inode};

	h = bsearch(&key, all, p->holders.count, sizeof(key), compare_inodes);
	while (h && h > all && h[-1].inode == c->inode)
		h--;
	for (; h && h < all + p->holders.count && h->inode == c->inode; h++) {
		struct observe_conn other = {
			.process = ITEM(p->processes, struct observe_process, h->process),
			.fd = h->fd};
		const struct observe_conn *copy;

		copy = bsearch(&other, p->conns.items, p->conns.count, sizeof(other),
			       compare_conns);
		if (!copy || !copy->known || copy->process->family != c->process->family)
			continue;
		read_slot(c, copy->slot);
		count_tcp(c, socket_of(p, c->inode));
		return;
	}
}

static int list_conns(struct parts *p)
{
	int r = 0;

	for (size_t i = 0; r == 0 && i < p->holders.count; i++) {
		struct observe_holder *h = ITEM(p->holders, struct observe_holder, i);
		const struct observe_socket *s;

		if (!ITEM(p->processes, struct observe_process, h->process)->viaduct)
			continue;
		s = socket_of(p, h->inode);
		if (s)
			r = add_conn(p, h, s);
	}
	sort_list(&p->conns, compare_conns);
	for (size_t i = 0; i < p->conns.count; i++) {
		struct observe_conn *c = ITEM(p->conns, struct observe_conn, i);

		if (!c->known && c->process->family)
			know_copies(p, c);
	}
	return r;
}

/* The other end's cursors tell what is on the way between the two. */
static void measure_fill(struct observe_conn *c)
{
	const struct observe_conn *other = c->peer_conn;

	if (!other || !other->known)
		return;
	if (c->tx_ring)
		c->tx_fill = behind(c->tx_direct_bytes, other->rx_direct_bytes);
	if (c->rx_ring)
		c->rx_fill = behind(other->tx_direct_bytes, c->rx_direct_bytes);
}

static void join_peers(struct parts *p)
{
	for (size_t i = 0; i < p->conns.count; i++) {
		struct observe_conn *c = ITEM(p->conns, struct observe_conn, i);
		struct observe_socket s = {
			.netns = c->process->netns, .local = c->local, .peer = c->peer};
		const struct observe_socket *other =
			c->tcp_state == TCP_LISTEN ? NULL : other_end(p, &s);
		const struct observe_holder *h =
			other ? holder_of(p, other->inode) : NULL;
		struct observe_conn key;

		if (!h)
			continue;
		c->peer_process = ITEM(p->processes, struct observe_process, h->process);
		c->peer_fd = h->fd;
		key.process = c->peer_process;
		key.fd = h->fd;
		c->peer_conn = bsearch(&key, p->conns.items, p->conns.count, sizeof(key),
				       compare_conns);
	}
	for (size_t i = 0; i < p->conns.count; i++)
		measure_fill(ITEM(p->conns, struct observe_conn, i));
}

/* ---- all of it ---- */

static void lessen(uint64_t *count, uint64_t later)
{
	if (later < *count)
		*count = later;
}

/*
 * A connection that was just being closed at the first look may have counted twice. The second
 * look is later, so that the lesser of both is a number of some moment in between; so no count
 * of bytes goes back from one observation to the next.
 */
static void count_again(struct parts *p)
{
	for (size_t i = 0; i < p->processes.count; i++) {
		struct observe_process *o = ITEM(p->processes, struct observe_process, i);
		struct observe_counts later;

		if (!o->counted || !observe_counts(o->family, o->own_pid, &later))
			continue;
		lessen(&o->counts.tx_direct_bytes, later.tx_direct_bytes);
		lessen(&o->counts.rx_direct_bytes, later.rx_direct_bytes);
		lessen(&o->counts.tx_rdma_bytes, later.tx_rdma_bytes);
		lessen(&o->counts.rx_rdma_bytes, later.rx_rdma_bytes);
	}
}

static int list_calls(struct parts *p)
{
	for (size_t i = 0; i < p->processes.count; i++)
		if (!observe_calls(ITEM(p->processes, struct observe_process, i),
				   &p->calls))
			return -ENOMEM;
	return 0;
}

static uint64_t own_netns(void)
{
	struct stat st;

	return stat("/proc/self/ns/net", &st) == 0 ? st.st_ino : 0;
}

static void *list_own_sockets(void *arg)
{
	struct parts *p = arg;

	p->own_result = observe_sockets(&p->sockets, 0, p->own_netns);
	return NULL;
}

/* /proc and the kernel's list at the same time: both take long where there is much. */
static int scan(struct parts *p, size_t *hidden)
{
	pthread_t thread;
	bool started = pthread_create(&thread, NULL, list_own_sockets, p) == 0;
	int r = observe_scan(&p->processes, &p->holders, hidden);

	if (started)
		pthread_join(thread, NULL);
	else
		list_own_sockets(p);
	return r ? r : p->own_result;
}

static int take(struct parts *p, size_t *hidden)
{
	int r;

	p->own_netns = own_netns();
	r = scan(p, hidden);
	if (r < 0)
		return r;
	p->families = calloc(p->processes.count + 1, sizeof(*p->families));
	if (!p->families)
		return -ENOMEM;
	find_families(p);
	list_sockets(p);
	r = sort_sockets(p);
	if (r == 0)
		r = list_conns(p);
	if (r == 0)
		r = list_calls(p);
	if (r == 0) {
		join_peers(p);
		count_again(p);
	}
	return r;
}

int observe_take(struct observe *o, char *message, size_t size)
{
	struct parts *p = calloc(1, sizeof(*p));
	int r = p ? 0 : -ENOMEM;

	memset(o, 0, sizeof(*o));
	o->memory = p;
	if (p) {
		p->processes.item_bytes = sizeof(struct observe_process);
		p->holders.item_bytes = sizeof(struct observe_holder);
		p->sockets.item_bytes = sizeof(struct observe_socket);
		p->conns.item_bytes = sizeof(struct observe_conn);
		p->calls.item_bytes = sizeof(struct observe_call);
		r = take(p, &o->hidden);
	}
	if (r < 0) {
		snprintf(message, size, "connections cannot be listed: %s", strerror(-r));
		observe_free(o);
		return r;
	}
	o->processes = p->processes.items;
	o->process_count = p->processes.count;
	o->conns = p->conns.items;
	o->conn_count = p->conns.count;
	o->calls = p->calls.items;
	o->call_count = p->calls.count;
	return 0;
}

void observe_free(struct observe *o)
{
	struct parts *p = o->memory;

	if (!p)
		return;
	for (size_t i = 0; i < p->family_count; i++)
		observe_family_free(&p->families[i]);
	free(p->families);
	free(p->by_ends);
	free(p->processes.items);
	free(p->holders.items);
	free(p->sockets.items);
	free(p->conns.items);
	free(p->calls.items);
	free(p);
	memset(o, 0, sizeof(*o));
}

const struct observe_process *observe_process(const struct observe *o, pid_t pid)
{
	const struct observe_process key = {.pid = pid};

	return o->process_count ? bsearch(&key, o->processes, o->process_count,
					  sizeof(key), compare_processes)
				: NULL;
}

char *observe_end_text(const struct observe_end *end, char *text)
{
	char addr[INET6_ADDRSTRLEN] = "?";

	if (IN6_IS_ADDR_V4MAPPED(&end->addr)) {
		inet_ntop(AF_INET, end->addr.s6_addr + 12, addr, sizeof(addr));
		sprintf(text, "%s:%u", addr, end->port);
	} else {
		inet_ntop(AF_INET6, &end->addr, addr, sizeof(addr));
		sprintf(text, "[%s]:%u", addr, end->port);
	}
	return text;
}

const char *observe_path_name(enum observe_path path)
{
	switch (path) {
	case OBSERVE_RING:
		return "ring";
	case OBSERVE_RDMA:
		return "rdma";
	case OBSERVE_SWITCHING:
		return "switching";
	default:
		return "tcp";
	}
}
