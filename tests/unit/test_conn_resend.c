/* SPDX-License-Identifier: Apache-2.0 */
/* Handing over: what lies unread in the ring comes once more over TCP, whoever asks, reads,
 * ends or dies meanwhile. */
#include "unit/test.h"

#include <sys/ioctl.h>
#include <ucontext.h>

#include "base/real.h"
#include "conn/put_back.h"
#include "unit/hand_over.h"

/* As a holder without the ring reads it. */
static void get_past_us(int fd, uint64_t at, size_t len)
{
	static uint8_t buf[FLOW_MOST];
	ssize_t n;
	for (; len > 0; at += (uint64_t)n, len -= (size_t)n) {
		n = recv(fd, buf, len < sizeof(buf) ? len : sizeof(buf), 0);
		REQUIRE(n > 0 && flow_is(buf, (size_t)n, at, SEED));
	}
}

static bool is_handed_over(const struct pair *p)
{
	sock_service(fd_sock(p->b), p->b);
	return gate_state(&fd_sock(p->b)->slot->gate_rx) == GATE_FINAL;
}

STREAM_TEST(unread_bytes_come_over_tcp)
{
	uint64_t state = 77;
	for (int i = 0; i < 40; i++) {
		struct pair p = pair_open_up();
		uint64_t at = 0, took = walk(&p, &state, &at, i % 9);
		int queued = -1;
		ask(&p);
		answer(&p);
		REQUIRE(is_handed_over(&p));
		put_bytes(p.a, at, 1000);
		get_past_us(p.b, took, (size_t)(at - took) + 1000);
		/* Nothing of it is accounted for twice. */
		CHECK_EQ(ring_unread(fd_sock(p.a)->out), 0);
		if (sock_outq(fd_sock(p.a), p.a, false, &queued) == 0)
			CHECK(queued < 2000);
		CHECK_EQ(st_send(p.b, "x", 1, 0), 1);
		char byte;
		CHECK_EQ(st_recv(p.a, &byte, 1, 0), 1);
		pair_close(&p);
	}
}

/* All three areas hold unread bytes: 16 KiB and 256 KiB full, and some in the last. */
STREAM_TEST(unread_bytes_in_three_areas)
{
	struct pair p = pair_open_up();
	st_nonblock(p.a);
	put_bytes(p.a, 0, (16 + 256 + 100) << 10);
	CHECK_EQ(fd_sock(p.a)->slot->tx.turn_seq, 2);
	ask(&p);
	answer(&p);
	REQUIRE(is_handed_over(&p));
	get_past_us(p.b, 0, (16 + 256 + 100) << 10);
	pair_close(&p);
}

STREAM_TEST(held_bytes_go_too)
{
	struct pair p = pair_open_up();
	uint8_t buf[500];
	flow_fill(buf, sizeof(buf), 0, SEED);
	CHECK_EQ(st_send(p.a, buf, sizeof(buf), MSG_MORE), sizeof(buf));
	ask(&p);
	answer(&p);
	REQUIRE(is_handed_over(&p));
	get_past_us(p.b, 0, sizeof(buf));
	pair_close(&p);
}

STREAM_TEST(a_reader_withdraws_the_request)
{
	struct pair p = pair_open_up();
	put_bytes(p.a, 0, 30000);
	ask(&p);
	get_bytes(p.b, 0, 100);
	answer(&p);
	CHECK_EQ(sock_down_wait(fd_sock(p.b), p.b, VD_REASON_EXEC, 1000), 29900);
	put_bytes(p.a, 30000, 1000);
	get_bytes(p.b, 100, 30900);
	CHECK(is_handed_over(&p));
	pair_close(&p);
}

/* Another holder reads, and knows nothing of request and answer. */
static void answered_behind_a_reader(bool has_looked)
{
	struct pair p = pair_open_up();
	uint8_t buf[3000];
	put_bytes(p.a, 0, 30000);
	if (has_looked)
		CHECK_EQ(st_recv(p.b, buf, sizeof(buf), MSG_PEEK), sizeof(buf));
	ask(&p);
	answer(&p);
	put_bytes(p.a, 30000, 1000);
	CHECK(gate_state(&fd_sock(p.b)->slot->gate_rx) == GATE_RING);
	get_bytes(p.b, 0, 31000);
	CHECK(is_handed_over(&p));
	pair_close(&p);
}

