/* SPDX-License-Identifier: Apache-2.0 */
/* The view as Prometheus reads it: https://prometheus.io/docs/instrumenting/exposition_formats */
#include <inttypes.h>
#include <string.h>

#include "tool/stat/stat.h"

static void head(FILE *out, const char *name, const char *type, const char *help)
{
	fprintf(out, "# HELP viaduct_%s %s\n# TYPE viaduct_%s %s\n", name, help, name,
		type);
}

/* Names have no line ends here: see stat_name. */
static void print_value(FILE *out, const char *text)
{
	fputc('"', out);
	for (; *text; text++)
		fprintf(out, *text == '"' || *text == '\\' ? "\\%c" : "%c", *text);
	fputc('"', out);
}

/* Without the closing brace. */
static void begin(FILE *out, const char *name, const struct observe_process *p)
{
	char program[sizeof(p->name)];

	fprintf(out, "viaduct_%s{pid=\"%d\",program=", name, (int)p->pid);
	print_value(out, stat_name(p->name, program, sizeof(program)));
}

/* ---- of processes ---- */

#define FOR_SHOWN(p)                                                                     \
	for (const struct stat_process *p = v->processes;                                \
	     p < v->processes + v->process_count; p++)                                   \
		if (p->shown)

static void open_connections(FILE *out, const struct stat_view *v)
{
	head(out, "open_connections", "gauge",
	     "TCP connections that are open now, by the path that they take.");
	FOR_SHOWN(p)
	{
		for (uint32_t path = 0; path < STAT_PATHS; path++) {
			begin(out, "open_connections", p->p);
			fprintf(out, ",path=\"%s\"} %zu\n", observe_path_name(path),
				p->paths[path]);
		}
	}
	head(out, "tcp_connections", "gauge",
	     "TCP connections that are open and on the kernel's path now, by reason.");
	FOR_SHOWN(p)
	{
		for (uint32_t r = 0; r < VD_REASON_COUNT; r++) {
			if (p->reasons[r] == 0)
				continue;
			begin(out, "tcp_connections", p->p);
			fprintf(out, ",reason=\"%s\"} %zu\n", reason_name(r),
				p->reasons[r]);
		}
	}
}

static void number(FILE *out, const struct stat_view *v, const char *name,
		   const char *type, const char *help, size_t offset)
{
	head(out, name, type, help);
	FOR_SHOWN(p)
	{
		if (!p->p->counted)
			continue;
		begin(out, name, p->p);
		fprintf(out, "} %" PRIu64 "\n",
			*(const uint64_t *)((const char *)&p->p->counts + offset));
	}
}

static void counter(FILE *out, const struct stat_view *v, const char *name,
		    const char *help, size_t offset)
{
	number(out, v, name, "counter", help, offset);
}

static void way(FILE *out, const struct stat_process *p, const char *direction,
		const char *path, uint64_t count)
{
	begin(out, "bytes_total", p->p);
	fprintf(out, ",direction=\"%s\",path=\"%s\"} %" PRIu64 "\n", direction, path,
		count);
}

/* The counts are read while they go on: of RDMA there may be more than there was of all. */
static uint64_t ring_bytes(uint64_t direct, uint64_t rdma)
{
	return rdma < direct ? direct - rdma : 0;
}

static void bytes(FILE *out, const struct stat_view *v)
{
	head(out, "bytes_total", "counter",
	     "Bytes sent and received by path; on tcp, until a connection stays there.");
	FOR_SHOWN(p)
	{
		const struct observe_counts *c = &p->p->counts;

		if (!p->p->counted)
			continue;
		way(out, p, "sent", "ring",
		    ring_bytes(c->tx_direct_bytes, c->tx_rdma_bytes));
		way(out, p, "received", "ring",
		    ring_bytes(c->rx_direct_bytes, c->rx_rdma_bytes));
		way(out, p, "sent", "rdma", c->tx_rdma_bytes);
		way(out, p, "received", "rdma", c->rx_rdma_bytes);
		way(out, p, "sent", "tcp", c->tx_tcp_bytes);
		way(out, p, "received", "tcp", c->rx_tcp_bytes);
	}
}

/* ---- of the native interface ---- */

