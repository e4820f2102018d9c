/* SPDX-License-Identifier: Apache-2.0 */
/* The columns of `viaduct stat`: of connections, and of processes. */
#include <inttypes.h>
#include <netinet/tcp.h>
#include <pwd.h>
#include <string.h>

#include "base/tcp.h"
#include "tool/stat/stat.h"

#define CONN(item) (((const struct stat_row *)(item))->c)

/* ---- of connections: who ---- */

static void print_process(const void *item, char *out)
{
	stat_name(CONN(item)->process->name, out, STAT_CELL);
}

static void print_pid(const void *item, char *out)
{
	const struct stat_row *row = item;
	int n = sprintf(out, "%d", (int)row->c->process->pid);

	if (row->more_processes)
		sprintf(out + n, "+%u", row->more_processes);
}

static void print_fd(const void *item, char *out)
{
	const struct stat_row *row = item;
	int n = sprintf(out, "%d", row->c->fd);

	if (row->descriptors > 1)
		sprintf(out + n, "+%u", row->descriptors - 1);
}

static void print_local(const void *item, char *out)
{
	observe_end_text(&CONN(item)->local, out);
}

static void print_peer(const void *item, char *out)
{
	observe_end_text(&CONN(item)->peer, out);
}

static void print_peer_process(const void *item, char *out)
{
	const struct observe_process *p = CONN(item)->peer_process;
	char name[sizeof(p->name)];

	if (p)
		sprintf(out, "%s/%d", stat_name(p->name, name, sizeof(name)),
			(int)p->pid);
	else
		strcpy(out, "-");
}

static void print_peer_fd(const void *item, char *out)
{
	if (CONN(item)->peer_fd >= 0)
		sprintf(out, "%d", CONN(item)->peer_fd);
	else
		strcpy(out, "-");
}

static void print_role(const void *item, char *out)
{
	uint32_t role = CONN(item)->role;

	strcpy(out, role == TCP_ROLE_CONNECTED	? "connected"
		    : role == TCP_ROLE_ACCEPTED ? "accepted"
						: "-");
}

/* ---- how ---- */

static void print_path(const void *item, char *out)
{
	const struct stat_row *row = item;

	strcpy(out, observe_path_name(row->path));
	if (observe_is_direct(row->path) && row->c->tx != row->c->rx)
		sprintf(out, "%s/%s", observe_path_name(row->c->tx),
			observe_path_name(row->c->rx));
}

static void print_tx(const void *item, char *out)
{
	strcpy(out, observe_path_name(CONN(item)->tx));
}

static void print_rx(const void *item, char *out)
{
	strcpy(out, observe_path_name(CONN(item)->rx));
}

static bool has_reason(const struct observe_conn *c)
{
	return c && c->reason != VD_REASON_NONE;
}

/* Where the ends give different ones, the peer's may be the cause of ours. */
static void print_reason(const void *item, char *out)
{
	const struct observe_conn *c = CONN(item), *peer = c->peer_conn;
	bool differs = has_reason(peer) && peer->reason != c->reason;

	strcpy(out, has_reason(c) ? reason_name(c->reason) : "-");
	if (differs && has_reason(c))
		sprintf(out + strlen(out), ", peer: %s", reason_name(peer->reason));
	else if (differs)
		sprintf(out, "peer: %s", reason_name(peer->reason));
}

/* ---- how much ---- */

#define SIZE_COLUMN(name, what)                                                          \
	static double value_##name(const void *item)                                     \
	{                                                                                \
		const struct observe_conn *c = CONN(item);                               \
		return (double)(what);                                                   \
	}                                                                                \
	static void print_##name(const void *item, char *out)                            \
	{                                                                                \
		const struct observe_conn *c = CONN(item);                               \
		stat_size(what, out);                                                    \
	}
#define NUMBER_COLUMN(name, what)                                                        \
	static double value_##name(const void *item)                                     \
	{                                                                                \
		const struct observe_conn *c = CONN(item);                               \
		return (double)(what);                                                   \
	}                                                                                \
	static void print_##name(const void *item, char *out)                            \
	{                                                                                \
		const struct observe_conn *c = CONN(item);                               \
		stat_number(what, out);                                                  \
	}

