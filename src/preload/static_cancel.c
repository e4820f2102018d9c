/* SPDX-License-Identifier: Apache-2.0 */
/* A thread that is cancelled in a call: the C library's handler finds it where the program makes the call.
 *
 * That handler does not come back where it cancels: the program's unwinder begins at its frame, and would
 * stop at ours. So it runs on the program's stack, with a context where the call's registers are. When it does come
 * back, the instructions before the call are made once more, lead here, and the interrupted call goes on.
 *
 * The same holds for the instructions that lead from the program to the call and back, whose place the unwinder does not know
 * either: the kernel's call among them, where that is made as it is. On the thread's own stack the registers are in the frame,
 * though that is not among the thread's calls; on the program's they are where the program left them.
 */
#include <signal.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <ucontext.h>

#include "base/insn.h"
#include "base/kernel.h"
#include "base/sigsafe.h"
#include "preload/static.h"

#define RED_ZONE 128
/* DF: a flag that comes back from the handler, and is not set at a call otherwise. */
#define MARK (1ull << 10)

/* Where a call is led away. */
struct way {
	uint64_t jump;
	int32_t number; /* -1: not known */
	uint8_t head_bytes;
};

static struct way *ways;
static uint64_t room;
static size_t room_count, way_bytes;

/* As the kernel makes it, as far as it is read. */
struct cancel_frame {
	void (*back)(void);
	unsigned char context[offsetof(ucontext_t, uc_sigmask) + sizeof(uint64_t)];
};

