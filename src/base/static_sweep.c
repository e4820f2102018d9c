/* SPDX-License-Identifier: Apache-2.0 */
/* Goes through all code of a program, instruction by instruction, and notes what can be jumped to.
 *
 * It is sure of itself or fails. Sections with code are read from their begin to their end. Data among
 * the instructions shows by bytes that are no instruction, by branches into the middle of one, by
 * instructions that read from there, or by its symbol. Then nothing is changed in that program.
 */
#include "base/static_sweep.h"

#include <elf.h>
#include <emmintrin.h>
#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "base/insn.h"

/* Compilers stay far below. What is looked through for each of another is bounded so. */
enum { READS_MOST = 1 << 26, SEGMENTS_MOST = 64, SECTIONS_MOST = 1024, MAPS = 4 };

static const char hidden_code[] = "it has code outside its sections of code";

static int lack(struct sweep *s, const char *why, uint64_t at)
{
	s->lacks = why;
	s->lacks_at = at;
	return -ENOEXEC;
}

/* Whether a section of code may be there: all between the first and the last. */
static bool is_among(const struct sweep *s, uint64_t addr)
{
	return addr - s->spans[0].addr < s->bytes;
}

static struct sweep_span *span_of(struct sweep *s, uint64_t addr)
{
	if (!is_among(s, addr))
		return NULL;
	for (unsigned i = 0; i < s->count; i++)
		if (addr - s->spans[i].addr < s->spans[i].len)
			return &s->spans[i];
	return NULL;
}

/* False: there is no code. */
static bool mark(struct sweep *s, uint64_t addr)
{
	struct sweep_span *to = span_of(s, addr);

	if (to)
		sweep_set(to->targets, addr - to->addr);
	return to;
}

static uint64_t number_at(const uint8_t *p, unsigned len)
{
	uint64_t n = 0;

	memcpy(&n, p, len);
	return n;
}

/* What of the file is loaded at that address, and how much follows; NULL: nothing. */
static const uint8_t *loaded(const struct sweep *s, uint64_t at, uint64_t *left)
{
	const Elf64_Ehdr *eh = (const void *)s->file;
	const Elf64_Phdr *ph = (const void *)(s->file + eh->e_phoff);

	for (unsigned i = 0; i < eh->e_phnum; i++) {
		if (ph[i].p_type != PT_LOAD || at - ph[i].p_vaddr >= ph[i].p_filesz)
			continue;
		*left = ph[i].p_filesz - (at - ph[i].p_vaddr);
		return s->file + ph[i].p_offset + (at - ph[i].p_vaddr);
	}
	return NULL;
}

/* Compilers make tables of branches whose entries of 4 bytes count from the table's begin. Its address
 * is taken by `lea`. What is behind its end is marked as well, as long as it leads into code. */
static bool mark_table(struct sweep *s, uint64_t table)
{
	uint64_t left;
	const uint8_t *p = loaded(s, table, &left);

	for (; p && left >= 4; p += 4, left -= 4) {
		if (s->reads++ == READS_MOST)
			return false;
		if (!mark(s, table + (uint64_t)insn_number(p, 4)))
			break;
	}
	return true;
}

static bool is_lea(const struct insn *x)
{
	return !x->vex && x->map == 0 && x->op == 0x8d;
}

/* Whether it reads or writes nothing, though it has an operand in memory: NOPs and prefetches. */
static bool touches_nothing(const struct insn *x)
{
	return !x->vex && x->map == 1 &&
	       (x->op == 0x0d || (x->op >= 0x18 && x->op <= 0x1f));
}

/* What an operand names: relative to its instruction, or in a program at a fixed address by that. */
static int take_operand(struct sweep *s, const struct sweep_span *in, size_t at,
			const struct insn *x)
{
	uint64_t to = (uint64_t)insn_number(in->bytes + at + x->disp_at, 4);

	if (x->is_rip)
		to += in->addr + at + x->len;
	if (!span_of(s, to) && !(x->is_rip && is_lea(x)))
		return 0;
	mark(s, to);
	if (!is_lea(x))
		return touches_nothing(x)
			       ? 0
			       : lack(s, "it has data among its instructions", to);
	if (x->is_rip && !mark_table(s, to))
		return lack(s, "it has too many tables of branches", to);
	return 0;
}

