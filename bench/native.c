/* SPDX-License-Identifier: Apache-2.0 */
/* The native interface on one host, two processes on two processors. */
/*
 * Puts of 8 B, 64 B and 64 KB with notification, there and back, beside a cache line that goes there and back;
 * and puts of 64 KB and 1 MB, each beside memcpy to the memory that the peer has mapped of ours, by turns; and
 * puts of 64 KB by both ends at once; and of puts of 64 B what LogP calls o and g. With VIADUCT=off of TCP, and with
 * the argument `alloc` to memory that both ends map; then puts of 64 B without notification, too. A number behind that,
 * or behind `puts`, is how many turns each has. With `message` or
 * `socket`: messages, or bytes of a stream socket, of 64 B and 64 KB there and back; each end writes and
 * reads them all. With `any`: 8 B with notification to mapped memory, for which this end waits by vd_wait, by
 * vd_wait_any on this connection and seven that are idle, and by poll on the vd_fd of all eight.
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <viaduct/viaduct.h>

#include "timing.h"

#define TURNS 4000
#define LARGE 65536u
#define BOX   (16 * LARGE)
#define BATCH (100 * LARGE) /* bytes of puts between two flushes; memcpy, too */
#define LINES 20000

/* What a notification asks of the end that answers: one back, or puts of its own meanwhile. */
enum { TURN = 1, BOTH };

static int turns = TURNS; /* of puts */
static unsigned char own_box[BOX], source[BOX];
/* A line that both processes have, and nothing of the library's. */
static struct line {
	_Alignas(128) _Atomic unsigned there;
	_Alignas(128) _Atomic unsigned back;
} * line;

static void pin(int processor)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(processor, &set);
	sched_setaffinity(0, sizeof(set), &set); /* or wherever it runs */
}

/* ---- there and back ---- */

enum { PUTS, ANY, MESSAGES, SOCKET };

#define IDLE 7

struct way {
	vd_conn *c; /* NULL: the socket */
	int fd;
};

static void send_bytes(const struct way *w, size_t len, int byte)
{
	static char own[LARGE];
	void *p = own;

	NEED(!w->c || vd_reserve(w->c, len, &p) == 0);
	memset(p, byte, len);
	if (w->c)
		NEED(vd_commit(w->c, len) == 0);
	else
		NEED(send(w->fd, p, len, MSG_NOSIGNAL) == (ssize_t)len);
}

/* False at the end. */
static int take_bytes(const struct way *w, size_t len)
{
	static char own[LARGE];
	const void *p = own;
	size_t n = len;

	if (w->c ? vd_peek(w->c, &p, &n, -1) < 0
		 : recv(w->fd, own, len, MSG_WAITALL) != (ssize_t)len)
		return 0;
	NEED(n == len && memchr(p, 0, len) == NULL);
	NEED(!w->c || vd_release(w->c) == 0);
	return 1;
}

static void answer_turns(const struct way *w)
{
	for (int i = 0; i < TURNS + 500 && take_bytes(w, 64); i++)
		send_bytes(w, 64, 1);
	while (take_bytes(w, LARGE))
		send_bytes(w, LARGE, 1);
}

static double way_us(const struct way *w, size_t len)
{
	static double v[TURNS];

	for (int i = -500; i < TURNS; i++) {
		double began = now_us();

		send_bytes(w, len, 2);
		NEED(take_bytes(w, len));
		if (i >= 0)
			v[i] = now_us() - began;
	}
	return median(v, TURNS);
}

static void measure_turns(const struct way *w, const char *what)
{
	double small = way_us(w, 64), large = way_us(w, LARGE);

	printf("%-8s 64 B there and back %6.2f us   64 KB %6.2f us\n", what, small,
	       large);
}

static struct way way_open(int kind, const char *port)
{
	struct sockaddr_in at = {.sin_family = AF_INET,
				 .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
				 .sin_port = htons((uint16_t)atoi(port))};
	struct way w = {.fd = -1};

