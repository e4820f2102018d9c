/* SPDX-License-Identifier: Apache-2.0 */
/* A library or program in memory, as its own tables show it. */
#ifndef VD_PRELOAD_OBJECT_H
#define VD_PRELOAD_OBJECT_H

#include <elf.h>
#include <link.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct object {
	uintptr_t base, begin, end, relro, relro_end;
	const ElfW(Sym) * symbols;
	const char *strings;
	const uint32_t *hash;
	const ElfW(Rela) * rela[2];
	size_t count[2];
	const unsigned char *init, *const *init_array;
	size_t init_count;
};

/* The tables that `d` names; `base` is set. */
void object_read_dynamic(struct object *o, const ElfW(Dyn) * d);
/* False: it has no symbols. */
bool object_read(struct object *o, const struct dl_phdr_info *info);
/* It has code of its own that the loader runs after it is bound. */
bool object_begins(const struct object *o);
/* The number of a symbol that it defines, by the table that the linker has made (`hash`); 0: none. */
uint32_t object_find(const struct object *o, const char *name);

/* dlsym, as a library that is bound to its own order has it. What that finds by RTLD_DEFAULT and
 * RTLD_NEXT: NULL where libc is to be asked. */
void *deepbind_dlsym(void *handle, const char *name)
	__attribute__((visibility("hidden")));
void *deepbind_found(const char *name);

#endif