/* Whether an executable segment is there. */
static bool is_executable(const struct sweep *s, uint64_t at)
{
	const Elf64_Ehdr *eh = (const void *)s->file;
	const Elf64_Phdr *ph = (const void *)(s->file + eh->e_phoff);

	for (unsigned i = 0; i < eh->e_phnum; i++)
		if (ph[i].p_type == PT_LOAD && ph[i].p_flags & PF_X &&
		    at - ph[i].p_vaddr < ph[i].p_filesz)
			return true;
	return false;
}

static int take_branch(struct sweep *s, const struct sweep_span *in, size_t at,
		       const struct insn *x)
{
	unsigned len = x->imm_len ? x->imm_len : 4;
	uint64_t to = in->addr + at + x->len +
		      (uint64_t)insn_number(in->bytes + at + x->len - len, len);
	struct sweep_span *out = span_of(s, to);

	/* A function that was not linked in, and is never called then, is at 0. */
	if (!out)
		return to && is_executable(s, to) ? lack(s, hidden_code, to) : 0;
	sweep_set(out->targets, to - out->addr);
	sweep_set(out->branched, to - out->addr);
	return 0;
}

/* Whether it reads or sets where FS or GS begins. A selector in them sets that, too: to 0. */
static bool takes_segment(const uint8_t *p, const struct insn *x)
{
	unsigned modrm = x->modrm_at ? p[x->modrm_at] : 0, reg = modrm >> 3 & 7;

	if (x->vex || x->map > 1)
		return false;
	if (x->map == 0) /* mov to a segment register */
		return x->op == 0x8e && (reg == 4 || reg == 5);
	switch (x->op) {
	case 0x01:
		return modrm == 0xf8; /* swapgs */
	case 0xa1:
	case 0xa9: /* pop */
	case 0xb4:
	case 0xb5: /* lfs, lgs */
		return true;
	case 0xae: /* rdfsbase, rdgsbase, wrfsbase, wrgsbase */
		return x->rep && modrm >= 0xc0 && modrm < 0xe0;
	default:
		return false;
	}
}

static int take_insn(struct sweep *s, struct sweep_span *in, size_t at,
		     const struct insn *x)
{
	const uint8_t *p = in->bytes + at;

	sweep_set(in->starts, at);
	if (x->is_branch)
		return take_branch(s, in, at, x);
	if (!s->is_pie && x->imm_len >= 4)
		mark(s, number_at(p + x->imm_at, x->imm_len));
	/* endbr64: made where an indirect branch may lead */
	if (x->map == 1 && x->op == 0x1e && x->rep)
		sweep_set(in->targets, at);
	if (!x->vex && x->map == 0 && x->op == 0xcd && p[x->imm_at] == 0x80)
		return lack(s, "it makes system calls of 32 bits", in->addr + at);
	if (takes_segment(p, x))
		return lack(s, "it reads or sets FS or GS itself", in->addr + at);
	if (!x->vex && x->map == 1 && x->op == 0x34)
		return lack(s, "it makes system calls of 32 bits", in->addr + at);
	return x->is_rip || (!s->is_pie && x->disp_len == 4) ? take_operand(s, in, at, x)
							     : 0;
}

static int sweep_span(struct sweep *s, struct sweep_span *in)
{
	struct insn x;
	int r = 0;

	for (size_t at = 0; r == 0 && at < in->len; at += x.len) {
		if (!insn_decode(in->bytes + at, in->len - at, &x))
			return lack(s, "it has data among its instructions",
				    in->addr + at);
		r = take_insn(s, in, at, &x);
	}
	return r;
}

