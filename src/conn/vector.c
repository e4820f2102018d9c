/* SPDX-License-Identifier: Apache-2.0 */
/* The array of a call that sleeps. */
#include "base/scratch.h"
#include "base/sigsafe.h"
#include "conn/conn.h"

void wait_keep_vector(struct wait *w)
{
	struct iov_cursor *at = w->at;
	if (!at || at->left == 0 || w->kept)
		return;
	size_t bytes = (size_t)at->left * sizeof(*at->iov);
	w->kept_bytes = at->left > 1 ? bytes : 0;
	w->kept = at->left > 1 ? scratch_take(bytes) : &w->last;
	if (!w->kept)
		return;
	if (crit_copy(w->kept, at->iov, bytes) < 0) {
		wait_drop_vector(w);
		return;
	}
	at->iov = w->kept;
	/* Somebody has made it shorter than what has been moved. */
	if (at->offset > at->iov->iov_len)
		at->offset = at->iov->iov_len;
	iov_settle(at);
}

void wait_drop_vector(struct wait *w)
{
	if (w->kept_bytes && w->kept)
		scratch_give(w->kept, w->kept_bytes);
	w->kept = NULL;
}