SIZE_COLUMN(sent, stat_sent(c))
SIZE_COLUMN(received, stat_received(c))
SIZE_COLUMN(sent_ring, c->tx_direct_bytes)
SIZE_COLUMN(received_ring, c->rx_direct_bytes)
SIZE_COLUMN(sent_tcp, c->tx_tcp_bytes)
SIZE_COLUMN(received_tcp, c->rx_tcp_bytes)
SIZE_COLUMN(tx_ring, c->tx_ring)
SIZE_COLUMN(tx_fill, c->tx_fill)
SIZE_COLUMN(rx_ring, c->rx_ring)
SIZE_COLUMN(rx_fill, c->rx_fill)
NUMBER_COLUMN(messages, stat_messages(c))
NUMBER_COLUMN(tx_messages, c->tx_messages)
NUMBER_COLUMN(rx_messages, c->rx_messages)
NUMBER_COLUMN(tx_segments, c->tx_tcp_segments)
NUMBER_COLUMN(rx_segments, c->rx_tcp_segments)
NUMBER_COLUMN(saved, c->saved)
NUMBER_COLUMN(switches, c->switches)
NUMBER_COLUMN(sleeps, c->sleeps)
NUMBER_COLUMN(wakes, c->doorbells)
NUMBER_COLUMN(redirects, c->redirects)

/* The counts from `first` to `last`. */
static void print_native(const struct observe_conn *c, int first, int last, char *out)
{
	strcpy(out, "-");
	for (int i = first; c->native && i <= last; i++) {
		if (i > first)
			*out++ = '/';
		(i == NATIVE_PUT_BYTES || i == NATIVE_GET_BYTES
			 ? stat_size
			 : stat_number)(c->native_counts[i], out);
		out += strlen(out);
	}
}

#define NATIVE_COLUMN(name, first, last)                                                 \
	static void print_##name(const void *item, char *out)                            \
	{                                                                                \
		print_native(CONN(item), first, last, out);                              \
	}                                                                                \
	static double value_##name(const void *item)                                     \
	{                                                                                \
		const struct observe_conn *c = CONN(item);                               \
		return c->native ? (double)c->native_counts[first] : -1;                 \
	}

NATIVE_COLUMN(puts, NATIVE_PUTS, NATIVE_PUTS)
NATIVE_COLUMN(put_bytes, NATIVE_PUT_BYTES, NATIVE_PUT_BYTES)
NATIVE_COLUMN(gets, NATIVE_GETS, NATIVE_GETS)
NATIVE_COLUMN(get_bytes, NATIVE_GET_BYTES, NATIVE_GET_BYTES)
NATIVE_COLUMN(atomics, NATIVE_ATOMICS, NATIVE_ATOMICS)
NATIVE_COLUMN(notes_sent, NATIVE_NOTES_SENT, NATIVE_NOTES_SENT)
NATIVE_COLUMN(notes_come, NATIVE_NOTES_COME, NATIVE_NOTES_COME)
NATIVE_COLUMN(imports, NATIVE_IMPORTS, NATIVE_MAPPED)
NATIVE_COLUMN(redirections, NATIVE_FULL, NATIVE_NONE)
NATIVE_COLUMN(registrations, NATIVE_HITS, NATIVE_EVICTIONS)
NATIVE_COLUMN(vd_messages, NATIVE_MESSAGES, NATIVE_MESSAGES_COME)

/* 100% is all, and 0% nothing; what is between is not rounded to them. */
static void print_share(uint64_t part, uint64_t all, char *out)
{
	double percent = all ? 100.0 * (double)part / (double)all : 0;

	if (all == 0)
		strcpy(out, "-");
	else if (percent > 99 && part < all)
		strcpy(out, ">99%");
	else if (percent < 1 && part > 0)
		strcpy(out, "<1%");
	else
		sprintf(out, "%.0f%%", percent);
}

