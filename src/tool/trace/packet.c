/* SPDX-License-Identifier: Apache-2.0 */
/* From what went through a ring to the TCP packet that would have carried it. */
#include "tool/trace/trace.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/ip.h>
#include <netinet/ip6.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/reason.h"

#define WINDOW 65535u

/* One connection, by its slot. [0] what the process sends, [1] what it receives. */
struct trace_conn {
	uint32_t generation;
	bool used, begun, fin;
	uint64_t next[2]; /* offset behind what was seen last */
	bool seen[2];
};

struct packet {
	size_t size;
	uint8_t data[sizeof(struct ip6_hdr) + sizeof(struct tcphdr) + TRACE_PIECE];
};

bool trace_packets_begin(struct trace_packets *p)
{
	p->room = 1024;
	p->conns = calloc(p->room, sizeof(*p->conns));
	return p->conns != NULL;
}

void trace_packets_end(struct trace_packets *p)
{
	free(p->conns);
	p->conns = NULL;
}

/* A process has at most so many slots. */
#define SLOTS_MOST (1u << 20)

static struct trace_conn *conn_of(struct trace_packets *p, const struct trace_record *r)
{
	struct trace_conn *c;

	if (r->slot >= SLOTS_MOST)
		return NULL;
	if (r->slot >= p->room) {
		uint32_t room = p->room;

		while (room <= r->slot)
			room *= 2;
		c = realloc(p->conns, room * sizeof(*c));
		if (!c)
			return NULL;
		memset(c + p->room, 0, (room - p->room) * sizeof(*c));
		p->conns = c;
		p->room = room;
	}
	c = &p->conns[r->slot];
	if (!c->used || c->generation != r->generation)
		*c = (struct trace_conn){.used = true, .generation = r->generation};
	return c;
}

/* ---- the packet ---- */

static uint32_t sum_up(uint32_t sum, const void *data, size_t n)
{
	const uint8_t *at = data;
	uint64_t wide = sum;

	for (; n > 1; at += 2, n -= 2)
		wide += (uint32_t)at[0] << 8 | at[1];
	if (n)
		wide += (uint32_t)at[0] << 8;
	while (wide >> 16)
		wide = (wide & 0xffff) + (wide >> 16);
	return (uint32_t)wide;
}

static uint16_t checksum(uint32_t sum)
{
	return htons((uint16_t)~sum);
}

static bool is_v4(const struct trace_record *r)
{
	static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};

	return !memcmp(r->local, mapped, 12) && !memcmp(r->peer, mapped, 12);
}

/* Where the TCP header begins. */
static size_t put_ip(struct packet *k, const uint8_t *from, const uint8_t *to, bool v4,
		     size_t payload)
{
	if (v4) {
		struct iphdr h = {.version = 4,
				  .ihl = 5,
				  .tot_len = htons((uint16_t)(sizeof(h) + payload)),
				  .frag_off = htons(IP_DF),
				  .ttl = 64,
				  .protocol = IPPROTO_TCP};

		memcpy(&h.saddr, from + 12, 4);
		memcpy(&h.daddr, to + 12, 4);
		h.check = checksum(sum_up(0, &h, sizeof(h)));
		memcpy(k->data, &h, sizeof(h));
		return sizeof(h);
	}
	struct ip6_hdr h = {.ip6_flow = htonl(6u << 28),
			    .ip6_plen = htons((uint16_t)payload),
			    .ip6_nxt = IPPROTO_TCP,
			    .ip6_hlim = 64};

	memcpy(&h.ip6_src, from, 16);
	memcpy(&h.ip6_dst, to, 16);
	memcpy(k->data, &h, sizeof(h));
	return sizeof(h);
}

static uint32_t pseudo_header(const uint8_t *from, const uint8_t *to, bool v4, size_t n)
{
	size_t skip = v4 ? 12 : 0, len = v4 ? 4 : 16;
	uint8_t tail[4] = {0, IPPROTO_TCP, (uint8_t)(n >> 8), (uint8_t)n};
	uint32_t sum = sum_up(0, from + skip, len);

	return sum_up(sum_up(sum, to + skip, len), tail, sizeof(tail));
}

static void build(struct packet *k, const struct trace_record *r, bool in,
		  struct tcphdr *tcp, const uint8_t *bytes)
{
	const uint8_t *from = in ? r->peer : r->local, *to = in ? r->local : r->peer;
	size_t n = sizeof(*tcp) + r->len;
	bool v4 = is_v4(r);
	size_t at = put_ip(k, from, to, v4, n);

