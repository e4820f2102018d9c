/* SPDX-License-Identifier: Apache-2.0 */
/* From observed descriptors to rows: one for each end in each process, filtered, and rated. */
#include <errno.h>
#include <fnmatch.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/tcp.h"
#include "tool/self.h"
#include "tool/stat/stat.h"

static int compare_u64(uint64_t a, uint64_t b)
{
	return a < b ? -1 : a > b;
}

/* ---- rows ---- */

static int compare_conns(const void *a, const void *b)
{
	const struct observe_conn *x = *(const struct observe_conn *const *)a;
	const struct observe_conn *y = *(const struct observe_conn *const *)b;
	int c = compare_u64((uint64_t)x->process->pid, (uint64_t)y->process->pid);

	if (c == 0)
		c = compare_u64(x->inode, y->inode);
	return c ? c : x->fd - y->fd;
}

static int compare_rows(const void *a, const void *b)
{
	const struct stat_row *x = a, *y = b;
	int c = compare_u64((uint64_t)x->c->process->pid, (uint64_t)y->c->process->pid);

	return c ? c : x->c->fd - y->c->fd;
}

static enum observe_path path_of(const struct observe_conn *c)
{
	if (c->tx == OBSERVE_SWITCHING || c->rx == OBSERVE_SWITCHING)
		return OBSERVE_SWITCHING;
	return observe_is_direct(c->tx) ? c->tx : c->rx;
}

/* Of a process whose table cannot be read nothing is known but that it has the socket. */
static bool is_connection(const struct observe_conn *c)
{
	return c->tcp_state != TCP_LISTEN && c->tcp_state != TCP_CLOSE &&
	       (c->known || !c->process->trouble);
}

static int make_rows(struct stat_view *v)
{
	size_t n = 0, all = v->seen.conn_count;

	v->conns = malloc((all + 1) * sizeof(*v->conns));
	v->rows = calloc(all + 1, sizeof(*v->rows));
	if (!v->conns || !v->rows)
		return -ENOMEM;
	for (size_t i = 0; i < all; i++)
		if (is_connection(&v->seen.conns[i]))
			v->conns[n++] = &v->seen.conns[i];
	qsort(v->conns, n, sizeof(*v->conns), compare_conns);
	for (size_t i = 0; i < n; i++) {
		struct stat_row *last = v->row_count ? &v->rows[v->row_count - 1] : NULL;
		const struct observe_conn *c = v->conns[i];

		if (last && last->c->process == c->process &&
		    last->c->inode == c->inode) {
			last->descriptors++;
			continue;
		}
		v->rows[v->row_count++] = (struct stat_row){.c = c,
							    .all = &v->conns[i],
							    .descriptors = 1,
							    .path = path_of(c)};
	}
	qsort(v->rows, v->row_count, sizeof(*v->rows), compare_rows);
	return 0;
}

static int make_processes(struct stat_view *v)
{
	v->processes = calloc(v->seen.process_count + 1, sizeof(*v->processes));
	if (!v->processes)
		return -ENOMEM;
	for (size_t i = 0; i < v->seen.process_count; i++)
		if (v->seen.processes[i].viaduct || v->seen.processes[i].trouble)
			v->processes[v->process_count++].p = &v->seen.processes[i];
	/* Both are in the order of pids. */
	for (size_t i = 0, p = 0; i < v->row_count; i++) {
		const struct stat_row *row = &v->rows[i];

		while (v->processes[p].p != row->c->process)
			p++;
		v->processes[p].open++;
		v->processes[p].paths[row->path]++;
		if (row->path == OBSERVE_TCP && row->c->reason < VD_REASON_COUNT)
			v->processes[p].reasons[row->c->reason]++;
	}
	return 0;
}

/* ---- filters ---- */

static bool process_passes(const struct observe_process *p, const struct stat_options *o)
{
	return (o->pid == 0 || p->pid == o->pid) &&
	       (!o->program || fnmatch(o->program, p->name, 0) == 0);
}