static void print_direct(const void *item, char *out)
{
	const struct observe_conn *c = CONN(item);

	print_share(c->tx_direct_bytes + c->rx_direct_bytes,
		    stat_sent(c) + stat_received(c), out);
}

static void print_sent_rate(const void *item, char *out)
{
	stat_size((uint64_t)((const struct stat_row *)item)->rates.sent, out);
}

static void print_received_rate(const void *item, char *out)
{
	stat_size((uint64_t)((const struct stat_row *)item)->rates.received, out);
}

static void print_message_rate(const void *item, char *out)
{
	stat_number((uint64_t)((const struct stat_row *)item)->rates.messages, out);
}

#define VALUE(name, what)                                                                \
	static double value_##name(const void *item)                                     \
	{                                                                                \
		return (double)(what);                                                   \
	}
#define ROW(item) ((const struct stat_row *)(item))

VALUE(pid, ROW(item)->c->process->pid)
VALUE(fd, ROW(item)->c->fd)
VALUE(peer_fd, ROW(item)->c->peer_fd)
VALUE(sent_rate, ROW(item)->rates.sent)
VALUE(received_rate, ROW(item)->rates.received)
VALUE(message_rate, ROW(item)->rates.messages)

static double value_direct(const void *item)
{
	const struct observe_conn *c = CONN(item);
	double all = (double)(stat_sent(c) + stat_received(c));

	return all > 0 ? (double)(c->tx_direct_bytes + c->rx_direct_bytes) / all : -1;
}

static const struct stat_column of_connections[] = {
	{"PROCESS", 0, false, print_process, NULL},
	{"PID", 0, true, print_pid, value_pid},
	{"FD", 5, true, print_fd, value_fd},
	{"ROLE", STAT_WIDE, false, print_role, NULL},
	{"LOCAL", 7, false, print_local, NULL},
	{"PEER", 0, false, print_peer, NULL},
	{"PEER-PROCESS", 3, false, print_peer_process, NULL},
	{"PEER-FD", STAT_WIDE, true, print_peer_fd, value_peer_fd},
	{"PATH", 0, false, print_path, NULL},
	{"SENT-BY", STAT_WIDE, false, print_tx, NULL},
	{"RCVD-BY", STAT_WIDE, false, print_rx, NULL},
	{"SENT/s", STAT_RATE + 1, true, print_sent_rate, value_sent_rate},
	{"RCVD/s", STAT_RATE + 1, true, print_received_rate, value_received_rate},
	{"MSGS/s", STAT_RATE + 2, true, print_message_rate, value_message_rate},
	{"SENT", 2, true, print_sent, value_sent},
	{"RCVD", 2, true, print_received, value_received},
	{"DIRECT", 4, true, print_direct, value_direct},
	{"RING-SENT", STAT_WIDE, true, print_sent_ring, value_sent_ring},
	{"RING-RCVD", STAT_WIDE, true, print_received_ring, value_received_ring},
	{"TCP-SENT", STAT_WIDE, true, print_sent_tcp, value_sent_tcp},
	{"TCP-RCVD", STAT_WIDE, true, print_received_tcp, value_received_tcp},
	{"MSGS", 8, true, print_messages, value_messages},
	{"MSGS-SENT", STAT_WIDE, true, print_tx_messages, value_tx_messages},
	{"MSGS-RCVD", STAT_WIDE, true, print_rx_messages, value_rx_messages},
	{"SEGS-SENT", STAT_WIDE, true, print_tx_segments, value_tx_segments},
	{"SEGS-RCVD", STAT_WIDE, true, print_rx_segments, value_rx_segments},
	{"SAVED", 9, true, print_saved, value_saved},
	{"SWITCHES", STAT_WIDE, true, print_switches, value_switches},
	{"SLEEPS", 10, true, print_sleeps, value_sleeps},
	{"WAKES", 10, true, print_wakes, value_wakes},
	{"REDIRECTS", STAT_WIDE, true, print_redirects, value_redirects},
	{"PUTS", STAT_WIDE, true, print_puts, value_puts},
	{"PUT", STAT_WIDE, true, print_put_bytes, value_put_bytes},
	{"GETS", STAT_WIDE, true, print_gets, value_gets},
	{"GOT", STAT_WIDE, true, print_get_bytes, value_get_bytes},
	{"ATOMICS", STAT_WIDE, true, print_atomics, value_atomics},
	{"NOTES-SENT", STAT_WIDE, true, print_notes_sent, value_notes_sent},
	{"NOTES-RCVD", STAT_WIDE, true, print_notes_come, value_notes_come},
	{"IMPORTS/MAPPED", STAT_WIDE, true, print_imports, value_imports},
	{"FULL/PART/NONE", STAT_WIDE, true, print_redirections, value_redirections},
	{"HITS/MISSES/EVICTED", STAT_WIDE, true, print_registrations,
	 value_registrations},
	{"SENT/PLACED/RCVD", STAT_WIDE, true, print_vd_messages, value_vd_messages},
	{"SEND-RING", STAT_WIDE, true, print_tx_ring, value_tx_ring},
	{"SEND-FILL", STAT_WIDE, true, print_tx_fill, value_tx_fill},
	{"RECV-RING", STAT_WIDE, true, print_rx_ring, value_rx_ring},
	{"RECV-FILL", STAT_WIDE, true, print_rx_fill, value_rx_fill},
	{"REASON", 0, false, print_reason, NULL},
};