	tcp->source = htons(in ? r->peer_port : r->local_port);
	tcp->dest = htons(in ? r->local_port : r->peer_port);
	tcp->doff = sizeof(*tcp) / 4;
	tcp->check = 0;
	memcpy(k->data + at, tcp, sizeof(*tcp));
	memcpy(k->data + at + sizeof(*tcp), bytes, r->len);
	tcp->check = checksum(sum_up(pseudo_header(from, to, v4, n), k->data + at, n));
	memcpy(k->data + at, tcp, sizeof(*tcp));
	k->size = at + n;
}

/* ---- what is said about it ---- */

struct comment {
	char text[512];
	size_t at;
};

static void say(struct comment *c, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

static void say(struct comment *c, const char *format, ...)
{
	const char *begin = c->at ? "; " : "";
	va_list args;
	int n;

	n = snprintf(c->text + c->at, sizeof(c->text) - c->at, "%s", begin);
	c->at += (size_t)n;
	va_start(args, format);
	n = vsnprintf(c->text + c->at, sizeof(c->text) - c->at, format, args);
	va_end(args);
	if (n > 0)
		c->at += (size_t)n < sizeof(c->text) - c->at
				 ? (size_t)n
				 : sizeof(c->text) - c->at - 1;
}

static const char *reason_said(uint16_t reason, const char *(*of)(uint32_t))
{
	return reason < VD_REASON_COUNT ? of(reason) : "unknown";
}

static void say_event(struct comment *c, const struct trace_record *r)
{
	if (r->kind == TRACE_FIN)
		say(c, "shut down for writing");
	if (r->kind == TRACE_CLOSED)
		say(c, "closed by this process");
	if (r->kind == TRACE_LEFT)
		say(c, "goes back to kernel TCP for good: %s (%s)",
		    reason_said(r->reason, reason_name),
		    reason_said(r->reason, reason_text));
	if (r->kind == TRACE_BROKEN)
		say(c, "ended with ECONNRESET: %s (%s)",
		    reason_said(r->reason, reason_name),
		    reason_said(r->reason, reason_text));
}

static void say_gap(struct comment *c, const struct trace_conn *conn, int way,
		    const struct trace_record *r, uint64_t lost)
{
	uint64_t gap = r->at - conn->next[way];

	if (!conn->seen[way] || gap == 0 || (int64_t)gap < 0)
		return;
	say(c, "%llu bytes of this direction are missing before this: %s",
	    (unsigned long long)gap,
	    lost ? "overwritten before they could be read"
		 : "they went over kernel TCP, or through another process");
}

/* ---- records ---- */

static bool is_wanted(const struct trace_packets *p, const struct trace_record *r)
{
	return (p->port < 0 || p->port == r->local_port || p->port == r->peer_port) &&
	       (p->fd < 0 || p->fd == r->fd);
}

static void flags_of(struct tcphdr *tcp, struct trace_conn *c,
		     const struct trace_record *r)
{
	tcp->ack = 1;
	tcp->psh = r->len > 0;
	tcp->window = htons(WINDOW);
	if (r->kind == TRACE_BROKEN)
		tcp->rst = 1;
	else if (!c->fin && (r->kind == TRACE_FIN || r->kind == TRACE_CLOSED))
		tcp->fin = 1;
	else if (!r->len)
		tcp->window = htons(WINDOW - 1); /* lest it be taken for a duplicate */
}

int trace_packets_add(struct trace_packets *p, const struct trace_record *r,
		      const uint8_t *bytes, uint64_t lost)
{
	static struct packet k;
	struct trace_conn *c;
	struct comment comment = {.at = 0};
	struct tcphdr tcp = {.ack = 1};
	bool in = r->kind == TRACE_IN;
	uint64_t ack;

	if (r->kind < TRACE_OUT || r->kind > TRACE_BROKEN || !(c = conn_of(p, r)))
		return -EPROTO;
	if (!is_wanted(p, r) || (!c->begun && r->len == 0))
		return 0;
	if (!c->begun) {
		say(&comment, "fd %d of %s (%d)", r->fd, p->target->name,
		    (int)p->target->pid);
		p->connections++;
	}
	c->begun = true;
	say_gap(&comment, c, in, r, lost);
	say_event(&comment, r);
	flags_of(&tcp, c, r);
	ack = c->seen[!in] && c->next[!in] > r->other_at ? c->next[!in] : r->other_at;
	/* A sequence number counts the SYN; behind a FIN, that as well. */
	tcp.seq = htonl((uint32_t)(r->at + 1 + (c->fin && !in && !r->len)));
	tcp.ack_seq = htonl((uint32_t)(ack + 1 + (c->fin && in)));
	build(&k, r, in, &tcp, bytes);
	pcapng_packet(p->file, r->time_ns, in ? PCAPNG_IN : PCAPNG_OUT, k.data, k.size,
		      comment.text);
	c->next[in] = r->at + r->len;
	c->seen[in] = true;
	c->fin |= tcp.fin;
	p->bytes += r->len;
	return 0;
}
