/* SPDX-License-Identifier: Apache-2.0 */
/* Leads the system calls of a statically linked program to this library, before its first instruction. */
#include <cpuid.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include "base/borrowed.h"
#include "base/kernel.h"
#include "base/machine.h"
#include "base/static_text.h"
#include "preload/hook.h"
#include "preload/jump_room.h"
#include "preload/kernel_action.h"
#include "preload/start.h"
#include "preload/static.h"
#include "preload/syscall.h"
#include "settings/config.h"

/* Of the first thread, for its calls and the handlers that interrupt them: address space alone, until used. */
#define OWN_BYTES	(8ull << 20)
#define OWN_BYTES_LEAST (1ull << 20)
#define JUMP		5
#define SHORT		2 /* a jump to NOPs nearby */
/* What leads one call away, at most: two moved parts of STATIC_MOVED bytes, and the code below. */
#define ROOM 160

/* Which numbers come to C. */
static uint8_t concerns[512];

/* ---- what stands in the place of one call ---- */

struct writer {
	unsigned char *at;
};

static void put(struct writer *w, const void *bytes, size_t count)
{
	memcpy(w->at, bytes, count);
	w->at += count;
}
#define PUT(w, text) put((w), (text), sizeof(text) - 1)

static void put_jump(struct writer *w, uint64_t to)
{
	int32_t far = (int32_t)(to - ((uint64_t)w->at + JUMP));

	PUT(w, "\xe9");
	put(w, &far, sizeof(far));
}

/* 0f 80 to 0f 8f */
static void put_branch(struct writer *w, uint8_t second, uint64_t to)
{
	int32_t far = (int32_t)(to - ((uint64_t)w->at + 6));

	PUT(w, "\x0f");
	put(w, &second, 1);
	put(w, &far, sizeof(far));
}

/* A lea in it has the distance from where it was. */
static void put_head(struct writer *w, const struct static_site *s, uint64_t load)
{
	unsigned char *distance = w->at + s->rip_end - 4;
	int32_t far;

	put(w, s->head, s->head_bytes);
	if (!s->rip_end)
		return;
	memcpy(&far, distance, sizeof(far));
	far += (int32_t)(load + s->jump + s->rip_end - (uint64_t)(distance + 4));
	memcpy(distance, &far, sizeof(far));
}

/*
 * The last part is `syscall`, and the tail behind it: what the entry goes back to, or two bytes before. As
 * the kernel does, it looks at eax alone. rcx and r11 are free, and eax holds the flags meanwhile: a call
 * that is passed on keeps them.
 */
static void put_way(struct writer *w, const struct static_site *s, uint64_t load,
		    uint64_t entry)
{
	uint32_t count = sizeof(concerns);
	uint64_t table = (uint64_t)concerns;

	put_head(w, s, load);
	PUT(w, "\x89\xc1\x9f\x0f\x90\xc0"); /* mov %eax,%ecx; lahf; seto %al */
	PUT(w, "\x81\xf9");		    /* cmp $count,%ecx; jae (to the flags) */
	put(w, &count, sizeof(count));
	PUT(w, "\x73\x2c\x49\xbb"); /* mov $table,%r11 */
	put(w, &table, sizeof(table));
	PUT(w, "\x41\x80\x3c\x0b\0\x74\x1b");	  /* cmpb $0,(%r11,%rcx); je */
	PUT(w, "\x89\xc8\x48\x8d\x0d\x19\0\0\0"); /* mov %ecx,%eax; lea tail(%rip),%rcx */
	put_jump(w, entry);
	PUT(w, "\x0f\x05" STATIC_NOTE "\xeb\x07"); /* STATIC_BACK_TO_VFORK; jmp tail */
	PUT(w, "\x04\x7f\x9e\x89\xc8");		   /* add $127,%al; sahf; mov %ecx,%eax */
	PUT(w, "\x0f\x05");
	put(w, s->tail, s->tail_bytes);
	if (s->cond)
		put_branch(w, s->cond, load + s->cond_to);
	if (s->back)
		put_jump(w, load + s->back);
}

/* ---- the program's code ---- */

/* Of the pages that hold these bytes: no others are the program's code for sure. */
static bool protect_bytes(uint64_t at, uint64_t bytes, int protection)
{
	uint64_t page = at & ~(uint64_t)(CRIT_PAGE_BYTES - 1);

	return mprotect((void *)page, at + bytes - page, protection) == 0;
}

static bool protect(const struct static_text *t, uint64_t load, int protection)
{
	bool done = true;

	for (size_t i = 0; i < t->count; i++) {
		const struct static_site *s = &t->sites[i];

		if (s->kind == STATIC_JUMP)
			done &= protect_bytes(load + s->jump, JUMP, protection);
		if (s->kind == STATIC_PAD)
			done &= protect_bytes(load + s->jump, SHORT, protection) &&
				protect_bytes(load + s->pad, SHORT + JUMP, protection);
	}
	return done;
}

/* The file could have been written to since it was looked through. */
static bool is_as_found(const struct static_text *t, uint64_t load)
{
	for (size_t i = 0; i < t->count; i++)
		if (memcmp((void *)(load + t->sites[i].at), "\x0f\x05", 2) != 0)
			return false;
	return true;
}

static void lead_away(const struct static_site *s, uint64_t load, uint64_t to)
{
	struct writer w = {(void *)(load + s->jump)};
	int8_t near = (int8_t)(s->pad + 2 - (s->jump + 2));

	if (s->kind == STATIC_PAD) {
		PUT(&w, "\xeb");
		put(&w, &near, 1);
		w.at = (void *)(load + s->pad);
		PUT(&w, "\xeb");
		put(&w, &s->pad_skip, 1);
	}
	put_jump(&w, to);
}