STREAM_TEST(answered_behind_a_reader_who_looked)
{
	answered_behind_a_reader(true);
}

STREAM_TEST(answered_behind_a_reader_who_did_not)
{
	answered_behind_a_reader(false);
}

static void refused(const struct pair *p, size_t len)
{
	ask(p);
	answer(p);
	CHECK_EQ(sock_down_wait(fd_sock(p->b), p->b, VD_REASON_EXEC, 1000), len);
	CHECK_EQ(atomic_load(&fd_sock(p->a)->out->rewind), REWIND_IDLE);
	get_bytes(p->b, 0, len);
}

STREAM_TEST(no_second_sending_after_a_shutdown)
{
	struct pair p = pair_open_up();
	char byte;
	put_bytes(p.a, 0, 30000);
	REQUIRE(st_shutdown(p.a, SHUT_WR) == 0);
	refused(&p, 30000);
	CHECK_EQ(st_recv(p.b, &byte, 1, 0), 0);
	pair_close(&p);
}

STREAM_TEST(no_second_sending_of_more_than_fits)
{
	struct pair p = pair_open_up();
	int size = 4608;
	REQUIRE(setsockopt(p.a, SOL_SOCKET, SO_SNDBUF, &size, sizeof(size)) == 0);
	put_bytes(p.a, 0, 200000);
	refused(&p, 200000);
	pair_close(&p);
}

/* As a process could say that shares the table: with what the kernel accounts for beside them, these
 * are a few bytes, modulo 2^64. */
STREAM_TEST(no_second_sending_of_more_than_a_ring_holds)
{
	struct pair p = pair_open_up();
	struct ring_tx *tx = &fd_sock(p.a)->slot->tx;
	int queued = 1;
	put_bytes(p.a, 0, 100);
	ask(&p);
	tx->credit = tx->produced - 16397105843297379215u;
	atomic_store(&fd_sock(p.a)->out->consumed, tx->credit);
	atomic_store(&fd_sock(p.a)->out->kept, 0);
	answer(&p);
	CHECK_EQ(ioctl(p.b, FIONREAD, &queued), 0);
	CHECK_EQ(queued, 0);
	pair_close(&p);
}

/* The low-water mark of unsent bytes stays what the program has set. */
STREAM_TEST(all_at_once_in_spite_of_notsent_lowat)
{
	struct pair p = pair_open_up();
	int low = 5000;
	socklen_t len = sizeof(low);
	REQUIRE(setsockopt(p.a, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &low, len) == 0);
	put_bytes(p.a, 0, 250000);
	ask(&p);
	answer(&p);
	REQUIRE(is_handed_over(&p));
	REQUIRE(getsockopt(p.a, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &low, &len) == 0);
	CHECK_EQ(low, 5000);
	get_past_us(p.b, 0, 250000);
	pair_close(&p);
}

STREAM_TEST(last_words_answer)
{
	for (int i = 0; i < 2; i++) {
		struct pair p = pair_open_up();
		char byte;
		put_bytes(p.a, 0, 30000);
		ask(&p);
		if (i == 0)
			REQUIRE(st_shutdown(p.a, SHUT_WR) == 0);
		else
			st_close(p.a);
		get_past_us(p.b, 0, 30000);
		CHECK_EQ(recv(p.b, &byte, 1, 0), 0);
		REQUIRE(is_handed_over(&p));
		if (i == 0)
			pair_close(&p);
		else
			st_close(p.b);
	}
}

/* A sender died in the middle of its answer; another process goes on, whatever it had sent. */
static void owner_died(size_t had_sent, bool withdrawn)
{
	struct pair p = pair_open_up();
	uint8_t buf[30000];
	put_bytes(p.a, 0, sizeof(buf));
	ask(&p);
	atomic_store(&fd_sock(p.a)->out->rewind, REWIND_TAKING);
	flow_fill(buf, sizeof(buf), 0, SEED);
	REQUIRE(send(p.a, buf, had_sent, 0) == (ssize_t)had_sent);
	/* A reader that waits for the answer has taken the request back. */
	if (withdrawn)
		atomic_store(&fd_sock(p.a)->out->want_down, WANT_FINAL);
	answer(&p);
	CHECK_EQ(atomic_load(&fd_sock(p.a)->out->rewind), REWIND_IDLE);
	put_bytes(p.a, sizeof(buf), 1000);
	get_bytes(p.b, 0, sizeof(buf) + 1000);
	CHECK(is_handed_over(&p));
	pair_close(&p);
}