	if (kind == MESSAGES) {
		NEED(vd_connect("127.0.0.1", port, 5000, &w.c) == 0);
		return w;
	}
	w.fd = socket(AF_INET, SOCK_STREAM, 0);
	NEED(connect(w.fd, (struct sockaddr *)&at, sizeof(at)) == 0);
	return w;
}

/* ---- puts ---- */

static void answer_lines(void)
{
	for (unsigned i = 1; i <= LINES; i++) {
		while (atomic_load_explicit(&line->there, memory_order_acquire) != i)
			__builtin_ia32_pause();
		atomic_store_explicit(&line->back, i, memory_order_release);
	}
}

static double line_us(void)
{
	static double v[LINES / 100];
	double began = now_us();

	for (unsigned i = 1; i <= LINES; i++) {
		atomic_store_explicit(&line->there, i, memory_order_release);
		while (atomic_load_explicit(&line->back, memory_order_acquire) != i)
			__builtin_ia32_pause();
		if (i % 100 == 0) {
			v[i / 100 - 1] = (now_us() - began) / 100;
			began = now_us();
		}
	}
	return median(v, LINES / 100);
}

/* *own: what the peer has of ours. */
static vd_remote *meet(vd_conn *c, int alloc, void **own)
{
	void *box = own_box;
	vd_region *x;
	vd_remote *r;

	NEED(!alloc || vd_alloc(BOX, &box) == 0);
	NEED(vd_export(c, "box", box, BOX, VD_WRITE, NULL, &x) == 0);
	*own = box;
	NEED(vd_import(c, "box", 5000, &r) == 0);
	return r;
}

static vd_conn *idle[IDLE + 1]; /* and the other one, first */

static void put_batch(vd_conn *c, vd_remote *r, size_t len)
{
	for (size_t at = 0; at < BATCH; at += len)
		NEED(vd_put(r, at % BOX, source, len, 0, 0) == 0);
	NEED(vd_flush(c) == 0);
}

static void answer(int from, int alloc, int kind)
{
	char port[8];
	struct vd_event ev;
	vd_remote *r;
	vd_conn *c;
	void *own;

	NEED(read(from, port, sizeof(port)) == sizeof(port));
	if (kind >= MESSAGES) {
		struct way w = way_open(kind, port);

		answer_turns(&w);
		vd_close(w.c);
		return;
	}
	NEED(vd_connect("127.0.0.1", port, 5000, &c) == 0);
	for (int i = 0; kind == ANY && i < IDLE; i++)
		NEED(vd_connect("127.0.0.1", port, 5000, &idle[i + 1]) == 0);
	r = meet(c, alloc, &own);
	if (kind == PUTS)
		answer_lines();
	while (vd_wait(c, &ev, 1, -1) == 1 && ev.kind == VD_EVENT_NOTIFY) {
		if (ev.tag == BOTH)
			put_batch(c, r, LARGE);
		NEED(vd_put(r, 0, source, ev.len, ev.tag, VD_NOTIFY) == 0);
	}
	vd_close(c);
}

#define QUICK 1000000

/* Puts of 64 B without notification: millions in a second of this thread's own time, the best of some batches. */
static double put_rate(vd_conn *c, vd_remote *r)
{
	double best = 0;

	for (int k = 0; k < 11; k++) {
		struct timespec t[2];
		double us;

		clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t[0]);
		for (size_t i = 0; i < QUICK; i++)
			NEED(vd_put(r, i * 64 % BOX, source, 64, 0, 0) == 0);
		NEED(vd_flush(c) == 0);
		clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t[1]);
		us = (double)(t[1].tv_sec - t[0].tv_sec) * 1e6 +
		     (double)(t[1].tv_nsec - t[0].tv_nsec) * 1e-3;
		best = QUICK / us > best ? QUICK / us : best;
	}
	return best;
}

typedef int wait_fn(vd_conn *c, struct vd_event *ev);

static int wait_one(vd_conn *c, struct vd_event *ev)
{
	return vd_wait(c, ev, 1, 5000);
}

static int wait_any(vd_conn *c, struct vd_event *ev)
{
	int which;

	idle[0] = c;
	return vd_wait_any(idle, IDLE + 1, ev, 1, 5000, &which);
}

