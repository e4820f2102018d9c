/* SPDX-License-Identifier: Apache-2.0 */
/* The begin of each call of a statically linked program: most receives and sends need no more. */
#define GENERAL_REGS_ONLY
#include "base/general_regs.h"

#include <stddef.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include "conn/conn.h"
#include "conn/quick.h"
#include "preload/hook.h"
#include "preload/static.h"

#define MORE_FLAGS (~(uint64_t)(MSG_DONTWAIT | MSG_NOSIGNAL))

static inline bool is_sent(uint64_t nr)
{
	return nr == SYS_write || nr == SYS_sendto;
}

/* Behind a filter there is no section: the calls that defer a signal may be forbidden. */
static inline bool is_quick(int fd, const struct static_frame *f, const struct quick *q)
{
	uint64_t nr = (uint32_t)f->rax;

	if (nr == SYS_recvfrom || nr == SYS_sendto) {
		if (f->r8 || f->r10 & MORE_FLAGS)
			return false;
	} else if (nr != SYS_read && nr != SYS_write) {
		return false;
	}
	return hook_active && fd_sock(fd) && !*q->lent;
}

uint64_t static_call(uint64_t fd, void *buf, size_t len, struct static_frame *f,
		     struct static_stash *stash, struct static_self *self)
{
	bool is_within = QUICK_IS_THERE && is_quick((int)fd, f, &self->quick);
	size_t moved = 0;

	if (__builtin_expect(is_within, 1)) {
		quick_enter(&self->quick);
		if (__builtin_expect(!static_is_amid(self, f) && hook_active, 1))
			moved = is_sent((uint32_t)f->rax)
					? quick_send((int)fd, buf, len, &self->quick)
					: quick_recv((int)fd, buf, len, &self->quick);
		if (__builtin_expect(moved != 0, 1) && quick_leave(&self->quick))
			return moved;
	}
	static_keep(stash, f);
	return (uint64_t)static_call_on(f, is_within, moved);
}