STREAM_TEST(an_owner_died_before_sending)
{
	owner_died(0, false);
	owner_died(0, true);
}

STREAM_TEST(an_owner_died_in_the_middle)
{
	owner_died(10000, false);
	owner_died(10000, true);
	owner_died(30000, false);
	owner_died(30000, true);
}

/* Of 1000 bytes. As it is before its cursor goes back. */
static void answer_to_the_mark(struct pair *p)
{
	struct sock *a = fd_sock(p->a);
	answer(p);
	a->slot->tx.produced += 1000;
	a->slot->tx.pushed += 1000;
	atomic_fetch_add(&a->out->produced, 1000);
	atomic_store(&a->out->rewind, REWIND_TAKING);
}

STREAM_TEST(an_owner_died_after_the_mark)
{
	struct pair p = pair_open_up();
	put_bytes(p.a, 0, 1000);
	ask(&p);
	answer_to_the_mark(&p);
	put_bytes(p.a, 1000, 1000);
	sock_down(fd_sock(p.a), p.a, VD_REASON_OPTION);
	get_bytes(p.b, 0, 2000);
	pair_close(&p);
}

/* It stopped, or lies: a reader waits for a while, and takes nothing that may come twice. */
STREAM_TEST(an_answer_without_end_is_an_error)
{
	struct pair p = pair_open_up();
	char byte;
	put_bytes(p.a, 0, 1000);
	ask(&p);
	atomic_store(&fd_sock(p.a)->out->rewind, REWIND_TAKING);
	CHECK_EQ(st_recv(p.b, &byte, 1, 0), -ECONNRESET);
	pair_close(&p);
}

STREAM_TEST(broken_off_is_an_error)
{
	struct pair p = pair_open_up();
	char byte;
	put_bytes(p.a, 0, 1000);
	ask(&p);
	atomic_store(&fd_sock(p.a)->out->rewind, REWIND_BROKEN);
	CHECK_EQ(st_recv(p.b, &byte, 1, 0), -ECONNRESET);
	pair_close(&p);
}

/* Sends, and then waits for an answer. */
static void *send_and_receive(void *arg)
{
	struct flow *f = arg;
	char byte;
	flow_send(f);
	f->result = st_recv(f->fd, &byte, 1, 0);
	return NULL;
}

/* Who leaves without an answer, with nothing unread, gets all the same what comes later. */
STREAM_TEST(left_without_an_answer)
{
	struct pair p = pair_open_up();
	/* As sock_down_wait leaves it, which would have the peer answer: it is of this process. */
	ask(&p);
	atomic_store(&fd_sock(p.b)->in->want_down, WANT_LAST);
	put_bytes(p.a, 0, 30000);
	get_past_us(p.b, 0, 30000);
	pair_close(&p);
}

/* Then what cannot be sent again must be an error: nobody is left to read the ring. */
STREAM_TEST(left_without_an_answer_and_refused)
{
	struct pair p = pair_open_up();
	int size = 4608;
	char byte;
	REQUIRE(setsockopt(p.a, SOL_SOCKET, SO_SNDBUF, &size, sizeof(size)) == 0);
	put_bytes(p.a, 0, 200000);
	ask(&p);
	atomic_store(&fd_sock(p.b)->in->want_down, WANT_LAST);
	answer(&p);
	CHECK_EQ(recv(p.b, &byte, 1, 0), -1);
	CHECK_EQ(errno, ECONNRESET);
	pair_close(&p);
}

/* Attached; the directions may still be on their way up. */
static struct pair pair_open_attached(void)
{
	struct pair p = pair_open();
	while (phase_of(fd_sock(p.a)->slot) != SLOT_ATTACHED ||
	       phase_of(fd_sock(p.b)->slot) != SLOT_ATTACHED)
		pair_ping(&p);
	return p;
}