bool static_ways_begin(uint64_t at, size_t count, size_t bytes)
{
	ways = mmap(NULL, count * sizeof(*ways), PROT_READ | PROT_WRITE,
		    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (ways == MAP_FAILED)
		return false;
	room = at;
	room_count = count;
	way_bytes = bytes;
	return true;
}

void static_way(size_t i, uint64_t jump, int32_t number, uint8_t head_bytes)
{
	ways[i] = (struct way){jump, number, head_bytes};
}

/* mov %rax,%gs:vforked */
bool static_is_unnoted(uint64_t at)
{
	static const unsigned char mov[] = STATIC_NOTE;

	return at - room < room_count * way_bytes &&
	       memcmp((void *)at, mov, sizeof(mov) - 1) == 0;
}

/* NULL: no call is led away there. */
static const struct way *way_at(uint64_t at)
{
	size_t i = (at - room) / way_bytes;

	return i < room_count && ways[i].jump ? &ways[i] : NULL;
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
}

/* It makes a call of that number when it is executed once more, whatever rax has become. */
static bool leads_here(const struct way *w)
{
	return w && w->number >= 0;
}

/*
 * Where the handler comes back, the next call of this thread is to be the one that goes on with what was interrupted. A
 * signal before would find that left. So all wait until then: static_cancel_ends gives their mask back.
 */
static void lead_back(struct static_self *self, ucontext_t *uc, const struct way *w)
{
	greg_t *to = uc->uc_mcontext.gregs;

	to[REG_RIP] = (greg_t)w->jump;
	to[REG_EFL] |= MARK;
	memcpy(&self->cancel_mask, &uc->uc_sigmask, sizeof(self->cancel_mask));
	memset(&uc->uc_sigmask, 0xff, sizeof(self->cancel_mask));
}

/* ---- on the thread's own stack ---- */

/* That of a call which is not, or no longer, among the thread's calls: it lies where the next one begins no more. */
static const struct static_frame *unlisted(const struct static_self *self,
					   const greg_t *regs, uint64_t next)
{
	const struct static_frame *f =
		(const struct static_frame *)(next + STATIC_KEPT_BYTES) - 1;

	if (!static_is_own(self, (uint64_t)f) ||
	    (uint64_t)(f + 1) - (uint64_t)regs[REG_RSP] >= STATIC_KEPT_BYTES ||
	    !leads_here(way_at(f->tail)))
		return NULL;
	return f;
}

/* Makes of them what they are where the program makes the call. NULL: that is not known. */
static const struct way *registers_at_call(const struct static_self *self, greg_t *regs,
					   uint64_t next, bool is_host)
{
	uint64_t done = (uint64_t)regs[REG_RIP] - (uint64_t)static_entry_takes;
	const struct static_frame *f;
	const struct way *w;

	/* All but rsp is as it was. */
	if (done < (uint64_t)static_entry_has_frame - (uint64_t)static_entry_takes) {
		w = way_at((uint64_t)regs[REG_RCX]);
		regs[REG_RSP] = regs[REG_R11];
		if (done > 0 && leads_here(w))
			regs[REG_RAX] = w->number;
		else
			w = NULL;
	} else if ((f = unlisted(self, regs, next))) {
		w = way_at(f->tail);
		set_registers(regs, f);
		regs[REG_RAX] = w->number;
	} else if (is_host && (f = self->calls)) {
		w = way_at(f->tail);
		set_registers(regs, f);
	} else {
		w = NULL;
	}
	return w;
}

static bool cancel_on_own(struct static_self *self, const ucontext_t *uc, uint64_t here,
			  uint64_t next, bool is_host)
{
	struct cancel_frame frame = {.back = static_cancel_back};
	ucontext_t copy;
	greg_t *regs = copy.uc_mcontext.gregs;
	const struct way *w;
	uint64_t rsp, to;

	memcpy(&copy, uc, sizeof(frame.context));
	w = registers_at_call(self, regs, next, is_host);
	rsp = (uint64_t)regs[REG_RSP];
	if (!w || static_is_own(self, rsp) || static_is_alternate(self, rsp))
		return false;
	lead_back(self, &copy, w);
	memcpy(frame.context, &copy, sizeof(frame.context));
	to = ((rsp - RED_ZONE - sizeof(frame)) & ~63ull) - sizeof(frame.back);
	if (crit_copy((void *)to, &frame, sizeof(frame)) != 0)
		return false;
	self->next = (here - 256) & ~63ull;
	self->cancel_frame = to;
	self->cancel_next = next;
	self->cancel_by_host = is_host;
	self->cancel_resumes = here + sizeof(frame.back);
	return true;
}

/* ---- on the program's stack ---- */

/* These set registers other than rsp, and no memory that more of them would not set again. */
static bool are_moves(uint64_t at, uint64_t end)
{
	struct insn x;

	for (; at < end; at += x.len) {
		const uint8_t *p = (const uint8_t *)at;
		uint8_t modrm;

		if (!insn_decode(p, INSN_MOST, &x) || x.vex || x.map)
			return false;
		modrm = p[x.modrm_at];
		if (x.op == 0x8b || x.op == 0x8d   ? (modrm & 0x38) == 0x20
		    : x.op == 0x31 || x.op == 0x33 ? modrm < 0xc0 || (modrm & 7) == 4
						   : x.op != 0xb8)
			return false;
	}
	return true;
}

/* These compare rax with a number, and branch by that. */
static bool are_compares(uint64_t at, uint64_t end)
{
	struct insn x;

	for (; at < end; at += x.len)
		if (!insn_decode((const uint8_t *)at, INSN_MOST, &x) || x.vex ||
		    (x.op != 0x3d && !x.is_branch))
			return false;
	return true;
}

/* That of a call whose instructions before or behind the entry are at `at`. NULL: of none, or its registers are not known. */
static const struct way *way_of_registers(uint64_t at, const greg_t *regs)
{
	uint64_t way = room + (at - room) / way_bytes * way_bytes, head;
	const struct way *w = way_at(at);

	if (at - (uint64_t)static_entry <
		    (uint64_t)static_entry_ends - (uint64_t)static_entry ||
	    at + way_bytes == room)
		return way_at((uint64_t)regs[REG_RCX]);
	if (!w)
		return NULL;
	head = way + w->head_bytes;
	if (at < head)
		return are_moves(way, at) ? w : NULL;
	/* Between these two is what a vfork comes to. */
	if (at >= head + STATIC_TAIL - STATIC_BACK_TO_VFORK && at < head + STATIC_FLAGS)
		return NULL;
	if (at <= head + STATIC_TAIL)
		return w;
	return are_compares(head + STATIC_TAIL, at) ? w : NULL;
}

/*
 * The kernel has the frame where the program's unwinder expects it: only the context is changed. When the handler
 * comes back, that frame lies below the stack, where another signal would destroy it: so none may come until the call leads here.
 */
static void cancel_in_place(struct static_self *self, ucontext_t *uc, uint64_t here)
{
	greg_t *regs = uc->uc_mcontext.gregs;
	const struct way *w = way_of_registers((uint64_t)regs[REG_RIP], regs);

	if (!leads_here(w))
		return;
	memcpy(self->cancel_was, regs, sizeof(self->cancel_was));
	regs[REG_RAX] = w->number;
	lead_back(self, uc, w);
	self->cancel_next = self->next;
	self->cancel_by_host = false;
	self->cancel_resumes = here + sizeof(uint64_t);
}

bool static_cancel(struct static_self *self, ucontext_t *uc, uint64_t here, uint64_t next,
		   bool is_host)
{
	uint64_t at = (uint64_t)uc->uc_mcontext.gregs[REG_RSP];

	if (static_is_own(self, here))
		return cancel_on_own(self, uc, here, next, is_host);
	if (!is_host && crit_depth == 0 && !static_is_own(self, at) &&
	    !static_is_alternate(self, at) && !static_is_alternate(self, here))
		cancel_in_place(self, uc, here);
	return false;
}

bool static_cancel_is_left(const struct static_self *self, uint64_t rsp)
{
	return static_is_own(self, self->cancel_resumes) || rsp > self->cancel_resumes;
}

/* ---- the handler has come back, or has left ---- */

static void resume(struct static_self *self, const struct static_frame *f, uint64_t to)
{
	ucontext_t *uc = (void *)to;

	self->next = self->cancel_next;
	if (!static_is_own(self, to)) {
		memcpy(uc->uc_mcontext.gregs, self->cancel_was, sizeof(self->cancel_was));
		memcpy(&uc->uc_sigmask, &self->cancel_mask, sizeof(self->cancel_mask));
	}
	static_resume(to, self->cancel_by_host ? self->host_fs : f->fs);
}

void static_cancel_ends(struct static_self *self, struct static_frame *f)
{
	uint64_t to = self->cancel_resumes;
	bool is_back = f->flags & MARK;

	/* A call of the handler, which interrupts none. */
	if (!is_back && !static_is_own(self, to) &&
	    (static_is_own(self, f->rsp) || static_is_alternate(self, f->rsp) ||
	     !static_cancel_is_left(self, f->rsp)))
		return;
	self->cancel_resumes = is_back ? 0 : STATIC_CANCEL_LEFT;
	f->flags &= ~MARK;
	if (is_back && to != STATIC_CANCEL_LEFT)
		resume(self, f, to);
	/* Another signal came amid the handler: the call is made once more. */
	if (is_back)
		kernel_call4(SYS_rt_sigprocmask, SIG_SETMASK, (long)&self->cancel_mask, 0,
			     sizeof(self->cancel_mask));
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
	"	wrfsbase %rsi\n"
	"	movl $15, %eax\n"
	"	syscall\n"
	".size static_resume, . - static_resume\n"
	".popsection\n");
/* clang-format on */
