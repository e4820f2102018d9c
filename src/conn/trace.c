/* SPDX-License-Identifier: Apache-2.0 */
/* The traced side of `viaduct trace`: the buffer's beginning and end, and the records in it. */
#include "base/atomic.h"
#include "conn/trace.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "base/fds.h"
#include "base/kernel.h"
#include "base/log.h"
#include "base/pageable.h"
#include "base/real.h"
#include "base/sections.h"
#include "base/self.h"
#include "base/space.h"
#include "conn/area.h"
#include "conn/conn.h"
#include "conn/leave.h"
#include "conn/table.h"

/* Between two looks whether the reader still lives. */
#define CHECK_NS 1000000000ull

/* The two ends of a connection, asked for once in a trace. */
struct ends {
	uint32_t generation; /* of the slot; 0: not asked yet */
	uint16_t local_port, peer_port;
	uint8_t local[16], peer[16];
};

/* All guarded by `lock`; the buffer's own words are read by others as well. */
static struct {
	struct lock lock;
	struct trace_buffer *buffer; /* NULL: there is none */
	struct ends *ends;	     /* by slot */
	size_t mapped, ends_mapped;
	uint64_t area; /* bytes for records */
	uint64_t head, total;
	uint64_t checked_ns;
	uint32_t session;
	int fd;
} trace = {.fd = -1};

/* ---- beginning and end ---- */

static void answer(uint32_t session, int fd)
{
	struct table_process *p = table_here();

	if (!p)
		return;
	store_relaxed(&p->trace.fd, fd);
	/* Release: the descriptor and the buffer are there when the session is. */
	store_release(&p->trace.session, session);
}

static void unmap(void)
{
	void *buffer = trace.buffer;
	int fd = trace.fd;

	/* First: a fork may follow at once. */
	trace.buffer = NULL;
	trace.fd = -1;
	trace.session = TRACE_OFF;
	pageable_unmap(buffer, trace.mapped);
	munmap(trace.ends, trace.ends_mapped);
	fds_close_apart(fd);
}

static void drop(void)
{
	if (!trace.buffer)
		return;
	/* Release: whoever finds it has all records. */
	store_release(&trace.buffer->session, TRACE_OFF);
	unmap();
}

static uint32_t area_wished(void)
{
	uint32_t n = load_relaxed(&trace_wish.area_bytes);

	if (n < TRACE_AREA_LEAST || n > TRACE_AREA_MOST || (n & (n - 1)))
		return TRACE_AREA_DEFAULT;
	return n;
}

