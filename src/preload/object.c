/* SPDX-License-Identifier: Apache-2.0 */
/* What the loader has put into memory: an object's tables, and what it runs at its start. */
#include "preload/object.h"

#include <string.h>

/* The loader has added the base to most of these. */
static const void *at(const struct object *o, ElfW(Addr) value)
{
	return (const void *)(value < o->base ? o->base + value : value);
}

void object_read_dynamic(struct object *o, const ElfW(Dyn) * d)
{
	for (; d->d_tag != DT_NULL; d++) {
		if (d->d_tag == DT_SYMTAB)
			o->symbols = at(o, d->d_un.d_ptr);
		else if (d->d_tag == DT_STRTAB)
			o->strings = at(o, d->d_un.d_ptr);
		else if (d->d_tag == DT_GNU_HASH)
			o->hash = at(o, d->d_un.d_ptr);
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
}

bool object_read(struct object *o, const struct dl_phdr_info *info)
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
		object_read_dynamic(o, dynamic);
	return dynamic && o->symbols && o->strings;
}

/* Code, where a 0x100 stands for any byte. */
static bool is_code(const unsigned char *p, const uint16_t *code, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (code[i] < 0x100 && p[i] != code[i])
			return false;
	return true;
}

#define ANY		 0x100, 0x100, 0x100, 0x100
#define IS_CODE(p, code) is_code(p, code, sizeof(code) / sizeof(*(code)))

/*
 * Where each object begins to run is code of the compiler's own, which calls nothing of libc: what crti.o
 * and crtn.o make of _init, and crtbegin.o's frame_dummy, a jump to register_tm_clones.
 */
bool object_begins(const struct object *o)
{
	static const uint16_t mark[] = {0xf3, 0x0f, 0x1e, 0xfa};
	static const uint16_t init[] = {0x48, 0x83, 0xec, 8,	0x48, 0x8b, 5,
					ANY,  0x48, 0x85, 0xc0, 0x74, 2,    0xff,
					0xd0, 0x48, 0x83, 0xc4, 8,    0xc3};
	static const uint16_t jump[] = {0xe9, ANY};
	static const uint16_t clones[] = {
		0x48, 0x8d, 0x3d, ANY,	0x48, 0x8d, 0x35, ANY,	0x48, 0x29, 0xfe,
		0x48, 0x89, 0xf0, 0x48, 0xc1, 0xee, 0x3f, 0x48, 0xc1, 0xf8, 3,
		0x48, 1,    0xc6, 0x48, 0xd1, 0xfe, 0x74, 0x14, 0x48, 0x8b, 5,
		ANY,  0x48, 0x85, 0xc0, 0x74, 8,    0xff, 0xe0};
	const unsigned char *p = o->init;
	int32_t distance;

	if (p) {
		p += IS_CODE(p, mark) ? 4 : 0;
		if (!IS_CODE(p, init))
			return true;
	}
	if (o->init_count == 0)
		return false;
	p = o->init_array[0];
	p += IS_CODE(p, mark) ? 4 : 0;
	if (o->init_count > 1 || !IS_CODE(p, jump))
		return true;
	memcpy(&distance, p + 1, sizeof(distance));
	return !IS_CODE(p + 5 + distance, clones);
}

uint32_t object_find(const struct object *o, const char *name)
{
	const uint32_t buckets = o->hash[0], first = o->hash[1];
	const uint32_t *bucket = o->hash + 4 + 2 * (size_t)o->hash[2];
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
		    strcmp(o->strings + o->symbols[i].st_name, name) == 0)
			return i;
		if (one & 1)
			return 0;
	}
}
