/* SPDX-License-Identifier: Apache-2.0 */
/* What a traced process leaves in its buffer, and when it lets go of that. */
#include <sys/prctl.h>
#include <sys/stat.h>

#include "unit/test.h"

#include "conn/leave.h"
#include "conn/table.h"
#include "conn/trace.h"
#include "unit/conn_pair.h"

#define AREA	   (4u << 20)
#define FLOW_BYTES 1000000u

/* Holds the lock by which a process knows that somebody reads, until it is killed. */
static pid_t start_reader(void)
{
	int ready[2];
	char byte = 0;
	REQUIRE(pipe(ready) == 0);
	pid_t parent = getpid(), child = fork();
	REQUIRE(child >= 0);
	if (child == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		struct flock lock = {
			.l_type = F_WRLCK, .l_start = table_number_here(), .l_len = 1};
		char path[64];
		snprintf(path, sizeof(path), "/proc/%d/fd/%d", parent,
			 table_descriptor());
		int fd = open(path, O_RDWR | O_CLOEXEC);
		if (fd >= 0 && fcntl(fd, F_SETLK, &lock) == 0 &&
		    write(ready[1], "", 1) == 1)
			pause();
		_exit(1);
	}
	close(ready[1]);
	REQUIRE(read(ready[0], &byte, 1) == 1);
	close(ready[0]);
	return child;
}

static void end_reader(pid_t reader)
{
	kill(reader, SIGKILL);
	REQUIRE(waitpid(reader, NULL, 0) == reader);
}

static void ask(uint32_t session)
{
	atomic_store(&trace_wish.area_bytes, AREA);
	atomic_store(&trace_wish.session, session);
}

/* As another process would read it; NULL when there is none for this session. */
static const struct trace_buffer *open_buffer(uint32_t session)
{
	struct trace_answer *answer = &table_here()->trace;
	char path[64];
	if (atomic_load(&answer->session) != session)
		return NULL;
	snprintf(path, sizeof(path), "/proc/self/fd/%d", atomic_load(&answer->fd));
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	REQUIRE(fd >= 0);
	void *map = mmap(NULL, TRACE_AREA_AT + AREA, PROT_READ, MAP_SHARED, fd, 0);
	REQUIRE(map != MAP_FAILED);
	close(fd);
	return map;
}

static void close_buffer(const struct trace_buffer *b)
{
	munmap((void *)(uintptr_t)b, TRACE_AREA_AT + AREA);
}

/* The bytes of that kind are the flow, each at its place and once. */
static void check_flow(const struct trace_buffer *b, enum trace_kind kind,
		       const struct flow *f)
{
	const uint8_t *area = (const uint8_t *)b + TRACE_AREA_AT;
	uint64_t at = 0, base = 0, total = 0;
	while (at < atomic_load(&b->head)) {
		const struct trace_record *r = (const void *)(area + at);
		REQUIRE(r->bytes == trace_record_bytes(r->len));
		CHECK_EQ(r->total, total);
		total += r->len;
		at += r->bytes;
		if (r->kind != kind || r->slot != slot_index(fd_sock(f->fd)->slot))
			continue;
		if (base == 0)
			base = r->at;
		CHECK_EQ(r->fd, f->fd);
		CHECK(r->local_port != 0 && r->peer_port != 0);
		REQUIRE(flow_is((const uint8_t *)(r + 1), r->len, r->at - base, f->seed));
	}
	CHECK_EQ(total, atomic_load(&b->total));
}

static uint64_t count_bytes(const struct trace_buffer *b, enum trace_kind kind)
{
	const uint8_t *area = (const uint8_t *)b + TRACE_AREA_AT;
	uint64_t at = 0, sum = 0;
	while (at < atomic_load(&b->head)) {
		const struct trace_record *r = (const void *)(area + at);
		sum += r->kind == kind ? r->len : 0;
		at += r->bytes;
	}
	return sum;
}

static void move_flow(const struct pair *p, struct flow *tx, struct flow *rx)
{
	*tx = (struct flow){.fd = p->a, .bytes = FLOW_BYTES, .seed = 5};
	*rx = (struct flow){.fd = p->b, .bytes = FLOW_BYTES, .seed = 5};
	flow_start(tx, flow_send);
	flow_start(rx, flow_recv);
	flow_join(tx);
	flow_join(rx);
}

STREAM_TEST(every_byte_once)
{
	struct pair p = pair_open_up();
	pid_t reader = start_reader();
	struct flow tx, rx;
	ask(7);
	move_flow(&p, &tx, &rx);
	const struct trace_buffer *b = open_buffer(7);
	REQUIRE(b);
	check_flow(b, TRACE_OUT, &tx);
	check_flow(b, TRACE_IN, &rx);
	CHECK_EQ(count_bytes(b, TRACE_OUT), FLOW_BYTES);
	CHECK_EQ(count_bytes(b, TRACE_IN), FLOW_BYTES);
	ask(TRACE_STOP);
	pair_ping(&p);
	CHECK_EQ(atomic_load(&trace_wish.session), TRACE_OFF);
	CHECK_EQ(atomic_load(&b->session), TRACE_OFF);
	CHECK_EQ(atomic_load(&b->total), 2 * FLOW_BYTES);
	close_buffer(b);
	end_reader(reader);
	pair_close(&p);
}