static int map_buffer(uint32_t session, uint32_t area)
{
	size_t mapped = TRACE_AREA_AT + (size_t)area;
	size_t ends_mapped = slot_count() * sizeof(struct ends);
	void *map, *ends;
	int fd;

	if (!space_is_left(mapped + ends_mapped))
		return -ENOMEM;
	fd = table_memory(TRACE_NAME, mapped, &map);
	if (fd < 0)
		return fd;
	ends = mmap(NULL, ends_mapped, PROT_READ | PROT_WRITE,
		    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (ends == MAP_FAILED) {
		pageable_unmap(map, mapped);
		fds_close_apart(fd);
		return -ENOMEM;
	}
	trace.buffer = map;
	trace.ends = ends;
	trace.mapped = mapped;
	trace.ends_mapped = ends_mapped;
	trace.area = area;
	trace.head = trace.total = 0;
	trace.session = session;
	trace.fd = fd;
	return 0;
}

static void begin(uint32_t session)
{
	int r = map_buffer(session, area_wished());

	if (r < 0) {
		log_error("this process cannot be traced: %s", strerror(-r));
		answer(session, r);
		atomic_compare_exchange_strong(&trace_wish.session, &session, TRACE_OFF);
		return;
	}
	trace.buffer->magic = TRACE_MAGIC;
	trace.buffer->layout = TRACE_LAYOUT;
	trace.buffer->record_bytes = sizeof(struct trace_record);
	trace.buffer->area_bytes = trace.area;
	store_relaxed(&trace.buffer->session, session);
	answer(session, trace.fd);
	log_info("this process is being traced");
}

/*
 * Whoever traces holds a lock on the byte of the table's file that has our entry's number. The
 * kernel takes it away when that process ends, however it does.
 */
static bool is_reader_there(void)
{
	struct flock lock = {.l_type = F_WRLCK,
			     .l_whence = SEEK_SET,
			     .l_start = table_number_here(),
			     .l_len = 1};

	return table_here() &&
	       kernel_call4(SYS_fcntl, table_descriptor(), F_GETLK, (long)&lock, 0) ==
		       0 &&
	       lock.l_type != F_UNLCK;
}

/* A child of vfork has our memory, but descriptors of its own: it makes none and closes none. */
static bool is_borrowed(void)
{
	return self_pid() != kernel_getpid();
}

/* Under the lock: there is a buffer for who asks now. */
static bool is_on(uint64_t now_ns)
{
	uint32_t wish = load_relaxed(&trace_wish.session);
	bool due = now_ns - trace.checked_ns > CHECK_NS;

	if (wish != TRACE_OFF && (wish != trace.session || due) && !is_borrowed()) {
		trace.checked_ns = now_ns;
		if (wish != trace.session || !is_reader_there())
			drop();
		if (!trace.buffer && (wish == TRACE_STOP || !is_reader_there()))
			/* Only if nobody has asked again since. */
			atomic_compare_exchange_strong(&trace_wish.session, &wish,
						       TRACE_OFF);
		else if (!trace.buffer)
			begin(wish);
	}
	return trace.buffer != NULL;
}

void trace_leave(void)
{
	lock_take(&trace.lock);
	drop();
	lock_drop(&trace.lock);
}

FORK_CODE void trace_forked(void)
{
	/* Another thread of the parent's may have had it. Each first store is a page fault. */
	if (atomic_load(&trace.lock.word))
		atomic_store(&trace.lock.word, 0);
	if (atomic_load(&trace_wish.session))
		atomic_store(&trace_wish.session, TRACE_OFF);
	if (trace.buffer)
		unmap();
}

/* ---- one record ---- */

static void store_end(const struct sockaddr_storage *from, uint8_t addr[16],
		      uint16_t *port)
{
	const struct sockaddr_in *v4 = (const struct sockaddr_in *)from;
	const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)from;

	if (from->ss_family == AF_INET6) {
		memcpy(addr, &v6->sin6_addr, 16);
		*port = ntohs(v6->sin6_port);
		return;
	}
	memset(addr, 0, 16);
	addr[10] = addr[11] = 0xff;
	memcpy(addr + 12, &v4->sin_addr, 4);
	*port = ntohs(v4->sin_port);
}

/* fd may have become another's meanwhile. */
static bool ask_ends(struct sock *s, int fd, struct ends *e)
{
	struct sockaddr_storage local = {0}, peer = {0};
	socklen_t local_len = sizeof(local), peer_len = sizeof(peer);
	uint64_t cookie;

	if (fd < 0 ||
	    kernel_getsockname(fd, (struct sockaddr *)&local, &local_len) != 0 ||
	    kernel_getpeername(fd, (struct sockaddr *)&peer, &peer_len) != 0 ||
	    tcp_cookie(fd, &cookie) < 0 || cookie != atomic_load(&s->slot->cookie))
		return false;
	store_end(&local, e->local, &e->local_port);
	store_end(&peer, e->peer, &e->peer_port);
	return true;
}

static int fd_of(struct sock *s)
{
	int fd = load_relaxed(&s->slot->fd);

	if (fd_sock(fd) == s)
		return fd;
	for (fd = 0; fd < fd_limit(); fd++)
		if (fd_sock(fd) == s)
			return fd;
	return s->kept_fd;
}

static const struct ends *ends_of(struct sock *s, int fd)
{
	struct ends *e = &trace.ends[slot_index(s->slot)];
	uint32_t generation = atomic_load(&s->slot->generation);

	if (e->generation == generation)
		return e;
	memset(e, 0, sizeof(*e));
	if (ask_ends(s, fd >= 0 ? fd : fd_of(s), e))
		e->generation = generation;
	return e;
}

