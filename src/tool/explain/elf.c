/* SPDX-License-Identifier: Apache-2.0 */
/* Reads what an ELF file imports and needs; believes nothing that the file says of itself. */
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/program.h"
#include "base/regular.h"
#include "tool/explain/explain.h"

enum { PHDRS_MAX = 256, NEEDED_MAX = 256, TABLE_MAX = 64 << 20, BLOCK = 1 << 20 };
/* A hostile file has more and longer names, and more code, than one can look through. */
enum { NAMES_MAX = 1 << 16, NAME_MOST = 4096, CODE_MAX = 512 << 20 };

struct image {
	int fd;
	uint64_t size;
	Elf64_Phdr ph[PHDRS_MAX];
	unsigned phnum;
};

/* What the dynamic section says: addresses and sizes. */
struct dynamic {
	uint64_t strings, strings_size, symbols;
	uint64_t rela[2], rela_size[2]; /* of data, of the procedure linkage table */
	uint64_t rpath, runpath;	/* into strings; UINT64_MAX: none */
	uint64_t needed[NEEDED_MAX];
	size_t needed_count;
};

static bool read_at(const struct image *im, uint64_t at, void *to, size_t len)
{
	return at <= im->size && len <= im->size - at &&
	       pread(im->fd, to, len, (off_t)at) == (ssize_t)len;
}

/* A copy of the part of the file that lies at an address; NULL where there is none. */
static void *table(const struct image *im, uint64_t address, uint64_t len)
{
	for (unsigned i = 0; i < im->phnum; i++) {
		const Elf64_Phdr *ph = &im->ph[i];
		uint64_t into = address - ph->p_vaddr;
		char *copy;

		if (ph->p_type != PT_LOAD || address < ph->p_vaddr ||
		    into > ph->p_filesz || len > ph->p_filesz - into || len > TABLE_MAX ||
		    ph->p_offset > im->size)
			continue;
		copy = need(malloc(len + 1));
		if (read_at(im, ph->p_offset + into, copy, len)) {
			copy[len] = 0;
			return copy;
		}
		free(copy);
	}
	return NULL;
}

static int image_open(const char *path, struct image *im)
{
	Elf64_Ehdr eh;
	struct stat st;

	im->fd = regular_open(path);
	if (im->fd < 0)
		return im->fd;
	if (fstat(im->fd, &st))
		return -errno;
	im->size = (uint64_t)st.st_size;
	if (!read_at(im, 0, &eh, sizeof(eh)) || memcmp(eh.e_ident, ELFMAG, SELFMAG) ||
	    eh.e_ident[EI_CLASS] != ELFCLASS64 || eh.e_machine != EM_X86_64 ||
	    eh.e_phentsize != sizeof(Elf64_Phdr) || eh.e_phnum > PHDRS_MAX)
		return -ENOEXEC;
	im->phnum = eh.e_phnum;
	return read_at(im, eh.e_phoff, im->ph, im->phnum * sizeof(im->ph[0])) ? 0
									      : -ENOEXEC;
}

static void note_dynamic(struct dynamic *d, const Elf64_Dyn *dyn)
{
	uint64_t v = dyn->d_un.d_val;

	switch (dyn->d_tag) {
	case DT_STRTAB:
		d->strings = v;
		break;
	case DT_STRSZ:
		d->strings_size = v;
		break;
	case DT_SYMTAB:
		d->symbols = v;
		break;
	case DT_RELA:
		d->rela[0] = v;
		break;
	case DT_RELASZ:
		d->rela_size[0] = v;
		break;
	case DT_JMPREL:
		d->rela[1] = v;
		break;
	case DT_PLTRELSZ:
		d->rela_size[1] = v;
		break;
	case DT_RPATH:
		d->rpath = v;
		break;
	case DT_RUNPATH:
		d->runpath = v;
		break;
	case DT_NEEDED:
		if (d->needed_count < NEEDED_MAX)
			d->needed[d->needed_count++] = v;
		break;
	default:
		break;
	}
}

