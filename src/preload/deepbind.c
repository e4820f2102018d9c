/* SPDX-License-Identifier: Apache-2.0 */
/* Libraries that find the C library's functions before ours. */
#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/real.h"
#include "preload/hook.h"

/*
 * A library that is loaded with RTLD_DEEPBIND looks into itself and what it needs, and so into libc,
 * before it looks at us. When it is loaded, the pointers of the new objects that name a function of libc
 * which we stand in front of are made to name ours, each by one store, before dlopen returns. To leave
 * the flag out would be wrong: it also says which of two equal names the library means.
 *
 * None of this is seen by code that ran before: a constructor may have called, or kept a pointer. So
 * - where the process has sockets already, all go to TCP before the load, as no one can tell what it will
 *   run. What is opened during a load stays on TCP.
 * - where an object brings a constructor, all sockets that will be stay on TCP.
 * - where any such name means something else than what we call ourselves (the library has one of its
 *   own, or another library was preloaded), nothing is changed, and all stay on TCP.
 * An object that goes away takes its pointers with it: nothing is kept here.
 */

#define OWN_MOST     2048 /* symbols of ours, more than four times what there are */
#define OBJECTS_MOST 2048

struct object {
	uintptr_t base, begin, end, relro, relro_end;
	const ElfW(Sym) * symbols;
	const char *strings;
	const ElfW(Rela) * rela[2];
	size_t count[2];
	const unsigned char *init, *const *init_array;
	size_t init_count;
};

struct load {
	struct object own;
	const uint32_t *hash;
	size_t known_count, found;
	unsigned long long subs;
	bool patches, bad, opened;
	bool wanted[OWN_MOST];
	void *real[OWN_MOST];
	uintptr_t known[OBJECTS_MOST];
};

extern const ElfW(Ehdr) __ehdr_start __attribute__((visibility("hidden")));
extern ElfW(Dyn) _DYNAMIC[] __attribute__((visibility("hidden")));

__attribute__((used)) void *hook_dlopen_begin(const char *file, int mode);
__attribute__((used)) void *deepbind_found(void *handle, const char *name);
__attribute__((used)) void *deepbind_libc_dlsym(void);
void *deepbind_dlsym(void *handle, const char *name)
	__attribute__((visibility("hidden")));

/* ---- an object in memory ---- */

/* The loader has added the base to most of these. */
static const void *at(const struct object *o, ElfW(Addr) value)
{
	return (const void *)(value < o->base ? o->base + value : value);
}

static const uint32_t *read_dynamic(struct object *o, const ElfW(Dyn) * d)
{
	const uint32_t *hash = NULL;

	for (; d->d_tag != DT_NULL; d++) {
		if (d->d_tag == DT_SYMTAB)
			o->symbols = at(o, d->d_un.d_ptr);
		else if (d->d_tag == DT_STRTAB)
			o->strings = at(o, d->d_un.d_ptr);
		else if (d->d_tag == DT_GNU_HASH)
			hash = at(o, d->d_un.d_ptr);
		else if (d->d_tag == DT_RELA)
			o->rela[0] = at(o, d->d_un.d_ptr);
		else if (d->d_tag == DT_RELASZ)
			o->count[0] = d->d_un.d_val / sizeof(ElfW(Rela));
		else if (d->d_tag == DT_JMPREL)
			o->rela[1] = at(o, d->d_un.d_ptr);
		else if (d->d_tag == DT_PLTRELSZ)
			o->count[1] = d->d_un.d_val / sizeof(ElfW(Rela));
		else if (d->d_tag == DT_INIT)
			o->init = at(o, d->d_un.d_ptr);
		else if (d->d_tag == DT_INIT_ARRAY)
			o->init_array = at(o, d->d_un.d_ptr);
		else if (d->d_tag == DT_INIT_ARRAYSZ)
			o->init_count = d->d_un.d_val / sizeof(void *);
	}
	return hash;
}

