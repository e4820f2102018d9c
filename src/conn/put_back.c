/* SPDX-License-Identifier: Apache-2.0 */
/* Options of TCP that Viaduct changes for a moment and puts back, while the program may set them. */
#include "conn/put_back.h"

#include <netinet/in.h>

#include "base/lock.h"
#include "base/real.h"

int put_back_set(struct sock *s, int fd, int name, const void *value, socklen_t len)
{
	lock_take(&s->slot->tx_lock);
	int r = REAL(setsockopt)(fd, IPPROTO_TCP, name, value, len);
	lock_drop(&s->slot->tx_lock);
	return r;
}