/* Before the mark up has been passed, too. */
STREAM_TEST(asked_for_at_any_time)
{
	for (int i = 0; i < 60; i++) {
		struct pair p = i % 2 ? pair_open_up() : pair_open_attached();
		struct flow f = {.fd = p.a, .bytes = 400000, .seed = SEED};
		uint64_t state = 1000 + (uint64_t)i;
		size_t before = flow_random(&state) % 200000;
		flow_start(&f, send_and_receive);
		get_bytes(p.b, 0, before);
		CHECK_EQ(sock_down_wait(fd_sock(p.b), p.b, VD_REASON_EXEC, 20000), 0);
		get_past_us(p.b, before, (size_t)(f.bytes - before));
		CHECK_EQ(st_send(p.b, "x", 1, 0), 1);
		flow_join(&f);
		CHECK_EQ(f.result, 1);
		pair_close(&p);
	}
}

/* One reader goes on while another holder asks again and again. */
STREAM_TEST(asked_for_under_a_reader)
{
	for (int i = 0; i < 40; i++) {
		struct pair p = pair_open_up();
		struct flow f[2] = {{.fd = p.a, .bytes = 1000000, .seed = SEED},
				    {.fd = p.b, .bytes = 1000000, .seed = SEED}};
		flow_start(&f[0], flow_send);
		flow_start(&f[1], flow_recv);
		usleep((useconds_t)(i * 50));
		while (!atomic_load(&f[1].done)) {
			ask(&p);
			sched_yield();
		}
		for (int k = 0; k < 2; k++) {
			flow_join(&f[k]);
			CHECK_EQ(f[k].at, 1000000);
		}
		pair_close(&p);
	}
}

/* Else nobody would answer it. */
STREAM_TEST(a_bounce_leaves_a_request_standing)
{
	struct pair p = pair_open_up();
	put_bytes(p.a, 0, 1000);
	sock_ask_over(fd_sock(p.b), p.b, VD_REASON_SHARED);
	sock_bounce(fd_sock(p.b), p.b);
	answer(&p);
	CHECK(gate_state(&fd_sock(p.a)->slot->gate_tx) == GATE_FINAL);
	get_bytes(p.b, 0, 1000);
	pair_close(&p);
}

/* ---- a sender that comes at any instruction of a receiver ---- */

#define TRAP_FLAG 0x100
/* Instructions from one look at the ring to the next are more, and four times as many with
 * the address sanitizer. */
#ifdef __SANITIZE_ADDRESS__
#define STRIDE 12
#else
#define STRIDE 3
#endif

static struct {
	struct pair p;
	bool steps;  /* one instruction after the other */
	long before; /* so many of those under the lock, then bytes come */
} step;

static void put_late(int fd, size_t len)
{
	struct sock *s = fd_sock(fd);
	struct ring_span span;
	REQUIRE(ring_tx_span(&s->slot->tx, s->out, s->out_data, len, &span) == 0);
	REQUIRE(span.len >= len);
	flow_fill(span.data, len, 0, SEED);
	ring_tx_commit(&s->slot->tx, s->out, len, false);
}

/* The handler's last: the next instruction traps as well, or no more does. */
static void step_on(void *context)
{
	greg_t *regs = ((ucontext_t *)context)->uc_mcontext.gregs;
	if (step.steps)
		regs[REG_EFL] |= TRAP_FLAG;
	else
		regs[REG_EFL] &= ~TRAP_FLAG;
}

/* The sender had looked at requests before there was one. It obeys at the worst moment: its
 * bytes have been seen, and not been given back. */
static void on_step(int sig, siginfo_t *info, void *context)
{
	struct slot *sl = fd_sock(step.p.b)->slot;
	(void)sig;
	(void)info;
	if (step.steps && atomic_load(&sl->rx_lock.word) && --step.before == 0)
		put_late(step.p.a, 1000);
	if (step.before <= 0 && sl->rx.seen != sl->rx.consumed) {
		answer(&step.p);
		step.steps = false;
	}
	step_on(context);
}

/* False: the receive was over before. */
static bool comes_after(long instructions)
{
	uint8_t buf[2000];
	step.p = pair_open_up();
	ask(&step.p);
	step.before = instructions;
	step.steps = true;
	raise(SIGTRAP);
	ssize_t n = st_recv(step.p.b, buf, sizeof(buf), MSG_DONTWAIT);
	bool came = step.before <= 0;
	step.steps = false;
	if (came) {
		/* Once, by whichever way. */
		REQUIRE(n == -EAGAIN || (n > 0 && flow_is(buf, (size_t)n, 0, SEED)));
		answer(&step.p);
		put_bytes(step.p.a, 1000, 1000);
		get_bytes(step.p.b, n > 0 ? (uint64_t)n : 0,
			  2000 - (n > 0 ? (size_t)n : 0));
		CHECK(is_handed_over(&step.p));
	}
	pair_close(&step.p);
	return came;
}

