/* SPDX-License-Identifier: Apache-2.0 */
/* The table that a process shows to root's tools: `viaduct stat` looks at it, whole, while its maker
 * writes what he likes, before and during the look: tool/observe/table.c, observe.c, stat_*.c.
 * Not reached: /proc and the kernel's list of sockets, which are as this file has them; tables that
 * cannot be opened or mapped; rates of stat, which compare two looks. */
#include <fcntl.h>
#include <jansson.h>
#include <sys/stat.h>
#include <unistd.h>

#include "conn/table.h"
#include "fuzz/flip.h"
#include "fuzz/fuzz.h"
#include "fuzz/kept_file.h"
#include "tool/observe/table.h"
#include "tool/stat/stat.h"

enum { SLOTS = 12, SOCKETS = SLOTS + 2, FD = 100, COOKIE = 1000, PROCESSES = 2 };
enum { HEAD, ENTRIES, ALL_SLOTS, CALLS, PARTS };

/* ---- what /proc and the kernel say ---- */

void *observe_add(struct observe_list *list)
{
	char *item;

	if (list->count == list->room) {
		list->room = list->room ? 2 * list->room : 16;
		list->items = realloc(list->items, list->room * list->item_bytes);
		FUZZ_CHECK(list->items);
	}
	item = (char *)list->items + list->count++ * list->item_bytes;
	return memset(item, 0, list->item_bytes);
}

int observe_scan(struct observe_list *processes, struct observe_list *holders,
		 size_t *hidden)
{
	static struct stat st;

	if (!st.st_ino)
		FUZZ_CHECK(stat("/proc/self/ns/net", &st) == 0);
	*hidden = 1;
	for (int i = 0; i < PROCESSES; i++) {
		struct observe_process *p = observe_add(processes);

		p->pid = i == 0 ? getpid() : getpid() + 1;
		p->own_pid = getpid() + i;
		p->netns = st.st_ino;
		strcpy(p->name, "fuzz\"\033[1m");
		if (i == 0)
			snprintf(p->table, sizeof(p->table), "fd/%d", table_descriptor());
	}
	for (uint32_t i = 0; i < 2 * SOCKETS; i++) {
		struct observe_holder *h = observe_add(holders);

		*h = (struct observe_holder){.inode = i % SOCKETS + 1,
					     .process = i / SOCKETS,
					     .fd = FD + (int)i};
	}
	return 0;
}

int observe_sockets(struct observe_list *sockets, pid_t pid, uint64_t netns)
{
	(void)pid;
	for (uint32_t i = 0; i < SOCKETS; i++) {
		struct observe_socket *s = observe_add(sockets);

		*s = (struct observe_socket){.inode = i + 1,
					     .cookie = COOKIE + i,
					     .netns = netns,
					     .local.port = (uint16_t)(i + 1),
					     .peer.port = (uint16_t)((i ^ 1) + 1),
					     .bytes_acked = i,
					     .state = 1 /* established */};
	}
	return 0;
}

/* ---- the table ---- */

static struct slot_table *table;

/* What an input may change: the head, some processes, all slots, the calls of the first process. */
static struct part {
	uint8_t *at;
	size_t bytes;
	uint8_t was[SLOTS * sizeof(struct slot)];
} parts[PARTS];

static void fill(struct slot *s, int i)
{
	s->used = s->generation = 1;
	s->cookie = i % 3 ? COOKIE + (uint64_t)i : 0;
	s->holders[0] = getpid();
	s->fd = FD + i;
	s->phase = SLOT_ATTACHED;
	s->role = 1 + (uint32_t)i % 2;
	s->reason = i % 4 ? VD_REASON_NONE : VD_REASON_PLAIN_PEER;
	s->across = i % 5 == 0;
	s->gate_tx = gate_word(i % 4 ? GATE_RING : GATE_FINAL);
	s->gate_rx = gate_word(i % 4 == 3 ? GATE_READY : GATE_RING);
	s->tx.produced = s->rx.consumed = 100000;
	s->bells[0] = 3 * FD + i;
}

