/* SPDX-License-Identifier: Apache-2.0 */
/* Remote procedure calls as `viaduct stat` shows them: a row for each procedure of each process. */
#include <errno.h>
#include <inttypes.h>
#include <netdb.h>
#include <stdlib.h>
#include <string.h>

#include "tool/json.h"
#include "tool/stat/stat.h"

#define CALL(item) (((const struct stat_call *)(item))->c)

int stat_calls_make(struct stat_view *v, bool counts)
{
	size_t n = v->seen.call_count;

	v->calls = calloc(n + 1, sizeof(*v->calls));
	if (!v->calls)
		return -ENOMEM;
	v->call_count = n;
	if (counts)
		v->shown = 0;
	for (size_t i = 0, p = 0; i < n; i++) {
		struct stat_call *call = &v->calls[i];

		call->c = &v->seen.calls[i];
		/* Both are in the order of pids; who has counted calls is under Viaduct. */
		while (p < v->process_count && v->processes[p].p != call->c->process)
			p++;
		call->shown = p < v->process_count && v->processes[p].shown;
		if (counts)
			v->shown += call->shown;
	}
	return 0;
}

/* ---- rates ---- */

struct stat_call_was {
	pid_t pid;
	uint32_t what[5];
	uint64_t calls;
};

static struct stat_call_was was_of(const struct observe_call *c)
{
	return (struct stat_call_was){
		c->process->pid,
		{c->is_other, c->is_service, c->program, c->version, c->procedure},
		c->calls};
}

static int compare_was(const void *a, const void *b)
{
	const struct stat_call_was *x = a, *y = b;

	if (x->pid != y->pid)
		return x->pid < y->pid ? -1 : 1;
	return memcmp(x->what, y->what, sizeof(x->what));
}

static double rate_of(const struct observe_call *c, const struct stat_past *past,
		      double seconds)
{
	const struct stat_call_was now = was_of(c), *was = NULL;
	uint64_t before;

	if (past->call_count)
		was = bsearch(&now, past->calls, past->call_count, sizeof(now),
			      compare_was);
	before = was ? was->calls : 0;
	return c->calls > before && seconds > 0 ? (double)(c->calls - before) / seconds
						: 0;
}

static void keep(const struct stat_view *v, struct stat_past *past)
{
	free(past->calls);
	past->calls = malloc((v->call_count + 1) * sizeof(*past->calls));
	past->call_count = past->calls ? v->call_count : 0;
	for (size_t i = 0; i < past->call_count; i++)
		past->calls[i] = was_of(v->calls[i].c);
	if (past->call_count)
		qsort(past->calls, past->call_count, sizeof(*past->calls), compare_was);
}

static int compare_rates(const void *a, const void *b)
{
	const struct stat_call *x = a, *y = b;

	if (x->rate != y->rate)
		return x->rate < y->rate ? 1 : -1;
	return (x->c > y->c) - (x->c < y->c);
}

void stat_calls_compare(struct stat_view *v, struct stat_past *past)
{
	double seconds = v->time - past->time;

	for (size_t i = 0; i < v->call_count && past->time > 0; i++)
		v->calls[i].rate = rate_of(v->calls[i].c, past, seconds);
	keep(v, past);
	if (past->time > 0)
		qsort(v->calls, v->call_count, sizeof(*v->calls), compare_rates);
}

/* ---- the table ---- */

static void print_process(const void *item, char *out)
{
	stat_name(CALL(item)->process->name, out, STAT_CELL);
}

static void print_pid(const void *item, char *out)
{
	sprintf(out, "%d", (int)CALL(item)->process->pid);
}

static const char *side_of(const struct observe_call *c)
{
	return c->is_service ? "service" : "client";
}

static void print_side(const void *item, char *out)
{
	strcpy(out, side_of(CALL(item)));
}

/* By its name in /etc/rpc, if it has one there. */
static void print_program(const void *item, char *out)
{
	static uint32_t number;
	static char name[32];
	const struct observe_call *c = CALL(item);

	if (c->is_other) {
		strcpy(out, "other");
		return;
	}
	if (!*name || number != c->program) {
		const struct rpcent *entry = getrpcbynumber((int)c->program);

		number = c->program;
		if (entry)
			stat_name(entry->r_name, name, sizeof(name));
		else
			sprintf(name, "%" PRIu32, number);
	}
	strcpy(out, name);
}

static void print_part(const struct observe_call *c, uint32_t number, char *out)
{
	if (c->is_other)
		strcpy(out, "-");
	else
		sprintf(out, "%" PRIu32, number);
}