static int wait_poll(vd_conn *c, struct vd_event *ev)
{
	struct pollfd p[IDLE + 1];

	idle[0] = c;
	for (int i = 0; i <= IDLE; i++)
		p[i] = (struct pollfd){.fd = vd_fd(idle[i]), .events = POLLIN};
	return poll(p, IDLE + 1, 5000) == 1 ? vd_wait(c, ev, 1, 0) : -1;
}

static double turns_us(vd_conn *c, vd_remote *r, size_t len, wait_fn *wait)
{
	static double v[TURNS];
	struct vd_event ev;

	for (int i = -turns / 8; i < turns; i++) {
		double began = now_us();

		NEED(vd_put(r, 0, source, len, TURN, VD_NOTIFY) == 0);
		NEED(wait(c, &ev) == 1);
		if (i >= 0)
			v[i] = now_us() - began;
	}
	return median(v, turns);
}

struct speeds {
	double put, copy,
		ratio; /* GB a second; medians of 21 batches, of each and of their ratio */
};

static struct speeds speeds(vd_conn *c, vd_remote *r, unsigned char *own, size_t len)
{
	double put[21], copy[21], ratio[21];

	for (int k = -2; k < 21; k++) {
		double began = now_us(), done, end;

		put_batch(c, r, len);
		done = now_us();
		for (size_t at = 0; at < BATCH; at += len) {
			memcpy(own + at % BOX, source, len);
			/* It is wanted, as far as the compiler knows. */
			__asm__ volatile("" ::"r"(own) : "memory");
		}
		end = now_us();
		if (k < 0)
			continue;
		put[k] = BATCH / (done - began) * 1e-3;
		copy[k] = BATCH / (end - done) * 1e-3;
		ratio[k] = put[k] / copy[k];
	}
	return (struct speeds){median(put, 21), median(copy, 21), median(ratio, 21)};
}

/* GB a second of both together, until each has what the other has put. */
static double both_ways(vd_conn *c, vd_remote *r)
{
	double v[21];
	struct vd_event ev;

	for (int k = -2; k < 21; k++) {
		double began = now_us();

		NEED(vd_put(r, 0, source, 8, BOTH, VD_NOTIFY) == 0);
		put_batch(c, r, LARGE);
		NEED(vd_wait(c, &ev, 1, 60000) == 1 && ev.tag == BOTH);
		if (k >= 0)
			v[k] = 2 * BATCH / (now_us() - began) * 1e-3;
	}
	return median(v, 21);
}

/* Of puts of 64 B, in us: to make one with notification, to take a notification that is there, and each of many
 * without, up to the flush behind them. */
struct logp {
	double put, take, gap;
};

static void wait_us(double us)
{
	double end = now_us() + us;

	while (now_us() < end)
		;
}

static double clock_us(void)
{
	double v[101];

	for (int i = 0; i < 101; i++) {
		double began = now_us();

		v[i] = now_us() - began;
	}
	return median(v, 101);
}

/* A turn takes so long: what is taken has been there before. */
static struct logp logp(vd_conn *c, vd_remote *r, double turn)
{
	static double put[TURNS], take[TURNS];
	double gap[11], clock = clock_us();
	size_t count = 5 * (size_t)turns;
	struct vd_event ev;

	for (int i = 0; i < turns; i++) {
		double began = now_us(), done;

		NEED(vd_put(r, 0, source, 64, TURN, VD_NOTIFY) == 0);
		done = now_us();
		put[i] = done - began - clock;
		wait_us(2 * turn + 2);
		began = now_us();
		NEED(vd_wait(c, &ev, 1, 5000) == 1);
		take[i] = now_us() - began - clock;
	}
	for (int k = 0; k < 11; k++) {
		double began = now_us();

		for (size_t i = 0; i < count; i++)
			NEED(vd_put(r, i * 64 % BOX, source, 64, 0, 0) == 0);
		NEED(vd_flush(c) == 0);
		gap[k] = (now_us() - began) / (double)count;
	}
	return (struct logp){median(put, turns), median(take, turns), median(gap, 11)};
}

static void tell(const char *what, const struct speeds *s)
{
	printf("   %s %6.2f GB/s, memcpy %6.2f (%.2f)", what, s->put, s->copy, s->ratio);
}