/* ---- of processes ---- */

#define PROCESS(item) ((const struct stat_process *)(item))

static void print_p_name(const void *item, char *out)
{
	stat_name(PROCESS(item)->p->name, out, STAT_CELL);
}

static void print_p_pid(const void *item, char *out)
{
	sprintf(out, "%d", (int)PROCESS(item)->p->pid);
}

static void print_p_user(const void *item, char *out)
{
	static uid_t uid = (uid_t)-1;
	static char name[33];

	if (uid != PROCESS(item)->p->uid) {
		const struct passwd *user = getpwuid(PROCESS(item)->p->uid);

		uid = PROCESS(item)->p->uid;
		if (user)
			stat_name(user->pw_name, name, sizeof(name));
		else
			sprintf(name, "%u", (unsigned)uid);
	}
	strcpy(out, name);
}

/* What it has counted is not known of every process. */
#define OPEN_COLUMN(name, what)                                                          \
	static double value_##name(const void *item)                                     \
	{                                                                                \
		const struct stat_process *p = PROCESS(item);                            \
		return (double)(what);                                                   \
	}                                                                                \
	static void print_##name(const void *item, char *out)                            \
	{                                                                                \
		const struct stat_process *p = PROCESS(item);                            \
		stat_number(what, out);                                                  \
	}
#define COUNT_COLUMN(name, print, count)                                                 \
	static double value_##name(const void *item)                                     \
	{                                                                                \
		const struct stat_process *p = PROCESS(item);                            \
		return p->p->counted ? (double)p->p->counts.count : -1;                  \
	}                                                                                \
	static void print_##name(const void *item, char *out)                            \
	{                                                                                \
		const struct stat_process *p = PROCESS(item);                            \
		if (p->p->counted)                                                       \
			print(p->p->counts.count, out);                                  \
		else                                                                     \
			strcpy(out, "?");                                                \
	}

OPEN_COLUMN(p_open, p->open)
OPEN_COLUMN(p_ring, p->paths[OBSERVE_RING] + p->paths[OBSERVE_RDMA])
OPEN_COLUMN(p_switching, p->paths[OBSERVE_SWITCHING])
OPEN_COLUMN(p_tcp, p->paths[OBSERVE_TCP])
COUNT_COLUMN(p_seen, stat_number, connections)
COUNT_COLUMN(p_upgraded, stat_number, upgraded)
COUNT_COLUMN(p_downgraded, stat_number, downgraded)
COUNT_COLUMN(p_sent_ring, stat_size, tx_direct_bytes)
COUNT_COLUMN(p_received_ring, stat_size, rx_direct_bytes)
COUNT_COLUMN(p_sent_tcp, stat_size, tx_tcp_bytes)
COUNT_COLUMN(p_received_tcp, stat_size, rx_tcp_bytes)
COUNT_COLUMN(p_sleeps, stat_number, sleeps)
COUNT_COLUMN(p_wakes, stat_number, doorbells)
COUNT_COLUMN(p_redirects, stat_number, redirects)