static void print_version(const void *item, char *out)
{
	print_part(CALL(item), CALL(item)->version, out);
}

static void print_procedure(const void *item, char *out)
{
	print_part(CALL(item), CALL(item)->procedure, out);
}

static void print_calls(const void *item, char *out)
{
	stat_number(CALL(item)->calls, out);
}

static void print_rate(const void *item, char *out)
{
	stat_number((uint64_t)((const struct stat_call *)item)->rate, out);
}

static void print_errors(const void *item, char *out)
{
	stat_number(CALL(item)->errors, out);
}

static double mean_ns(const struct observe_call *c)
{
	return (double)c->ns / (double)c->calls;
}

/* Three digits. */
static void print_time(double ns, char *out)
{
	static const char *const units[] = {"ns", "us", "ms", "s"};
	int unit = 0;

	for (; ns >= 999.5 && unit < 3; unit++)
		ns /= 1000;
	sprintf(out,
		ns < 9.995   ? "%.2f%s"
		: ns < 99.95 ? "%.1f%s"
			     : "%.0f%s",
		ns, units[unit]);
}

static void print_mean(const void *item, char *out)
{
	print_time(mean_ns(CALL(item)), out);
}

static void print_p99(const void *item, char *out)
{
	print_time((double)CALL(item)->p99_ns, out);
}

#define VALUE(name, what)                                                                \
	static double value_##name(const void *item)                                     \
	{                                                                                \
		return (double)(what);                                                   \
	}

VALUE(pid, CALL(item)->process->pid)
VALUE(version, CALL(item)->is_other ? 0 : CALL(item)->version)
VALUE(procedure, CALL(item)->is_other ? 0 : CALL(item)->procedure)
VALUE(rate, ((const struct stat_call *)(item))->rate)
VALUE(calls, CALL(item)->calls)
VALUE(errors, CALL(item)->errors)
VALUE(mean, mean_ns(CALL(item)))
VALUE(p99, CALL(item)->p99_ns)

static const struct stat_column columns[] = {
	{"PROCESS", 0, false, print_process, NULL},
	{"PID", 0, true, print_pid, value_pid},
	{"SIDE", 2, false, print_side, NULL},
	{"PROGRAM", 0, false, print_program, NULL},
	{"VERSION", 3, true, print_version, value_version},
	{"PROCEDURE", 0, true, print_procedure, value_procedure},
	{"CALLS/s", STAT_RATE + 1, true, print_rate, value_rate},
	{"CALLS", 1, true, print_calls, value_calls},
	{"ERRORS", 2, true, print_errors, value_errors},
	{"MEAN", 0, true, print_mean, value_mean},
	{"P99", 0, true, print_p99, value_p99},
};

const struct stat_column *stat_calls_columns(size_t *count)
{
	*count = sizeof(columns) / sizeof(columns[0]);
	return columns;
}

/* ---- the other formats ---- */

static void json_call(FILE *out, const struct observe_call *c)
{
	fprintf(out, "{\"side\":\"%s\"", side_of(c));
	if (c->is_other)
		fprintf(out, ",\"program\":null,\"version\":null,\"procedure\":null");
	else
		fprintf(out,
			",\"program\":%" PRIu32 ",\"version\":%" PRIu32
			",\"procedure\":%" PRIu32,
			c->program, c->version, c->procedure);
	fprintf(out,
		",\"calls\":%" PRIu64 ",\"errors\":%" PRIu64
		",\"mean_us\":%.3f,\"p99_us\":%.3f}",
		c->calls, c->errors, mean_ns(c) / 1e3, (double)c->p99_ns / 1e3);
}

void stat_calls_json(FILE *out, const struct stat_view *v,
		     const struct observe_process *p)
{
	const char *comma = "";

	fprintf(out, ",\"rpc\":[");
	for (size_t i = 0; i < v->call_count; i++) {
		if (v->calls[i].c->process != p)
			continue;
		fprintf(out, "%s", comma);
		json_call(out, v->calls[i].c);
		comma = ",";
	}
	fputc(']', out);
}

void stat_calls_labels(FILE *out, const struct observe_call *c)
{
	fprintf(out, ",side=\"%s\"", side_of(c));
	if (c->is_other)
		fprintf(out, ",rpc_program=\"other\"");
	else
		fprintf(out,
			",rpc_program=\"%" PRIu32 "\",rpc_version=\"%" PRIu32
			"\",rpc_procedure=\"%" PRIu32 "\"",
			c->program, c->version, c->procedure);
}
