/* SPDX-License-Identifier: Apache-2.0 */
/* The buffer that a traced process fills: `viaduct trace`, which may be root's, makes packets of
 * what it finds there, while its maker writes what he likes: tool/trace/read.c, packet.c,
 * pcapng.c.
 * Not reached: asking a process for a trace (target.c), and buffers that cannot be mapped. */
#include <errno.h>
#include <unistd.h>

#include "conn/table.h"
#include "fuzz/flip.h"
#include "fuzz/fuzz.h"
#include "fuzz/kept_file.h"
#include "tool/cli.h"
#include "tool/trace/trace.h"

enum { AREA = TRACE_AREA_LEAST, SESSION = TRACE_FIRST_SESSION, RECORDS_MAX = 64 };
enum { STILL, CHANGING }; /* the first byte of an input */

static struct trace_buffer *buffer;
static uint8_t *area;
static int buffer_fd;

/*
 * An input: STILL or CHANGING; where in the area it begins, in 8 bytes each; how many records
 * follow, of twelve bytes each (kind, slot, generation, fd, len 2, reason, flags, at 4); and
 * changes: where, of two bytes, from the buffer's or the area's beginning, and eight bytes.
 */
enum { RECORD = 12, CHANGE = 10 };

size_t fuzz_seed(unsigned n, uint8_t out[FUZZ_MAX])
{
	static const uint8_t records[5][RECORD] = {
		{TRACE_OUT, 1, 1, 5, 100, 0, 0, 0, 0},
		{TRACE_IN, 1, 1, 5, 0, 64, 0, 0, 9},
		{TRACE_FIN, 1, 1, 5, 0, 0, 0, 0, 100},
		{TRACE_LEFT, 2, 1, 6, 0, 0, 3, 1, 0},
		{TRACE_BROKEN, 1, 2, 5, 9, 0, 2, 1, 1},
	};
	/* The last two begin near the area's end, so that a record lies in two parts. */
	static const uint16_t begins[] = {0, 0, AREA / 8 - 1, AREA / 8 - 13};

	if (n >= 4)
		return 0;
	out[0] = n & 1 ? CHANGING : STILL;
	memcpy(out + 1, &begins[n], 2);
	out[3] = 5;
	memcpy(out + 4, records, sizeof(records));
	return 4 + sizeof(records) + (n >= 2 ? 3 * CHANGE : 0);
}

static void put(uint64_t at, const void *from, size_t bytes)
{
	for (size_t i = 0; i < bytes; i++)
		area[(at + i) % AREA] = ((const uint8_t *)from)[i];
}

/* As the library writes it. Returns where the next one begins. */
static uint64_t put_record(struct fuzz_bytes *b, uint64_t at)
{
	struct trace_record r = {.kind = (uint16_t)fuzz_number(b, 1)};

	r.slot = (uint32_t)fuzz_number(b, 1);
	r.generation = (uint32_t)fuzz_number(b, 1);
	r.fd = (int32_t)fuzz_number(b, 1);
	r.len = (uint32_t)fuzz_number(b, 2) % (TRACE_PIECE + 1);
	r.reason = (uint16_t)fuzz_number(b, 1);
	if (!(fuzz_number(b, 1) & 1)) /* IPv4 */
		memset(r.local + 10, 0xff, 2), memset(r.peer + 10, 0xff, 2);
	r.at = fuzz_number(b, 4);
	r.bytes = trace_record_bytes(r.len);
	r.total = buffer->total;
	r.local_port = 80;
	if (at + r.bytes - buffer->reserved > AREA) /* the first ones stay */
		return at;
	put(at, &r, sizeof(r));
	buffer->total += r.len;
	return at + r.bytes;
}

static void make_buffer(void)
{
	void *map;

	buffer_fd = table_memory(TRACE_NAME, TRACE_AREA_AT + AREA, &map);
	FUZZ_CHECK(buffer_fd >= 0);
	buffer = map;
	area = (uint8_t *)map + TRACE_AREA_AT;
}

static void fill(struct fuzz_bytes *b)
{
	uint64_t begin = fuzz_number(b, 2) * 8, at = begin;
	unsigned count = (unsigned)fuzz_number(b, 1) % RECORDS_MAX;

	*buffer = (struct trace_buffer){.magic = TRACE_MAGIC,
					.layout = TRACE_LAYOUT,
					.record_bytes = sizeof(struct trace_record),
					.area_bytes = AREA,
					.session = SESSION,
					.reserved = begin};
	while (count--)
		at = put_record(b, at);
	buffer->reserved = buffer->head = at;
	for (int i = 0; i < 32 && b->left > 0; i++) {
		size_t where = fuzz_number(b, 2);

		if (where < sizeof(*buffer))
			fuzz_take(b, (uint8_t *)buffer + where % (sizeof(*buffer) - 7),
				  8);
		else
			fuzz_take(b, area + (where - sizeof(*buffer)) % (AREA - 7), 8);
	}
}

static void read_all(struct trace_reader *r, struct trace_packets *p, bool changing)
{
	struct trace_record record;
	uint64_t lost;

	/* The command looks so often, too, before it looks at anything else. */
	for (int i = 0; i < 1024; i++) {
		int n = trace_reader_next(r, &record, &lost);

		if (n == 0 || n == -EPROTO)
			break;
		if (n == -EAGAIN)
			continue;
		FUZZ_CHECK(n == 1 && record.len <= TRACE_PIECE);
		if (trace_packets_add(p, &record, r->bytes, lost) < 0)
			break;
		if (i == 7)
			trace_reader_end_here(r);
	}
	FUZZ_CHECK(changing || trace_reader_is_over(r) == (buffer->session == TRACE_OFF));
}

static void trace(bool changing)
{
	static struct trace_reader reader;
	const struct trace_answer answer = {.fd = buffer_fd, .session = SESSION};
	const struct trace_target target = {
		.pid = getpid(), .name = "fuzz", .answer = &answer, .session = SESSION};
	char *text = NULL;
	size_t size = 0;
	bool fits, opened;
	FILE *out = open_memstream(&text, &size);
	struct pcapng file = {.out = out, .snaplen = 1000};
	struct trace_packets packets = {
		.file = &file, .target = &target, .port = -1, .fd = -1};

	FUZZ_CHECK(out && trace_packets_begin(&packets));
	pcapng_begin(&file, &target);
	fits = buffer->magic == TRACE_MAGIC && buffer->layout == TRACE_LAYOUT &&
	       buffer->record_bytes == sizeof(struct trace_record) &&
	       buffer->area_bytes == AREA;
	opened = trace_reader_open(&reader, &target) == 1;
	FUZZ_CHECK(changing || opened == fits);
	if (opened) {
		read_all(&reader, &packets, changing);
		trace_reader_finish(&reader);
	}
	pcapng_end(&file, reader.lost, NULL);
	trace_packets_end(&packets);
	FUZZ_CHECK(fclose(out) == 0 && size % 4 == 0);
	free(text);
}

/* In the place of the command's. */
void warn_line(const char *format, ...)
{
	(void)format;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fuzz_bytes b = {data, size};
	bool changing = fuzz_number(&b, 1) == CHANGING;

	if (!buffer)
		make_buffer();
	fill(&b);
	if (changing)
		flip_begin(buffer, TRACE_AREA_AT + 4096, size);
	kept_file_begin();
	trace(changing);
	kept_file_end();
	if (changing)
		flip_end();
	return 0;
}