static void make_table(void)
{
	table = table_map(SLOTS, 2);
	FUZZ_CHECK(table && table_descriptor() >= 0);
	table_count_here(table);
	table->fresh = SLOTS;
	for (int i = 0; i < SLOTS; i++)
		fill(&table->slots[i], i);
	parts[HEAD].at = (uint8_t *)table;
	parts[HEAD].bytes = offsetof(struct slot_table, records);
	parts[ENTRIES].at = (uint8_t *)table->processes;
	parts[ENTRIES].bytes = 2 * sizeof(struct table_process);
	parts[ALL_SLOTS].at = (uint8_t *)table->slots;
	parts[ALL_SLOTS].bytes = SLOTS * sizeof(struct slot);
	parts[CALLS].at = (uint8_t *)table_call_sheet();
	parts[CALLS].bytes = 4 * sizeof(struct call_row);
	for (int i = 0; i < PARTS; i++)
		memcpy(parts[i].was, parts[i].at, parts[i].bytes);
}

/* ---- inputs: flags, and changes: where, how much, what ---- */

/* Words change meanwhile; and what is to be shown. */
enum {
	CHANGING = 1,
	A_PATH = 2,
	A_PORT = 4,
	A_REASON = 8,
	A_PROGRAM = 16,
	ONE_END = 32,
	NARROW = 64
};

static void put_change(uint8_t **to, unsigned part, size_t at, uint64_t value)
{
	const uint16_t offset = (uint16_t)at;

	*(*to)++ = (uint8_t)(part | 3 << 4);
	memcpy(*to, &offset, 2);
	memcpy(*to + 2, &value, 8);
	*to += 10;
}

size_t fuzz_seed(unsigned n, uint8_t out[FUZZ_MAX])
{
	uint8_t *to = out + 1;

	if (n > 11)
		return 0;
	if (n > 7) {
		out[0] = (uint8_t)(A_PATH << (n - 8) | (n % 2 ? ONE_END : NARROW));
		return 1;
	}
	out[0] = n & 1 ? CHANGING : 0;
	if (n / 2 == 1) {
		put_change(&to, HEAD, offsetof(struct slot_table, slot_count), SLOTS - 1);
		put_change(&to, HEAD, offsetof(struct slot_table, fresh), 5);
		put_change(&to, ENTRIES, offsetof(struct table_process, counts), 7);
	} else if (n / 2 == 2) {
		put_change(&to, ALL_SLOTS, offsetof(struct slot, reason),
			   VD_REASON_COUNT);
		put_change(&to, ALL_SLOTS, offsetof(struct slot, tx), 77);
		put_change(&to, ALL_SLOTS,
			   sizeof(struct slot) + offsetof(struct slot, holders), 1);
		put_change(&to, ALL_SLOTS, offsetof(struct slot, bells), 1 << 20);
	} else if (n / 2 == 3) {
		put_change(&to, CALLS, offsetof(struct call_row, state), CALL_ROW_USED);
		put_change(&to, CALLS, offsetof(struct call_row, buckets) + 80, 77);
		put_change(&to, CALLS, offsetof(struct call_row, ns), 1 << 20);
		put_change(&to, HEAD, offsetof(struct slot_table, sheet_count), 3);
	}
	return (size_t)(to - out);
}

static void change(struct fuzz_bytes *b)
{
	unsigned which = (unsigned)fuzz_number(b, 1), bytes = 1u << (which >> 4 & 3);
	struct part *p = &parts[(which & 15) % PARTS];
	size_t at = fuzz_number(b, 2) % (p->bytes - 7);

	fuzz_take(b, p->at + at, bytes);
}

/* ---- looks ---- */