static bool read_object(struct object *o, const struct dl_phdr_info *info)
{
	const ElfW(Dyn) *dynamic = NULL;
	const uintptr_t page = 4095;

	*o = (struct object){.base = info->dlpi_addr, .begin = UINTPTR_MAX};
	for (int i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *p = &info->dlpi_phdr[i];
		uintptr_t begin = o->base + p->p_vaddr, end = begin + p->p_memsz;

		if (p->p_type == PT_DYNAMIC)
			dynamic = (const void *)begin;
		if (p->p_type == PT_GNU_RELRO) {
			o->relro = begin & ~page;
			o->relro_end = end & ~page;
		}
		if (p->p_type == PT_LOAD) {
			o->begin = begin < o->begin ? begin : o->begin;
			o->end = end > o->end ? end : o->end;
		}
	}
	if (dynamic)
		read_dynamic(o, dynamic);
	return dynamic && o->symbols && o->strings;
}

/* Where each object begins to run is code of the compiler's own, which calls nothing: what crti.o and
 * crtn.o make of _init, and crtbegin.o's frame_dummy, a jump. */
static bool has_constructor(const struct object *o)
{
	static const unsigned char mark[] = {0xf3, 0x0f, 0x1e, 0xfa};
	static const unsigned char head[] = {0x48, 0x83, 0xec, 8, 0x48, 0x8b, 5};
	static const unsigned char tail[] = {0x48, 0x85, 0xc0, 0x74, 2, 0xff,
					     0xd0, 0x48, 0x83, 0xc4, 8, 0xc3};
	const unsigned char *p = o->init;

	if (p) {
		p += memcmp(p, mark, sizeof(mark)) ? 0 : sizeof(mark);
		if (memcmp(p, head, sizeof(head)) != 0 ||
		    memcmp(p + sizeof(head) + 4, tail, sizeof(tail)) != 0)
			return true;
	}
	if (o->init_count == 0)
		return false;
	p = o->init_array[0];
	p += memcmp(p, mark, sizeof(mark)) ? 0 : sizeof(mark);
	return o->init_count > 1 || *p != 0xe9;
}

/* ---- our own names ---- */

static bool own_read(struct load *l)
{
	l->own.base = (uintptr_t)&__ehdr_start;
	l->hash = read_dynamic(&l->own, _DYNAMIC);
	return l->hash && l->own.symbols && l->own.strings;
}

/* The number of our symbol, by the table that the linker has made; 0: we have none. */
static uint32_t own_find(const struct load *l, const char *name)
{
	const uint32_t buckets = l->hash[0], first = l->hash[1];
	const uint32_t *bucket = l->hash + 4 + 2 * (size_t)l->hash[2];
	const uint32_t *chain = bucket + buckets;
	uint32_t h = 5381, i;

	for (const char *c = name; *c; c++)
		h = h * 33 + (unsigned char)*c;
	i = bucket[h % buckets];
	if (i < first)
		return 0;
	for (;; i++) {
		uint32_t one = chain[i - first];

		if ((one | 1) == (h | 1) &&
		    strcmp(l->own.strings + l->own.symbols[i].st_name, name) == 0)
			return i;
		if (one & 1)
			return 0;
	}
}

/* dlsym stands at 0: it is none of ours, but asks in the order of whoever calls it. */
static bool is_own(const struct load *l, const char *name, uint32_t *index)
{
	*index = own_find(l, name);
	return *index || strcmp(name, "dlsym") == 0;
}

static void *own_address(const struct load *l, uint32_t i)
{
	return i ? (void *)(l->own.base + l->own.symbols[i].st_value)
		 : (void *)deepbind_dlsym;
}

/* ---- the pointers of an object ---- */

static void want(struct load *l, uint32_t i, const ElfW(Rela) * r)
{
	uint32_t type = ELF64_R_TYPE(r->r_info);
	bool pointer = type == R_X86_64_JUMP_SLOT || type == R_X86_64_GLOB_DAT ||
		       (type == R_X86_64_64 && r->r_addend == 0);

	if (pointer && i < OWN_MOST)
		l->wanted[i] = true;
	else
		l->bad = true;
}