static const char *const native_helps[NATIVE_COUNTS] = {
	[NATIVE_PUTS] = "Puts that were made.",
	[NATIVE_PUT_BYTES] = "Bytes of these.",
	[NATIVE_FAR_PUTS] = "Puts that a device wrote to memory on another host.",
	[NATIVE_GETS] = "Gets that were made.",
	[NATIVE_GET_BYTES] = "Bytes of these.",
	[NATIVE_FAR_GETS] = "Gets that a device brought from memory on another host.",
	[NATIVE_ATOMICS] = "Atomic operations that were made.",
	[NATIVE_NOTES_SENT] = "Notifications that were sent.",
	[NATIVE_NOTES_COME] = "Notifications that have come.",
	[NATIVE_IMPORTS] = "Imports of what a peer exports.",
	[NATIVE_MAPPED] = "Of these: of memory that was mapped.",
	[NATIVE_FULL] = "Redirections after which nothing was copied.",
	[NATIVE_PARTIAL] = "Redirections after which a part was copied.",
	[NATIVE_NONE] = "Redirections after which all was copied.",
	[NATIVE_HITS] = "Registrations of memory that were found in the cache.",
	[NATIVE_MISSES] = "Registrations of memory that had to be made.",
	[NATIVE_EVICTIONS] = "Registrations that were given up for others.",
	[NATIVE_BROKEN] = "Registrations of memory that was gone when they were found.",
	[NATIVE_MESSAGES] = "Messages that were sent.",
	[NATIVE_IN_PLACE] =
		"Of these: messages that the peer sees where they were written.",
	[NATIVE_MESSAGES_COME] = "Messages that have come.",
	[NATIVE_MESSAGE_BYTES] = "Bytes of those that were sent.",
};

static void native_head(FILE *out, const char *prefix, int what, char *name)
{
	sprintf(name, "%s_%s_total", prefix, native_count_names[what]);
	head(out, name, "counter", native_helps[what]);
}

static void native_counters(FILE *out, const struct stat_view *v)
{
	char name[64];

	for (int i = 0; i < NATIVE_COUNTS; i++) {
		native_head(out, "native", i, name);
		FOR_SHOWN(p)
		{
			if (!p->p->counted || !observe_is_native(&p->p->counts))
				continue;
			begin(out, name, p->p);
			fprintf(out, "} %" PRIu64 "\n", p->p->counts.native[i]);
		}
	}
}

/* ---- of remote procedure calls ---- */

#define FOR_CALLS(c)                                                                     \
	for (const struct stat_call *c = v->calls; c < v->calls + v->call_count; c++)    \
		if (c->shown)

static void begin_call(FILE *out, const char *name, const struct observe_call *c)
{
	begin(out, name, c->process);
	stat_calls_labels(out, c);
}

static void calls(FILE *out, const struct stat_view *v)
{
	head(out, "rpc_seconds", "summary",
	     "How long remote procedure calls took: to the client, and in the service.");
	FOR_CALLS(c)
	{
		begin_call(out, "rpc_seconds", c->c);
		fprintf(out, ",quantile=\"0.99\"} %.9f\n", (double)c->c->p99_ns / 1e9);
		begin_call(out, "rpc_seconds_sum", c->c);
		fprintf(out, "} %.9f\n", (double)c->c->ns / 1e9);
		begin_call(out, "rpc_seconds_count", c->c);
		fprintf(out, "} %" PRIu64 "\n", c->c->calls);
	}
	head(out, "rpc_errors_total", "counter", "Remote procedure calls that failed.");
	FOR_CALLS(c)
	{
		begin_call(out, "rpc_errors_total", c->c);
		fprintf(out, "} %" PRIu64 "\n", c->c->errors);
	}
}

static void of_processes(FILE *out, const struct stat_view *v)
{
	open_connections(out, v);
	counter(out, v, "connections_total", "TCP connections that it has had.",
		offsetof(struct observe_counts, connections));
	counter(out, v, "upgraded_total", "Connections that moved to the direct path.",
		offsetof(struct observe_counts, upgraded));
	counter(out, v, "downgraded_total", "Connections that went back to TCP for good.",
		offsetof(struct observe_counts, downgraded));
	bytes(out, v);
	counter(out, v, "sleeps_total", "Calls that slept.",
		offsetof(struct observe_counts, sleeps));
	counter(out, v, "doorbells_total", "Times that a sleeping peer was woken.",
		offsetof(struct observe_counts, doorbells));
	counter(out, v, "redirects_total",
		"Times that bytes went past the ring, to or from another host.",
		offsetof(struct observe_counts, redirects));
	counter(out, v, "zero_copies_total",
		"Times that the device took them from the program's memory.",
		offsetof(struct observe_counts, zero_copies));
	number(out, v, "pinned_bytes", "gauge",
	       "Bytes of the program's memory that stay registered with devices.",
	       offsetof(struct observe_counts, pinned_bytes));
	native_counters(out, v);
	calls(out, v);
}

/* ---- of connections ---- */

static void begin_conn(FILE *out, const char *name, const struct observe_conn *c)
{
	char text[64];

	begin(out, name, c->process);
	fprintf(out, ",fd=\"%d\",local=\"%s\"", c->fd, observe_end_text(&c->local, text));
	fprintf(out, ",peer=\"%s\"", observe_end_text(&c->peer, text));
}

#define FOR_CONNS(c)                                                                     \
	for (size_t i_ = 0; i_ < v->row_count; i_++)                                     \
		for (const struct observe_conn *c = v->rows[i_].shown ? v->rows[i_].c    \
								      : NULL;            \
		     c; c = NULL)