static bool row_passes(const struct stat_row *row, const struct stat_options *o)
{
	const struct observe_conn *c = row->c;

	return process_passes(c->process, o) &&
	       (o->port == 0 || c->local.port == o->port || c->peer.port == o->port) &&
	       (o->path == STAT_ANY || row->path == o->path) &&
	       (o->reason == STAT_ANY || c->reason == o->reason);
}

static int compare_end(const struct observe_end *a, const struct observe_end *b)
{
	int c = memcmp(&a->addr, &b->addr, sizeof(a->addr));

	return c ? c : (int)a->port - (int)b->port;
}

/* The ends of a connection side by side: whoever has connected comes first. */
static int compare_ends(const void *a, const void *b)
{
	const struct stat_row *x = *(struct stat_row *const *)a;
	const struct stat_row *y = *(struct stat_row *const *)b;
	const struct observe_conn *p = x->c, *q = y->c;
	bool px = compare_end(&p->local, &p->peer) < 0;
	bool qx = compare_end(&q->local, &q->peer) < 0;
	int c = compare_u64(p->process->netns, q->process->netns);

	if (c == 0)
		c = compare_end(px ? &p->local : &p->peer, qx ? &q->local : &q->peer);
	if (c == 0)
		c = compare_end(px ? &p->peer : &p->local, qx ? &q->peer : &q->local);
	if (c == 0)
		c = (q->role == TCP_ROLE_CONNECTED) - (p->role == TCP_ROLE_CONNECTED);
	if (c == 0)
		c = q->known - p->known;
	/* A socket of one end, and then the other's. */
	if (c == 0)
		c = compare_u64(p->inode, q->inode);
	return c ? c : compare_rows(x, y);
}

static bool is_same_connection(const struct observe_conn *a, const struct observe_conn *b)
{
	if (a->process->netns != b->process->netns)
		return false;
	return (compare_end(&a->local, &b->local) == 0 &&
		compare_end(&a->peer, &b->peer) == 0) ||
	       (compare_end(&a->local, &b->peer) == 0 &&
		compare_end(&a->peer, &b->local) == 0);
}

/* Of the rows that pass, one for each connection is left. */
static int join_ends(struct stat_view *v)
{
	struct stat_row **order = malloc((v->row_count + 1) * sizeof(*order)),
			*first = NULL;
	size_t n = 0;

	if (!order)
		return -ENOMEM;
	for (size_t i = 0; i < v->row_count; i++)
		if (v->rows[i].shown)
			order[n++] = &v->rows[i];
	qsort(order, n, sizeof(*order), compare_ends);
	for (size_t i = 0; i < n; i++) {
		if (!first || !is_same_connection(first->c, order[i]->c)) {
			first = order[i];
			continue;
		}
		order[i]->shown = false;
		first->more_processes += first->c->inode == order[i]->c->inode;
	}
	free(order);
	return 0;
}

static int filter(struct stat_view *v, const struct stat_options *o)
{
	bool by_conns = o->port || o->path != STAT_ANY || o->reason != STAT_ANY;
	int r;

	for (size_t i = 0; i < v->process_count; i++)
		v->processes[i].shown = !by_conns && process_passes(v->processes[i].p, o);
	for (size_t i = 0, p = 0; i < v->row_count; i++) {
		v->rows[i].shown = row_passes(&v->rows[i], o);
		while (v->processes[p].p != v->rows[i].c->process)
			p++;
		v->processes[p].shown |= v->rows[i].shown;
	}
	r = o->both || o->format != STAT_TABLE ? 0 : join_ends(v);
	for (size_t i = 0; i < v->row_count; i++)
		v->shown += v->rows[i].shown;
	return r;
}

int stat_look(struct stat_view *v, const struct stat_options *o, char *message,
	      size_t size)
{
	struct timespec now;
	int r;

	memset(v, 0, sizeof(*v));
	if (self_lacks_proc()) {
		snprintf(message, size, SELF_NO_PROC);
		return -ENOENT;
	}
	r = observe_take(&v->seen, message, size);
	if (r < 0)
		return r;
	clock_gettime(CLOCK_REALTIME, &now);
	v->time = (double)now.tv_sec + (double)now.tv_nsec / 1e9;
	r = make_rows(v);
	if (r == 0)
		r = make_processes(v);
	if (r == 0)
		r = filter(v, o);
	if (r == 0)
		r = stat_calls_make(v, o->rpc);
	if (r < 0) {
		snprintf(message, size, "connections cannot be listed: %s", strerror(-r));
		stat_forget(v);
	}
	return r;
}

