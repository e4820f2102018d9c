/* SPDX-License-Identifier: Apache-2.0 */
/* What viaductd and the process that asks conntrack for it say to each other. */
#ifndef VD_DAEMON_TRANSLATOR_H
#define VD_DAEMON_TRANSLATOR_H

#include "daemon/daemon.h"

/* One question, with a file of the network namespace unless it is viaductd's own. */
struct translate_order {
	struct relay_ref client;
	uint32_t id, uid;
	uint64_t cookie;
	bool accepted, is_own_space;
	struct name_end local, peer;
};

struct translate_report {
	struct relay_ref client;
	uint32_t id;
	uint32_t status;	     /* enum local_status */
	struct name_end local, peer; /* OK: as the other end's socket has them */
	uint64_t cookie;	     /* of that socket */
};

/* What leads to a child that asks. */
enum { TRANSLATE_LINE, TRANSLATE_PROCESS /* its pidfd */ };

/* translate_child.c: in the child that keeps the rights, which has nothing else of viaductd's. It makes one that asks,
 * and anew whenever that has ended, ever more slowly. Each try is a message of one byte by `line`, with both
 * descriptors, or without any where it has failed. */
_Noreturn void translate_keeper(int line);

#endif
