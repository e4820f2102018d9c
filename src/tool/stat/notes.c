/* SPDX-License-Identifier: Apache-2.0 */
/* What `viaduct stat` says below its table: the reasons, what is missing, and how many. */
#include <unistd.h>

#include "tool/fault.h"
#include "tool/stat/stat.h"

static const char *plural(size_t n)
{
	return n == 1 ? "" : "s";
}

/* A pid that was asked for, and shows nothing. */
static void note_process(FILE *out, const struct stat_view *v, pid_t pid)
{
	const struct observe_process *p = observe_process(&v->seen, pid);
	char name[sizeof(p->name)], thread[96];

	if (!p && fault_of_thread(pid, thread, sizeof(thread)))
		fprintf(out, "%s.\n", thread);
	else if (!p)
		fprintf(out,
			"There is no process %d, or it may not be looked into by this "
			"user.\n",
			(int)pid);
	else if (p->trouble)
		return; /* said below */
	else if (!p->viaduct)
		fprintf(out,
			"Process %d (%s) does not run under Viaduct, or shows nothing of "
			"itself.\nStart it with `viaduct run`; `viaduct explain %d` says "
			"more.\n",
			(int)pid, stat_name(p->name, name, sizeof(name)), (int)pid);
	else
		fprintf(out, "Process %d (%s) has no such TCP connection now.\n",
			(int)pid, stat_name(p->name, name, sizeof(name)));
}

static bool is_listed(const struct stat_view *v, pid_t pid)
{
	const struct observe_process *p = observe_process(&v->seen, pid);

	return p && p->viaduct && !p->trouble;
}

static bool is_filtered(const struct stat_options *o)
{
	return o->port || o->program || o->path != STAT_ANY || o->reason != STAT_ANY;
}

static void note_empty(FILE *out, const struct stat_view *v, const struct stat_options *o)
{
	size_t listed = 0;

	for (size_t i = 0; i < v->process_count; i++)
		listed += !v->processes[i].p->trouble;
	if (o->pid && !(o->rpc && is_listed(v, o->pid)))
		note_process(out, v, o->pid);
	else if (v->process_count == 0)
		fprintf(out, "No process that this user may see runs under Viaduct.\n"
			     "Start programs with `viaduct run -- PROGRAM`.\n");
	else if (o->rpc)
		fprintf(out, "No remote procedure call has been counted there. Counted "
			     "are those "
			     "of programs that\nlink libtirpc, over TCP, with "
			     "libviaduct-rpc.so.\n");
	else if (is_filtered(o))
		fprintf(out,
			"Nothing matches, of %zu connection end%s in %zu process%s "
			"under Viaduct.\n",
			v->row_count, plural(v->row_count), v->process_count,
			v->process_count == 1 ? "" : "es");
	else if (listed > 0)
		fprintf(out,
			"%zu process%s run%s under Viaduct, and ha%s no TCP "
			"connection now.\n",
			listed, listed == 1 ? "" : "es", listed == 1 ? "s" : "",
			listed == 1 ? "s" : "ve");
}

static void note_counts(FILE *out, const struct stat_view *v,
			const struct stat_options *o)
{
	size_t paths[STAT_PATHS] = {0};
	uint64_t grown = 0;

	for (size_t i = 0; i < v->row_count; i++) {
		if (!v->rows[i].shown)
			continue;
		paths[v->rows[i].path]++;
		grown += v->rows[i].c->tx_grown;
		if (v->rows[i].c->peer_conn)
			grown += v->rows[i].c->peer_conn->tx_grown;
	}
	fprintf(out, "%zu %s%s: %zu on the ring, %zu on TCP", v->shown,
		o->both ? "end" : "connection", plural(v->shown), paths[OBSERVE_RING],
		paths[OBSERVE_TCP]);
	if (paths[OBSERVE_RDMA])
		fprintf(out, ", %zu on RDMA", paths[OBSERVE_RDMA]);
	if (paths[OBSERVE_SWITCHING])
		fprintf(out, ", %zu switching", paths[OBSERVE_SWITCHING]);
	fprintf(out, "\n");
	if (grown)
		fprintf(out, "Rings have grown into %.1f MB.\n", (double)grown / 1e6);
}

static void collect(const struct stat_view *v, const struct stat_options *o,
		    bool there[VD_REASON_COUNT])
{
	for (size_t i = 0; i < v->row_count && !o->processes; i++) {
		const struct observe_conn *c = v->rows[i].c, *peer = c->peer_conn;

		if (!v->rows[i].shown)
			continue;
		if (c->reason < VD_REASON_COUNT)
			there[c->reason] = true;
		if (peer && peer->reason < VD_REASON_COUNT)
			there[peer->reason] = true;
	}
	for (size_t i = 0; i < v->process_count && o->processes; i++)
		for (uint32_t r = 0; r < VD_REASON_COUNT && v->processes[i].shown; r++)
			there[r] |= v->processes[i].reasons[r] > 0;
}

static void note_reasons(FILE *out, const struct stat_view *v,
			 const struct stat_options *o)
{
	bool there[VD_REASON_COUNT] = {false};

	collect(v, o, there);
	for (uint32_t r = VD_REASON_NONE + 1; r < VD_REASON_COUNT; r++)
		if (there[r])
			fprintf(out, "%s: %s; %s\n", reason_name(r), reason_text(r),
				reason_remedy(r));
}

static void note_troubles(FILE *out, const struct stat_view *v,
			  const struct stat_options *o)
{
	char name[sizeof(v->seen.processes->name)];

	for (size_t i = 0; i < v->process_count; i++) {
		const struct observe_process *p = v->processes[i].p;

		if (p->trouble && (o->pid == 0 || o->pid == p->pid))
			fprintf(out, "%s (process %d) is not listed: %s\n",
				stat_name(p->name, name, sizeof(name)), (int)p->pid,
				p->trouble);
	}
}

void stat_notes(FILE *out, const struct stat_view *v, const struct stat_options *o)
{
	bool empty = v->shown == 0;

	for (size_t i = 0; i < v->process_count && o->processes; i++)
		empty &= !v->processes[i].shown;
	if (empty)
		note_empty(out, v, o);
	else if (o->rpc)
		fprintf(out, "%zu procedure%s\n", v->shown, plural(v->shown));
	else if (!o->processes)
		note_counts(out, v, o);
	if (!o->rpc)
		note_reasons(out, v, o);
	note_troubles(out, v, o);
	if (v->seen.hidden)
		fprintf(out,
			"%zu process%s of other users may not be looked into; root "
			"sees all\n",
			v->seen.hidden, v->seen.hidden == 1 ? "" : "es");
}