/* comes(n): false once it is over before n instructions. */
static void at_each_step(void (*handler)(int sig, siginfo_t *info, void *context),
			 bool (*comes)(long instructions))
{
	struct sigaction act = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO}, before;
	long n = 1;
	REQUIRE(sigaction(SIGTRAP, &act, &before) == 0);
	while (comes(n))
		n += STRIDE;
	CHECK(n > 20);
	REQUIRE(sigaction(SIGTRAP, &before, NULL) == 0);
}

STREAM_TEST(a_send_and_its_answer_under_a_reader)
{
#ifdef __SANITIZE_THREAD__
	/* It keeps signals for later, and the next step traps before that. */
	SKIP("not step by step under the thread sanitizer");
#endif
	at_each_step(on_step, comes_after);
}

/* The answer comes, as far as its mark, at any instruction of who has asked. */
static void on_step_answer(int sig, siginfo_t *info, void *context)
{
	(void)sig;
	(void)info;
	if (step.steps && atomic_load(&fd_sock(step.p.b)->slot->rx_lock.word) &&
	    --step.before <= 0 && atomic_load(&fd_sock(step.p.a)->out->want_down)) {
		answer_to_the_mark(&step.p);
		step.steps = false;
	}
	step_on(context);
}

/* False: it was over before. */
static bool is_answered_after(long instructions)
{
	step.p = pair_open_up();
	put_bytes(step.p.a, 0, 1000);
	step.before = instructions;
	step.steps = true;
	raise(SIGTRAP);
	ssize_t n = sock_down_wait(fd_sock(step.p.b), step.p.b, VD_REASON_EXEC, 20000);
	bool came = step.before <= 0;
	step.steps = false;
	CHECK_EQ(n, 0);
	sock_down(fd_sock(step.p.a), step.p.a, VD_REASON_OPTION);
	get_past_us(step.p.b, 0, 1000);
	pair_close(&step.p);
	return came;
}

STREAM_TEST(an_answer_under_who_has_asked)
{
#ifdef __SANITIZE_THREAD__
	SKIP("not step by step under the thread sanitizer");
#endif
	at_each_step(on_step_answer, is_answered_after);
}

/* ---- the program sets an option that is changed for a moment ---- */

static struct setter {
	int fd, name, value;
	bool started;
	_Atomic bool done;
	pthread_t thread;
} setter;

static void *set_option(void *arg)
{
	struct setter *x = arg;
	REQUIRE(put_back_set(fd_sock(x->fd), x->fd, x->name, &x->value,
			     sizeof(x->value)) == 0);
	x->done = true;
	return NULL;
}

/* When the answer has changed it, another thread does; which may have to wait. */
static int set_amid(int fd, int level, int name, const void *value, socklen_t len)
{
	int r = setsockopt(fd, level, name, value, len);
	if (setter.started || fd != setter.fd || name != setter.name)
		return r;
	setter.started = true;
	REQUIRE(pthread_create(&setter.thread, NULL, set_option, &setter) == 0);
	for (int naps = 0; naps < 100 && !setter.done; naps++)
		usleep(1000);
	return r;
}

static void set_amid_an_answer(int name, int value)
{
	struct pair p = pair_open_up();
	int got = -1;
	socklen_t len = sizeof(got);
	put_bytes(p.a, 0, 1000);
	ask(&p);
	setter = (struct setter){.fd = p.a, .name = name, .value = value};
	real_table.setsockopt = set_amid;
	answer(&p);
	REQUIRE(setter.started);
	REQUIRE(pthread_join(setter.thread, NULL) == 0);
	real_table.setsockopt = setsockopt;
	CHECK_EQ(getsockopt(p.a, IPPROTO_TCP, name, &got, &len), 0);
	CHECK_EQ(got, value);
	REQUIRE(is_handed_over(&p));
	get_past_us(p.b, 0, 1000);
	pair_close(&p);
}

STREAM_TEST(what_the_program_sets_amid_an_answer_stays)
{
	set_amid_an_answer(TCP_NODELAY, 1);
	set_amid_an_answer(TCP_NOTSENT_LOWAT, 12345);
}
