/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the places where a Go program enters the kernel.
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

#include "base/find_call.h"
#include "base/kernel.h"
#include "base/regular.h"

struct shape {
	const char *bytes;
	uint8_t len, patch; /* where the jump is to go */
	uint8_t any;	    /* not 0: a byte there that differs between versions */
	uint8_t call;	    /* where its first `0f 05` is */
};
#define SHAPE_BUT(any, patch, before, after)                                             \
	{                                                                                \
		before "\x0f\x05" after, sizeof(before "\x0f\x05" after) - 1, (patch),   \
			(any), sizeof(before) - 1                                        \
	}
#define SHAPE(patch, before, after) SHAPE_BUT(0, patch, before, after)
#define CMP			    "\x48\x3d\x01\xf0\xff\xff" /* cmp $-4095,%rax */

static const struct shape shapes[GO_PLACES] = {
	[GO_SYSCALL6] = SHAPE(12, "\x49\x89\xf2\x48\x89\xfa\x48\x89\xce\x48\x89\xdf",
			      CMP "\x76\x15\x48\xf7\xd8\x48\x89\xc1"
				  "\x48\xc7\xc0\xff\xff\xff\xff\x48\xc7\xc3\0\0\0\0\xc3"
				  "\x48\x89\xd3\x48\xc7\xc1\0\0\0\0\xc3"),
	[GO_VFORK] = SHAPE(7, "\x48\x8b\x44\x24\x08\x41\x5c", "\x41\x54" CMP),
	[GO_EXIT] = SHAPE(4, "\x8b\x7c\x24\x08\xb8\xe7\0\0\0", "\xc3"),
	[GO_EPOLL_CREATE] =
		SHAPE(4, "\x8b\x7c\x24\x08\xb8\xd5\0\0\0", "\x89\x44\x24\x10\xc3"),
	[GO_EPOLL_CREATE1] =
		SHAPE(4, "\x8b\x7c\x24\x08\xb8\x23\x01\0\0", "\x89\x44\x24\x10\xc3"),
	[GO_EPOLL_CTL] = SHAPE(17,
			       "\x8b\x7c\x24\x08\x8b\x74\x24\x0c\x8b\x54\x24\x10"
			       "\x4c\x8b\x54\x24\x18\xb8\xe9\0\0\0",
			       "\x89\x44\x24\x20\xc3"),
	[GO_EPOLL_WAIT] =
		SHAPE(25,
		      "\x8b\x7c\x24\x08\x48\x8b\x74\x24\x10\x8b\x54\x24\x18"
		      "\x44\x8b\x54\x24\x1c\x49\xc7\xc0\0\0\0\0\xb8\x19\x01\0\0",
		      "\x89\x44\x24\x20\xc3"),
	[GO_SETTLS] = SHAPE(14,
			    "\x48\x83\xc7\x08\x48\x89\xfe\x48\xc7\xc7\x02\x10\0\0"
			    "\x48\xc7\xc0\x9e\0\0\0",
			    CMP "\x76\x0b"),
	/* From the offset of m.tls on, which differs; the offset of m.procid does, too. */
	[GO_CLONE] = SHAPE_BUT(
		54, 11, "\x49\x83\xc0\x08\x48\x81\xcf\0\0\x08\0\xb8\x38\0\0\0",
		"\x48\x83\xf8\0\x74\x05\x89\x44\x24\x30\xc3\x48\x89\xf4"
		"\x49\x83\xfd\0\x74\x26\x49\x83\xf9\0\x74\x20\xb8\xba\0\0\0\x0f\x05"
		"\x49\x89\x45\0\x4d\x89\x69\x30\x64\x4c\x89\x0c\x25\xf8\xff\xff\xff"
		"\x4d\x89\xce\xe8"),
	[GO_EXIT_THREAD] = SHAPE(5,
				 "\x48\x8b\x44\x24\x08\xc7\0\0\0\0\0\xbf\0\0\0\0"
				 "\xb8\x3c\0\0\0",
				 "\xcd\x03\xeb\xfe"),
	[GO_SIGACTION] = SHAPE(20,
			       "\x48\x8b\x7c\x24\x08\x48\x8b\x74\x24\x10"
			       "\x48\x8b\x54\x24\x18\x4c\x8b\x54\x24\x20"
			       "\xb8\x0d\0\0\0",
			       "\x89\x44\x24\x28\xc3"),
};

