/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The native interface on one host, two processes on two processors: a put of 64 B with notification,
 * there and back, and puts of 64 KB, beside memcpy. One line; with VIADUCT=off of TCP, and with the
 * argument `alloc` to memory that both ends map.
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <viaduct/viaduct.h>

#define TURNS 4000
#define LARGE 65536u
#define BATCH 100 /* puts between two flushes; memcpy, too */
#define BOX   (16 * LARGE)

static unsigned char own_box[BOX], source[LARGE];

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

static vd_remote *meet(vd_conn *c, int alloc)
{
	void *box = own_box;
	vd_region *x;
	vd_remote *r;

	NEED(!alloc || vd_alloc(BOX, &box) == 0);
	NEED(vd_export(c, "box", box, BOX, VD_WRITE, NULL, &x) == 0);
	NEED(vd_import(c, "box", 5000, &r) == 0);
	return r;
}

static void answer(int from, int alloc)
{
	char port[8];
	struct vd_event ev;
	vd_remote *r;
	vd_conn *c;

	NEED(read(from, port, sizeof(port)) == sizeof(port));
	NEED(vd_connect("127.0.0.1", port, 5000, &c) == 0);
	r = meet(c, alloc);
	while (vd_wait(c, &ev, 1, -1) == 1 && ev.kind == VD_EVENT_NOTIFY)
		NEED(vd_put(r, 0, source, 64, 1, VD_NOTIFY) == 0);
	vd_close(c);
}

static double turns_us(vd_conn *c, vd_remote *r)
{
	static double v[TURNS];
	struct vd_event ev;

	for (int i = -500; i < TURNS; i++) {
		double began = now_us();

		NEED(vd_put(r, 0, source, 64, 1, VD_NOTIFY) == 0);
		NEED(vd_wait(c, &ev, 1, 5000) == 1);
		if (i >= 0)
			v[i] = now_us() - began;
	}
	return median(v, TURNS);
}

/* GB a second, the median of 21 batches. */
static double puts_speed(vd_conn *c, vd_remote *r)
{
	double v[21];

	for (int k = -2; k < 21; k++) {
		double began = now_us();

		for (unsigned i = 0; i < BATCH; i++)
			NEED(vd_put(r, i % 16 * LARGE, source, LARGE, 0, 0) == 0);
		NEED(vd_flush(c) == 0);
		if (k >= 0)
			v[k] = BATCH * (double)LARGE / (now_us() - began) * 1e-3;
	}
	return median(v, 21);
}

static double copies_speed(void)
{
	unsigned char *to = malloc(BOX);
	double v[21];

	NEED(to);
	memset(to, 1, BOX);
	for (int k = 0; k < 21; k++) {
		double began = now_us();

		for (unsigned i = 0; i < BATCH; i++)
			memcpy(to + i % 16 * LARGE, source, LARGE);
		v[k] = BATCH * (double)LARGE / (now_us() - began) * 1e-3;
	}
	/* What is copied is wanted, as far as the compiler knows. */
	NEED(to[LARGE] == source[0]);
	free(to);
	return median(v, 21);
}

static void measure(int to, int alloc)
{
	struct sockaddr_in at;
	socklen_t len = sizeof(at);
	char port[8] = "";
	double turn, put, copy;
	vd_listener *l;
	vd_remote *r;
	vd_conn *c;

	NEED(vd_listen("127.0.0.1", "0", &l) == 0);
	NEED(getsockname(vd_listener_fd(l), (struct sockaddr *)&at, &len) == 0);
	snprintf(port, sizeof(port), "%u", ntohs(at.sin_port));
	NEED(write(to, port, sizeof(port)) == sizeof(port));
	NEED(vd_accept(l, 5000, &c) == 0);
	vd_listener_close(l);
	r = meet(c, alloc);
	turn = turns_us(c, r);
	put = puts_speed(c, r);
	copy = copies_speed();
	printf("%s, %-14s  64 B there and back %6.2f us   64 KB %6.2f GB/s   memcpy "
	       "%6.2f GB/s\n",
	       vd_path(c) == VD_PATH_TCP ? "TCP " : "ring",
	       strcmp(vd_remote_reason(r), "none") ? vd_remote_reason(r) : "mapped", turn,
	       put, copy);
	vd_close(c);
}

int main(int argc, char **argv)
{
	int alloc = argc > 1 && !strcmp(argv[1], "alloc"), way[2];
	pid_t pid;

	NEED(pipe(way) == 0 && (pid = fork()) >= 0);
	pin(pid == 0);
	if (pid == 0) {
		answer(way[0], alloc);
		return 0;
	}
	measure(way[1], alloc);
	return waitpid(pid, NULL, 0) < 0;
}
