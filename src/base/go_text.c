/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the places where a dynamically linked Go program enters the kernel.
 *
 * Whole functions are compared, byte for byte: they are written in assembly, and have been the same
 * from Go 1.19 on. A program in which one is missing, or stands twice, is left alone.
 */
#include "base/go_text.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "base/kernel.h"
#include "base/regular.h"

struct shape {
	const char *bytes;
	uint8_t len, patch; /* where the jump is to go */
};
#define SHAPE(patch, text)                                                               \
	{                                                                                \
		(text), sizeof(text) - 1, (patch)                                        \
	}
#define CMP "\x48\x3d\x01\xf0\xff\xff" /* cmp $-4095,%rax */

static const struct shape shapes[GO_PLACES] = {
	[GO_SYSCALL6] = SHAPE(12, "\x49\x89\xf2\x48\x89\xfa\x48\x89\xce\x48\x89\xdf"
				  "\x0f\x05" CMP "\x76\x15\x48\xf7\xd8\x48\x89\xc1"
				  "\x48\xc7\xc0\xff\xff\xff\xff\x48\xc7\xc3\0\0\0\0\xc3"
				  "\x48\x89\xd3\x48\xc7\xc1\0\0\0\0\xc3"),
	[GO_VFORK] = SHAPE(7, "\x48\x8b\x44\x24\x08\x41\x5c\x0f\x05\x41\x54" CMP),
	[GO_EXIT] = SHAPE(4, "\x8b\x7c\x24\x08\xb8\xe7\0\0\0\x0f\x05\xc3"),
	[GO_EPOLL_CREATE] =
		SHAPE(4, "\x8b\x7c\x24\x08\xb8\xd5\0\0\0\x0f\x05\x89\x44\x24\x10\xc3"),
	[GO_EPOLL_CREATE1] =
		SHAPE(4, "\x8b\x7c\x24\x08\xb8\x23\x01\0\0\x0f\x05\x89\x44\x24\x10\xc3"),
	[GO_EPOLL_CTL] = SHAPE(
		17, "\x8b\x7c\x24\x08\x8b\x74\x24\x0c\x8b\x54\x24\x10"
		    "\x4c\x8b\x54\x24\x18\xb8\xe9\0\0\0\x0f\x05\x89\x44\x24\x20\xc3"),
	[GO_EPOLL_WAIT] = SHAPE(
		25, "\x8b\x7c\x24\x08\x48\x8b\x74\x24\x10\x8b\x54\x24\x18"
		    "\x44\x8b\x54\x24\x1c\x49\xc7\xc0\0\0\0\0\xb8\x19\x01\0\0\x0f\x05"
		    "\x89\x44\x24\x20\xc3"),
};

/* What may stand in the function named beside it only, or nowhere: sockets would be used, or waited
 * for, or children made, past us. */
static const struct stray {
	struct shape shape;
	enum go_place within;
} strays[] = {
	{SHAPE(0, "\xb8\xd5\0\0\0\x0f\x05"), GO_EPOLL_CREATE},
	{SHAPE(0, "\xb8\x23\x01\0\0\x0f\x05"), GO_EPOLL_CREATE1},
	{SHAPE(0, "\xb8\xe9\0\0\0\x0f\x05"), GO_EPOLL_CTL},
	{SHAPE(0, "\xb8\x19\x01\0\0\x0f\x05"), GO_EPOLL_WAIT},
	{SHAPE(0, "\xb8\xe8\0\0\0\x0f\x05"), GO_PLACES}, /* epoll_wait itself */
	/* Taken from the stack the return address, as only where the child shares that. */
	{SHAPE(0, "\x41\x5c\x0f\x05"), GO_VFORK},
	/* Syscall of Go 1.18 and older. */
	{SHAPE(0, "\x48\x8b\x44\x24\x08\x0f\x05" CMP), GO_PLACES},
};
#define STRAYS (sizeof(strays) / sizeof(strays[0]))

struct image {
	const char *file;
	const Elf64_Phdr *ph;
	unsigned count;
};

struct search {
	struct go_text *found;
	unsigned hits[GO_PLACES], strays[STRAYS];
	bool threads; /* pthread_create is imported: threads have the C library's data */
};

/* Whether the shape stands there with its `0f 05` at `at`; *begins: where it does. */
static bool stands(const struct shape *p, const char *text, size_t len, size_t at,
		   size_t *begins)
{
	const char *call = memmem(p->bytes, p->len, "\x0f\x05", 2);
	size_t before = (size_t)(call - p->bytes);

	*begins = at - before;
	return at >= before && len - *begins >= p->len &&
	       memcmp(text + *begins, p->bytes, p->len) == 0;
}

/* Each place has `0f 05` in it: that is rare enough in a program to be looked for. */
static void look_at(struct search *s, const char *text, size_t len, size_t at,
		    uint64_t base)
{
	size_t begins;

	for (unsigned i = 0; i < GO_PLACES; i++)
		if (stands(&shapes[i], text, len, at, &begins)) {
			s->hits[i]++;
			s->found->at[i] = base + begins + shapes[i].patch;
		}
	for (unsigned i = 0; i < STRAYS; i++)
		s->strays[i] += stands(&strays[i].shape, text, len, at, &begins);
}

