/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the system calls of a program that is linked statically, and room to lead them away.
 *
 * A jump takes five bytes, and `syscall` has two. So instructions before and behind it are moved with
 * it: whole ones that do the same elsewhere, and of which none but the first can be jumped to. Where
 * there are none, a jump of two bytes leads to NOPs nearby.
 *
 * Handlers of exceptions (landing pads) are not among the targets that are known. The unwinder alone
 * leads there, with its own values in rax and rdx, so no code runs into one from before. One could
 * stand behind a call that never returns: behind those nothing is moved.
 */
#include "base/static_text.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "base/find_call.h"
#include "base/insn.h"
#include "base/kernel.h"
#include "base/regular.h"
#include "base/static_sweep.h"

enum { JUMP = 5, SYSCALL = 2, PAD = 7, STEPS_MOST = 64 };

struct search {
	struct sweep sweep;
	struct static_text *found;
	const uint8_t *concerns;
	size_t concerns_count;
};

static bool decode(const struct sweep_span *in, size_t at, struct insn *x)
{
	return at < in->len && insn_decode(in->bytes + at, in->len - at, x);
}

/* The instruction before that one. */
static bool before(const struct sweep_span *in, size_t at, size_t *prev)
{
	for (size_t back = 1; back <= INSN_MOST && back <= at; back++)
		if (sweep_bit(in->starts, at - back)) {
			*prev = at - back;
			return true;
		}
	return false;
}

/* A branch that is not taken, or falls through, and leaves the registers but rcx alone. */
static bool is_condition(const struct insn *x)
{
	if (!x->is_branch || x->vex)
		return false;
	return x->map == 1 ? (x->op & 0xf0) == 0x80
			   : (x->op & 0xf0) == 0x70 || (x->op & 0xfc) == 0xe0;
}

static bool is_syscall(const struct insn *x)
{
	return !x->vex && x->map == 1 && x->op == 0x05;
}

/* What rax holds at the syscall, if each way there comes past an instruction that says so. */
static int32_t number_of(const struct sweep_span *in, size_t at)
{
	struct insn x;
	int64_t n;

	while (!sweep_bit(in->targets, at) && before(in, at, &at) && decode(in, at, &x)) {
		const uint8_t *p = in->bytes + at;

		if (insn_sets_rax(p, &x, &n))
			return n >= 0 && n <= INT32_MAX ? (int32_t)n : -1;
		if (!is_condition(&x) &&
		    (insn_leads_away(p, &x) || insn_may_write_rax(p, &x)))
			return -1;
	}
	return -1;
}

/*
 * Compilers set eax in the same way that leads to the call, or somewhere before a branch to it. Where
 * neither is so, these bytes are a table among the instructions: to change them changes what it says.
 */
static bool may_be_data(const struct sweep_span *in, size_t at)
{
	struct insn x;

	for (int i = 0; i < STEPS_MOST && !sweep_bit(in->branched, at); i++) {
		const uint8_t *p;

		if (!before(in, at, &at) || !decode(in, at, &x))
			return true;
		p = in->bytes + at;
		if (insn_is_call(p, &x) || insn_moves_to_rax(p, &x))
			return false;
		if (insn_leads_away(p, &x) && !is_condition(&x) && !is_syscall(&x))
			return true;
	}
	return !sweep_bit(in->branched, at);
}

static bool never_returns(int32_t number)
{
	return number == SYS_exit || number == SYS_exit_group ||
	       number == SYS_rt_sigreturn;
}

/* Whether it does the same at another address. */
static bool can_move(const uint8_t *p, const struct insn *x)
{
	return !insn_leads_away(p, x) && !x->is_rip;
}

static bool is_return(const struct insn *x)
{
	return !x->vex && x->map == 0 && x->op == 0xc3;
}

/* lea: an address by the distance from its end, which can be corrected for where it is moved to. */
static bool is_near_lea(const uint8_t *p, const struct insn *x)
{
	const int64_t most = 1 << 29;
	int64_t distance = x->is_rip ? insn_number(p + x->disp_at, 4) : 0;

	return x->is_rip && !x->vex && x->map == 0 && x->op == 0x8d && !x->short_addr &&
	       distance > -most && distance < most;
}

/* From the first instruction moved to the syscall. False: one is that cannot be. */
static bool take_head(const struct sweep_span *in, size_t from, size_t to,
		      struct static_site *s)
{
	struct insn x;

	if (to - from > STATIC_MOVED)
		return false;
	s->rip_end = 0;
	for (size_t at = from; at < to; at += x.len) {
		const uint8_t *p = in->bytes + at;

		if (!decode(in, at, &x) || (at != from && sweep_bit(in->targets, at)))
			return false;
		if (!s->rip_end && is_near_lea(p, &x))
			s->rip_end = (uint8_t)(at + x.len - from);
		else if (!can_move(p, &x))
			return false;
	}
	s->head_bytes = (uint8_t)(to - from);
	memcpy(s->head, in->bytes + from, to - from);
	s->jump = in->addr + from;
	return from == to || !sweep_bit(in->targets, to);
}

