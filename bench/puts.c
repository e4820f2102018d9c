/* SPDX-License-Identifier: Apache-2.0 */
/* The native interface between two hosts: trips, streams, and answers that are redirected. */
/*
 *	puts-bench serve PORT			for one client
 *	puts-bench trip HOST PORT BYTES TURNS	puts with notification, there and back: the mean, in us
 *	puts-bench stream HOST PORT BYTES COUNT	puts, and then a flush: MiB a second
 *	puts-bench lent HOST PORT BYTES COUNT	the same, with sources that are lent, 16 at a time
 *	puts-bench logp HOST PORT BYTES TURNS	what LogP calls o and g, in us: to make a put with notification,
 *						to take a notification that is there, and each of many puts
 *	puts-bench redirect HOST PORT ROUNDS	a question, and its answer in two puts: us until all of it
 *						is in its last place
 *
 * bench/puts.py runs it between two guests, beside raw verbs. The path stands behind each figure, with TCP and its
 * reason.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <viaduct/viaduct.h>

#include "timing.h"

#define BYTES_MOST (1u << 20)
#define LENT	   16 /* under way, as ib_write_bw has them */
#define BOX	   (4 * BYTES_MOST)
#define WARM_UP	   50
#define BATCHES	   5
#define ROUNDS_MAX 101
#define PATH_US	   60e6 /* so long the upgrade is waited for */

enum { TRIP = 1, ASK };

static uint8_t own_box[BOX], source[BYTES_MOST], place[BYTES_MOST];

struct ends {
	vd_conn *c;
	vd_region *box; /* ours */
	vd_remote *peer;
};

static struct ends meet(vd_conn *c)
{
	struct ends e = {.c = c};

	NEED(vd_export(c, "box", own_box, BOX, VD_WRITE, NULL, &e.box) == 0);
	NEED(vd_import(c, "box", 60000, &e.peer) == 0);
	return e;
}

/* ---- the end that answers ---- */

/* The turn stands at both ends of what is sent. */
static void answer(const struct ends *e)
{
	uint32_t len;

	memcpy(&len, own_box, sizeof(len));
	NEED(len > 1 && len <= BYTES_MOST);
	source[0]++;
	source[len - 1] = source[0];
	NEED(vd_put(e->peer, 0, source, len / 2, 1, VD_NOTIFY) == 0);
	NEED(vd_put(e->peer, len / 2, source + len / 2, len - len / 2, 2, VD_NOTIFY) ==
	     0);
}

static void serve(const char *port)
{
	struct vd_event ev;
	struct ends e;
	vd_listener *l;
	vd_conn *c;

	NEED(vd_listen(NULL, port, &l) == 0);
	NEED(vd_accept(l, -1, &c) == 0);
	vd_listener_close(l);
	e = meet(c);
	while (vd_wait(c, &ev, 1, -1) == 1 && ev.kind == VD_EVENT_NOTIFY) {
		if (ev.tag == ASK)
			answer(&e);
		else
			NEED(vd_put(e.peer, 0, source, ev.len, TRIP, VD_NOTIFY) == 0);
	}
	vd_close(c);
}

/* ---- the end that measures ---- */

/* Each flush goes to the peer and back, so the upgrade has its turns. */
static struct ends reach(const char *host, const char *port)
{
	double end = now_us() + PATH_US;
	struct ends e;
	vd_conn *c;

	NEED(vd_connect(host, port, 60000, &c) == 0);
	e = meet(c);
	while (vd_path(c) == VD_PATH_TCP && strcmp(vd_reason(c), "off") != 0 &&
	       now_us() < end)
		NEED(vd_flush(c) == 0);
	return e;
}

static void leave(const struct ends *e)
{
	static const char *const paths[] = {"tcp", "shm", "rdma"};

	printf(" %s%s%s\n", paths[vd_path(e->c)], vd_path(e->c) ? "" : ":",
	       vd_path(e->c) ? "" : vd_reason(e->c));
	vd_close(e->c);
}

static void trip(const struct ends *e, size_t len, int turns)
{
	double began = 0;
	struct vd_event ev;

	for (int i = -WARM_UP; i < turns; i++) {
		if (i == 0)
			began = now_us();
		NEED(vd_put(e->peer, 0, source, len, TRIP, VD_NOTIFY) == 0);
		NEED(vd_wait(e->c, &ev, 1, -1) == 1 && ev.kind == VD_EVENT_NOTIFY);
	}
	printf("%.2f", (now_us() - began) / turns);
}

static void stream(const struct ends *e, size_t len, int count)
{
	double speed[BATCHES];

	for (int k = -1; k < BATCHES; k++) {
		double began = now_us();

		for (int i = 0; i < count; i++)
			NEED(vd_put(e->peer, 0, source, len, 0, 0) == 0);
		NEED(vd_flush(e->c) == 0);
		if (k >= 0)
			speed[k] = (double)len * count / 1.048576 / (now_us() - began);
	}
	printf("%.3f", median(speed, BATCHES));
}

static void take_back(const struct ends *e, int *lent)
{
	struct vd_event ev[LENT];
	int n = vd_wait(e->c, ev, LENT, -1);

	NEED(n > 0);
	for (int i = 0; i < n; i++)
		NEED(ev[i].kind == VD_EVENT_DONE && ev[i].result == 0);
	*lent -= n;
}