/* A jump past the prefix `lock` is the only one into an instruction that compilers make. */
static int check_branches(struct sweep *s, const struct sweep_span *in)
{
	for (size_t at = 0; at < in->len; at++) {
		if (!(in->branched[at / 8] & ~in->starts[at / 8])) {
			at |= 7; /* none of these eight */
			continue;
		}
		if (!sweep_bit(in->branched, at) || sweep_bit(in->starts, at))
			continue;
		if (at == 0 || in->bytes[at - 1] != 0xf0 ||
		    !sweep_bit(in->starts, at - 1))
			return lack(s, "it has data among its instructions",
				    in->addr + at);
	}
	return 0;
}

static uint64_t distance_at(const uint8_t *p)
{
	int32_t distance;

	memcpy(&distance, p, sizeof(distance));
	return (uint64_t)(int64_t)distance;
}

static void mark_far_at(struct sweep *s, const struct sweep_span *in, size_t at)
{
	const uint8_t *p = in->bytes + at;

	if ((*p & 0xfe) == 0xe8)
		mark(s, in->addr + at + 5 + distance_at(p + 1));
	else if (*p == 0x0f && (p[1] & 0xf0) == 0x80 && at + 6 <= in->len)
		mark(s, in->addr + at + 6 + distance_at(p + 2));
}

/* A bit for each of 16 bytes by which such a branch may begin. */
static unsigned far_among(const uint8_t *p)
{
	__m128i b = _mm_loadu_si128((const void *)p);
	__m128i near = _mm_and_si128(b, _mm_set1_epi8((char)0xfe));

	return (unsigned)_mm_movemask_epi8(
		_mm_or_si128(_mm_cmpeq_epi8(near, _mm_set1_epi8((char)0xe8)),
			     _mm_cmpeq_epi8(b, _mm_set1_epi8(0x0f))));
}

/* Distances of 4 bytes, read at every byte, whether an instruction begins there or not. */
static void mark_far(struct sweep *s, const struct sweep_span *in)
{
	size_t at = 0;

	for (; at + 16 + 4 <= in->len; at += 16)
		for (unsigned bits = far_among(in->bytes + at); bits; bits &= bits - 1)
			mark_far_at(s, in, at + (unsigned)__builtin_ctz(bits));
	for (; at + 5 <= in->len; at++)
		mark_far_at(s, in, at);
}

static bool is_start(struct sweep *s, uint64_t addr)
{
	const struct sweep_span *in = span_of(s, addr);

	return in && sweep_bit(in->starts, addr - in->addr);
}

/* A pointer of C has 8 bytes. At a fixed address a table of branches might have 4: it has more than
 * one entry. One such number alone is text, as the end of "PATH". */
static void mark_word(struct sweep *s, const uint8_t *p, uint64_t at, uint64_t end)
{
	if (at + 8 <= end)
		mark(s, number_at(p + at, 8));
	if (!s->is_pie && is_among(s, number_at(p + at, 4)) &&
	    ((at >= 4 && is_start(s, number_at(p + at - 4, 4))) ||
	     (at + 8 <= end && is_start(s, number_at(p + at + 4, 4)))))
		mark(s, number_at(p + at, 4));
}

/* Addresses in data, and in what the program relocates itself by. */
static void mark_data(struct sweep *s)
{
	const Elf64_Ehdr *eh = (const void *)s->file;
	const Elf64_Phdr *ph = (const void *)(s->file + eh->e_phoff);
	unsigned step = s->is_pie ? 8 : 4;

	for (unsigned i = 0; i < eh->e_phnum; i++) {
		uint64_t at = -ph[i].p_vaddr % step;

		for (; ph[i].p_type == PT_LOAD && at + step <= ph[i].p_filesz; at += step)
			mark_word(s, s->file + ph[i].p_offset, at, ph[i].p_filesz);
	}
}

/* The sweep is sure where instructions begin: an address amid one is none of code, but for what a
 * branch of the program's names. */
