/* SPDX-License-Identifier: Apache-2.0 */
/* What other files do for a process that leaves its table. */
#ifndef VD_CONN_LEAVE_H
#define VD_CONN_LEAVE_H

#include "conn/sock.h"

/* meeting.c: whatever those do who still have the old table, here the connection is TCP's. */
void meeting_leave(struct sock *s);
/* leave.c: in a forked child. Where the table is private, its rings are the parent's alone. */
void leave_forked_child(void);
/* trace.c: who traces this process looks at the old table. */
void trace_leave(void);

#endif