/* Since Go 1.27 the assembler has shorter forms of some moves. */
static const struct later {
	enum go_place place;
	struct shape shape;
} laters[] = {
	{GO_SYSCALL6, SHAPE(12, "\x49\x89\xf2\x48\x89\xfa\x48\x89\xce\x48\x89\xdf",
			    CMP "\x76\x13\x48\xf7\xd8\x48\x89\xc1"
				"\x48\xc7\xc0\xff\xff\xff\xff\xbb\0\0\0\0\xc3"
				"\x48\x89\xd3\xb9\0\0\0\0\xc3")},
	{GO_SETTLS, SHAPE(12,
			  "\x48\x83\xc7\x08\x48\x89\xfe\xbf\x02\x10\0\0"
			  "\xb8\x9e\0\0\0",
			  CMP "\x76\x0b")},
};
#define LATERS (sizeof(laters) / sizeof(laters[0]))

/* newosproc, before it calls clone: movl $CLONE_VM|FS|FILES|SIGHAND|SYSVSEM|THREAD,(%rsp) */
static const struct shape asks_for_thread = SHAPE(0, "\xc7\x04\x24\0", "\0");

/* What may stand in the function named beside it only, or nowhere: sockets would be used, or waited
 * for, or children made, past us. */
static const struct stray {
	struct shape shape;
	enum go_place within;
	bool is_static; /* that concerns statically linked programs alone */
} strays[] = {
	{SHAPE(0, "\xb8\xd5\0\0\0", ""), GO_EPOLL_CREATE, false},
	{SHAPE(0, "\xb8\x23\x01\0\0", ""), GO_EPOLL_CREATE1, false},
	{SHAPE(0, "\xb8\xe9\0\0\0", ""), GO_EPOLL_CTL, false},
	{SHAPE(0, "\xb8\x19\x01\0\0", ""), GO_EPOLL_WAIT, false},
	{SHAPE(0, "\xb8\xe8\0\0\0", ""), GO_PLACES, false}, /* epoll_wait itself */
	/* Taken from the stack the return address, as only where the child shares that. */
	{SHAPE(0, "\x41\x5c", ""), GO_VFORK, false},
	/* Syscall of Go 1.18 and older. */
	{SHAPE(0, "\x48\x8b\x44\x24\x08", CMP), GO_PLACES, false},
	/* Threads that the C library would not know, and handlers of signals. */
	{SHAPE(0, "\xb8\x38\0\0\0", ""), GO_CLONE, true},
	{SHAPE(0, "\xb8\x0d\0\0\0", ""), GO_SIGACTION, true},
	{SHAPE(0, "\x9e\0\0\0", ""), GO_SETTLS, true}, /* arch_prctl */
};
#define STRAYS (sizeof(strays) / sizeof(strays[0]))

struct image {
	const char *file;
	const Elf64_Phdr *ph;
	unsigned count;
};

struct search {
	struct go_text *found;
	unsigned hits[GO_PLACES], strays[STRAYS], thread_asks;
	bool threads; /* pthread_create is imported: threads have the C library's data */
	bool begins_as_go; /* linked statically, and begins as known */
};

/* Whether the shape stands there with its `0f 05` at `at`; *begins: where it does. */
static bool stands(const struct shape *p, const char *text, size_t len, size_t at,
		   size_t *begins)
{
	*begins = at - p->call;
	if (at < p->call || len - *begins < p->len)
		return false;
	text += *begins;
	if (!p->any)
		return memcmp(text, p->bytes, p->len) == 0;
	return memcmp(text, p->bytes, p->any) == 0 &&
	       memcmp(text + p->any + 1, p->bytes + p->any + 1,
		      (size_t)p->len - p->any - 1) == 0;
}

static void found_at(struct search *s, enum go_place place, const struct shape *p,
		     uint64_t begins)
{
	s->hits[place]++;
	s->found->at[place] = begins + p->patch;
	s->found->was[place] = (const unsigned char *)p->bytes + p->patch;
}

/* Each place has `0f 05` in it: that is rare enough in a program to be looked for. */
static void look_at(struct search *s, const char *text, size_t len, size_t at,
		    uint64_t base)
{
	size_t begins;

	for (unsigned i = 0; i < GO_PLACES; i++)
		if (stands(&shapes[i], text, len, at, &begins))
			found_at(s, i, &shapes[i], base + begins);
	for (unsigned i = 0; i < LATERS; i++)
		if (stands(&laters[i].shape, text, len, at, &begins))
			found_at(s, laters[i].place, &laters[i].shape, base + begins);
	s->thread_asks += stands(&asks_for_thread, text, len, at, &begins);
	for (unsigned i = 0; i < STRAYS; i++)
		s->strays[i] += stands(&strays[i].shape, text, len, at, &begins);
}

