/* SPDX-License-Identifier: Apache-2.0 */
/* Withdrawals that viaductd has had no room for yet. */
#ifndef VD_REMOTE_OWED_H
#define VD_REMOTE_OWED_H

#include <stdbool.h>

#include "base/endpoint.h"
#include "remote/parts.h"

/*
 * Of one line to viaductd. They are said before anything else is: so a connection with the same ends, asked
 * about later, is not withdrawn by one of these. Whoever closes the line forgets them, and so does viaductd.
 * Under the lock.
 */
struct owed {
	int count;
	struct {
		struct name_end local, peer;
	} at[ACROSS_CONNECTIONS];
};

/* Says those that are owed, as far as there is room: 0 when none is left; -EAGAIN; or another -errno, with
 * which the line is of no use. */
int owed_say(struct owed *o, int line);
/* The same, and then this one, or owes it. 0 or -errno as above but for -EAGAIN; -ENOBUFS: it is lost. */
int owed_withdraw(struct owed *o, int line, const struct name_end *local,
		  const struct name_end *peer);

#endif
