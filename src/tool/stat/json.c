/* SPDX-License-Identifier: Apache-2.0 */
/* The view as one JSON object; viaduct-stat(1) documents the fields. */
#include <inttypes.h>
#include <netinet/tcp.h>
#include <string.h>

#include "base/tcp.h"
#include "tool/json.h"
#include "tool/stat/stat.h"

struct json {
	FILE *out;
	bool one_line;
};

static void print_program(FILE *out, const struct observe_process *p)
{
	char name[sizeof(p->name)];

	fprintf(out, "\"pid\":%d,\"program\":", (int)p->pid);
	write_json_string(out, stat_name(p->name, name, sizeof(name)));
}

static void print_reasons(FILE *out, const char *key, const uint64_t *counts)
{
	const char *comma = "";

	fprintf(out, ",\"%s\":{", key);
	for (uint32_t r = 0; r < VD_REASON_COUNT; r++) {
		if (counts[r] == 0)
			continue;
		fprintf(out, "%s\"%s\":%" PRIu64, comma, reason_name(r), counts[r]);
		comma = ",";
	}
	fputc('}', out);
}

/* NULL: nothing is to be said. */
static void print_native(FILE *out, const uint64_t *native)
{
	fprintf(out, ",\"native\":%s", native ? "" : "null");
	if (!native)
		return;
	for (int i = 0; i < NATIVE_COUNTS; i++)
		fprintf(out, "%s\"%s\":%" PRIu64, i ? "," : "{", native_count_names[i],
			native[i]);
	fputc('}', out);
}

static void print_counts(FILE *out, const struct observe_counts *c)
{
	fprintf(out,
		",\"counts\":{\"connections\":%" PRIu64 ",\"upgraded\":%" PRIu64
		",\"downgraded\":%" PRIu64 ",\"tx_direct_bytes\":%" PRIu64
		",\"rx_direct_bytes\":%" PRIu64 ",\"tx_rdma_bytes\":%" PRIu64
		",\"rx_rdma_bytes\":%" PRIu64 ",\"tx_tcp_bytes\":%" PRIu64
		",\"rx_tcp_bytes\":%" PRIu64 ",\"doorbells\":%" PRIu64
		",\"sleeps\":%" PRIu64 ",\"redirects\":%" PRIu64
		",\"zero_copies\":%" PRIu64 ",\"pinned_bytes\":%" PRIu64,
		c->connections, c->upgraded, c->downgraded, c->tx_direct_bytes,
		c->rx_direct_bytes, c->tx_rdma_bytes, c->rx_rdma_bytes, c->tx_tcp_bytes,
		c->rx_tcp_bytes, c->doorbells, c->sleeps, c->redirects, c->zero_copies,
		c->pinned_bytes);
	print_native(out, observe_is_native(c) ? c->native : NULL);
	print_reasons(out, "reasons", c->reasons);
	fputc('}', out);
}

static void print_process(FILE *out, const struct stat_view *v,
			  const struct stat_process *p)
{
	uint64_t reasons[VD_REASON_COUNT];

	for (uint32_t r = 0; r < VD_REASON_COUNT; r++)
		reasons[r] = p->reasons[r];
	fputc('{', out);
	print_program(out, p->p);
	fprintf(out,
		",\"uid\":%u,\"netns\":%" PRIu64 ",\"trouble\":", (unsigned)p->p->uid,
		p->p->netns);
	if (p->p->trouble)
		write_json_string(out, p->p->trouble);
	else
		fprintf(out, "null");
	fprintf(out,
		",\"open\":%zu,\"on_ring\":%zu,\"on_rdma\":%zu,\"switching\":%zu,\"on_"
		"tcp\":%zu",
		p->open, p->paths[OBSERVE_RING], p->paths[OBSERVE_RDMA],
		p->paths[OBSERVE_SWITCHING], p->paths[OBSERVE_TCP]);
	print_reasons(out, "open_reasons", reasons);
	if (p->p->counted)
		print_counts(out, &p->p->counts);
	else
		fprintf(out, ",\"counts\":null");
	stat_calls_json(out, v, p->p);
	fputc('}', out);
}

static void print_end(FILE *out, const char *key, const struct observe_end *end)
{
	char text[64], *port;

	observe_end_text(end, text);
	port = strrchr(text, ':');
	*port = '\0';
	/* Without the brackets of IPv6. */
	if (text[0] == '[')
		port[-1] = '\0';
	fprintf(out, ",\"%s\":{\"address\":\"%s\",\"port\":%u}", key,
		text + (text[0] == '['), end->port);
}