static void drop_inner(const struct sweep_span *in)
{
	for (size_t i = 0; i < in->len / 8 + 1; i++)
		in->targets[i] &= in->starts[i] | in->branched[i];
}

static bool is_whole(const struct sweep *s, uint64_t offset, uint64_t bytes)
{
	return offset <= s->size && bytes <= s->size - offset;
}

/* What the program's dynamic section says of itself, by its flags and its name. */
static bool is_library(const uint8_t *dynamic, uint64_t bytes)
{
	bool is_program = false;
	Elf64_Dyn d;

	for (uint64_t at = 0; at + sizeof(d) <= bytes; at += sizeof(d)) {
		memcpy(&d, dynamic + at, sizeof(d));
		if (d.d_tag == DT_NULL)
			break;
		if (d.d_tag == DT_SONAME)
			return true;
		if (d.d_tag == DT_FLAGS_1)
			is_program = d.d_un.d_val & DF_1_PIE;
	}
	return !is_program;
}

static int check_segments(struct sweep *s)
{
	const Elf64_Ehdr *eh = (const void *)s->file;
	const Elf64_Phdr *ph = (const void *)(s->file + eh->e_phoff);
	bool is_program = !s->is_pie;

	for (unsigned i = 0; i < eh->e_phnum; i++) {
		if (!is_whole(s, ph[i].p_offset, ph[i].p_filesz))
			return lack(s, "its file is cut short", 0);
		if (ph[i].p_type == PT_INTERP)
			return lack(s, "it is linked dynamically", 0);
		if (ph[i].p_type == PT_LOAD && ph[i].p_flags & PF_X &&
		    ph[i].p_flags & PF_W)
			return lack(s, "it may change its instructions", ph[i].p_vaddr);
		if (ph[i].p_type == PT_DYNAMIC && s->is_pie)
			is_program =
				!is_library(s->file + ph[i].p_offset, ph[i].p_filesz);
	}
	/* ld.so among them: it would load a second one of ours with the program that it runs. */
	return is_program ? 0 : lack(s, "it is a library, or a loader of programs", 0);
}

static int check_headers(struct sweep *s)
{
	const Elf64_Ehdr *eh = (const void *)s->file;

	if (s->size < sizeof(*eh) || memcmp(eh->e_ident, ELFMAG, SELFMAG) != 0 ||
	    eh->e_ident[EI_CLASS] != ELFCLASS64 || eh->e_machine != EM_X86_64 ||
	    (eh->e_type != ET_EXEC && eh->e_type != ET_DYN) ||
	    eh->e_phentsize != sizeof(Elf64_Phdr) || eh->e_phoff % sizeof(uint64_t) ||
	    !is_whole(s, eh->e_phoff, (uint64_t)eh->e_phnum * sizeof(Elf64_Phdr)))
		return lack(s, "it is no program of this machine", 0);
	if (!eh->e_shnum || eh->e_shentsize != sizeof(Elf64_Shdr) ||
	    eh->e_shoff % sizeof(uint64_t) ||
	    !is_whole(s, eh->e_shoff, (uint64_t)eh->e_shnum * sizeof(Elf64_Shdr)))
		return lack(s, "its file has no sections", 0);
	if (eh->e_phnum > SEGMENTS_MOST || eh->e_shnum > SECTIONS_MOST)
		return lack(s, "its file has too many parts", 0);
	s->is_pie = eh->e_type == ET_DYN;
	return check_segments(s);
}

/* Whether the section is loaded as its header says, and can be executed. */
static bool is_code(const struct sweep *s, const Elf64_Shdr *sh)
{
	const Elf64_Ehdr *eh = (const void *)s->file;
	const Elf64_Phdr *ph = (const void *)(s->file + eh->e_phoff);

	for (unsigned i = 0; i < eh->e_phnum; i++)
		if (ph[i].p_type == PT_LOAD && ph[i].p_flags & PF_X &&
		    sh->sh_offset >= ph[i].p_offset &&
		    sh->sh_offset - ph[i].p_offset <= ph[i].p_filesz &&
		    sh->sh_size <= ph[i].p_filesz - (sh->sh_offset - ph[i].p_offset))
			return sh->sh_addr - ph[i].p_vaddr ==
			       sh->sh_offset - ph[i].p_offset;
	return false;
}