/* 0, or -ENOEXEC. A static program has none, which is all zeros. */
static int read_dynamic(const struct image *im, struct dynamic *d)
{
	Elf64_Dyn dyn;

	*d = (struct dynamic){.rpath = UINT64_MAX, .runpath = UINT64_MAX};
	for (unsigned i = 0; i < im->phnum; i++) {
		const Elf64_Phdr *ph = &im->ph[i];

		if (ph->p_type != PT_DYNAMIC)
			continue;
		for (uint64_t at = 0; at + sizeof(dyn) <= ph->p_filesz;
		     at += sizeof(dyn)) {
			if (at > TABLE_MAX || ph->p_offset > im->size ||
			    !read_at(im, ph->p_offset + at, &dyn, sizeof(dyn)))
				return -ENOEXEC;
			if (dyn.d_tag == DT_NULL)
				break;
			note_dynamic(d, &dyn);
		}
		break;
	}
	return 0;
}

/* NULL for what is not in the table; the table ends in a zero. */
static const char *string_at(const struct elf_view *e, uint64_t at)
{
	return at < e->strings_size ? e->strings + at : NULL;
}

static void add_name(const char ***names, size_t *count, const char *name)
{
	if (!name || !*name || *count >= NAMES_MAX ||
	    strnlen(name, NAME_MOST) == NAME_MOST)
		return;
	if ((*count & (*count + 1)) == 0) /* it has room up to the next power of two */
		*names = need(realloc(*names, 2 * (*count + 1) * sizeof(**names)));
	(*names)[(*count)++] = name;
}

/* The symbols that relocations name, and that the file does not define: no other count of
 * symbols can be believed without a hash table. */
static int read_imports(const struct image *im, const struct dynamic *d,
			struct elf_view *e)
{
	for (int t = 0; t < 2; t++) {
		size_t count = d->rela_size[t] / sizeof(Elf64_Rela);
		Elf64_Rela *rela = table(im, d->rela[t], count * sizeof(*rela));
		uint64_t last = 0;
		Elf64_Sym *symbols;

		if (!rela && count)
			return -ENOEXEC;
		for (size_t i = 0; i < count; i++)
			if (ELF64_R_SYM(rela[i].r_info) > last)
				last = ELF64_R_SYM(rela[i].r_info);
		symbols = last ? table(im, d->symbols, (last + 1) * sizeof(*symbols))
			       : NULL;
		if (last && !symbols) {
			free(rela);
			return -ENOEXEC;
		}
		for (size_t i = 0; i < count && symbols; i++) {
			Elf64_Sym *s = &symbols[ELF64_R_SYM(rela[i].r_info)];

			if (s->st_shndx == SHN_UNDEF && s->st_name)
				add_name(&e->imports, &e->imports_count,
					 string_at(e, s->st_name));
			s->st_name = 0; /* once */
		}
		free(symbols);
		free(rela);
	}
	return 0;
}

static bool is_uring(uint32_t number)
{
	return number == SYS_io_uring_setup || number == SYS_io_uring_enter;
}

static bool concerns_sockets(uint32_t number)
{
	static const uint16_t numbers[] = {
		SYS_connect,	 SYS_accept,	 SYS_accept4,	SYS_sendto,
		SYS_recvfrom,	 SYS_sendmsg,	 SYS_recvmsg,	SYS_sendmmsg,
		SYS_recvmmsg,	 SYS_epoll_wait, SYS_epoll_ctl, SYS_epoll_pwait,
		SYS_epoll_pwait2};

	for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
		if (numbers[i] == number)
			return true;
	return is_uring(number);
}