STREAM_TEST(nobody_reads)
{
	struct pair p = pair_open_up();
	ask(9);
	pair_ping(&p);
	CHECK_EQ(atomic_load(&trace_wish.session), TRACE_OFF);
	CHECK(!open_buffer(9));
	pair_close(&p);
}

STREAM_TEST(the_reader_dies)
{
	struct pair p = pair_open_up();
	pid_t reader = start_reader();
	ask(11);
	pair_ping(&p);
	const struct trace_buffer *b = open_buffer(11);
	REQUIRE(b);
	CHECK_EQ(atomic_load(&b->session), 11);
	end_reader(reader);
	while (atomic_load(&trace_wish.session) != TRACE_OFF)
		pair_ping(&p);
	CHECK_EQ(atomic_load(&b->session), TRACE_OFF);
	close_buffer(b);
	pair_close(&p);
}

STREAM_TEST(a_child_has_no_trace)
{
	struct pair p = pair_open_up();
	pid_t reader = start_reader();
	ask(13);
	pair_ping(&p);
	const struct trace_buffer *b = open_buffer(13);
	REQUIRE(b);
	uint64_t head = atomic_load(&b->head);
	pid_t child = st_fork();
	if (child == 0) {
		CHECK_EQ(atomic_load(&trace_wish.session), TRACE_OFF);
		pair_ping(&p);
		st_exit();
	}
	st_reap(child, 0);
	CHECK_EQ(atomic_load(&b->head), head);
	CHECK_EQ(atomic_load(&b->session), 13);
	ask(TRACE_STOP);
	pair_ping(&p);
	close_buffer(b);
	end_reader(reader);
	pair_close(&p);
}

/* Whoever can write to this process's memory may wish anything. */
STREAM_TEST(a_wish_is_bounded)
{
	const uint32_t wishes[] = {0,
				   1,
				   TRACE_AREA_LEAST - 1,
				   TRACE_AREA_LEAST / 2,
				   TRACE_AREA_LEAST + 4096,
				   2 * TRACE_AREA_MOST,
				   UINT32_MAX};
	pid_t reader = start_reader();
	for (uint32_t i = 0; i < sizeof(wishes) / sizeof(*wishes); i++) {
		struct pair p = pair_open_up();
		char path[64];
		struct stat st;
		atomic_store(&trace_wish.area_bytes, wishes[i]);
		atomic_store(&trace_wish.session, 21 + i);
		pair_ping(&p);
		REQUIRE(atomic_load(&table_here()->trace.session) == 21 + i);
		snprintf(path, sizeof(path), "/proc/self/fd/%d",
			 atomic_load(&table_here()->trace.fd));
		REQUIRE(stat(path, &st) == 0);
		CHECK_EQ(st.st_size, TRACE_AREA_AT + TRACE_AREA_DEFAULT);
		pair_close(&p);
	}
	ask(TRACE_STOP);
	trace_leave();
	end_reader(reader);
}

static uint64_t traced(const struct trace_buffer *b)
{
	return atomic_load(&b->total);
}

/* A process of this one's family, which has given up its rights, writes to the table of sockets:
 * a trace shows bytes of this ring, or none. */
STREAM_TEST(a_ring_that_lies)
{
	struct pair p = pair_open_up();
	pid_t reader = start_reader();
	struct ring_tx *tx = &fd_sock(p.a)->slot->tx, was;
	uint32_t *area = &tx->area[tx->turn_seq % WIRE_TURNS];
	uint64_t *base = &tx->base[tx->turn_seq % WIRE_TURNS];
	const struct trace_buffer *b;
	uint64_t before;
	ask(31);
	pair_ping(&p);
	b = open_buffer(31);
	REQUIRE(b);
	/* No room: then nothing was sent. */
	was = *tx;
	before = traced(b);
	tx->credit = *base = tx->produced - wire_area_bytes(*area);
	trace_sent(fd_sock(p.a), 100);
	CHECK_EQ(traced(b), before);
	for (uint32_t lie = RING_ALL_AREAS + 1; lie; lie <<= 1) {
		*tx = was;
		*area = lie;
		/* At the end of what that area would be. */
		*base = tx->produced + 1000;
		tx->credit = tx->produced;
		trace_sent(fd_sock(p.a), 100);
	}
	CHECK(traced(b) > before);
	*tx = was;
	ask(TRACE_STOP);
	pair_ping(&p);
	close_buffer(b);
	end_reader(reader);
	pair_close(&p);
}
