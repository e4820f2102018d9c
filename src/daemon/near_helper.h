/* SPDX-License-Identifier: Apache-2.0 */
/* What viaductd has a child do with the descriptors of a process that is not trusted. */
#ifndef VD_DAEMON_NEAR_HELPER_H
#define VD_DAEMON_NEAR_HELPER_H

#include "daemon/daemon.h"

/*
 * A descriptor from a stranger may be anything: closing it, or a look at it, may take as long as its maker
 * likes. A file of FUSE is flushed by a server. Who sends out of memory that does not come holds the lock of
 * the socket, and everybody waits for it who connects that socket, or sends by it, or asks sock_diag for
 * details of it. No signal ends that. So viaductd does none of this itself: each process has a child that
 * does, while there is something to do, and carries out one order after another. A child that does not
 * answer is given up, and its process is hung up on.
 *
 * All that viaductd itself does with such a descriptor is to hold it, to pass it on, to wait for a
 * datagram, and to close it where it is of a kind that is never long in closing.
 */

enum near_order_kind {
	ORDER_TAKE, /* take the message that lies in the process's socket, and judge what it shows */
	ORDER_STEP, /* fds: the probe. Aim it at `peer`, send `secret`, and hear whether `due` has come */
	ORDER_HOLDS, /* fds: the sock_diag socket. The connection is still there, and still has that cookie */
};

struct near_order {
	enum near_order_kind kind;
	struct relay_ref near; /* the question that it is about, */
	uint32_t round;	       /* and its try: repeated in the report */
	struct name_end local, peer;
	uint64_t cookie;
	uint8_t secret[NEAR_SECRET_BYTES], due[NEAR_SECRET_BYTES];
};

struct near_report {
	enum near_order_kind kind;
	struct relay_ref near;
	uint32_t round;
	/* TAKE: bytes of the message, 0 at the end, or -errno, where -EBADF means other descriptors than are
	 * due. STEP: 1, it has come. HOLDS: 1, it does. */
	int32_t result;
	uint32_t status; /* TAKE: enum local_status */
	struct near_place
		place; /* TAKE: OK: but for the two descriptors, which come along */
	struct local_message m; /* TAKE */
};

/* near_child.c: in the child: `sock` is the process's, and `line` leads to viaductd. */
_Noreturn void near_child(int sock, int line, uint32_t uid);
/*
 * In the child: the message of the process. Returns its bytes; or 0 at the end; or -errno, where -EBADF means others
 * than the descriptors of a MEET, or none. Those have numbers then, and the child is to end.
 */
int32_t near_take_message(int sock, struct local_message *m, int fds[NEAR_FDS]);

/* What comes and goes on the line between the two. */
struct near_fds {
	int fd[NEAR_PLACE_FDS];
	int count; /* -1: others than are due have come, and are closed */
};
/* 0 or -errno; does not wait. */
int near_line_send(int line, const void *what, size_t bytes, const struct near_fds *fds);
ssize_t near_line_receive(int line, void *to, size_t bytes, int flags,
			  struct near_fds *fds);

#endif