static void look_through(struct search *s, const char *text, size_t len, uint64_t base)
{
	const char *at = text, *hit;

	while ((hit = find_call(at, text + len))) {
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

/* The code there, if so much of it is in the file; else NULL. */
static const unsigned char *code(const struct image *im, uint64_t at, size_t len)
{
	uint64_t left;
	const char *found = loaded(im, at, &left);

	return found && left >= len ? (const unsigned char *)found : NULL;
}

/* Where a jump at `at` leads: short or near; 0: there is none. */
static uint64_t jump_target(const struct image *im, uint64_t at)
{
	const unsigned char *p = code(im, at, 5);
	int32_t far;

	if (!p || (*p != 0xe9 && *p != 0xeb))
		return 0;
	if (*p == 0xeb)
		return at + 2 + (uint64_t)(int64_t)(int8_t)p[1];
	memcpy(&far, p + 1, sizeof(far));
	return at + 5 + (uint64_t)(int64_t)far;
}

/* mov (%rsp),%rdi; lea 8(%rsp),%rsi */
static const char start[] = "\x48\x8b\x3c\x24\x48\x8d\x74\x24\x08";
/* What follows the call of settls: movq $0x123,%fs:-8; mov m0.tls(%rip),%rax */
static const char tries_tls[] = "\x64\x48\xc7\x04\x25\xf8\xff\xff\xff\x23\x01\0\0"
				"\x48\x8b\x05";
#define TRIES_BYTES (sizeof(tries_tls) - 1)
/* cmp $0x123,%rax; je */
static const char compares[] = "\x48\x3d\x23\x01\0\0\x74\x05";
#define COMPARES_BYTES (sizeof(compares) - 1)
/* Before it: lea m0.tls(%rip),%rdi; call settls */
#define SETS_BYTES   12
#define WITHIN_START 1024 /* rt0_go has it in its first half */
/* settls has saved rbp before, in one of two ways: its jump is so far behind its begin, at most */
#define SETTLS_MOST 28

/* Where it is in a program that is Go's runtime from its first instruction on: nothing of another library has run,
 * or will. 0: it is none. */
static uint64_t rt0_go(const struct image *im)
{
	const Elf64_Ehdr *eh = (const void *)im->file;
	uint64_t rt0_amd64 = jump_target(im, eh->e_entry);
	const unsigned char *p = code(im, rt0_amd64, sizeof(start) - 1);

	if (eh->e_type != ET_EXEC || !p || memcmp(p, start, sizeof(start) - 1) != 0)
		return 0;
	return jump_target(im, rt0_amd64 + sizeof(start) - 1);
}

static int32_t far_at(const unsigned char *p)
{
	int32_t far;

	memcpy(&far, p, sizeof(far));
	return far;
}

/*
 * runtime.rt0_go sets FS by settls, stores through it, and looks whether m0.tls has changed: by these
 * instructions, in which both addresses are the same, and that function is the one called.
 */
static bool tries_as_known(const struct image *im, const struct go_text *t)
{
	uint64_t rt0 = rt0_go(im);
	const unsigned char *p = code(im, rt0, WITHIN_START), *hit;
	uint64_t called;

	hit = p ? memmem(p, WITHIN_START, tries_tls, TRIES_BYTES) : NULL;
	if (!hit || hit - p < SETS_BYTES ||
	    (size_t)(p + WITHIN_START - hit) < TRIES_BYTES + 4 + COMPARES_BYTES ||
	    memcmp(hit + TRIES_BYTES + 4, compares, COMPARES_BYTES) != 0 ||
	    memcmp(hit - SETS_BYTES, "\x48\x8d\x3d", 3) != 0 || hit[-5] != 0xe8)
		return false;
	called = rt0 + (uint64_t)(hit - p) + (uint64_t)(int64_t)far_at(hit - 4);
	return t->at[GO_SETTLS] - called <= SETTLS_MOST &&
	       far_at(hit - 9) - 5 ==
		       far_at(hit + TRIES_BYTES) + (int32_t)TRIES_BYTES + 4;
}

static bool has_part(const struct image *im, uint32_t type)
{
	for (unsigned i = 0; i < im->count; i++)
		if (im->ph[i].p_type == type)
			return true;
	return false;
}

static bool is_static(const struct image *im)
{
	return !has_part(im, PT_INTERP) && !has_part(im, PT_DYNAMIC);
}

static const char *judge(const struct search *s)
{
	bool is_static = s->found->is_static;
	unsigned epolls = 0;

	if (s->hits[GO_SYSCALL6] != 1)
		return "its way into the kernel is not the one of Go 1.19 to 1.27";
	if (!is_static && !s->threads)
		return "it is built without cgo";
	if (is_static && !s->begins_as_go)
		return "it does not begin as programs in Go do that are linked "
		       "statically";
	if (is_static && s->thread_asks != 1)
		return "its runtime is not the one of Go 1.19 to 1.27";
	for (unsigned i = GO_SETTLS; is_static && i < GO_PLACES; i++)
		if (s->hits[i] != 1)
			return "its runtime is not the one of Go 1.19 to 1.27";
	if (s->hits[GO_EXIT] != 1 || s->hits[GO_VFORK] > 1)
		return "its runtime is not the one of Go 1.19 to 1.27";
	for (unsigned i = GO_EPOLL_CREATE; i <= GO_EPOLL_WAIT; i++)
		epolls += s->hits[i];
	for (unsigned i = 0; i < STRAYS; i++)
		if ((is_static || !strays[i].is_static) &&
		    s->strays[i] != (strays[i].within < GO_PLACES
					     ? s->hits[strays[i].within]
					     : 0))
			return "it has system calls of its own beside Go's";
	if (epolls != 0 && epolls != 4)
		return "its runtime is not the one of Go 1.19 to 1.27";
	return NULL;
}

/* Of Go's linker's; a hostile file has more, each of them the whole of it. */
#define PARTS_MOST 64

/* False: it is no sound program. */
static bool take_image(const char *file, size_t size, struct image *im)
{
	const Elf64_Ehdr *eh = (const void *)file;
	const Elf64_Phdr *ph;

	if (size < sizeof(*eh) || memcmp(eh->e_ident, ELFMAG, SELFMAG) != 0 ||
	    eh->e_ident[EI_CLASS] != ELFCLASS64 || eh->e_phentsize != sizeof(*ph) ||
	    eh->e_phoff % sizeof(uint64_t) || eh->e_phoff > size ||
	    (size - eh->e_phoff) / sizeof(*ph) < eh->e_phnum || eh->e_phnum > PARTS_MOST)
		return false;
	ph = (const void *)(file + eh->e_phoff);
	for (unsigned i = 0; i < eh->e_phnum; i++)
		if (ph[i].p_offset > size || ph[i].p_filesz > size - ph[i].p_offset)
			return false;
	*im = (struct image){file, ph, eh->e_phnum};
	return true;
}

static int search(const char *file, size_t size, struct go_text *found)
{
	struct search s = {.found = found};
	struct image im;

	if (!take_image(file, size, &im))
		return -ENOEXEC;
	for (unsigned i = 0; i < im.count; i++)
		if (im.ph[i].p_type == PT_LOAD && (im.ph[i].p_flags & PF_X))
			look_through(&s, file + im.ph[i].p_offset, im.ph[i].p_filesz,
				     im.ph[i].p_vaddr);
	s.threads = imports_threads(&im);
	found->is_static = is_static(&im);
	s.begins_as_go =
		found->is_static && !has_part(&im, PT_TLS) && tries_as_known(&im, found);
	for (unsigned i = GO_SETTLS; !found->is_static && i < GO_PLACES; i++)
		found->at[i] = 0;
	found->lacks = judge(&s);
	return found->lacks ? -ENOEXEC : 0;
}

/* The file in memory, or NULL. */
static const char *map_file(const char *path, size_t *size)
{
	struct stat st;
	void *file = MAP_FAILED;
	int fd = regular_open(path);

	if (fd < 0)
		return NULL;
	if (kernel_fstat(fd, &st) == 0 && st.st_size > (off_t)sizeof(Elf64_Ehdr)) {
		*size = (size_t)st.st_size;
		file = mmap(NULL, *size, PROT_READ, MAP_PRIVATE, fd, 0);
	}
	kernel_close(fd);
	return file == MAP_FAILED ? NULL : file;
}

bool go_text_begins(const char *path)
{
	size_t size;
	const char *file = map_file(path, &size);
	struct image im;
	bool begins;

	if (!file)
		return false;
	begins = take_image(file, size, &im) && is_static(&im) && rt0_go(&im);
	munmap((void *)(uintptr_t)file, size);
	return begins;
}

int go_text_find(const char *path, struct go_text *found)
{
	size_t size;
	const char *file = map_file(path, &size);
	int r = -ENOEXEC;

	memset(found, 0, sizeof(*found));
	found->lacks = "its file cannot be looked into";
	if (file) {
		r = search(file, size, found);
		munmap((void *)(uintptr_t)file, size);
	}
	return r;
}
