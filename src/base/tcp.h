/* SPDX-License-Identifier: Apache-2.0 */
/* What the kernel says about one TCP socket: how far its streams are, and who it is. */
#ifndef VD_BASE_TCP_H
#define VD_BASE_TCP_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

enum tcp_role { TCP_ROLE_UNKNOWN = 0, TCP_ROLE_CONNECTED = 1, TCP_ROLE_ACCEPTED = 2 };

/*
 * All return 0, or -errno. Values are written only on success. None blocks.
 *
 * The four counts are exact in every state from ESTABLISHED on, FINs or not. They return
 * -ENOTCONN before that, and after a reset or a timeout (CLOSE with an error pending):
 * then nobody can tell whether a FIN is among the counted bytes. -EAGAIN means that the
 * kernel's numbers never stood still, which only a flood of acknowledgements can do.
 */

/* Bytes that programs have written to the socket so far (acknowledged, or still queued).
 */
int tcp_written(int fd, enum tcp_role role, uint64_t *bytes);
/* Bytes that programs have read from the socket so far. */
int tcp_consumed(int fd, uint64_t *bytes);
/* Both at once, for a count that nothing depends on: what comes or goes meanwhile may be missing. */
int tcp_moved(int fd, uint64_t *written, uint64_t *consumed);
/* After a reset: bytes received, to which a FIN may have been added, and those still queued. */
int tcp_after_reset(int fd, uint64_t *received, uint32_t *queued);
/* Bytes received by the kernel in order, without SYN and FIN. */
int tcp_received(int fd, uint64_t *bytes);
/* Both of one moment, with those that the peer has acknowledged. */
struct tcp_counts {
	uint64_t acked, written, received;
};
int tcp_counts(int fd, enum tcp_role role, struct tcp_counts *out);
/* The state as TCP_ESTABLISHED and its kin of <netinet/tcp.h>. */
int tcp_state(int fd, int *state);
int tcp_cookie(int fd, uint64_t *cookie);	/* SO_COOKIE */
int tcp_netns_cookie(int fd, uint64_t *cookie); /* SO_NETNS_COOKIE */
/* Sends out what Nagle holds back, and leaves the options as they were. -EAGAIN, and nothing is
 * sent: TCP_CORK (which is set with `corked`) or MSG_MORE hold it back, so that it is not due. */
int tcp_push(int fd, bool corked);
/* The same, whatever holds it back. */
int tcp_push_held(int fd);
/* Acknowledges what has been read, now and, until something is sent, at each later read. */
void tcp_ack_at_once(int fd);

#endif