void stat_forget(struct stat_view *v)
{
	free(v->conns);
	free(v->rows);
	free(v->processes);
	free(v->calls);
	observe_free(&v->seen);
	memset(v, 0, sizeof(*v));
}

/* ---- rates ---- */

struct stat_was {
	uint64_t inode, sent, received, messages;
	pid_t pid;
};

static int compare_was(const void *a, const void *b)
{
	const struct stat_was *x = a, *y = b;
	int c = compare_u64((uint64_t)x->pid, (uint64_t)y->pid);

	return c ? c : compare_u64(x->inode, y->inode);
}

static struct stat_was was_of(const struct observe_conn *c)
{
	return (struct stat_was){c->inode, stat_sent(c), stat_received(c),
				 stat_messages(c), c->process->pid};
}

static double per_second(uint64_t now, uint64_t before, double seconds)
{
	return now > before && seconds > 0 ? (double)(now - before) / seconds : 0;
}

/* What was not there at the look before has moved everything since. */
static struct stat_rates rates_of(const struct stat_row *row,
				  const struct stat_past *past, double seconds)
{
	const struct stat_was now = was_of(row->c), nothing = {0}, *was;

	was = past->count
		      ? bsearch(&now, past->items, past->count, sizeof(now), compare_was)
		      : NULL;
	if (!was)
		was = &nothing;
	return (struct stat_rates){per_second(now.sent, was->sent, seconds),
				   per_second(now.received, was->received, seconds),
				   per_second(now.messages, was->messages, seconds)};
}

static double weight(const struct stat_rates *r, bool by_messages)
{
	return by_messages ? r->messages : r->sent + r->received;
}

static int compare_weights(const struct stat_rates *x, const struct stat_rates *y,
			   bool by)
{
	return (weight(x, by) < weight(y, by)) - (weight(x, by) > weight(y, by));
}

static int compare_rates(const void *a, const void *b, void *by)
{
	const struct stat_row *x = a, *y = b;
	int c = compare_weights(&x->rates, &y->rates, *(bool *)by);

	return c ? c : compare_rows(a, b);
}

static int compare_process_rates(const void *a, const void *b, void *by)
{
	const struct stat_process *x = a, *y = b;
	int c = compare_weights(&x->rates, &y->rates, *(bool *)by);

	return c ? c : compare_u64((uint64_t)x->p->pid, (uint64_t)y->p->pid);
}

static void rate_rows(struct stat_view *v, const struct stat_past *past)
{
	double seconds = v->time - past->time;

	for (size_t i = 0, p = 0; i < v->row_count; i++) {
		struct stat_rates *r = &v->rows[i].rates, *sum;

		*r = rates_of(&v->rows[i], past, seconds);
		while (v->processes[p].p != v->rows[i].c->process)
			p++;
		sum = &v->processes[p].rates;
		sum->sent += r->sent;
		sum->received += r->received;
		sum->messages += r->messages;
	}
	v->has_rates = true;
}

static void keep(const struct stat_view *v, struct stat_past *past)
{
	free(past->items);
	past->items = malloc((v->row_count + 1) * sizeof(*past->items));
	past->count = past->items ? v->row_count : 0;
	past->time = v->time;
	for (size_t i = 0; i < past->count; i++)
		past->items[i] = was_of(v->rows[i].c);
	if (past->count)
		qsort(past->items, past->count, sizeof(*past->items), compare_was);
}

void stat_compare(struct stat_view *v, struct stat_past *past,
		  const struct stat_options *o)
{
	bool by = o->by_messages;

	if (past->time > 0)
		rate_rows(v, past);
	stat_calls_compare(v, past);
	keep(v, past);
	if (!v->has_rates)
		return;
	qsort_r(v->rows, v->row_count, sizeof(*v->rows), compare_rates, &by);
	qsort_r(v->processes, v->process_count, sizeof(*v->processes),
		compare_process_rates, &by);
}
