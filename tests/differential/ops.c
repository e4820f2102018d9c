/* SPDX-License-Identifier: Apache-2.0 */
/* Which operation a number is, and how it is done. */
#include <stdlib.h>
#include <unistd.h>

#include "differential.h"

int perform_depth;
unsigned perform_number;

static const struct op *const groups[] = {
	ops_send,    ops_receive, ops_option, ops_descriptor, ops_poll,	 ops_epoll,
	ops_process, ops_wrong,	  ops_thread, ops_mixed,      ops_batch, ops_ready,
	ops_connect, ops_file,	  ops_odd,    ops_held,
};

static const struct op *pick(struct dice *d)
{
	unsigned sum = 0;
	for (size_t g = 0; g < sizeof groups / sizeof *groups; g++)
		for (const struct op *op = groups[g]; op->name; op++)
			sum += op->weight;
	unsigned at = dice(d, sum);
	for (size_t g = 0; g < sizeof groups / sizeof *groups; g++)
		for (const struct op *op = groups[g]; op->name; op++) {
			if (at < op->weight)
				return op;
			at -= op->weight;
		}
	return NULL;
}

bool pending(void)
{
	return getenv("DIFFERENTIAL_PENDING") != NULL;
}

void perform(unsigned number, int depth)
{
	struct dice d = dice_of(shared->seed, number);
	unsigned at = dice(&d, 8);
	/* A peer has the same dice, and does not look at this. */
	if (depth == 0 && getpid() == peer_pid(-1) && at < PEERS) {
		peer_perform((int)at, number);
		return;
	}
	const struct op *op = pick(&d);
	perform_number = number;
	perform_depth = depth;
	tell_begin(number, op->name);
	settle();
	op->run(&d);
	held_let_go();
	settle_publish();
	signals_tell();
}
