/* SPDX-License-Identifier: Apache-2.0 */
/* Withdraws from viaductd what is not asked any more, at once or when there is room. */
#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#include "base/kernel.h"
#include "daemon_client/local.h"
#include "remote/owed.h"

static int say(int line, const struct name_end *local, const struct name_end *peer)
{
	struct local_message m;
	long n;

	memset(&m, 0, LOCAL_HEAD_BYTES);
	m.version = LOCAL_PROTOCOL;
	m.type = LOCAL_WITHDRAW;
	m.local = *local;
	m.peer = *peer;
	n = kernel_call6(SYS_sendto, line, (long)&m, LOCAL_HEAD_BYTES,
			 MSG_DONTWAIT | MSG_NOSIGNAL, 0, 0);
	return n < 0 ? (int)n : 0;
}

int owed_say(struct owed *o, int line)
{
	int done = 0, r = 0;

	while (done < o->count && r == 0) {
		r = say(line, &o->at[done].local, &o->at[done].peer);
		done += r == 0;
	}
	if (done > 0) {
		o->count -= done;
		memmove(o->at, o->at + done, (size_t)o->count * sizeof(o->at[0]));
	}
	return r;
}

int owed_withdraw(struct owed *o, int line, const struct name_end *local,
		  const struct name_end *peer)
{
	int r = owed_say(o, line);

	if (r == 0)
		r = say(line, local, peer);
	if (r != -EAGAIN)
		return r;
	if (o->count == ACROSS_CONNECTIONS)
		return -ENOBUFS;
	o->at[o->count].local = *local;
	o->at[o->count++].peer = *peer;
	return 0;
}