static void print_p_sent_rate(const void *item, char *out)
{
	stat_size((uint64_t)PROCESS(item)->rates.sent, out);
}

static void print_p_received_rate(const void *item, char *out)
{
	stat_size((uint64_t)PROCESS(item)->rates.received, out);
}

static void print_p_message_rate(const void *item, char *out)
{
	stat_number((uint64_t)PROCESS(item)->rates.messages, out);
}

/* Of its connections that are on TCP now: the most frequent first. */
static void print_p_reasons(const void *item, char *out)
{
	const struct stat_process *p = PROCESS(item);
	bool done[VD_REASON_COUNT] = {[VD_REASON_NONE] = true};
	size_t n = 0;

	for (;;) {
		uint32_t best = 0;

		for (uint32_t r = 1; r < VD_REASON_COUNT; r++)
			if (!done[r] && p->reasons[r] > (best ? p->reasons[best] : 0))
				best = r;
		if (best == 0 || n > STAT_CELL - 64)
			break;
		done[best] = true;
		n += (size_t)sprintf(out + n, "%s%s:%zu", n ? " " : "", reason_name(best),
				     p->reasons[best]);
	}
	if (n == 0)
		strcpy(out, "-");
}

VALUE(p_pid, PROCESS(item)->p->pid)
VALUE(p_sent_rate, PROCESS(item)->rates.sent)
VALUE(p_received_rate, PROCESS(item)->rates.received)
VALUE(p_message_rate, PROCESS(item)->rates.messages)

static const struct stat_column of_processes[] = {
	{"PROCESS", 0, false, print_p_name, NULL},
	{"PID", 0, true, print_p_pid, value_p_pid},
	{"USER", 5, false, print_p_user, NULL},
	{"OPEN", 0, true, print_p_open, value_p_open},
	{"RING", 0, true, print_p_ring, value_p_ring},
	{"SWITCHING", STAT_WIDE, true, print_p_switching, value_p_switching},
	{"TCP", 1, true, print_p_tcp, value_p_tcp},
	{"SENT/s", STAT_RATE + 1, true, print_p_sent_rate, value_p_sent_rate},
	{"RCVD/s", STAT_RATE + 1, true, print_p_received_rate, value_p_received_rate},
	{"MSGS/s", STAT_RATE + 2, true, print_p_message_rate, value_p_message_rate},
	{"SEEN", 4, true, print_p_seen, value_p_seen},
	{"UPGRADED", 4, true, print_p_upgraded, value_p_upgraded},
	{"DOWNGRADED", STAT_WIDE, true, print_p_downgraded, value_p_downgraded},
	{"RING-SENT", 3, true, print_p_sent_ring, value_p_sent_ring},
	{"RING-RCVD", 3, true, print_p_received_ring, value_p_received_ring},
	{"TCP-SENT", STAT_WIDE, true, print_p_sent_tcp, value_p_sent_tcp},
	{"TCP-RCVD", STAT_WIDE, true, print_p_received_tcp, value_p_received_tcp},
	{"SLEEPS", 6, true, print_p_sleeps, value_p_sleeps},
	{"WAKES", 6, true, print_p_wakes, value_p_wakes},
	{"REDIRECTS", STAT_WIDE, true, print_p_redirects, value_p_redirects},
	{"REASONS", 2, false, print_p_reasons, NULL},
};

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

const struct stat_column *stat_columns_of(const struct stat_options *o, size_t *count)
{
	if (o->rpc)
		return stat_calls_columns(count);
	*count = o->processes ? COUNT(of_processes) : COUNT(of_connections);
	return o->processes ? of_processes : of_connections;
}