static size_t room_bytes(const struct static_text *t)
{
	return ((t->count + 1) * ROOM + CRIT_PAGE_BYTES - 1) &
	       ~(size_t)(CRIT_PAGE_BYTES - 1);
}

static void change(const struct static_text *t, uint64_t load, unsigned char *room)
{
	struct writer w = {room};
	void (*entry)(void) = static_entry;

	PUT(&w, "\xff\x25\2\0\0\0\0\0"); /* jmp *2(%rip), and the address, aligned */
	put(&w, &entry, sizeof(entry));
	for (size_t i = 0; i < t->count; i++) {
		const struct static_site *s = &t->sites[i];

		if (s->kind == STATIC_LEAVE)
			continue;
		w.at = room + (i + 1) * ROOM;
		put_way(&w, s, load, (uint64_t)room);
		static_way(i, load + s->jump, s->number, s->head_bytes);
		lead_away(s, load, (uint64_t)room + (i + 1) * ROOM);
	}
	/* No program runs with code that can be written. */
	if (!protect(t, load, PROT_READ | PROT_EXEC) ||
	    mprotect(room, room_bytes(t), PROT_READ | PROT_EXEC) != 0)
		__builtin_trap();
}

/* ---- what is needed ---- */

/* There is xsavec. */
static void learn_vectors(void)
{
	unsigned a = 0, b = 0, c, d;

	__get_cpuid_count(0xd, 1, &a, &b, &c, &d);
	static_vector_bytes = b;
	static_use_is_known = (a & 4) && __builtin_cpu_supports("avx") &&
			      (__builtin_cpu_supports("avx512bw") ||
			       !__builtin_cpu_supports("avx512f"));
	if (__get_cpuid_count(0xd, 0, &a, &b, &c, &d) && b > static_vector_bytes)
		static_vector_bytes = b;
	static_vector_bytes = (static_vector_bytes + 63) & ~63ull;
}

/* The host's C library has taken them at its first thread: the program finds them as after exec. */
static void give_back_signals(void)
{
	const struct kernel_action none = {.handler = SIG_DFL};

	for (int sig = 32; sig <= 33; sig++)
		kernel_call4(SYS_rt_sigaction, sig, (long)&none, 0, sizeof(none.mask));
}

static void *map_own(size_t bytes)
{
	return mmap(NULL, bytes, PROT_READ | PROT_WRITE,
		    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
}

static bool begin_main(void)
{
	size_t bytes = OWN_BYTES;
	char *own = map_own(bytes);

	if (own == MAP_FAILED)
		own = map_own(bytes = OWN_BYTES_LEAST);
	if (own == MAP_FAILED || mprotect(own, CRIT_PAGE_BYTES, PROT_NONE) != 0 ||
	    !static_brk_init())
		return false;
	give_back_signals();
	static_adopt((uint64_t)own, (uint64_t)own + bytes);
	static_signal_init();
	return true;
}

static const char *join_text(const struct static_text *text)
{
	const char *lacks;
	unsigned char *room;
	uint64_t load;

	if (text->count == 0)
		return "it makes no system call";
	if (!start_loader.map(start_loader.program, &load))
		return "it cannot be mapped as it is to be";
	/* Before other memory takes the room. */
	room = jump_room(load + text->sites[0].at, room_bytes(text));
	if (!is_as_found(text, load))
		lacks = "its code is not as in its file";
	else if (text->cancels_by_place)
		lacks = "it can cancel threads, which its C library does by the place of "
			"a call";
	else if (!room)
		lacks = "there is no room near its code";
	else if (!protect(text, load, PROT_READ | PROT_WRITE | PROT_EXEC))
		lacks = "its code cannot be changed";
	else
		lacks = begin_main() && static_ways_begin((uint64_t)room + ROOM,
							  text->count, ROOM)
				? NULL
				: "there is no memory for its stacks";
	if (lacks)
		start_loader.unmap();
	else
		change(text, load, room);
	return lacks;
}

size_t static_concerns(uint8_t *to, size_t size)
{
	static const uint16_t own[] = {SYS_arch_prctl,	 SYS_set_tid_address, SYS_exit,
				       SYS_rt_sigaction, SYS_sigaltstack,     SYS_brk,
				       SYS_vfork};

	start_asks(to, size);
	for (size_t i = 0; i < sizeof(own) / sizeof(own[0]); i++)
		to[own[i]] = 1;
	return size;
}

/* Why not, and where: `objdump -d` shows the call. */
static const char *named(const struct static_text *text)
{
	static char why[160];

	if (!text->lacks_at)
		return text->lacks;
	snprintf(why, sizeof(why), "%s, at %#llx", text->lacks,
		 (unsigned long long)text->lacks_at);
	return why;
}

const char *static_join(void)
{
	struct static_text text;
	const char *lacks;

	if (!config_get()->static_followed)
		return "the setting static = leave holds";
	lacks = machine_lacks(machine_here(), MACHINE_FOR_STATIC);
	if (lacks)
		return lacks;
	learn_vectors();
	static_concerns(concerns, sizeof(concerns));
	if (static_text_find(start_loader.program, concerns, sizeof(concerns), &text) !=
	    0)
		return named(&text);
	borrowed_known = static_vfork_mark;
	lacks = join_text(&text);
	static_text_finish(&text);
	return lacks;
}
