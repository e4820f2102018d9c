/* SPDX-License-Identifier: Apache-2.0 */
/* Libraries that find the C library's functions before ours. */
#include <dlfcn.h>
#include <elf.h>
#include <gnu/lib-names.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>

#include "base/kernel.h"
#include "base/real.h"
#include "base/sigsafe.h"
#include "preload/hook.h"
#include "preload/load_watch.h"
#include "preload/object.h"

/*
 * A library that is loaded with RTLD_DEEPBIND looks into itself and what it needs, and so into libc,
 * before it looks at us. When it is loaded, the pointers of the new objects that name a function of libc
 * which we stand in front of are made to name ours, each by one store, before dlopen returns. To leave
 * the flag out would be wrong: it also says which of two equal names the library means.
 *
 * A constructor could call, or keep such a pointer, before that. So where we can see the loader seal the
 * data of an object that it has bound (load_watch.h), its pointers are set right there: all objects of a
 * load are bound and sealed before the first of their constructors runs.
 * - where the process has sockets already, all go to TCP before the load, as no one can tell what it will
 *   run. What is opened during a load stays on TCP.
 * - where an object brings a constructor, and not every pointer was ours before, all sockets that will be
 *   stay on TCP.
 * - where any such name means something else than what we call ourselves (the library has one of its
 *   own, or another library was preloaded), nothing is changed, and all stay on TCP.
 * An object that goes away takes its pointers with it: nothing is kept here.
 */

#define OWN_MOST     2048 /* symbols of ours, more than four times what there are */
#define OBJECTS_MOST 2048
#define SEALED_MOST  256

struct load {
	struct object own;
	size_t known_count, found;
	uint32_t dlsym; /* the number of that name among ours */
	unsigned long long subs;
	bool patches, bad, opened;
	/* Before the constructors: all pointers are ours; some cannot be; which objects have come. */
	bool early, early_bad;
	size_t sealed_count;
	uintptr_t sealed[SEALED_MOST];
	bool wanted[OWN_MOST];
	void *real[OWN_MOST];
	uintptr_t known[OBJECTS_MOST];
};

extern const ElfW(Ehdr) __ehdr_start __attribute__((visibility("hidden")));
extern ElfW(Dyn) _DYNAMIC[] __attribute__((visibility("hidden")));

/* What dlopen jumps to, or the handle that it returns. */
struct opening {
	void *function, *handle;
};

__attribute__((used)) struct opening hook_dlopen_begin(const char *file, int mode);

/* ---- our own names ---- */

static bool own_read(struct load *l)
{
	l->own.base = (uintptr_t)&__ehdr_start;
	object_read_dynamic(&l->own, _DYNAMIC);
	if (!l->own.hash || !l->own.symbols || !l->own.strings)
		return false;
	l->dlsym = object_find(&l->own, "dlsym");
	return l->dlsym;
}

static uint32_t own_find(const struct load *l, const char *name)
{
	return object_find(&l->own, name);
}

static const char *own_name(const struct load *l, uint32_t i)
{
	return l->own.strings + l->own.symbols[i].st_name;
}

/* dlsym asks in the order of whoever calls it, in which we are not. */
static void *own_address(const struct load *l, uint32_t i)
{
	return i == l->dlsym ? (void *)deepbind_dlsym
			     : (void *)(l->own.base + l->own.symbols[i].st_value);
}

/* ---- the pointers of an object ---- */

static void want(struct load *l, const struct object *o, uint32_t i, const ElfW(Rela) * r)
{
	uint32_t type = ELF64_R_TYPE(r->r_info);
	bool pointer = type == R_X86_64_JUMP_SLOT || type == R_X86_64_GLOB_DAT ||
		       (type == R_X86_64_64 && r->r_addend == 0);

	(void)o;
	if (pointer && i < OWN_MOST)
		l->wanted[i] = true;
	else
		l->bad = true;
}

/* Not bound yet: it leads to the stub that asks the loader. */
static bool is_lazy(const struct object *o, const ElfW(Rela) * r, const void *was)
{
	return ELF64_R_TYPE(r->r_info) == R_X86_64_JUMP_SLOT &&
	       (uintptr_t)was >= o->begin && (uintptr_t)was < o->end;
}