/* Into the area from free-running position `at` on, around its end. */
static void store(uint64_t at, const void *from, size_t n)
{
	uint8_t *area = (uint8_t *)trace.buffer + TRACE_AREA_AT;
	size_t offset = (size_t)(at & (trace.area - 1));
	size_t first = n < trace.area - offset ? n : (size_t)trace.area - offset;

	memcpy(area + offset, from, first);
	memcpy(area, (const uint8_t *)from + first, n - first);
}

static void append(struct trace_record *r, const void *bytes)
{
	struct trace_buffer *b = trace.buffer;

	r->bytes = trace_record_bytes(r->len);
	r->total = trace.total;
	store_relaxed(&b->reserved, trace.head + r->bytes);
	/* Release: who copies any of the bytes below sees that they were reserved. */
	atomic_thread_fence(memory_order_release);
	store(trace.head, r, sizeof(*r));
	if (r->len)
		store(trace.head + sizeof(*r), bytes, r->len);
	trace.head += r->bytes;
	trace.total += r->len;
	store_relaxed(&b->total, trace.total);
	/* Release: the record is there when the head is. */
	store_release(&b->head, trace.head);
}

/* The offset in the whole stream of a position in the ring: TCP's bytes came before. */
static uint64_t offset_of(struct wire_dir *d, uint64_t position)
{
	return position + load_relaxed(&d->up_at);
}

static void describe(struct sock *s, int fd, struct trace_record *r)
{
	const struct ends *e = ends_of(s, fd);
	bool in = r->kind == TRACE_IN;
	/* Relaxed: a hint of how far the other direction is; what it moved is recorded. */
	uint64_t other = load_relaxed(in ? &s->out->produced : &s->in->consumed);

	r->other_at = offset_of(in ? s->out : s->in, other);
	r->fd = load_relaxed(&s->slot->fd);
	r->slot = slot_index(s->slot);
	r->generation = atomic_load(&s->slot->generation);
	memcpy(r->local, e->local, 16);
	memcpy(r->peer, e->peer, 16);
	r->local_port = e->local_port;
	r->peer_port = e->peer_port;
}

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_REALTIME, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

void trace_bytes(struct sock *s, enum trace_kind kind, uint64_t position,
		 const void *bytes, size_t n)
{
	struct trace_record r = {.kind = (uint16_t)kind};
	int saved = errno;

	lock_take(&trace.lock);
	r.time_ns = now_ns();
	if (is_on(r.time_ns)) {
		r.at = offset_of(kind == TRACE_IN ? s->in : s->out, position);
		describe(s, -1, &r);
		for (size_t done = 0; done < n; done += r.len) {
			r.len = n - done < TRACE_PIECE ? (uint32_t)(n - done)
						       : TRACE_PIECE;
			append(&r, (const uint8_t *)bytes + done);
			r.at += r.len;
		}
	}
	lock_drop(&trace.lock);
	errno = saved;
}

void trace_sent(struct sock *s, size_t n)
{
	const struct ring_tx *tx = &s->slot->tx;
	uint32_t area = area_of(s, ring_tx_area(tx));
	const uint8_t *bytes = ring_tx_glance_in(tx, s->out_data, area, n);

	if (bytes) /* always, but where a process of this table lies */
		trace_bytes(s, TRACE_OUT, tx->produced, bytes, n);
}

void trace_event(struct sock *s, int fd, enum trace_kind kind, enum vd_reason reason)
{
	struct trace_record r = {.kind = (uint16_t)kind, .reason = (uint16_t)reason};
	int saved = errno;

	lock_take(&trace.lock);
	r.time_ns = now_ns();
	if (is_on(r.time_ns)) {
		r.at = offset_of(s->out, load_relaxed(&s->out->produced));
		describe(s, fd, &r);
		append(&r, NULL);
	}
	lock_drop(&trace.lock);
	errno = saved;
}