/* All are of one source, which nobody changes, and each goes to a place of its own: of 1 MiB four are under way. */
static void stream_lent(const struct ends *e, size_t len, int count)
{
	size_t places = BOX / len < LENT ? BOX / len : LENT;
	double speed[BATCHES];

	for (int k = -1; k < BATCHES; k++) {
		double began = now_us();
		int lent = 0;

		for (int i = 0; i < count; i++) {
			while (lent == LENT)
				take_back(e, &lent);
			NEED(vd_put(e->peer, (size_t)i % places * len, source, len, 0,
				    VD_LEND) == 0);
			lent++;
		}
		while (lent > 0)
			take_back(e, &lent);
		NEED(vd_flush(e->c) == 0);
		if (k >= 0)
			speed[k] = (double)len * count / 1.048576 / (now_us() - began);
	}
	printf("%.3f", median(speed, BATCHES));
}

static double put_and_wait(const struct ends *e, size_t len, double pause, double *take)
{
	double began = now_us(), made, end;
	struct vd_event ev;

	NEED(vd_put(e->peer, 0, source, len, TRIP, VD_NOTIFY) == 0);
	made = now_us();
	end = made + pause;
	while (now_us() < end)
		;
	*take = now_us();
	NEED(vd_wait(e->c, &ev, 1, -1) == 1 && ev.kind == VD_EVENT_NOTIFY);
	*take = now_us() - *take;
	return made - began;
}

static void logp(const struct ends *e, size_t len, int turns)
{
	double put[ROUNDS_MAX], take[ROUNDS_MAX], gap[BATCHES], turn;

	NEED(turns > 0 && turns <= ROUNDS_MAX);
	for (int i = 0; i < turns; i++)
		put[i] = put_and_wait(e, len, 0, &take[i]) + take[i];
	turn = median(put, turns);
	/* Twice that: the answer is there, and the wait for it takes no time. */
	for (int i = 0; i < turns; i++)
		put[i] = put_and_wait(e, len, 2 * turn, &take[i]);
	for (int k = 0; k < BATCHES; k++) {
		double began = now_us();

		for (int i = 0; i < 10 * turns; i++)
			NEED(vd_put(e->peer, 0, source, len, 0, 0) == 0);
		NEED(vd_flush(e->c) == 0);
		gap[k] = (now_us() - began) / (10 * turns);
	}
	printf("%.2f %.2f %.2f", median(put, turns), median(take, turns),
	       median(gap, BATCHES));
}

/* Redirected at one of three moments: before the question, after half of the answer, after all of it. */
static double answer_us(const struct ends *e, uint32_t len, int moment, int *kind)
{
	static uint8_t turn;
	struct vd_redirected done;
	double began = now_us();
	struct vd_event ev;
	vd_detour *d;

	for (int i = 0; i <= 2; i++) {
		if (i == moment)
			NEED(vd_redirect(e->box, 0, place, len, &d) == 0);
		if (i == 0)
			NEED(vd_put(e->peer, 0, &len, sizeof(len), ASK, VD_NOTIFY) == 0);
		if (i < 2)
			NEED(vd_wait(e->c, &ev, 1, -1) == 1 &&
			     ev.kind == VD_EVENT_NOTIFY);
	}
	NEED(vd_redirect_end(d, &done) == 0);
	began = now_us() - began;
	turn++;
	NEED(place[0] == turn && place[len - 1] == turn);
	*kind = done.kind;
	return began;
}

static void redirect(const struct ends *e, int rounds)
{
	static const uint32_t sizes[] = {108, 4096, 16384, 65536, 262144, 1048576};
	static double us[3][ROUNDS_MAX];
	int kind;

	NEED(rounds > 0 && rounds <= ROUNDS_MAX);
	for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++) {
		int kinds[3][3] = {0};

		for (int i = -1; i < rounds; i++)
			for (int moment = 0; moment < 3; moment++) {
				double v = answer_us(e, sizes[s], moment, &kind);

				if (i >= 0)
					us[moment][i] = v;
				kinds[moment][kind] += i >= 0;
			}
		printf("%u", sizes[s]);
		for (int moment = 0; moment < 3; moment++)
			printf(" %.1f %d/%d/%d", median(us[moment], rounds),
			       kinds[moment][VD_REDIRECT_FULL],
			       kinds[moment][VD_REDIRECT_PARTIAL],
			       kinds[moment][VD_REDIRECT_NONE]);
		printf("\n");
	}
}

int main(int argc, char **argv)
{
	struct ends e;

	memset(source, 'v', sizeof(source));
	source[0] = 0;
	if (argc == 3 && !strcmp(argv[1], "serve")) {
		serve(argv[2]);
		return 0;
	}
	if (argc < 5 || (argc < 6 && strcmp(argv[1], "redirect") != 0))
		return 2;
	e = reach(argv[2], argv[3]);
	if (!strcmp(argv[1], "trip"))
		trip(&e, (size_t)atol(argv[4]), atoi(argv[5]));
	else if (!strcmp(argv[1], "logp"))
		logp(&e, (size_t)atol(argv[4]), atoi(argv[5]));
	else if (!strcmp(argv[1], "stream"))
		stream(&e, (size_t)atol(argv[4]), atoi(argv[5]));
	else if (!strcmp(argv[1], "lent"))
		stream_lent(&e, (size_t)atol(argv[4]), atoi(argv[5]));
	else
		redirect(&e, atoi(argv[4]));
	leave(&e);
	return 0;
}
