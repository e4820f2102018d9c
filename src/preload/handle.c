/* SPDX-License-Identifier: Apache-2.0 */
/* Functions that are taken from a library's own handle, as by ctypes, JNA, libffi and P/Invoke. */
#include <dlfcn.h>
#include <errno.h>
#include <link.h>

#include "base/real.h"
#include "preload/hook.h"
#include "preload/object.h"

/*
 * dlsym(dlopen("libc.so.6"), "read") is the C library's, and calls by it go past us. So dlsym answers
 * with ours where it finds the one that we stand before, by whatever handle.
 * - RTLD_DEFAULT and RTLD_NEXT follow the order of the libraries, in which we are.
 * - A library that stands behind us by this very name looks for the next one, as cwrap's do: with ours
 *   it would call itself, since we call it.
 */

extern const ElfW(Ehdr) __ehdr_start __attribute__((visibility("hidden")));
extern ElfW(Dyn) _DYNAMIC[] __attribute__((visibility("hidden")));

__attribute__((used)) void *handle_found(void *handle, const char *name, void *caller,
					 bool deep);

/* What the object at this base, with these tables, defines by a name. */
static uint32_t find_in(struct object *o, uintptr_t base, const ElfW(Dyn) * d,
			const char *name)
{
	*o = (struct object){.base = base};
	object_read_dynamic(o, d);
	return o->hash && o->symbols && o->strings ? object_find(o, name) : 0;
}

static bool is_same_object(void *one, void *other)
{
	Dl_info a, b;

	return dladdr(one, &a) && dladdr(other, &b) && a.dli_fbase == b.dli_fbase;
}

/* The caller's library has a function of this name, and was loaded after us. */
static bool stands_behind(void *caller, const char *name)
{
	struct link_map *map, *m;
	struct object o;
	Dl_info info;

	if (!dladdr1(caller, &info, (void **)&map, RTLD_DL_LINKMAP))
		return false;
	for (m = map; m && m->l_ld != _DYNAMIC; m = m->l_prev)
		;
	/* One whose names cannot be asked may have it. */
	return m && (find_in(&o, map->l_addr, map->l_ld, name) || !o.hash);
}

/* NULL: the loader is to be asked. Deep: by a library that is bound to its own order. A sanitizer
 * asks before it is there. */
__attribute__((no_sanitize("thread", "address", "undefined"))) void *
handle_found(void *handle, const char *name, void *caller, bool deep)
{
	int saved = errno;
	struct object own;

	if (handle == RTLD_DEFAULT || handle == RTLD_NEXT)
		return deep ? deepbind_found(name) : NULL;
	uint32_t i = name ? find_in(&own, (uintptr_t)&__ehdr_start, _DYNAMIC, name) : 0;
	void *ours = i ? (void *)(own.base + own.symbols[i].st_value) : NULL;
	void *found = ours ? REAL_DLSYM(handle, name) : NULL;

	if (!found || (!is_same_object(found, (void *)__errno_location) &&
		       found != real_late(name)))
		ours = NULL;
	else if (found != ours && stands_behind(caller, name))
		ours = NULL;
	errno = saved;
	return ours;
}

/* Jumps: libc searches in the order of the library that it returns to. */
__asm__(".pushsection .text\n"
	".globl deepbind_dlsym\n"
	".hidden deepbind_dlsym\n"
	".type deepbind_dlsym, @function\n"
	".balign 16\n"
	"deepbind_dlsym:\n"
	"	.cfi_startproc\n"
	"	endbr64\n"
	"	movl $1, %ecx\n"
	"	jmp 1f\n"
	"	.cfi_endproc\n"
	".size deepbind_dlsym, . - deepbind_dlsym\n"
	".globl dlsym\n"
	".type dlsym, @function\n"
	".balign 16\n"
	"dlsym:\n"
	"	.cfi_startproc\n"
	"	endbr64\n"
	"	xorl %ecx, %ecx\n"
	"1:	pushq %rdi\n"
	"	.cfi_adjust_cfa_offset 8\n"
	"	pushq %rsi\n"
	"	.cfi_adjust_cfa_offset 8\n"
	"	subq $8, %rsp\n"
	"	.cfi_adjust_cfa_offset 8\n"
	"	movq 24(%rsp), %rdx\n"
	"	call handle_found\n"
	"	testq %rax, %rax\n"
	"	jz 1f\n"
	"	addq $24, %rsp\n"
	"	.cfi_adjust_cfa_offset -24\n"
	"	ret\n"
	"1:	.cfi_adjust_cfa_offset 24\n"
	"	call real_dlsym\n"
	"	addq $8, %rsp\n"
	"	.cfi_adjust_cfa_offset -8\n"
	"	popq %rsi\n"
	"	.cfi_adjust_cfa_offset -8\n"
	"	popq %rdi\n"
	"	.cfi_adjust_cfa_offset -8\n"
	"	jmp *%rax\n"
	"	.cfi_endproc\n"
	".size dlsym, . - dlsym\n"
	".popsection\n");
