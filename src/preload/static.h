/* SPDX-License-Identifier: Apache-2.0 */
/* Statically linked programs with a C library of their own, whose system calls are led here.
 *
 * Two C libraries share the process: the program's, and the host's, which this library is linked with.
 * Each finds its thread's data by FS. These rules hold at every instruction:
 *
 * - GS is the address of the thread's `struct static_self`, from before the thread's first instruction of
 *   the program on, and is never changed. It is that of static_nobody in a child that shares the memory and
 *   is no thread: such a child makes its calls itself, and its handlers are called without ours.
 * - FS is the program's wherever the program's code runs, in its handlers of signals, too, and in static_call.
 *   It is the host's in other C code of this library, from static_keep on. In the assembly between the two it may be
 *   either: nothing there uses it. The program's is in static_self.program_fs, since only calls of ours change it: see
 *   STATIC_READS_FS.
 * - The stack is the program's up to the instruction that makes it a place on the thread's own one, by
 *   static_self alone; and from that instruction on which takes the program's back. Nothing is ever written
 *   to the program's stack.
 *
 * What a signal finds:
 * - FS is the one or the other: the handler's entry makes it the host's, and puts back what it was.
 * - The stack is the program's: the kernel has the frame there, or on the alternate stack, as without us.
 * - The stack is our own, in the middle of a call or of its assembly: the frame is on our stack below all that
 *   is in use, or on the alternate stack. Calls of the handler begin below that: `next` says where.
 * - Something of another signal: that comes before the first one's entry has done anything. So each call keeps
 *   128 KB for itself from the instruction before it has its stack, and until after it has left it.
 * - A handler that leaves by longjmp leaves calls behind. They are known at the thread's next call or signal,
 *   by the stack where that comes from, and what they had to give back is given back then.
 *
 * static_call makes most receives and sends by conn/quick.h, before static_keep. For calls that may be such, on a connection
 * and with no filter (seccomp.c), all of that is one critical section of the thread. Around it nothing is done:
 * - The direction flag and AC are the program's up to static_keep: to read them, the processor waits until all before is done. No
 *   instruction here goes by the direction. A copy that faults because of AC moves nothing, and is made behind static_keep.
 * - A signal finds the frame not among `calls`, and is deferred. It leaves FS, `next` and the alternate stack
 *   as they were. Only a fault of the copy is no such signal: no function is called for it.
 * - Where one was deferred, the call goes on as others do: it is put among `calls`, FS becomes the host's, and the section
 *   ends. The handler runs there. If it leaves, forks, ends the thread or closes the number, that is as behind any
 *   system call that has moved its bytes, or has not begun. A cancelled thread is found there, too.
 * - A signal at an instruction before or behind the section finds what it finds around any call: nothing has been done,
 *   or all of it. Nothing has been read in advance that a handler can change. So a fork, a longjmp, an exec or a
 *   nested call in the handler needs no rule of its own. A cancellation finds the call's registers by where it is:
 *   see static_cancel.c.
 * - A fork by another thread in the middle leaves the child without this thread. Its lock in shared memory has an owner that
 *   lives on in the parent. An exec or an end by another thread leaves a lock whose owner has died: see base/lock.h.
 * - The child of a vfork finds nothing of it: its parent has made the call elsewhere. Neither it nor its parent's first
 *   call behind it is made so (crit_comes_back).
 *
 * A fork in the middle copies the thread's own stack with all the rest: the child goes on there. The child
 * of a vfork has its parent's thread data, own stack included, which its parent does not use meanwhile: that one
 * has made the call itself, with nothing of it left on the own stack. Which of both runs static_self.vforked
 * says, which each writes by the first instruction behind the call; a signal before that writes it first.
 * A child that was killed amid a section has left that behind: see crit_lent. Its parent is in none until its next call,
 * the next signal, or the end of the handler that made the child, whichever comes first, and that puts it right.
 */
#ifndef VD_PRELOAD_STATIC_H
#define VD_PRELOAD_STATIC_H

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <ucontext.h>

#include "conn/quick.h"
#include "preload/door.h"

/* One call: what the program's registers are to be behind it. On the thread's own stack. */
struct static_frame {
	/* These three by static_call. */
	struct static_frame *outer;
	uint64_t place,
		next_after; /* its end; and where another stack's call begins behind it */
	uint64_t fs, r15, r14, r13, r12, rbp, rbx, r9, r8, r10, rdx, rsi, rdi, rax, flags;
	uint64_t tail; /* where the program goes on: behind a `syscall` of two bytes */
	uint64_t rsp;
};