static void measure_waits(vd_conn *c, vd_remote *r)
{
	double one = turns_us(c, r, 8, wait_one), any = turns_us(c, r, 8, wait_any);

	printf("vd_wait %6.2f us, vd_wait_any of %d %6.2f us, poll of their vd_fd %6.2f "
	       "us\n",
	       one, IDLE + 1, any, turns_us(c, r, 8, wait_poll));
	vd_close(c);
}

static void measure(int to, int alloc, int kind)
{
	struct sockaddr_in at;
	socklen_t len = sizeof(at);
	char port[8] = "";
	struct speeds large, huge;
	struct logp small_ones;
	double one, small, turn, swap, both;
	void *own;
	vd_listener *l;
	vd_remote *r;
	vd_conn *c;

	NEED(vd_listen("127.0.0.1", "0", &l) == 0);
	NEED(getsockname(vd_listener_fd(l), (struct sockaddr *)&at, &len) == 0);
	snprintf(port, sizeof(port), "%u", ntohs(at.sin_port));
	NEED(write(to, port, sizeof(port)) == sizeof(port));
	if (kind == SOCKET) {
		struct way w = {NULL, accept(vd_listener_fd(l), NULL, NULL)};

		while (w.fd < 0)
			w.fd = accept(vd_listener_fd(l), NULL, NULL);
		measure_turns(&w, "socket");
		close(w.fd);
		return;
	}
	NEED(vd_accept(l, 5000, &c) == 0);
	if (kind == MESSAGES) {
		struct way w = {c, -1};

		measure_turns(&w, "message");
		vd_close(c);
		return;
	}
	for (int i = 0; kind == ANY && i < IDLE; i++)
		NEED(vd_accept(l, 5000, &idle[i + 1]) == 0);
	vd_listener_close(l);
	r = meet(c, alloc, &own);
	if (kind == ANY) {
		measure_waits(c, r);
		return;
	}
	one = line_us();
	small = turns_us(c, r, 8, wait_one);
	turn = turns_us(c, r, 64, wait_one);
	swap = turns_us(c, r, LARGE, wait_one);
	large = speeds(c, r, own, LARGE);
	huge = speeds(c, r, own, BOX);
	both = both_ways(c, r);
	small_ones = logp(c, r, turn);
	printf("%s, %-14s  a line there and back %.2f us, 8 B %6.2f us, 64 B %6.2f us, "
	       "64 KB %6.2f us",
	       vd_path(c) == VD_PATH_TCP ? "TCP " : "ring",
	       strcmp(vd_remote_reason(r), "none") ? vd_remote_reason(r) : "mapped", one,
	       small, turn, swap);
	tell("64 KB", &large);
	tell("1 MB", &huge);
	if (alloc)
		printf("   64 B %5.1f M/s", put_rate(c, r));
	printf("   both ways %6.2f GB/s", both);
	printf("   64 B: o to put %.3f us, o to take %.3f us, g %.3f us\n",
	       small_ones.put, small_ones.take, small_ones.gap);
	vd_close(c);
}

int main(int argc, char **argv)
{
	int kind = argc < 2			 ? PUTS
		   : !strcmp(argv[1], "any")	 ? ANY
		   : !strcmp(argv[1], "message") ? MESSAGES
		   : !strcmp(argv[1], "socket")	 ? SOCKET
						 : PUTS;
	int alloc = kind == ANY || (argc > 1 && !strcmp(argv[1], "alloc")), way[2];
	pid_t pid;

	if (argc > 2)
		turns = atoi(argv[2]);
	NEED(turns > 0 && turns <= TURNS);

	line = mmap(NULL, sizeof(*line), PROT_READ | PROT_WRITE,
		    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	NEED(line != MAP_FAILED);
	NEED(pipe(way) == 0 && (pid = fork()) >= 0);
	pin(pid == 0);
	if (pid == 0) {
		answer(way[0], alloc, kind);
		return 0;
	}
	measure(way[1], alloc, kind);
	return waitpid(pid, NULL, 0) < 0;
}
