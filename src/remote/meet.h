/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of a meeting between hosts: the acceptor's is meet.c, the connector's answer.c, and what
 * both do is meet_both.c. All under the lock. */
#ifndef VD_REMOTE_MEET_H
#define VD_REMOTE_MEET_H

#include "base/reason.h"
#include "daemon_client/local.h"
#include "remote/parts.h"

struct say;

/* There will be no link: `why` is for the log. */
void meet_refuse(struct peer *a, enum vd_reason reason, const char *why);
/* Why there is no link: of those that ask for one; `r` is -errno. */
enum vd_reason meet_reason(int r);
/* Nothing is said of the place any more: it can be given back at once. One that the peer may have taken
 * is given back by the peer's end of the connection, or by that of the link. */
void meet_leave_place(struct peer *a);
/* The link's hello leads to the host of the connection, and is right. */
bool meet_connect_link(struct peer *a, struct across_link *k, const struct say *s);

void answer_publish(struct peer *a);
/* The acceptor asks; `s` is NULL where it says nothing that this version knows. */
void answer_asked(const struct local_message *m, const struct say *s);

#endif
