/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the buffer that a traced process fills without waiting for anybody. */
#include "base/atomic.h"
#include "tool/trace/trace.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tool/cli.h"
#include "tool/observe/file.h"

static bool fits(const struct trace_buffer *head, uint64_t bytes)
{
	return head->magic == TRACE_MAGIC && head->layout == TRACE_LAYOUT &&
	       head->record_bytes == sizeof(struct trace_record) &&
	       head->area_bytes >= TRACE_AREA_LEAST &&
	       head->area_bytes <= TRACE_AREA_MOST &&
	       (head->area_bytes & (head->area_bytes - 1)) == 0 &&
	       bytes == TRACE_AREA_AT + head->area_bytes;
}

/* Memory that could shrink would end us by SIGBUS. The process can write to it at any moment:
 * judged is a copy of the head, and only that tells the area's size. */
static bool map_buffer(const struct observe_file *file, struct trace_reader *r)
{
	struct trace_buffer head;
	void *map;

	if (!observe_file_is_sealed(file) ||
	    pread(file->fd, &head, sizeof(head), 0) != (ssize_t)sizeof(head) ||
	    !fits(&head, file->size))
		return false;
	map = mmap(NULL, TRACE_AREA_AT + head.area_bytes, PROT_READ, MAP_SHARED, file->fd,
		   0);
	if (map == MAP_FAILED)
		return false;
	r->buffer = map;
	r->area = head.area_bytes;
	return true;
}

int trace_reader_open(struct trace_reader *r, const struct trace_target *t)
{
	struct observe_file file;
	bool mapped = false;
	char path[64];
	int fd;

	/* Acquire pairs with `answer` in conn/trace.c. */
	if (load_acquire(&t->answer->session) != t->session)
		return 0;
	fd = load_relaxed(&t->answer->fd);
	if (fd < 0) {
		warn_line("viaduct trace: %s (%d) has no room for the buffer: %s; try a "
			  "smaller one with --buffer",
			  t->name, (int)t->pid, strerror(-fd));
		return fd;
	}
	snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)t->pid, fd);
	if (observe_file_open(path, O_RDONLY, &file) == 0) {
		mapped = map_buffer(&file, r);
		close(file.fd);
	}
	if (!mapped) {
		warn_line("viaduct trace: the buffer of %s (%d) cannot be read: it ended "
			  "within milliseconds of its first bytes",
			  t->name, (int)t->pid);
		return -EPROTO;
	}
	r->at = r->expected = r->lost = 0;
	r->last = UINT64_MAX;
	return 1;
}

static void copy_out(const struct trace_reader *r, uint64_t at, void *to, size_t n)
{
	const uint8_t *area = (const uint8_t *)r->buffer + TRACE_AREA_AT;
	size_t offset = (size_t)(at & (r->area - 1));
	size_t first = n < r->area - offset ? n : (size_t)r->area - offset;

	memcpy(to, area + offset, first);
	memcpy((uint8_t *)to + first, area, n - first);
}

/* After a copy of what lies at r->at: whether the writer was far enough from it all the time. */
static bool is_whole(const struct trace_reader *r)
{
	/* Acquire: pairs with the fence of the writer, which reserves before it writes. */
	atomic_thread_fence(memory_order_acquire);
	return load_relaxed(&r->buffer->reserved) - r->at <= r->area;
}

static uint64_t head_of(const struct trace_reader *r)
{
	return load_acquire(&r->buffer->head);
}

static bool is_sound(const struct trace_reader *r, const struct trace_record *record,
		     uint64_t head)
{
	return record->len <= TRACE_PIECE &&
	       record->bytes == trace_record_bytes(record->len) &&
	       record->bytes <= head - r->at && record->total >= r->expected;
}

int trace_reader_next(struct trace_reader *r, struct trace_record *record, uint64_t *lost)
{
	uint64_t head = head_of(r);

	if (head == r->at || r->at >= r->last)
		return 0;
	if (head - r->at >= sizeof(*record))
		copy_out(r, r->at, record, sizeof(*record));
	else
		return -EPROTO;
	if (is_whole(r)) {
		if (!is_sound(r, record, head))
			return -EPROTO;
		copy_out(r, r->at + sizeof(*record), r->bytes, record->len);
	}
	if (!is_whole(r)) {
		/* Where a record begins is known of the newest one only. */
		r->at = head_of(r);
		return -EAGAIN;
	}
	r->at += record->bytes;
	*lost = record->total - r->expected;
	r->lost += *lost;
	r->expected = record->total + record->len;
	return 1;
}

void trace_reader_end_here(struct trace_reader *r)
{
	r->last = head_of(r);
}

bool trace_reader_is_over(const struct trace_reader *r)
{
	return load_acquire(&r->buffer->session) == TRACE_OFF;
}

void trace_reader_finish(struct trace_reader *r)
{
	uint64_t total = load_relaxed(&r->buffer->total);

	if (total > r->expected)
		r->lost += total - r->expected;
	munmap((void *)r->buffer, TRACE_AREA_AT + r->area);
	r->buffer = NULL;
}
