/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the system calls of a program that is linked statically, and room to lead them away. */
#include "base/static_text.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "base/kernel.h"
#include "base/regular.h"

static int lack(struct static_text *t, const char *why, uint64_t at)
{
	t->lacks = why;
	t->lacks_at = at;
	return -ENOEXEC;
}

/* A first approximation: `mov $number,%eax; syscall`, or a comparison with -4095 behind it. */
static bool add(struct static_text *t, const uint8_t *p, size_t before, size_t after,
		uint64_t at, const uint8_t *concerns, size_t concerns_count)
{
	struct static_site *s = &t->sites[t->count++];

	*s = (struct static_site){.at = at, .number = -1, .kind = STATIC_JUMP};
	if (before >= 5 && p[-5] == 0xb8) {
		memcpy(&s->number, p - 4, sizeof(s->number));
		s->jump = at - 5;
		s->back = at + 2;
		s->head_bytes = 5;
		memcpy(s->head, p - 5, 5);
		if (s->number >= 0 &&
		    ((size_t)s->number >= concerns_count || !concerns[s->number]))
			s->kind = STATIC_LEAVE;
		return true;
	}
	s->jump = at;
	s->tail_bytes = 6;
	s->back = at + 8;
	if (after < 8 || p[2] != 0x48 || p[3] != 0x3d || memcmp(p + 5, "\xf0\xff\xff", 3))
		return false;
	memcpy(s->tail, p + 2, 6);
	return true;
}

static int look_through(struct static_text *t, const uint8_t *text, size_t len,
			uint64_t base, const uint8_t *concerns, size_t concerns_count)
{
	const uint8_t *at = text, *hit;

	while ((hit = memmem(at, len - (size_t)(at - text), "\x0f\x05", 2))) {
		if (t->count == STATIC_SITES_MOST)
			return lack(t, "it has too many system calls", 0);
		if (!add(t, hit, (size_t)(hit - text), len - (size_t)(hit - text),
			 base + (uint64_t)(hit - text), concerns, concerns_count))
			return lack(t, "a system call has no room for a jump",
				    base + (uint64_t)(hit - text));
		at = hit + 2;
	}
	return 0;
}

static int search(const uint8_t *file, size_t size, const uint8_t *concerns,
		  size_t concerns_count, struct static_text *t)
{
	const Elf64_Ehdr *eh = (const void *)file;
	const Elf64_Phdr *ph;
	int r = 0;

	if (size < sizeof(*eh) || memcmp(eh->e_ident, ELFMAG, SELFMAG) != 0 ||
	    eh->e_ident[EI_CLASS] != ELFCLASS64 || eh->e_phentsize != sizeof(*ph) ||
	    eh->e_phoff % sizeof(uint64_t) || eh->e_phoff > size ||
	    (size - eh->e_phoff) / sizeof(*ph) < eh->e_phnum)
		return lack(t, "it is no program of this machine", 0);
	ph = (const void *)(file + eh->e_phoff);
	t->is_pie = eh->e_type == ET_DYN;
	for (unsigned i = 0; r == 0 && i < eh->e_phnum; i++) {
		if (ph[i].p_offset > size || ph[i].p_filesz > size - ph[i].p_offset)
			return lack(t, "its file is cut short", 0);
		if (ph[i].p_type == PT_LOAD && (ph[i].p_flags & PF_X))
			r = look_through(t, file + ph[i].p_offset, ph[i].p_filesz,
					 ph[i].p_vaddr, concerns, concerns_count);
	}
	return r;
}

int static_text_find(const char *path, const uint8_t *concerns, size_t concerns_count,
		     struct static_text *found)
{
	size_t room = STATIC_SITES_MOST * sizeof(struct static_site);
	struct stat st;
	void *file, *sites;
	int fd = regular_open(path), r = -ENOEXEC;

	*found = (struct static_text){.lacks = "its file cannot be read"};
	if (fd < 0)
		return fd;
	if (fstat(fd, &st) < 0 || st.st_size <= 0) {
		kernel_close(fd);
		return r;
	}
	file = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
	kernel_close(fd);
	if (file == MAP_FAILED)
		return -ENOMEM;
	sites = mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
		     0);
	if (sites != MAP_FAILED) {
		found->lacks = NULL;
		found->sites = sites;
		r = search(file, (size_t)st.st_size, concerns, concerns_count, found);
		if (r < 0)
			static_text_finish(found);
	}
	munmap(file, (size_t)st.st_size);
	return r;
}

void static_text_finish(struct static_text *found)
{
	munmap(found->sites, STATIC_SITES_MOST * sizeof(struct static_site));
	found->sites = NULL;
	found->count = 0;
}