/* A branch as the last instruction: one way or two from there on. */
static bool take_last(const struct sweep_span *in, size_t at, const struct insn *x,
		      struct static_site *s)
{
	uint64_t next = in->addr + at + x->len, to;

	if (is_return(x)) {
		memcpy(s->tail + s->tail_bytes, in->bytes + at, x->len);
		s->tail_bytes = (uint8_t)(s->tail_bytes + x->len);
		s->back = 0;
		return true;
	}
	/* The loops e0 to e3 have no form that leads far; xbegin is no jump. */
	if (!x->is_branch || x->op == 0xe8 || x->op == 0xc7 ||
	    (x->map == 0 && (x->op & 0xfc) == 0xe0))
		return false;
	to = next + (uint64_t)insn_number(in->bytes + at + x->imm_at, x->imm_len);
	s->back = next;
	if (is_condition(x)) {
		s->cond = (uint8_t)(0x80 | (x->op & 0x0f));
		s->cond_to = to;
	} else {
		s->back = to;
	}
	return true;
}

/*
 * Takes what is behind the syscall until the jump has its five bytes. *end: behind what is replaced.
 * Bytes after that are no longer the jump's, and may be jumped to.
 */
static bool take_tail(const struct sweep_span *in, size_t at, struct static_site *s,
		      size_t *end)
{
	size_t from = (size_t)(s->jump - in->addr);
	struct insn x;

	s->tail_bytes = 0;
	s->cond = 0;
	s->cond_to = 0;
	s->back = in->addr + at;
	for (*end = at; *end - from < JUMP; *end += x.len) {
		const uint8_t *p = in->bytes + *end;

		if (!decode(in, *end, &x) || sweep_bit(in->targets, *end))
			return false;
		if (!can_move(p, &x)) {
			if (!take_last(in, *end, &x, s))
				return false;
			*end += x.len;
			return *end - from >= JUMP;
		}
		memcpy(s->tail + s->tail_bytes, p, x.len);
		s->tail_bytes = (uint8_t)(s->tail_bytes + x.len);
		s->back = in->addr + *end + x.len;
	}
	return true;
}

/* No way leads to a byte amid what is replaced, be it no instruction's first. */
static bool is_quiet(const struct sweep_span *in, size_t from, size_t end)
{
	for (size_t at = from + 1; at < end; at++)
		if (sweep_bit(in->targets, at))
			return false;
	return true;
}

/* As few instructions before the syscall as will do. `floor`: what may not be touched ends there. */
static bool find_jump(const struct sweep_span *in, struct static_site *s, size_t floor,
		      size_t *end)
{
	size_t at = (size_t)(s->at - in->addr), from = at;
	bool no_tail = never_returns(s->number);

	s->kind = STATIC_JUMP;
	do {
		if (from < floor || !take_head(in, from, at, s))
			return false;
		if (no_tail && at + SYSCALL - from < JUMP)
			continue;
		if (take_tail(in, at + SYSCALL, s, end) && is_quiet(in, from, *end))
			return true;
	} while (before(in, from, &from));
	return false;
}

static int lack(struct static_text *t, const char *why, uint64_t at)
{
	t->lacks = why;
	t->lacks_at = at;
	return -ENOEXEC;
}

static void take(const struct sweep_span *in, size_t from, size_t end)
{
	for (size_t at = from; at < end; at++)
		sweep_set(in->taken, at);
}

/* Whether sites before have taken something between the two. */
static bool is_taken(const struct sweep_span *in, size_t from, size_t end)
{
	for (size_t at = from; at < end; at++)
		if (sweep_bit(in->taken, at))
			return true;
	return false;
}

/* NOPs from there on, of which none but the first can be jumped to, with room for both jumps. */
static size_t nops_at(const struct sweep_span *in, size_t at)
{
	size_t end = at;
	struct insn x;

	while (end - at < PAD && decode(in, end, &x) && insn_is_nop(in->bytes + end, &x))
		end += x.len;
	return end - at >= PAD && is_quiet(in, at, end) ? end - at : 0;
}

/* For sites that have found nothing else, after all others. */
static bool find_pad(const struct search *f, struct static_site *s)
{
	const struct sweep_span *in = f->sweep.spans;
	size_t at, nops;

	while (s->at - in->addr >= in->len)
		in++;
	at = (size_t)(s->at - in->addr);
	for (int distance = -128; distance <= 127; distance++) {
		size_t pad = at + SYSCALL + (size_t)(int64_t)distance - 2;

		if (pad >= in->len || !sweep_bit(in->starts, pad))
			continue;
		nops = nops_at(in, pad);
		if (nops && !is_taken(in, pad, pad + nops)) {
			take(in, pad, pad + nops);
			s->pad = in->addr + pad;
			s->pad_skip = (uint8_t)(nops - 2);
			return true;
		}
	}
	return false;
}

static bool concerns(const struct search *f, int32_t number)
{
	return number < 0 || ((size_t)number < f->concerns_count && f->concerns[number]);
}