/* `mov $NUMBER, %edi`: the first argument of syscall(). */
static bool asks_uring(const uint8_t *code, size_t len)
{
	static const uint8_t mov[] = {0xbf, SYS_io_uring_setup & 0xff,
				      SYS_io_uring_setup >> 8, 0, 0};

	return memmem(code, len, mov, sizeof(mov)) != NULL;
}

/* `mov $NUMBER, %eax` with `syscall` soon after it, the only way that compilers take. */
static void scan_block(const uint8_t *code, size_t len, struct elf_view *e)
{
	enum { MOV = 0xb8, MOV_BYTES = 5, NEAR = 24 };

	e->asks_uring = e->asks_uring || asks_uring(code, len);

	for (size_t i = 0; i + MOV_BYTES + NEAR <= len; i++) {
		uint32_t number;

		if (code[i] != MOV)
			continue;
		memcpy(&number, code + i + 1, sizeof(number));
		if (!concerns_sockets(number) ||
		    !memmem(code + i + MOV_BYTES, NEAR, "\x0f\x05", 2))
			continue;
		e->own_calls++;
		e->own_urings += is_uring(number);
	}
}

static void scan_code(const struct image *im, struct elf_view *e)
{
	enum { OVERLAP = 32 };
	uint8_t *block = need(malloc(BLOCK));
	uint64_t budget = CODE_MAX;

	for (unsigned i = 0; i < im->phnum; i++) {
		const Elf64_Phdr *ph = &im->ph[i];
		uint64_t left = ph->p_filesz, at = ph->p_offset;

		if (ph->p_type != PT_LOAD || !(ph->p_flags & PF_X) || at > im->size)
			continue;
		if (left > im->size - at)
			left = im->size - at;
		while (left > OVERLAP && budget >= BLOCK) {
			size_t len = left < BLOCK ? left : BLOCK;

			budget -= len;
			if (!read_at(im, at, block, len))
				break;
			scan_block(block, len, e);
			at += len - OVERLAP;
			left -= len - OVERLAP;
		}
	}
	free(block);
}

static bool is_go(const struct image *im)
{
	enum { NOTES_MAX = 64 << 10 };
	bool found = false;

	for (unsigned i = 0; i < im->phnum && !found; i++) {
		const Elf64_Phdr *ph = &im->ph[i];
		size_t len = ph->p_filesz < NOTES_MAX ? ph->p_filesz : NOTES_MAX;
		char *notes;

		if (ph->p_type != PT_NOTE)
			continue;
		notes = need(malloc(len + 1));
		found = read_at(im, ph->p_offset, notes, len) &&
			program_note_of_go(notes, len);
		free(notes);
	}
	return found;
}

static int view_open(const char *path, bool deep, struct elf_view *e)
{
	struct image im;
	struct dynamic d;
	int r;

	memset(e, 0, sizeof(*e));
	r = image_open(path, &im);
	if (r == 0)
		r = read_dynamic(&im, &d);
	if (r == 0) {
		e->strings = table(&im, d.strings, d.strings_size);
		e->strings_size = e->strings ? d.strings_size : 0;
		r = deep ? read_imports(&im, &d, e) : 0;
	}
	if (r == 0) {
		for (size_t i = 0; i < d.needed_count; i++)
			add_name(&e->needed, &e->needed_count, string_at(e, d.needed[i]));
		e->rpath = string_at(e, d.rpath);
		e->runpath = string_at(e, d.runpath);
	}
	if (r == 0 && deep) {
		e->is_go = is_go(&im);
		scan_code(&im, e);
	}
	if (im.fd >= 0)
		close(im.fd);
	if (r < 0)
		elf_view_finish(e);
	return r;
}

int elf_view_open(const char *path, struct elf_view *e)
{
	return view_open(path, true, e);
}

int elf_view_glance(const char *path, struct elf_view *e)
{
	return view_open(path, false, e);
}

void elf_view_finish(struct elf_view *e)
{
	free(e->strings);
	free(e->needed);
	free(e->imports);
	memset(e, 0, sizeof(*e));
}