static void check(const struct stat_view *v, bool is_whole)
{
	FUZZ_CHECK(!is_whole ||
		   (v->seen.processes[0].family && !v->seen.processes[0].trouble));
	for (size_t i = 0; i < v->seen.conn_count; i++) {
		const struct observe_conn *c = &v->seen.conns[i];

		FUZZ_CHECK(c->tx_ring == 0 || c->tx_ring == wire_area_bytes(0) ||
			   c->tx_ring == wire_area_bytes(1) ||
			   c->tx_ring == wire_area_bytes(2));
		FUZZ_CHECK(c->tx <= OBSERVE_RDMA && c->rx <= OBSERVE_RDMA);
	}
}

/* Of 19 digits or more: jansson has no numbers from 2^63 on. */
static bool has_huge_number(const char *json)
{
	enum { DIGITS = 19 };
	static const char digits[] = "0123456789";

	for (json += strcspn(json, digits); *json; json += strcspn(json, digits)) {
		size_t run = strspn(json, digits);

		if (run >= DIGITS)
			return true;
		json += run;
	}
	return false;
}

static void print(struct stat_view *v, const struct stat_options *o)
{
	const struct stat_options calls = {.rpc = true};
	const struct stat_page page = {.width = 100};
	char *text = NULL, *json = NULL;
	size_t size = 0, json_size = 0;
	FILE *out = open_memstream(&text, &size), *as_json;
	json_t *parsed;

	FUZZ_CHECK(out && stat_print(out, v, o, &page) == 0);
	FUZZ_CHECK(stat_print(out, v, &calls, &page) == 0);
	stat_prometheus(out, v, true);
	FUZZ_CHECK(fclose(out) == 0 && !memchr(text, '\033', size));
	as_json = open_memstream(&json, &json_size);
	stat_json(as_json, v, false);
	FUZZ_CHECK(fclose(as_json) == 0 && !memchr(json, '\033', json_size));
	parsed = json_loadb(json, json_size,
			    JSON_REJECT_DUPLICATES | JSON_DISABLE_EOF_CHECK, NULL);
	FUZZ_CHECK(parsed || has_huge_number(json));
	json_decref(parsed);
	free(text);
	free(json);
}

static void look_at_own(void)
{
	int end, dir = open("/proc/self/fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	uint64_t *own = observe_own_numbers(dir, table_descriptor(), getpid(), &end);

	FUZZ_CHECK(own && end >= 0 && end <= 1 << 20);
	free(own);
	close(dir);
}

static void look(unsigned flags, bool is_whole)
{
	static unsigned turn;
	const struct stat_options o = {.reason = flags & A_REASON ? VD_REASON_PLAIN_PEER
								  : STAT_ANY,
				       .path = flags & A_PATH ? OBSERVE_RING : STAT_ANY,
				       .port = flags & A_PORT ? 3 : 0,
				       .program = flags & A_PROGRAM ? "fuzz*" : NULL,
				       .both = !(flags & ONE_END),
				       .wide = !(flags & NARROW)};
	struct stat_view v;
	char message[256];

	FUZZ_CHECK(stat_look(&v, &o, message, sizeof(message)) == 0);
	check(&v, is_whole);
	if (fuzz_is_turn(&turn)) {
		print(&v, &o);
		look_at_own();
	}
	stat_forget(&v);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fuzz_bytes b = {data, size};
	unsigned flags;
	bool changing;

	if (!table)
		make_table();
	flags = (unsigned)fuzz_number(&b, 1);
	changing = flags & CHANGING;
	for (int i = 0; i < 64 && b.left > 0; i++)
		change(&b);
	if (changing)
		flip_begin(parts[ALL_SLOTS].at, parts[ALL_SLOTS].bytes,
			   size * 31u + (size ? data[size - 1] : 0));
	kept_file_begin();
	look(flags,
	     !changing && !memcmp(parts[HEAD].at, parts[HEAD].was, parts[HEAD].bytes));
	kept_file_end();
	if (changing)
		flip_end();
	for (int i = 0; i < PARTS; i++)
		memcpy(parts[i].at, parts[i].was, parts[i].bytes);
	return 0;
}