/* Whether the section is a table of symbols that names data where code is. */
static bool has_objects(struct sweep *s, const Elf64_Shdr *sh, uint64_t *at)
{
	uint64_t count = sh->sh_size / sizeof(Elf64_Sym);
	Elf64_Sym symbol;

	if (sh->sh_type != SHT_SYMTAB || !is_whole(s, sh->sh_offset, sh->sh_size))
		return false;
	for (uint64_t i = 0; i < count; i++) {
		memcpy(&symbol, s->file + sh->sh_offset + i * sizeof(symbol),
		       sizeof(symbol));
		*at = symbol.st_value;
		if (ELF64_ST_TYPE(symbol.st_info) == STT_OBJECT && span_of(s, *at))
			return true;
	}
	return false;
}

static int find_spans(struct sweep *s)
{
	const Elf64_Ehdr *eh = (const void *)s->file;
	const Elf64_Shdr *sh = (const void *)(s->file + eh->e_shoff);
	uint64_t end = 0, bytes = 0;

	for (unsigned i = 0; i < eh->e_shnum; i++) {
		if (!(sh[i].sh_flags & SHF_EXECINSTR) || !(sh[i].sh_flags & SHF_ALLOC) ||
		    sh[i].sh_size == 0)
			continue;
		if (sh[i].sh_type != SHT_PROGBITS || !is_code(s, &sh[i]) ||
		    sh[i].sh_addr < end || s->count == SWEEP_SPANS_MOST ||
		    (bytes += sh[i].sh_size) > s->size)
			return lack(s, "its sections are not as expected", sh[i].sh_addr);
		end = sh[i].sh_addr + sh[i].sh_size;
		s->spans[s->count++] =
			(struct sweep_span){.bytes = s->file + sh[i].sh_offset,
					    .addr = sh[i].sh_addr,
					    .len = sh[i].sh_size};
	}
	if (s->count)
		s->bytes = end - s->spans[0].addr;
	if (!s->count || !span_of(s, eh->e_entry))
		return lack(s, "its sections are not as expected", eh->e_entry);
	for (unsigned i = 0; i < eh->e_shnum; i++)
		if (has_objects(s, &sh[i], &end))
			return lack(s, "it has data among its instructions", end);
	return 0;
}

/* Whether the section's bytes are known to be none of code, by its type or a name of linkers'. */
static bool holds_no_code(const struct sweep *s, const Elf64_Shdr *sh)
{
	static const char *const those[] = {".rodata", ".lrodata", ".eh_frame",
					    ".gcc_except_table", ".sframe"};
	const Elf64_Ehdr *eh = (const void *)s->file;
	const Elf64_Shdr *names = (const Elf64_Shdr *)(s->file + eh->e_shoff);

	if (sh->sh_type != SHT_PROGBITS)
		return sh->sh_type != SHT_NOBITS && sh->sh_type != SHT_NULL;
	if (eh->e_shstrndx >= eh->e_shnum)
		return false;
	names += eh->e_shstrndx;
	for (unsigned i = 0; i < sizeof(those) / sizeof(those[0]); i++)
		if (is_whole(s, names->sh_offset, names->sh_size) &&
		    sh->sh_name < names->sh_size &&
		    strlen(those[i]) < names->sh_size - sh->sh_name &&
		    !memcmp(s->file + names->sh_offset + sh->sh_name, those[i],
			    strlen(those[i])))
			return true;
	return false;
}