static void point(struct load *l, const struct object *o, uint32_t i,
		  const ElfW(Rela) * r)
{
	uintptr_t place = o->base + r->r_offset;
	void *ours = own_address(l, i), **slot = (void **)place;
	void *was = __atomic_load_n(slot, __ATOMIC_RELAXED);
	bool sealed = place >= o->relro && place < o->relro_end;

	if (was == ours)
		return;
	if ((was != l->real[i] && !is_lazy(o, r, was)) ||
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

/* Calls back for each pointer to a name of ours. */
static void object_walk(struct load *l, const struct object *o,
			void (*visit)(struct load *l, const struct object *o, uint32_t i,
				      const ElfW(Rela) * r))
{
	uint32_t i;

	for (int table = 0; table < 2; table++) {
		for (size_t n = 0; o->rela[table] && n < o->count[table]; n++) {
			const ElfW(Rela) *r = &o->rela[table][n];
			uint32_t symbol = (uint32_t)ELF64_R_SYM(r->r_info);
			const char *name = o->strings + o->symbols[symbol].st_name;

			/* The loader asks the object's own code what to bind. */
			if (ELF64_R_TYPE(r->r_info) == R_X86_64_IRELATIVE)
				l->bad = true;
			else if (symbol && strcmp(name, "dlvsym") == 0)
				l->bad = true;
			else if (symbol && (i = own_find(l, name)))
				visit(l, o, i, r);
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
	if (!object_read(&o, info) || (!l->early && object_begins(&o)))
		l->bad = true;
	else
		object_walk(l, &o, l->patches ? point : want);
	return l->bad;
}

/* ---- before the constructors ---- */

struct definer {
	const char *name;
	uintptr_t real;
	bool is_there;
};

/* In any object but ours and libc; what cannot be asked may have it. */
static int each_definer(struct dl_phdr_info *info, size_t size, void *arg)
{
	struct definer *d = arg;
	struct object o;

	(void)size;
	if (info->dlpi_addr == (uintptr_t)&__ehdr_start || !object_read(&o, info) ||
	    o.begin == getauxval(AT_SYSINFO_EHDR) ||
	    (d->real >= o.begin && d->real < o.end))
		return 0;
	d->is_there = !o.hash || object_find(&o, d->name);
	return d->is_there;
}

/* One of the new objects has a function of a name of ours, which dlsym would find for it. */
static int each_namesake(struct dl_phdr_info *info, size_t size, void *arg)
{
	struct load *l = arg;
	struct object o;

	(void)size;
	if (is_known(l, info->dlpi_addr))
		return 0;
	l->early_bad |= !object_read(&o, info) || !o.hash;
	for (uint32_t i = 1; i < OWN_MOST && !l->early_bad; i++)
		if (l->real[i] && object_find(&o, own_name(l, i)))
			l->early_bad = true;
	return l->early_bad;
}

static void early_point(struct load *l, const struct object *o, uint32_t i,
			const ElfW(Rela) * r)
{
	void **slot = (void **)(o->base + r->r_offset), *was = *slot;
	struct definer d = {own_name(l, i), (uintptr_t)l->real[i], false};

	want(l, o, i, r);
	if (l->bad || was == own_address(l, i))
		return;
	if (i == l->dlsym)
		dl_iterate_phdr(each_namesake, l);
	/* What is not bound yet will be libc's, if no other has such a name. */
	if (l->real[i] && is_lazy(o, r, was))
		dl_iterate_phdr(each_definer, &d);
	else if (!l->real[i] || was != l->real[i])
		d.is_there = true;
	l->early_bad |= d.is_there;
	if (!l->early_bad)
		*slot = own_address(l, i);
}

struct seal {
	struct load *load;
	uintptr_t begin, end;
	size_t objects;
};

static int each_sealed(struct dl_phdr_info *info, size_t size, void *arg)
{
	struct seal *s = arg;
	struct load *l = s->load;
	struct object o;

	(void)size;
	if (is_known(l, info->dlpi_addr))
		return 0;
	s->objects++;
	/* Of one that is never sealed nothing would be seen. */
	if (!object_read(&o, info) || o.relro >= o.relro_end) {
		l->early_bad = true;
		return 1;
	}
	if (o.relro != s->begin || o.relro_end != s->end)
		return 0;
	for (size_t i = 0; i < l->sealed_count; i++)
		if (l->sealed[i] == o.base)
			return 0;
	if (l->sealed_count == SEALED_MOST) {
		l->early_bad = true;
		return 1;
	}
	l->sealed[l->sealed_count++] = o.base;
	object_walk(l, &o, early_point);
	return 0;
}

/* The loader is about to seal what it has bound. False: nothing more is to be seen. */
static bool sealing(void *arg, uintptr_t begin, size_t len)
{
	struct load *l = arg;
	struct seal s = {.load = l, .begin = begin, .end = begin + len};

	dl_iterate_phdr(each_sealed, &s);
	l->early_bad |= l->bad;
	l->early = !l->early_bad && s.objects > 0 && l->sealed_count == s.objects;
	return !l->early && !l->early_bad;
}

/* The loader cannot be asked while it binds. */
static void find_real(struct load *l)
{
	const struct object *o = &l->own;
	const uint32_t buckets = o->hash[0], first = o->hash[1];
	const uint32_t *bucket = o->hash + 4 + 2 * (size_t)o->hash[2];
	const uint32_t *chain = bucket + buckets;

	for (uint32_t b = 0; b < buckets; b++) {
		for (uint32_t i = bucket[b]; i >= first; i++) {
			if (i < OWN_MOST)
				l->real[i] = real_late(own_name(l, i));
			if (chain[i - first] & 1)
				break;
		}
	}
}

/* What the names mean to the new objects is what they mean to us. */
static void compare(struct load *l, void *handle)
{
	for (uint32_t i = 0; i < OWN_MOST && !l->bad; i++) {
		/* What asks by name may mean any. */
		if (l->wanted[i] || (l->wanted[l->dlsym] && l->real[i]))
			l->bad = !l->real[i] ||
				 REAL_DLSYM(handle, own_name(l, i)) != l->real[i];
	}
}

/* True: what was loaded calls us. */
static bool bind_new(struct load *l, void *handle)
{
	l->opened = true;
	dl_iterate_phdr(each_object, l);
	if (l->bad)
		return false;
	if (l->found == 0)
		return true;
	compare(l, handle);
	l->patches = true;
	if (!l->bad)
		dl_iterate_phdr(each_object, l);
	return !l->bad;
}

/* Its file has a RELRO part, so that the loader is seen to seal it before anything of it runs. */
static bool is_sealed(const char *file)
{
	unsigned char head[4096];
	const ElfW(Ehdr) *e = (const void *)head;
	const ElfW(Phdr) *p = (const void *)(head + sizeof(*e));
	const uintptr_t page = 4095;
	int fd = kernel_open(file, O_RDONLY | O_CLOEXEC, 0);
	ssize_t n = fd < 0 ? -1 : kernel_read(fd, head, sizeof(head));

	if (fd >= 0)
		kernel_close(fd);
	if (n < (ssize_t)sizeof(*e) || memcmp(e->e_ident, ELFMAG, SELFMAG) != 0 ||
	    e->e_phoff != sizeof(*e) || e->e_phentsize != sizeof(*p) ||
	    sizeof(*e) + e->e_phnum * sizeof(*p) > (size_t)n)
		return false;
	for (int i = 0; i < e->e_phnum; i++)
		if (p[i].p_type == PT_GNU_RELRO &&
		    (p[i].p_vaddr & ~page) < ((p[i].p_vaddr + p[i].p_memsz) & ~page))
			return true;
	return false;
}

/* The path is whole: nothing depends on who calls. */
static void *deepbind_open(const char *file, int mode)
{
	struct load *l = calloc(1, sizeof(*l));
	bool watches = false;
	void *handle;

	if (l && own_read(l) && own_find(l, "dlopen")) {
		find_real(l);
		dl_iterate_phdr(each_object, l);
		watches = !l->bad && is_sealed(file) && load_watch_begin(sealing, l);
	} else if (l) {
		l->bad = true;
	}
	handle = REAL(dlopen)(file, mode);
	if (watches)
		load_watch_end();
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

static void refuse(void)
{
	hook_refuse_all(VD_REASON_DEEPBIND);
}

struct opening hook_dlopen_begin(const char *file, int mode)
{
	struct opening o = {(void *)REAL(dlopen), NULL};
	bool is_whole;

	if (!(mode & RTLD_DEEPBIND) || !hook_active)
		return o;
	is_whole = file && strchr(file, '/') && !strchr(file, '$');
	/* What is loaded stays bound as it was. */
	if (!file || is_whole || strcmp(file, LIBC_SO) == 0)
		o.handle = REAL(dlopen)(file, mode | RTLD_NOLOAD);
	if (o.handle)
		return o;
	/* In a call of our own, by a library that stands before libc: its locks are this thread's. */
	if (crit_depth) {
		store_relaxed(&hook_refuse_reason, VD_REASON_DEEPBIND);
		crit_at_end(refuse);
	} else if (is_whole && hook_hold_begin()) {
		o.function = (void *)deepbind_open;
	} else {
		refuse();
	}
	return o;
}

void *deepbind_found(const char *name)
{
	struct load *l;
	void *ours = NULL;
	uint32_t i;

	if (!name)
		return NULL;
	l = calloc(1, sizeof(*l));
	if (l && own_read(l)) {
		i = own_find(l, name);
		ours = i ? own_address(l, i) : NULL;
	}
	free(l);
	return ours;
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
	"	testq %rdx, %rdx\n"
	"	jnz 1f\n"
	"	jmp *%rax\n"
	"1:	movq %rdx, %rax\n"
	"	ret\n"
	"	.cfi_endproc\n"
	".size dlopen, . - dlopen\n"
	".popsection\n");