static void point(struct load *l, const struct object *o, uint32_t i,
		  const ElfW(Rela) * r)
{
	uintptr_t place = o->base + r->r_offset;
	void *ours = own_address(l, i), **slot = (void **)place;
	void *was = __atomic_load_n(slot, __ATOMIC_RELAXED);
	/* Not bound yet: it leads to the stub that asks the loader. */
	bool lazy = ELF64_R_TYPE(r->r_info) == R_X86_64_JUMP_SLOT &&
		    (uintptr_t)was >= o->begin && (uintptr_t)was < o->end;
	bool sealed = place >= o->relro && place < o->relro_end;

	if (was == ours)
		return;
	if ((was != l->real[i] && !lazy) ||
	    (sealed && mprotect((void *)o->relro, o->relro_end - o->relro,
				PROT_READ | PROT_WRITE) < 0)) {
		l->bad = true;
		return;
	}
	/* Release: as the loader's own. Other threads may be about to call through it. */
	__atomic_store_n(slot, ours, __ATOMIC_RELEASE);
	if (sealed)
		mprotect((void *)o->relro, o->relro_end - o->relro, PROT_READ);
}

static void object_walk(struct load *l, const struct object *o)
{
	uint32_t i;

	for (int table = 0; table < 2; table++) {
		for (size_t n = 0; o->rela[table] && n < o->count[table]; n++) {
			const ElfW(Rela) *r = &o->rela[table][n];
			uint32_t symbol = (uint32_t)ELF64_R_SYM(r->r_info);
			const char *name = o->strings + o->symbols[symbol].st_name;

			if (symbol == 0 || strcmp(name, "dlvsym") == 0)
				l->bad |= symbol != 0;
			else if (is_own(l, name, &i) && l->patches)
				point(l, o, i, r);
			else if (is_own(l, name, &i))
				want(l, i, r);
		}
	}
}

static bool is_known(const struct load *l, uintptr_t base)
{
	for (size_t i = 0; i < l->known_count; i++)
		if (l->known[i] == base)
			return true;
	return false;
}

/* Under the loader's lock: no object goes away meanwhile. */
static int each_object(struct dl_phdr_info *info, size_t size, void *arg)
{
	struct load *l = arg;
	struct object o;

	(void)size;
	if (!l->opened) {
		l->subs = info->dlpi_subs;
		if (l->known_count < OBJECTS_MOST)
			l->known[l->known_count++] = info->dlpi_addr;
		else
			l->bad = true;
		return 0;
	}
	/* Another may have gone, and a new one be where it was. */
	l->bad |= info->dlpi_subs != l->subs;
	if (l->bad || is_known(l, info->dlpi_addr))
		return l->bad;
	l->found++;
	if (!read_object(&o, info) || has_constructor(&o))
		l->bad = true;
	else
		object_walk(l, &o);
	return l->bad;
}

/* What the names mean to the new objects is what they mean to us. */
static void compare(struct load *l, void *handle)
{
	for (uint32_t i = 0; i < OWN_MOST && !l->bad; i++) {
		const char *name =
			i ? l->own.strings + l->own.symbols[i].st_name : "dlsym";

		if (!l->wanted[i])
			continue;
		l->real[i] = i ? real_late(name) : deepbind_libc_dlsym();
		l->bad = !l->real[i] || dlsym(handle, name) != l->real[i];
	}
}

/* True: what was loaded calls us. */
static bool bind_new(struct load *l, void *handle)
{
	l->opened = true;
	dl_iterate_phdr(each_object, l);
	if (l->bad)
		return false;
	/* Nothing new: it is bound as it was. But whoever opens libc itself asks for its own. */
	if (l->found == 0)
		return dlsym(handle, "dlopen") == (void *)dlopen ||
		       dlsym(handle, "__libc_start_main") == NULL;
	compare(l, handle);
	l->patches = true;
	if (!l->bad)
		dl_iterate_phdr(each_object, l);
	return !l->bad;
}

