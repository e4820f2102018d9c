/* SPDX-License-Identifier: Apache-2.0 */
/* Whether RDMA is slower than TCP on the way to that host: measured once, and kept. */
#include <errno.h>
#include <string.h>
#include <time.h>

#include "tool/doctor/far.h"
#include "tool/floor.h"
#include "tool/kept.h"

enum { ROUNDS = 3, ECHO_MS = 100 };
/* What is less slower than that is not known for sure. */
#define LOSS 0.9

enum { ROUND_TRIP, SENDING, RECEIVING, FIGURES };
static const enum far_do orders[FIGURES] = {FAR_DO_ECHO, FAR_DO_TAKE, FAR_DO_GIVE};

/* Of a connection each: microseconds, and bytes a second. */
struct speeds {
	double rdma[FIGURES][ROUNDS], tcp[FIGURES][ROUNDS];
};

static int measure(enum far_how how, double figures[FIGURES][ROUNDS], int round)
{
	struct far_child child = {0};
	struct far_result out;
	int r = far_connect(&child, how);

	for (int i = 0; i < FIGURES && r == 0; i++) {
		r = far_order(&child, orders[i], ECHO_MS, &out);
		figures[i][round] = out.value;
	}
	far_close(&child, r == 0);
	return r;
}

/* In turns, of which each way is first in every other one. */
static int measure_both(struct speeds *s)
{
	int r = 0;

	for (int i = 0; i < ROUNDS && r == 0; i++)
		for (int j = 0; j < 2 && r == 0; j++)
			r = (i + j) % 2 ? measure(FAR_BY_TCP, s->tcp, i)
					: measure(FAR_BY_RING, s->rdma, i);
	return r;
}

static void compare(struct finding *f, struct speeds *s)
{
	double rdma[FIGURES], tcp[FIGURES], least;

	for (int i = 0; i < FIGURES; i++) {
		rdma[i] = median_of(s->rdma[i], ROUNDS);
		tcp[i] = median_of(s->tcp[i], ROUNDS);
	}
	least = tcp[ROUND_TRIP] / rdma[ROUND_TRIP];
	for (int i = SENDING; i < FIGURES; i++)
		least = rdma[i] / tcp[i] < least ? rdma[i] / tcp[i] : least;
	way.measured.is_slower = least < LOSS;
	found(f,
	      "RDMA is %s; by it and by TCP: a round trip %.1f, %.1f us; sending %.1f, "
	      "%.1f MB/s; receiving %.1f, %.1f MB/s",
	      way.measured.is_slower ? "slower" : "not slower", rdma[ROUND_TRIP],
	      tcp[ROUND_TRIP], rdma[SENDING] / 1e6, tcp[SENDING] / 1e6,
	      rdma[RECEIVING] / 1e6, tcp[RECEIVING] / 1e6);
}

static bool measure_now(struct finding *f)
{
	static struct speeds speeds;
	int r;

	link_finish(); /* one connection is answered at a time */
	r = measure_both(&speeds);
	if (r == 0) {
		compare(f, &speeds);
		return true;
	}
	found_word(f, strerror(-r));
	found(f, "not measured: %s", strerror(-r));
	found_trouble(f, FINDING_NOTE, "Which way is faster is not known; RDMA is used.",
		      "Try again.");
	return false;
}

void check_against_tcp(struct finding *f)
{
	way.is_rdma = link_is_rdma();
	f->left_out = !way.is_rdma;
	if (f->left_out)
		return;
	way.is_kept = !way.measures_again &&
		      crossover_find(way.peer.addr, &way.measured) &&
		      !kept_is_old(&way.measured, time(NULL));
	if (way.is_kept)
		found(f, "RDMA is %s, as measured on %s",
		      way.measured.is_slower ? "slower" : "not slower",
		      way.measured.date);
	else
		way.measured = (struct crossover){0};
	if (!way.is_kept && !measure_now(f)) {
		way.is_rdma = false; /* nothing half measured is kept */
		return;
	}
	found_word(f, way.measured.is_slower ? "slower" : "not slower");
	if (way.measured.is_slower)
		found_trouble(f, FINDING_NOTE, "Connections with that host stay on TCP.",
			      "Measure again with --measure, on a quiet machine; or set "
			      "VIADUCT_REDIRECT=off, with which RDMA is used all the "
			      "same.");
}
