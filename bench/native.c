/* SPDX-License-Identifier: Apache-2.0 */
/* The native interface on one host, two processes on two processors. */
/*
 * Puts of 8 B and 64 B with notification, there and back, beside a cache line that goes there and back;
 * and puts of 64 KB and 1 MB, each beside memcpy to the memory that the peer has mapped of ours, by turns.
 * With VIADUCT=off of TCP, and with the argument `alloc` to memory that both ends map. With `message` or
 * `socket`: messages, or bytes of a stream socket, of 64 B and 64 KB there and back; each end writes and
 * reads them all.
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <viaduct/viaduct.h>

#define TURNS 4000
#define LARGE 65536u
#define BOX   (16 * LARGE)
#define BATCH (100 * LARGE) /* bytes of puts between two flushes; memcpy, too */
#define LINES 20000

static unsigned char own_box[BOX], source[BOX];
/* A line that both processes have, and nothing of the library's. */
static struct line {
	_Alignas(128) _Atomic unsigned there;
	_Alignas(128) _Atomic unsigned back;
} * line;

#define NEED(condition)                                                                  \
	do {                                                                             \
		if (!(condition)) {                                                      \
			fprintf(stderr, "native: line %d\n", __LINE__);                  \
			exit(1);                                                         \
		}                                                                        \
	} while (0)

static double now_us(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec * 1e6 + (double)ts.tv_nsec * 1e-3;
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static double median(double *v, int n)
{
	qsort(v, (size_t)n, sizeof(*v), compare);
	return v[n / 2];
}

static void pin(int processor)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(processor, &set);
	sched_setaffinity(0, sizeof(set), &set); /* or wherever it runs */
}

/* ---- there and back ---- */

enum { PUTS, MESSAGES, SOCKET };

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

static void answer(int from, int alloc, int kind)
{
	char port[8];
	struct vd_event ev;
	vd_remote *r;
	vd_conn *c;
	void *own;

	NEED(read(from, port, sizeof(port)) == sizeof(port));
	if (kind != PUTS) {
		struct way w = way_open(kind, port);

		answer_turns(&w);
		vd_close(w.c);
		return;
	}
	NEED(vd_connect("127.0.0.1", port, 5000, &c) == 0);
	r = meet(c, alloc, &own);
	answer_lines();
	while (vd_wait(c, &ev, 1, -1) == 1 && ev.kind == VD_EVENT_NOTIFY)
		NEED(vd_put(r, 0, source, ev.len, 1, VD_NOTIFY) == 0);
	vd_close(c);
}

static double turns_us(vd_conn *c, vd_remote *r, size_t len)
{
	static double v[TURNS];
	struct vd_event ev;

	for (int i = -500; i < TURNS; i++) {
		double began = now_us();

		NEED(vd_put(r, 0, source, len, 1, VD_NOTIFY) == 0);
		NEED(vd_wait(c, &ev, 1, 5000) == 1);
		if (i >= 0)
			v[i] = now_us() - began;
	}
	return median(v, TURNS);
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

		for (size_t at = 0; at < BATCH; at += len)
			NEED(vd_put(r, at % BOX, source, len, 0, 0) == 0);
		NEED(vd_flush(c) == 0);
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

static void tell(const char *what, const struct speeds *s)
{
	printf("   %s %6.2f GB/s, memcpy %6.2f (%.2f)", what, s->put, s->copy, s->ratio);
}

static void measure(int to, int alloc, int kind)
{
	struct sockaddr_in at;
	socklen_t len = sizeof(at);
	char port[8] = "";
	struct speeds large, huge;
	double one, small, turn;
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
	vd_listener_close(l);
	r = meet(c, alloc, &own);
	one = line_us();
	small = turns_us(c, r, 8);
	turn = turns_us(c, r, 64);
	large = speeds(c, r, own, LARGE);
	huge = speeds(c, r, own, BOX);
	printf("%s, %-14s  a line there and back %.2f us, 8 B %6.2f us, 64 B %6.2f us",
	       vd_path(c) == VD_PATH_TCP ? "TCP " : "ring",
	       strcmp(vd_remote_reason(r), "none") ? vd_remote_reason(r) : "mapped", one,
	       small, turn);
	tell("64 KB", &large);
	tell("1 MB", &huge);
	printf("\n");
	vd_close(c);
}

int main(int argc, char **argv)
{
	int alloc = argc > 1 && !strcmp(argv[1], "alloc"), way[2];
	int kind = argc < 2			 ? PUTS
		   : !strcmp(argv[1], "message") ? MESSAGES
		   : !strcmp(argv[1], "socket")	 ? SOCKET
						 : PUTS;
	pid_t pid;

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