static void print_way(FILE *out, const char *key, enum observe_path path,
		      const uint64_t numbers[6])
{
	fprintf(out,
		",\"%s\":{\"path\":\"%s\",\"direct_bytes\":%" PRIu64
		",\"tcp_bytes\":%" PRIu64 ",\"messages\":%" PRIu64
		",\"tcp_segments\":%" PRIu64 ",\"ring_bytes\":%" PRIu64
		",\"ring_fill_bytes\":%" PRIu64 "}",
		key, observe_path_name(path), numbers[0], numbers[1], numbers[2],
		numbers[3], numbers[4], numbers[5]);
}

static const char *state_name(uint8_t state)
{
	static const char *const names[] = {
		[TCP_ESTABLISHED] = "established", [TCP_SYN_SENT] = "syn-sent",
		[TCP_SYN_RECV] = "syn-recv",	   [TCP_FIN_WAIT1] = "fin-wait-1",
		[TCP_FIN_WAIT2] = "fin-wait-2",	   [TCP_CLOSE_WAIT] = "close-wait",
		[TCP_LAST_ACK] = "last-ack",	   [TCP_CLOSING] = "closing"};

	return state < sizeof(names) / sizeof(names[0]) && names[state] ? names[state]
									: "unknown";
}

static void print_who(FILE *out, const struct stat_row *row)
{
	const struct observe_conn *c = row->c;

	print_program(out, c->process);
	fprintf(out, ",\"fds\":[");
	for (uint32_t i = 0; i < row->descriptors; i++)
		fprintf(out, "%s%d", i ? "," : "", row->all[i]->fd);
	fprintf(out, "],\"role\":\"%s\",\"tcp_state\":\"%s\"",
		c->role == TCP_ROLE_CONNECTED  ? "connected"
		: c->role == TCP_ROLE_ACCEPTED ? "accepted"
					       : "unknown",
		state_name(c->tcp_state));
	print_end(out, "local", &c->local);
	print_end(out, "peer", &c->peer);
	if (c->peer_process) {
		fprintf(out, ",\"peer_process\":{");
		print_program(out, c->peer_process);
		fprintf(out, ",\"fd\":%d,\"viaduct\":%s}", c->peer_fd,
			c->peer_process->viaduct ? "true" : "false");
	} else {
		fprintf(out, ",\"peer_process\":null");
	}
}

static void print_connection(FILE *out, const struct stat_row *row)
{
	const struct observe_conn *c = row->c;
	bool tcp = c->reason != VD_REASON_NONE;

	fputc('{', out);
	print_who(out, row);
	fprintf(out, ",\"path\":\"%s\"", observe_path_name(row->path));
	print_way(out, "sent", c->tx,
		  (uint64_t[]){c->tx_direct_bytes, c->tx_tcp_bytes, c->tx_messages,
			       c->tx_tcp_segments, c->tx_ring, c->tx_fill});
	print_way(out, "received", c->rx,
		  (uint64_t[]){c->rx_direct_bytes, c->rx_tcp_bytes, c->rx_messages,
			       c->rx_tcp_segments, c->rx_ring, c->rx_fill});
	print_native(out, c->native ? c->native_counts : NULL);
	fprintf(out,
		",\"switches\":%" PRIu32 ",\"saved_system_calls\":%" PRIu64
		",\"sleeps\":%" PRIu32 ",\"doorbells\":%" PRIu32 ",\"redirects\":%" PRIu32
		",\"reason\":\"%s\",\"reason_text\":",
		c->switches, c->saved, c->sleeps, c->doorbells, c->redirects,
		reason_name(c->reason));
	write_json_string(out, tcp ? reason_text(c->reason) : "");
	fprintf(out, ",\"remedy\":");
	write_json_string(out, tcp ? reason_remedy(c->reason) : "");
	fputc('}', out);
}

static void begin_item(const struct json *j, bool *first)
{
	fprintf(j->out, "%s%s", *first ? "" : ",", j->one_line ? "" : "\n");
	*first = false;
}

void stat_json(FILE *out, const struct stat_view *v, bool one_line)
{
	const struct json j = {out, one_line};
	const char *end = one_line ? "" : "\n";
	bool first = true;

	fprintf(out,
		"{\"version\":\"%s\",\"time\":%.3f,\"hidden_processes\":%zu,"
		"\"processes\":[",
		VD_VERSION, v->time, v->seen.hidden);
	for (size_t i = 0; i < v->process_count; i++) {
		if (!v->processes[i].shown)
			continue;
		begin_item(&j, &first);
		print_process(out, v, &v->processes[i]);
	}
	fprintf(out, "%s],%s\"connections\":[", end, end);
	first = true;
	for (size_t i = 0; i < v->row_count; i++) {
		if (!v->rows[i].shown)
			continue;
		begin_item(&j, &first);
		print_connection(out, &v->rows[i]);
	}
	fprintf(out, "%s]}\n", end);
}