static void look_through(struct search *s, const char *text, size_t len, uint64_t base)
{
	const char *at = text, *hit;

	while ((hit = memmem(at, len - (size_t)(at - text), "\x0f\x05", 2))) {
		look_at(s, text, len, (size_t)(hit - text), base);
		at = hit + 1;
	}
}

/* Where the file holds what will be at that address, and how much follows; NULL: nowhere. */
static const char *loaded(const struct image *im, uint64_t at, uint64_t *left)
{
	for (unsigned i = 0; i < im->count; i++) {
		const Elf64_Phdr *ph = &im->ph[i];

		if (ph->p_type != PT_LOAD || at < ph->p_vaddr ||
		    at - ph->p_vaddr >= ph->p_filesz)
			continue;
		*left = ph->p_filesz - (at - ph->p_vaddr);
		return im->file + ph->p_offset + (at - ph->p_vaddr);
	}
	return NULL;
}

/* The value of the dynamic linker's entry of that kind. */
static uint64_t dynamic(const struct image *im, int64_t tag)
{
	for (unsigned i = 0; i < im->count; i++) {
		const Elf64_Phdr *ph = &im->ph[i];
		Elf64_Dyn d;

		for (uint64_t at = 0;
		     ph->p_type == PT_DYNAMIC && at + sizeof(d) <= ph->p_filesz;
		     at += sizeof(d)) {
			memcpy(&d, im->file + ph->p_offset + at, sizeof(d));
			if (d.d_tag == tag)
				return d.d_un.d_val;
		}
	}
	return 0;
}

static bool imports_threads(const struct image *im)
{
	static const char name[] = "pthread_create";
	uint64_t left = 0, room = 0, size = dynamic(im, DT_STRSZ);
	const char *strings = loaded(im, dynamic(im, DT_STRTAB), &room);
	const char *symbols = loaded(im, dynamic(im, DT_SYMTAB), &left);
	Elf64_Sym sym;

	if (!strings || !symbols || size > room)
		return false;
	for (; left >= sizeof(sym); left -= sizeof(sym), symbols += sizeof(sym)) {
		memcpy(&sym, symbols, sizeof(sym));
		if (sym.st_name >= size)
			break; /* behind the table's end */
		if (sym.st_shndx == SHN_UNDEF && size - sym.st_name >= sizeof(name) &&
		    memcmp(strings + sym.st_name, name, sizeof(name)) == 0)
			return true;
	}
	return false;
}

static const char *judge(const struct search *s)
{
	unsigned epolls = 0;

	if (s->hits[GO_SYSCALL6] != 1)
		return "its way into the kernel is not the one of Go 1.19 to 1.24";
	if (!s->threads)
		return "it is built without cgo";
	if (s->hits[GO_EXIT] != 1 || s->hits[GO_VFORK] > 1)
		return "its runtime is not the one of Go 1.19 to 1.24";
	for (unsigned i = GO_EPOLL_CREATE; i <= GO_EPOLL_WAIT; i++)
		epolls += s->hits[i];
	for (unsigned i = 0; i < STRAYS; i++)
		if (s->strays[i] !=
		    (strays[i].within < GO_PLACES ? s->hits[strays[i].within] : 0))
			return "it has system calls of its own beside Go's";
	if (epolls != 0 && epolls != 4)
		return "its runtime is not the one of Go 1.19 to 1.24";
	return NULL;
}

static int search(const char *file, size_t size, struct go_text *found)
{
	const Elf64_Ehdr *eh = (const void *)file;
	const Elf64_Phdr *ph;
	struct search s = {.found = found};

	if (size < sizeof(*eh) || memcmp(eh->e_ident, ELFMAG, SELFMAG) != 0 ||
	    eh->e_ident[EI_CLASS] != ELFCLASS64 || eh->e_phentsize != sizeof(*ph) ||
	    eh->e_phoff % sizeof(uint64_t) || eh->e_phoff > size ||
	    (size - eh->e_phoff) / sizeof(*ph) < eh->e_phnum)
		return -ENOEXEC;
	ph = (const void *)(file + eh->e_phoff);
	for (unsigned i = 0; i < eh->e_phnum; i++)
		if (ph[i].p_offset > size || ph[i].p_filesz > size - ph[i].p_offset)
			return -ENOEXEC;
	for (unsigned i = 0; i < eh->e_phnum; i++)
		if (ph[i].p_type == PT_LOAD && (ph[i].p_flags & PF_X))
			look_through(&s, file + ph[i].p_offset, ph[i].p_filesz,
				     ph[i].p_vaddr);
	s.threads = imports_threads(&(struct image){file, ph, eh->e_phnum});
	found->lacks = judge(&s);
	return found->lacks ? -ENOEXEC : 0;
}

int go_text_find(const char *path, struct go_text *found)
{
	struct stat st;
	char *file;
	int fd = regular_open(path), r = -ENOEXEC;

	memset(found, 0, sizeof(*found));
	found->lacks = "its file cannot be looked into";
	if (fd < 0)
		return r;
	if (kernel_fstat(fd, &st) == 0 && st.st_size > (off_t)sizeof(Elf64_Ehdr)) {
		file = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
		if (file != MAP_FAILED) {
			r = search(file, (size_t)st.st_size, found);
			munmap(file, (size_t)st.st_size);
		}
	}
	kernel_close(fd);
	return r;
}

const unsigned char *go_text_bytes(enum go_place place)
{
	return (const unsigned char *)shapes[place].bytes + shapes[place].patch;
}