/* Where the file goes on behind code that has been gone through, or behind what holds none. */
static uint64_t skip(const struct sweep *s, uint64_t offset)
{
	const Elf64_Ehdr *eh = (const void *)s->file;
	const Elf64_Shdr *sh = (const void *)(s->file + eh->e_shoff);
	uint64_t headers = eh->e_phoff + (uint64_t)eh->e_phnum * sizeof(Elf64_Phdr);

	for (unsigned i = 0; i < eh->e_shnum; i++)
		if (sh[i].sh_flags & SHF_ALLOC &&
		    offset - sh[i].sh_offset < sh[i].sh_size &&
		    (sh[i].sh_flags & SHF_EXECINSTR || holds_no_code(s, &sh[i])))
			return sh[i].sh_offset + sh[i].sh_size;
	return offset < headers ? headers : offset;
}

/* No system call is in what else can be executed. Linkers put data there, too, when they are told to. */
static int check_rest(struct sweep *s)
{
	const Elf64_Ehdr *eh = (const void *)s->file;
	const Elf64_Phdr *ph = (const void *)(s->file + eh->e_phoff);

	for (unsigned i = 0; i < eh->e_phnum; i++) {
		uint64_t at = ph[i].p_offset, end = at + ph[i].p_filesz, next;

		for (; ph[i].p_type == PT_LOAD && ph[i].p_flags & PF_X && at + 1 < end;
		     at = next) {
			const uint8_t *p = s->file + at;

			next = at + 1;
			if (memcmp(p, "\x0f\x05", 2) != 0 &&
			    memcmp(p, "\x0f\x34", 2) != 0 &&
			    memcmp(p, "\xcd\x80", 2) != 0)
				continue;
			next = skip(s, at);
			if (next <= at)
				return lack(s, hidden_code,
					    ph[i].p_vaddr + at - ph[i].p_offset);
		}
	}
	return 0;
}

static int make_maps(struct sweep *s)
{
	uint8_t *at;

	for (unsigned i = 0; i < s->count; i++)
		s->maps_bytes += MAPS * (s->spans[i].len / 8 + 1);
	at = mmap(NULL, s->maps_bytes, PROT_READ | PROT_WRITE,
		  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (at == MAP_FAILED)
		return -ENOMEM;
	s->maps = at;
	for (unsigned i = 0; i < s->count; i++) {
		size_t bytes = s->spans[i].len / 8 + 1;

		s->spans[i].starts = at;
		s->spans[i].branched = at + bytes;
		s->spans[i].targets = at + 2 * bytes;
		s->spans[i].taken = at + 3 * bytes;
		at += MAPS * bytes;
	}
	return 0;
}

static void take_entry(struct sweep *s)
{
	uint64_t at = ((const Elf64_Ehdr *)s->file)->e_entry;
	struct sweep_span *in = span_of(s, at);

	sweep_set(in->targets, at - in->addr);
	sweep_set(in->branched, at - in->addr);
}

int sweep_run(struct sweep *s, const uint8_t *file, size_t size)
{
	int r;

	*s = (struct sweep){.file = file, .size = size};
	r = check_headers(s);
	if (r == 0)
		r = find_spans(s);
	if (r == 0)
		r = make_maps(s);
	if (r == 0)
		take_entry(s);
	for (unsigned i = 0; r == 0 && i < s->count; i++)
		r = sweep_span(s, &s->spans[i]);
	for (unsigned i = 0; r == 0 && i < s->count; i++)
		r = check_branches(s, &s->spans[i]);
	if (r == 0)
		r = check_rest(s);
	if (r < 0) {
		sweep_finish(s);
		return r;
	}
	for (unsigned i = 0; i < s->count; i++)
		mark_far(s, &s->spans[i]);
	mark_data(s);
	for (unsigned i = 0; i < s->count; i++)
		drop_inner(&s->spans[i]);
	return 0;
}

void sweep_finish(struct sweep *s)
{
	if (s->maps)
		munmap(s->maps, s->maps_bytes);
	s->maps = NULL;
}
