/* SPDX-License-Identifier: Apache-2.0 */
/* The begin of each call of a statically linked program: most receives and sends need no more. */
#define GENERAL_REGS_ONLY
#include "base/general_regs.h"

#include <stddef.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include "conn/quick.h"
#include "preload/static.h"

#define MORE_FLAGS (~(uint64_t)(MSG_DONTWAIT | MSG_NOSIGNAL))

static inline size_t move_quickly(int fd, void *buf, size_t len,
				  const struct static_frame *f, struct quick *q)
{
	uint64_t nr = (uint32_t)f->rax;

	if ((nr == SYS_recvfrom || nr == SYS_sendto) && (f->r8 || f->r10 & MORE_FLAGS))
		return 0;
	if (nr == SYS_read || nr == SYS_recvfrom)
		return quick_recv(fd, buf, len, q);
	if (nr == SYS_write || nr == SYS_sendto)
		return quick_send(fd, buf, len, q);
	return 0;
}

/* Another call is under way, or has been left, or there is something to be settled first. */
static inline bool is_amid(const struct static_self *self, const struct static_frame *f)
{
	return self->calls || self->cancel_resumes || self->is_disarmed ||
	       self->given_up_count || (uint64_t)(f + 1) != self->top;
}

uint64_t static_call(uint64_t fd, void *buf, size_t len, struct static_frame *f,
		     struct static_stash *stash, struct static_self *self)
{
	size_t moved = 0;
	bool amid;

	quick_enter(&self->quick);
	amid = is_amid(self, f);
	if (QUICK_IS_THERE && __builtin_expect(!amid, 1)) {
		moved = move_quickly((int)fd, buf, len, f, &self->quick);
		if (__builtin_expect(moved != 0, 1) && quick_leave(&self->quick))
			return moved;
	}
	static_keep(stash);
	return (uint64_t)static_call_on(f, amid, moved);
}