/*
 * musl, and glibc since 2.41, make their calls that can be cancelled by one `syscall`. Before it stands
 * mov %r11,8(%rsp). The signal's handler looks whether it has come there, which it never would. The place behind
 * is named by that handler alone, which is linked with pthread_cancel: in musl where a program calls that, in glibc
 * where one has threads.
 */
static bool cancels_by_place(const struct sweep_span *in, size_t at)
{
	static const uint8_t mov[] = {0x4c, 0x89, 0x5c, 0x24, 0x08};

	return at >= sizeof(mov) &&
	       memcmp(in->bytes + at - sizeof(mov), mov, sizeof(mov)) == 0 &&
	       sweep_bit(in->targets, at + SYSCALL);
}

static int add_site(struct search *f, const struct sweep_span *in, size_t at,
		    size_t *floor)
{
	struct static_text *t = f->found;
	struct static_site *s = &t->sites[t->count];
	size_t end;

	if (t->count == STATIC_SITES_MOST)
		return lack(t, "it has too many system calls", 0);
	*s = (struct static_site){.at = in->addr + at, .number = number_of(in, at)};
	t->cancels_by_place |= cancels_by_place(in, at);
	if (s->number < 0 && may_be_data(in, at))
		return lack(t, "it has data among its instructions", s->at);
	if (!concerns(f, s->number)) {
		s->kind = STATIC_LEAVE;
		s->jump = s->at;
		s->back = s->at + SYSCALL;
		*floor = at + SYSCALL;
	} else if (find_jump(in, s, *floor, &end)) {
		take(in, (size_t)(s->jump - in->addr), end);
		*floor = end;
	} else {
		*s = (struct static_site){.at = s->at,
					  .jump = s->at,
					  .back = s->at + SYSCALL,
					  .kind = STATIC_PAD,
					  .number = s->number};
		*floor = at + SYSCALL;
	}
	t->count++;
	return 0;
}

/* Of all instructions those alone are looked at that have these bytes. */
static int look_through(struct search *f, const struct sweep_span *in)
{
	const uint8_t *hit = in->bytes, *end = in->bytes + in->len;
	size_t floor = 0;
	struct insn x;
	int r = 0;

	for (; r == 0 && (hit = find_call(hit, end)); hit++) {
		size_t call = (size_t)(hit - in->bytes), at = call;

		if (!sweep_bit(in->starts, at) && !before(in, at, &at))
			continue;
		if (!decode(in, at, &x) || !is_syscall(&x))
			continue;
		if (at != call)
			return lack(f->found, "a system call has a prefix",
				    in->addr + at);
		r = add_site(f, in, at, &floor);
	}
	return r;
}

static int search(struct search *f, const uint8_t *file, size_t size)
{
	struct static_text *t = f->found;
	int r = sweep_run(&f->sweep, file, size);

	if (r < 0)
		return r == -ENOEXEC ? lack(t, f->sweep.lacks, f->sweep.lacks_at) : r;
	t->is_pie = f->sweep.is_pie;
	for (unsigned i = 0; r == 0 && i < f->sweep.count; i++)
		r = look_through(f, &f->sweep.spans[i]);
	for (size_t i = 0; r == 0 && i < t->count; i++)
		if (t->sites[i].kind == STATIC_PAD && !find_pad(f, &t->sites[i]))
			r = lack(t, "a system call has no room for a jump",
				 t->sites[i].at);
	sweep_finish(&f->sweep);
	return r;
}

/* The file in memory; NULL: it cannot be, *r says why. */
static const uint8_t *map_file(const char *path, size_t *size, int *r)
{
	struct stat st;
	void *file = MAP_FAILED;
	int fd = regular_open(path);

	*r = fd;
	if (fd < 0)
		return NULL;
	*r = -ENOEXEC;
	if (kernel_fstat(fd, &st) == 0 && st.st_size > 0) {
		*size = (size_t)st.st_size;
		file = mmap(NULL, *size, PROT_READ, MAP_PRIVATE, fd, 0);
	}
	kernel_close(fd);
	return file == MAP_FAILED ? NULL : file;
}

int static_text_find(const char *path, const uint8_t *concerns, size_t concerns_count,
		     struct static_text *found)
{
	size_t size, room = STATIC_SITES_MOST * sizeof(struct static_site);
	struct search f = {
		.found = found, .concerns = concerns, .concerns_count = concerns_count};
	const uint8_t *file;
	void *sites;
	int r;

	*found = (struct static_text){.lacks = "its file cannot be read"};
	file = map_file(path, &size, &r);
	if (!file)
		return r;
	sites = mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
		     0);
	r = -ENOMEM;
	if (sites != MAP_FAILED) {
		found->lacks = NULL;
		found->sites = sites;
		r = search(&f, file, size);
		if (r < 0)
			static_text_finish(found);
	}
	munmap((void *)(uintptr_t)file, size);
	return r;
}

void static_text_finish(struct static_text *found)
{
	munmap(found->sites, STATIC_SITES_MOST * sizeof(struct static_site));
	found->sites = NULL;
	found->count = 0;
}