/* What the entry keeps of the vector registers, between the frame and all else that static_keep does. */
struct static_stash {
	uint8_t xmm[16][16];
	uint32_t mxcsr, mxcsr_now;
	uint64_t kept; /* what static_keep has done: 0: nothing */
	uint8_t unused[48];
};

/* A call keeps so much from its first instruction on: 131072 in the assembly. */
#define STATIC_KEPT_BYTES (128ull << 10)

#define STATIC_GIVEN_UP_MOST 4
#define STATIC_UNDER_MOST    8
#define STATIC_CANCEL_LEFT   1
/* Before the tail of each way stands `syscall`, and before that one more, whose result goes to `vforked`. */
#define STATIC_BACK_TO_CALL  2
#define STATIC_BACK_TO_VFORK 20
/* Behind the moved part that stands first: where the tail is, and what ends with its `syscall`. */
#define STATIC_TAIL  65
#define STATIC_FLAGS 58

/* FS is to be read at each call: a child of vfork has had another one than its parent, at the same time. */
#define STATIC_READS_FS 1
/* Of no thread: static_nobody. */
#define STATIC_NOBODY 2

/* Of a thread. The assembly knows the first twelve by their places. */
struct static_self {
	uint64_t
		next; /* where a call from another stack begins: below all that is in use */
	uint64_t bottom; /* of its own stack */
	uint64_t bytes;	 /* of that, up to where no call begins above */
	uint64_t host_fs;
	uint64_t program_fs;
	uint64_t
		home; /* the host's frame that a thread returns to; 0: the first thread */
	uint64_t top; /* where a call begins when no other is under way */
	struct static_frame *calls; /* the innermost that is under way */
	uint64_t cancel_frame;	    /* of the handler that cancels: see static_cancel.c */
	uint64_t vforked; /* what the thread's last vfork has returned: 0 in its child */
	uint64_t odd;	  /* 0, or one of the two above */
	struct static_self *self;
	uint64_t cancel_next;
	uint64_t
		cancel_resumes; /* 0: there was none. STATIC_CANCEL_LEFT, or what resumes its call */
	uint32_t *cleared; /* to be 0 at the thread's end, and somebody woken; or NULL */
	stack_t alternate; /* as the program has set it; its size 0: none */
	bool is_disarmed;  /* the kernel has taken that away for a handler, or had */
	/* Such as the program has set with SS_AUTODISARM, under handlers that run on them. */
	stack_t given_up[STATIC_GIVEN_UP_MOST];
	unsigned given_up_count;
	struct quick quick;
	bool cancel_by_host;  /* FS was the host's where that signal came */
	uint64_t cancel_mask; /* of the thread, where that signal came */
	/* What was there, where the signal's own frame is changed. */
	gregset_t cancel_was;
	/* Of the outermost calls under way, what is needed where one has been left: its frame may be overwritten by then. */
	struct static_under {
		struct static_frame *frame, *outer;
		uint64_t rsp;
	} under[STATIC_UNDER_MOST];
};

#define STATIC_TLS _Thread_local __attribute__((tls_model("initial-exec")))
extern STATIC_TLS struct static_self static_self;
extern const struct static_self static_nobody;

static inline bool static_is_own(const struct static_self *self, uint64_t at)
{
	return at - self->bottom < self->bytes;
}

/* A child of vfork runs in the place of this thread, which waits for its end. */
static inline bool static_is_lent(const struct static_self *self)
{
	return self->vforked == 0;
}

/* Another call is under way, or has been left, or there is something to be settled before this one begins. */
static inline bool static_is_amid(const struct static_self *self,
				  const struct static_frame *f)
{
	return self->calls || self->cancel_resumes || self->is_disarmed ||
	       self->given_up_count || (uint64_t)(f + 1) != self->top;
}

static inline bool static_is_within(const stack_t *s, uint64_t at)
{
	return at - (uint64_t)s->ss_sp - 1 < s->ss_size;
}

/* Which alternate stack that is, the ones given up first; -1: none. */
static inline int static_alternate_at(const struct static_self *self, uint64_t at)
{
	int count = (int)self->given_up_count;

	for (int i = 0; i < count; i++)
		if (static_is_within(&self->given_up[i], at))
			return i;
	return static_is_within(&self->alternate, at) ? count : -1;
}

static inline bool static_is_alternate(const struct static_self *self, uint64_t at)
{
	return static_alternate_at(self, at) >= 0;
}

/* ---- static_entry.c ---- */

