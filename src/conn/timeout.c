/* SPDX-License-Identifier: Apache-2.0 */
/* SO_RCVTIMEO and SO_SNDTIMEO: what the program has set is kept beside the socket. */
#include "base/atomic.h"
#include "conn/timeout.h"

#include <errno.h>
#include <sys/time.h>

#include "base/real.h"
#include "base/sigsafe.h"
#include "conn/conn.h"

#define NS_PER_S 1000000000

bool timeout_is_name(int name)
{
	return name == SO_RCVTIMEO_OLD || name == SO_RCVTIMEO_NEW ||
	       name == SO_SNDTIMEO_OLD || name == SO_SNDTIMEO_NEW;
}

static void store(struct sock *s, enum timeout_of which, int64_t ns)
{
	if (ns == TIMEOUT_AT_ONCE)
		atomic_fetch_or(&s->slot->ever, 1u << which);
	store_relaxed(&s->slot->timeout_ns[which], ns);
}

/* As the kernel has it: rounded up to its ticks. TIMEOUT_NEVER for "at once", too. */
static int64_t ask(int fd, enum timeout_of which)
{
	struct timeval tv = {0};
	socklen_t len = sizeof(tv);
	if (REAL(getsockopt)(fd, SOL_SOCKET,
			     which == TIMEOUT_RX ? SO_RCVTIMEO : SO_SNDTIMEO, &tv,
			     &len) < 0)
		return TIMEOUT_NEVER;
	if (tv.tv_sec >= INT64_MAX / NS_PER_S)
		return INT64_MAX;
	return (int64_t)tv.tv_sec * NS_PER_S + (int64_t)tv.tv_usec * 1000;
}

int timeout_set(struct sock *s, int fd, int name, const void *value, socklen_t len)
{
	bool rx = name == SO_RCVTIMEO_OLD || name == SO_RCVTIMEO_NEW;
	enum timeout_of which = rx ? TIMEOUT_RX : TIMEOUT_TX;
	struct timeval tv;
	/* The kernel gets the copy: another thread may change what the program has given. */
	if ((int)len < (int)sizeof(tv) || crit_copy(&tv, value, sizeof(tv)) < 0)
		return REAL(setsockopt)(fd, SOL_SOCKET, name, value, len) < 0 ? -errno
									      : 0;
	/* Together, so that of two threads the same one is the last here and there. */
	bool taken = ctl_take(s);
	int r = REAL(setsockopt)(fd, SOL_SOCKET, name, &tv, sizeof(tv)) < 0 ? -errno : 0;
	if (!taken)
		return r;
	if (r == 0)
		store(s, which, tv.tv_sec < 0 ? TIMEOUT_AT_ONCE : ask(fd, which));
	lock_drop(&s->slot->ctl);
	return r;
}

void timeout_inherit(struct sock *s, struct sock *listener)
{
	uint32_t ever = load_relaxed(&listener->slot->ever);
	for (unsigned which = TIMEOUT_RX; ever && which <= TIMEOUT_TX; which++)
		if (ever & 1u << which)
			store(s, which, TIMEOUT_UNKNOWN);
}

bool timeout_learn(struct sock *s, int fd)
{
	bool known = true;
	lock_take(&s->slot->ctl);
	for (unsigned which = TIMEOUT_RX; which <= TIMEOUT_TX; which++) {
		int64_t ns = timeout_ns(s, which);
		if (ns == TIMEOUT_NEVER || ns == TIMEOUT_UNKNOWN) {
			int64_t now = ask(fd, which);
			known &= now != TIMEOUT_NEVER || ns == TIMEOUT_NEVER;
			if (now != TIMEOUT_NEVER)
				store(s, which, now);
		}
	}
	lock_drop(&s->slot->ctl);
	return known;
}

int64_t timeout_ask(struct sock *s, int fd, enum timeout_of which)
{
	int64_t ns = timeout_ns(s, which), now = ask(fd, which);
	bool untold = ns == TIMEOUT_AT_ONCE || ns == TIMEOUT_UNKNOWN;
	return now == TIMEOUT_NEVER && untold ? ns : now;
}
