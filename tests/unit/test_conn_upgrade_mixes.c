/* SPDX-License-Identifier: Apache-2.0 */
/* What the policy of upgrades costs for mixes of long and short connections, against the best threshold. */
#include "unit/test.h"

#include "unit/earning.h"

#define TURN_NS 1000

/* One that makes so many turns and ends, upgraded where that is earned. What it has cost, in turns on TCP, where an
 * upgrade costs `price` of them and a turn on the ring a part of one. */
static double cost_of(int listener, const struct sockaddr_in *at, unsigned length,
		      double price, double ring_turn, bool slept)
{
	struct ends e = connection(listener, at);
	struct sock *s = fd_sock(e.b);
	struct slot *sl = s->slot;
	unsigned n = 1;
	double cost = length;
	clock_read = test_clock;
	while (n <= length && !is_enough(s, e.b, n % 2)) {
		own_ns += TURN_NS;
		n++;
	}
	if (n <= length) {
		uint64_t trips = (length - n + 1) / 2;
		atomic_store(&sl->phase, SLOT_ATTACHED);
		sl->rx_messages = sl->tx_messages = trips;
		atomic_store(&sl->rx_arm, slept ? trips : 0);
		atomic_store(&sl->doorbells, slept ? trips : 0);
		cost = n - 1 + price + (length - n + 1) * ring_turn;
	}
	earn_judge(s);
	clock_read = clock_gettime;
	atomic_store(&sl->phase, SLOT_EARNING);
	sl->rx_messages = sl->tx_messages = 0;
	atomic_store(&sl->rx_arm, 0);
	atomic_store(&sl->doorbells, 0);
	ended(e);
	return cost;
}

#define PRICE 60 /* turns */
/* Connections until what was learnt before is forgotten. */
#define LEARNING 50

/* The least that any fixed threshold costs for these lengths; 0: without upgrades. */
static double best_of(const unsigned *lengths, unsigned count, double ring_turn)
{
	double best = 0;
	for (unsigned i = 0; i < count; i++)
		best += lengths[i];
	for (unsigned at = OPERATIONS; at <= OPERATIONS << DOUBLINGS; at *= 2) {
		double sum = 0;
		for (unsigned i = 0; i < count; i++)
			sum += lengths[i] <= at
				       ? lengths[i]
				       : at + PRICE + (lengths[i] - at) * ring_turn;
		best = sum < best ? sum : best;
	}
	return best;
}

struct mix {
	const char *what;
	unsigned before, length, every, other; /* each so many-th has the other length */
	bool slept;
	double bound; /* times the best */
	bool crowd;   /* before */
};

/*
 * Whatever a port has taught, it is tried again: behind a change of its connections' lengths the costs
 * come to a small multiple of those of the best threshold, and what cannot pay costs little.
 */
TEST(no_verdict_lasts_unless_it_is_tried_again)
{
	static const struct mix mixes[] = {
		{"short", 5, 5, 1, 5, false, 1.01, false},
		{"ends behind the threshold", 5, 20, 1, 20, false, 1.05, false},
		{"the price of one", 5, 76, 1, 76, false, 1.10, false},
		{"pays", 5, 400, 1, 400, false, 1.15, false},
		{"long behind a warm-up", 60, 1900, 1, 1900, false, 1.15, false},
		{"long behind short ones", 5, 1900, 1, 1900, false, 1.15, false},
		{"short behind long ones", 5000, 20, 1, 20, false, 1.05, false},
		{"one of ten is long", 20, 20, 10, 3000, false, 1.6, false},
		{"one of two is long", 20, 20, 2, 3000, false, 1.6, false},
		{"sleeps", 5, 300, 1, 300, true, 1.05, false},
		{"sleeps, and is long", 5, 1500, 1, 1500, true, 1.15, false},
		{"behind a crowd", 450, 500, 1, 500, false, 1.15, true},
	};
	enum { COUNT = 400 };
	for (size_t m = 0; m < sizeof(mixes) / sizeof(mixes[0]); m++) {
		const struct mix *mix = &mixes[m];
		struct sockaddr_in at;
		int listener = first_listening(&at);
		double ring = mix->slept ? 0.875 : 0.02, sum = 0, best;
		unsigned lengths[COUNT];
		atomic_store(&slot_costs()->turn_ns, TURN_NS);
		atomic_store(&slot_costs()->upgrade_ns, PRICE * TURN_NS * 4 / 7);
		others_want_it = mix->crowd;
		for (unsigned i = 0; i < LEARNING; i++)
			cost_of(listener, &at, mix->before, PRICE, ring, mix->slept);
		others_want_it = false;
		for (unsigned i = 0; i < LEARNING; i++)
			cost_of(listener, &at, i % mix->every ? mix->length : mix->other,
				PRICE, ring, mix->slept);
		for (unsigned i = 0; i < COUNT; i++) {
			lengths[i] = i % mix->every ? mix->length : mix->other;
			sum += cost_of(listener, &at, lengths[i], PRICE, ring,
				       mix->slept);
		}
		best = best_of(lengths, COUNT, ring);
		printf("%s: %.2f times the best\n", mix->what, sum / best);
		CHECK(sum <= best * mix->bound);
		close(listener);
	}
}