/* Jumped to in the place of `syscall`, with the tail's address in rcx. */
void static_entry(void);
/* Its instruction that takes the thread's own stack: r11 is where that begins. */
extern const char static_entry_takes[];
/* Behind the one from which on the frame is complete, but for its flags; and the entry's end. */
extern const char static_entry_has_frame[], static_entry_ends[];
/* Makes FS the host's, keeps the flags and the other vector registers, and has the entry put all of them
 * back. For static_call alone. */
void static_keep(struct static_stash *stash, struct static_frame *f);
/* Behind that: the rest of static_call. `is_within`: the section is to be ended. `moved`: as quick.c has said. NULL, or where
 * the call is to be made. */
struct static_frame *static_call_on(struct static_frame *f, bool is_within, size_t moved);
/* Makes this thread one of the program's, whose own stack lies below `top`. */
void static_adopt(uint64_t bottom, uint64_t top);
/* What calls have left behind that a handler has left by longjmp: those that cannot go on where the
 * thread now is at `rsp`. `below` is below all of them. The outermost of them, or NULL. */
struct static_frame *static_settle(struct static_self *self, uint64_t rsp,
				   uint64_t below);
/* Jumps to where the frame says; keeps the place to return to. */
void static_thread_enter(const struct static_frame *frame, struct static_self *self);
void static_thread_leave(uint64_t home) __attribute__((noreturn));
/* Makes the call of the frame, a clone whose child shares the memory and is no thread. */
long static_stray(const struct static_frame *frame);
extern uint64_t static_vector_bytes;
extern bool static_use_is_known;

/* ---- static_call.c ---- */

/*
 * FS is the program's, and of the vector registers the entry has kept XMM0 to 7: see quick.h. The first three
 * arguments are the program's. Returns the result, if it has not come to static_keep. Else the result is in the frame.
 * NULL: it is made. Otherwise it is to be made there, where the frame has been copied to.
 */
QUICK_CODE uint64_t static_call(uint64_t fd, void *buf, size_t len,
				struct static_frame *f, struct static_stash *stash,
				struct static_self *self);

/* ---- static_join.c ---- */

/* NULL: the program is mapped, and may begin. Else why not. */
const char *static_join(void);
/* The numbers that come to C: into `size` bytes, at least 512. */
size_t static_concerns(uint8_t *to, size_t size);

/* ---- static_thread.c: numbers that begin and end threads and processes ---- */

/* False: the number is another. */
bool static_begins(struct static_self *self, struct static_frame *f, long *result);
void static_exit(struct static_self *self, int status);
/* Amid the stand-down before a filter of system calls (seccomp.c), which this thread puts on. */
void static_stand_down(void);
/* borrowed_known: in the child of a vfork another number than in the thread whose place it has. 0: a thread of ours. */
int static_vfork_mark(void);

/* ---- static_signal.c ---- */

long static_sigaction(long sig, long set, long old, long size);
long static_sigaltstack(struct static_self *self, uint64_t rsp, long set, long old);
/* The alternate stack is the thread's again, after a handler that has left it by longjmp. */
void static_rearm(struct static_self *self);
void static_signal_init(void);

/* ---- static_cancel.c ---- */

/* What leads calls away is at `at`, `bytes` for each of `count` calls; false: no memory. */
bool static_ways_begin(uint64_t at, size_t count, size_t bytes);
/* The i-th call's place in the program that leads there, its number, or -1, and what is moved from before it. */
void static_way(size_t i, uint64_t jump, int32_t number, uint8_t head_bytes);
/* mov %rax,%gs:vforked: changes no flag, as a vfork does. */
#define STATIC_NOTE "\x65\x48\x89\x04\x25\x48\0\0\0"
/* A signal before the instruction that writes what vfork has returned. */
bool static_is_unnoted(uint64_t at);
/* True: the handler is to run with self->cancel_frame, whose context is on it: the signal's frame is `here`. */
bool static_cancel(struct static_self *self, ucontext_t *uc, uint64_t here, uint64_t next,
		   bool is_host);
/* Whether a call, or what another signal interrupts, at `rsp` of the program's own stack, shows that the handler has left. */
bool static_cancel_is_left(const struct static_self *self, uint64_t rsp);
/* The handler has come back to make the call of this frame, or left before: the interrupted one goes on, or
 * is left. */
void static_cancel_ends(struct static_self *self, struct static_frame *f);
void static_cancel_back(void);
void static_resume(uint64_t frame, uint64_t fs) __attribute__((noreturn));

/* ---- static_memory.c ---- */

/* Of the program's own, since malloc of the host's C library has the kernel's. */
bool static_brk_init(void);
long static_brk(uint64_t to);
/* Around a fork: the child finds it as it is between two calls. */
void static_brk_hold(void);
void static_brk_release(void);

#endif