static void conn_line(FILE *out, const char *name, const struct observe_conn *c,
		      const char *labels, uint64_t value)
{
	begin_conn(out, name, c);
	fprintf(out, "%s} %" PRIu64 "\n", labels, value);
}

static void conn_bytes(FILE *out, const struct stat_view *v)
{
	static const char name[] = "connection_bytes_total";

	head(out, name, "counter", "Bytes sent and received on a connection, by path.");
	FOR_CONNS(c)
	{
		conn_line(out, name, c,
			  c->across ? ",direction=\"sent\",path=\"rdma\""
				    : ",direction=\"sent\",path=\"ring\"",
			  c->tx_direct_bytes);
		conn_line(out, name, c,
			  c->across ? ",direction=\"received\",path=\"rdma\""
				    : ",direction=\"received\",path=\"ring\"",
			  c->rx_direct_bytes);
		conn_line(out, name, c, ",direction=\"sent\",path=\"tcp\"",
			  c->tx_tcp_bytes);
		conn_line(out, name, c, ",direction=\"received\",path=\"tcp\"",
			  c->rx_tcp_bytes);
	}
}

static void conn_counters(FILE *out, const struct stat_view *v)
{
	head(out, "connection_messages_total", "counter",
	     "Sends and receives that moved bytes through the ring.");
	FOR_CONNS(c)
	{
		conn_line(out, "connection_messages_total", c, ",direction=\"sent\"",
			  c->tx_messages);
		conn_line(out, "connection_messages_total", c, ",direction=\"received\"",
			  c->rx_messages);
	}
	head(out, "connection_tcp_segments_total", "counter",
	     "Segments with data that the kernel sent and received for a connection.");
	FOR_CONNS(c)
	{
		conn_line(out, "connection_tcp_segments_total", c, ",direction=\"sent\"",
			  c->tx_tcp_segments);
		conn_line(out, "connection_tcp_segments_total", c,
			  ",direction=\"received\"", c->rx_tcp_segments);
	}
	head(out, "connection_switches_total", "counter",
	     "Times that a direction went to the ring or back.");
	FOR_CONNS(c)
	conn_line(out, "connection_switches_total", c, "", c->switches);
	head(out, "connection_sleeps_total", "counter",
	     "Calls on the connection that slept.");
	FOR_CONNS(c)
	conn_line(out, "connection_sleeps_total", c, "", c->sleeps);
	head(out, "connection_doorbells_total", "counter",
	     "Times that the sleeping peer was woken.");
	FOR_CONNS(c)
	conn_line(out, "connection_doorbells_total", c, "", c->doorbells);
	head(out, "connection_redirects_total", "counter",
	     "Times that bytes of the connection went past the ring.");
	FOR_CONNS(c)
	conn_line(out, "connection_redirects_total", c, "", c->redirects);
}

static void conn_native(FILE *out, const struct stat_view *v)
{
	char name[64];

	for (int i = 0; i < NATIVE_COUNTS; i++) {
		native_head(out, "connection_native", i, name);
		FOR_CONNS(c)
		if (c->native)
			conn_line(out, name, c, "", c->native_counts[i]);
	}
}

static void conn_gauges(FILE *out, const struct stat_view *v)
{
	head(out, "connection_ring_fill_bytes", "gauge",
	     "Bytes in the ring that the receiver has not taken.");
	FOR_CONNS(c)
	{
		conn_line(out, "connection_ring_fill_bytes", c, ",direction=\"sent\"",
			  c->tx_fill);
		conn_line(out, "connection_ring_fill_bytes", c, ",direction=\"received\"",
			  c->rx_fill);
	}
	head(out, "connection_info", "gauge",
	     "Always 1: the paths of a connection, and why it is on TCP.");
	FOR_CONNS(c)
	{
		begin_conn(out, "connection_info", c);
		fprintf(out, ",sent=\"%s\",received=\"%s\",reason=\"%s\"} 1\n",
			observe_path_name(c->tx), observe_path_name(c->rx),
			reason_name(c->reason));
	}
}

void stat_prometheus(FILE *out, const struct stat_view *v, bool per_connection)
{
	size_t shown = 0;

	FOR_SHOWN(p)
	shown++;
	head(out, "processes", "gauge", "Processes under Viaduct that are listed.");
	fprintf(out, "viaduct_processes %zu\n", shown);
	head(out, "hidden_processes", "gauge",
	     "Processes of other users that may not be looked into.");
	fprintf(out, "viaduct_hidden_processes %zu\n", v->seen.hidden);
	of_processes(out, v);
	if (!per_connection)
		return;
	conn_bytes(out, v);
	conn_counters(out, v);
	conn_native(out, v);
	conn_gauges(out, v);
}
