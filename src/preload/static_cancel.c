/* SPDX-License-Identifier: Apache-2.0 */
/* A thread that is cancelled in a call: the C library's handler finds it where the program makes the call.
 *
 * That handler does not come back where it cancels: the program's unwinder begins at its frame, and would
 * stop at ours. So it runs on the program's stack, with a context where the call's registers are. When it does come
 * back, the instructions before the call are made once more, lead here, and the interrupted call goes on.
 */
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>

#include "base/sigsafe.h"
#include "preload/static.h"

#define RED_ZONE 128
/* DF: a flag that comes back from the handler, and is not set at a call otherwise. */
#define MARK (1ull << 10)

static uint64_t room, *jumps;
static size_t room_count, way_bytes;

/* As the kernel makes it, as far as it is read. */
struct cancel_frame {
	void (*back)(void);
	unsigned char context[offsetof(ucontext_t, uc_sigmask) + sizeof(uint64_t)];
};

bool static_ways_begin(uint64_t at, size_t count, size_t bytes)
{
	jumps = mmap(NULL, count * sizeof(*jumps), PROT_READ | PROT_WRITE,
		     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (jumps == MAP_FAILED)
		return false;
	room = at;
	room_count = count;
	way_bytes = bytes;
	return true;
}

void static_way(size_t i, uint64_t jump)
{
	jumps[i] = jump;
}

/* mov %rax,%gs:vforked */
bool static_is_unnoted(uint64_t at)
{
	static const unsigned char mov[] = STATIC_NOTE;

	return at - room < room_count * way_bytes &&
	       memcmp((void *)at, mov, sizeof(mov) - 1) == 0;
}

static uint64_t jump_of(uint64_t tail)
{
	size_t i = (tail - room) / way_bytes;

	return i < room_count ? jumps[i] : 0;
}

static void set_registers(greg_t *to, const struct static_frame *f)
{
	to[REG_R8] = (greg_t)f->r8;
	to[REG_R9] = (greg_t)f->r9;
	to[REG_R10] = (greg_t)f->r10;
	to[REG_R12] = (greg_t)f->r12;
	to[REG_R13] = (greg_t)f->r13;
	to[REG_R14] = (greg_t)f->r14;
	to[REG_R15] = (greg_t)f->r15;
	to[REG_RDI] = (greg_t)f->rdi;
	to[REG_RSI] = (greg_t)f->rsi;
	to[REG_RBP] = (greg_t)f->rbp;
	to[REG_RBX] = (greg_t)f->rbx;
	to[REG_RDX] = (greg_t)f->rdx;
	to[REG_RAX] = (greg_t)f->rax;
	to[REG_RSP] = (greg_t)f->rsp;
	to[REG_RIP] = (greg_t)jump_of(f->tail);
	to[REG_EFL] = (greg_t)(f->flags | MARK);
}

bool static_cancel(struct static_self *self, const void *context, uint64_t here,
		   uint64_t next)
{
	const struct static_frame *f = self->calls;
	struct cancel_frame frame = {.back = static_cancel_back};
	ucontext_t copy;
	uint64_t to;

	if (!f || !static_is_own(self, here) || static_is_own(self, f->rsp) ||
	    static_is_alternate(self, f->rsp) || !jump_of(f->tail))
		return false;
	memcpy(&copy, context, sizeof(frame.context));
	set_registers(copy.uc_mcontext.gregs, f);
	memcpy(frame.context, &copy, sizeof(frame.context));
	to = ((f->rsp - RED_ZONE - sizeof(frame)) & ~63ull) - sizeof(frame.back);
	if (crit_copy((void *)to, &frame, sizeof(frame)) != 0)
		return false;
	self->next = (here - 256) & ~63ull;
	self->cancel_frame = to;
	self->cancel_next = next;
	self->cancel_resumes = here + sizeof(frame.back);
	return true;
}

void static_cancel_ends(struct static_self *self, struct static_frame *f)
{
	uint64_t to = self->cancel_resumes;
	bool is_back = f->flags & MARK;

	self->cancel_resumes = is_back ? 0 : STATIC_CANCEL_LEFT;
	f->flags &= ~MARK;
	if (!is_back || to == STATIC_CANCEL_LEFT)
		return;
	self->next = self->cancel_next;
	static_resume(to);
}

/* clang-format off */
__asm__(".pushsection .text\n"
	/* By these very bytes an unwinder knows the frame of a signal. */
	".globl static_cancel_back\n"
	".hidden static_cancel_back\n"
	".type static_cancel_back, @function\n"
	".balign 16\n"
	"static_cancel_back:\n"
	"	movq $15, %rax\n"
	"	syscall\n"
	".size static_cancel_back, . - static_cancel_back\n"

	".globl static_resume\n"
	".hidden static_resume\n"
	".type static_resume, @function\n"
	".balign 16\n"
	"static_resume:\n"
	"	movq %rdi, %rsp\n"
	"	movl $15, %eax\n"
	"	syscall\n"
	".size static_resume, . - static_resume\n"
	".popsection\n");
/* clang-format on */