/* The path is whole: nothing depends on who calls. */
static void *deepbind_open(const char *file, int mode)
{
	struct load *l = calloc(1, sizeof(*l));
	void *handle;

	if (l && own_read(l) && own_find(l, "dlopen"))
		dl_iterate_phdr(each_object, l);
	else if (l)
		l->bad = true;
	handle = REAL(dlopen)(file, mode);
	if (handle) {
		if (!l || l->bad || !bind_new(l, handle))
			hook_refuse_all(VD_REASON_DEEPBIND);
		/* None of our questions is the program's to be told of. */
		dlerror();
	}
	hook_hold_end();
	free(l);
	return handle;
}

void *hook_dlopen_begin(const char *file, int mode)
{
	if (!(mode & RTLD_DEEPBIND) || !hook_active)
		return (void *)REAL(dlopen);
	if (file && strchr(file, '/') && !strchr(file, '$') && hook_hold_begin())
		return (void *)deepbind_open;
	hook_refuse_all(VD_REASON_DEEPBIND);
	return (void *)REAL(dlopen);
}

/* What such a library asks for by name, in its own order: NULL where libc is to be asked. */
void *deepbind_found(void *handle, const char *name)
{
	struct load *l;
	void *ours = NULL;
	uint32_t i;

	if ((handle != RTLD_DEFAULT && handle != RTLD_NEXT) || !name)
		return NULL;
	l = calloc(1, sizeof(*l));
	if (l && own_read(l)) {
		i = own_find(l, name);
		ours = i ? own_address(l, i) : NULL;
	}
	free(l);
	return ours;
}

void *deepbind_libc_dlsym(void)
{
	return (void *)dlsym;
}

/* Jumps: libc searches in the order of the library that it returns to. */
__asm__(".pushsection .text\n"
	".globl dlopen\n"
	".type dlopen, @function\n"
	".balign 16\n"
	"dlopen:\n"
	"	.cfi_startproc\n"
	"	endbr64\n"
	"	pushq %rdi\n"
	"	.cfi_adjust_cfa_offset 8\n"
	"	pushq %rsi\n"
	"	.cfi_adjust_cfa_offset 8\n"
	"	subq $8, %rsp\n"
	"	.cfi_adjust_cfa_offset 8\n"
	"	call hook_dlopen_begin\n"
	"	addq $8, %rsp\n"
	"	.cfi_adjust_cfa_offset -8\n"
	"	popq %rsi\n"
	"	.cfi_adjust_cfa_offset -8\n"
	"	popq %rdi\n"
	"	.cfi_adjust_cfa_offset -8\n"
	"	jmp *%rax\n"
	"	.cfi_endproc\n"
	".size dlopen, . - dlopen\n"
	".globl deepbind_dlsym\n"
	".hidden deepbind_dlsym\n"
	".type deepbind_dlsym, @function\n"
	".balign 16\n"
	"deepbind_dlsym:\n"
	"	.cfi_startproc\n"
	"	endbr64\n"
	"	pushq %rdi\n"
	"	.cfi_adjust_cfa_offset 8\n"
	"	pushq %rsi\n"
	"	.cfi_adjust_cfa_offset 8\n"
	"	subq $8, %rsp\n"
	"	.cfi_adjust_cfa_offset 8\n"
	"	call deepbind_found\n"
	"	testq %rax, %rax\n"
	"	jz 1f\n"
	"	addq $24, %rsp\n"
	"	.cfi_adjust_cfa_offset -24\n"
	"	ret\n"
	"1:	.cfi_adjust_cfa_offset 24\n"
	"	call deepbind_libc_dlsym\n"
	"	addq $8, %rsp\n"
	"	.cfi_adjust_cfa_offset -8\n"
	"	popq %rsi\n"
	"	.cfi_adjust_cfa_offset -8\n"
	"	popq %rdi\n"
	"	.cfi_adjust_cfa_offset -8\n"
	"	jmp *%rax\n"
	"	.cfi_endproc\n"
	".size deepbind_dlsym, . - deepbind_dlsym\n"
	".popsection\n");
