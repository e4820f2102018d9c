/* SPDX-License-Identifier: Apache-2.0 */
/* Maps a statically linked program as the kernel would, and begins it. */
#include "start/image.h"

#include <alloca.h>
#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "preload/door.h"

enum { PARTS_MOST = 32, PAGE_BYTES = 4096 };
#define PAGE_MASK ((uint64_t)PAGE_BYTES - 1)

static struct image {
	Elf64_Ehdr eh;
	Elf64_Phdr ph[PARTS_MOST];
	unsigned mapped; /* of its parts, from the first */
	uint64_t load;
} image;

static uint64_t page_up(uint64_t at)
{
	return (at + PAGE_MASK) & ~PAGE_MASK;
}

static int protection_of(const Elf64_Phdr *ph)
{
	return (ph->p_flags & PF_R ? PROT_READ : 0) |
	       (ph->p_flags & PF_W ? PROT_WRITE : 0) |
	       (ph->p_flags & PF_X ? PROT_EXEC : 0);
}

static bool map_at(uint64_t at, uint64_t end, int protection, int fd, uint64_t offset)
{
	int flags = MAP_PRIVATE | MAP_FIXED_NOREPLACE | (fd < 0 ? MAP_ANONYMOUS : 0);
	void *got;

	if (end <= at)
		return true;
	got = mmap((void *)at, end - at, protection, flags, fd, (off_t)offset);
	if (got == (void *)at)
		return true;
	if (got != MAP_FAILED) /* a kernel that takes the address for a wish */
		munmap(got, end - at);
	return false;
}

/* As the kernel does: from the file, then zeros to the end of the page, then empty pages. */
static bool map_part(const Elf64_Phdr *ph, uint64_t load, int fd)
{
	uint64_t begin = load + (ph->p_vaddr & ~PAGE_MASK);
	uint64_t file_end = load + ph->p_vaddr + ph->p_filesz;
	uint64_t end = page_up(load + ph->p_vaddr + ph->p_memsz);

	if (!map_at(begin, page_up(file_end), protection_of(ph), fd,
		    ph->p_offset & ~PAGE_MASK))
		return false;
	if (!map_at(page_up(file_end), end, protection_of(ph), -1, 0)) {
		munmap((void *)begin, page_up(file_end) - begin);
		return false;
	}
	if (ph->p_memsz > ph->p_filesz && (ph->p_flags & PF_W))
		memset((void *)file_end, 0, page_up(file_end) - file_end);
	return true;
}

void image_unmap(void)
{
	for (unsigned i = 0; i < image.mapped; i++) {
		const Elf64_Phdr *ph = &image.ph[i];
		uint64_t begin = image.load + (ph->p_vaddr & ~PAGE_MASK);
		uint64_t end = image.load + page_up(ph->p_vaddr + ph->p_memsz);

		if (ph->p_type == PT_LOAD)
			munmap((void *)begin, end - begin);
	}
}

/* file_end: of the file. What lies behind it has no memory. */
static bool is_sound(const struct image *im, const Elf64_Phdr *ph, uint64_t file_end)
{
	return ph->p_offset <= file_end && ph->p_filesz <= file_end - ph->p_offset &&
	       (ph->p_vaddr >= PAGE_BYTES || im->eh.e_type == ET_DYN) &&
	       ph->p_vaddr < UINT32_MAX && ph->p_memsz < UINT32_MAX && ph->p_filesz &&
	       ph->p_filesz <= ph->p_memsz &&
	       ((ph->p_vaddr ^ ph->p_offset) & PAGE_MASK) == 0 &&
	       (ph->p_memsz == ph->p_filesz || (ph->p_flags & PF_W));
}

/* Where a program that can lie anywhere is to lie: with room in front, for what its jumps are to reach. */
static bool choose_place(struct image *im)
{
	uint64_t end = 0, room = 16ull << 20;
	void *got;

	if (im->eh.e_type != ET_DYN)
		return im->eh.e_type == ET_EXEC;
	for (unsigned i = 0; i < im->eh.e_phnum; i++)
		if (im->ph[i].p_type == PT_LOAD &&
		    im->ph[i].p_vaddr + im->ph[i].p_memsz > end)
			end = im->ph[i].p_vaddr + im->ph[i].p_memsz;
	got = end < UINT32_MAX ? mmap(NULL, room + end, PROT_NONE,
				      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)
			       : MAP_FAILED;
	if (got == MAP_FAILED)
		return false;
	munmap(got, room + end);
	im->load = ((uint64_t)got + room) & ~(room / 8 - 1);
	return true;
}

static bool map_parts(struct image *im, int fd)
{
	struct stat st;
	size_t bytes;

	if (fstat(fd, &st) < 0 ||
	    pread(fd, &im->eh, sizeof(im->eh), 0) != sizeof(im->eh) ||
	    im->eh.e_phnum > PARTS_MOST || im->eh.e_phentsize != sizeof(im->ph[0]))
		return false;
	bytes = im->eh.e_phnum * sizeof(im->ph[0]);
	if (pread(fd, im->ph, bytes, (off_t)im->eh.e_phoff) != (ssize_t)bytes ||
	    !choose_place(im))
		return false;
	for (; im->mapped < im->eh.e_phnum; im->mapped++) {
		const Elf64_Phdr *ph = &im->ph[im->mapped];

		/* Ours is no place for code, and there is no other one for its. */
		if (ph->p_type == PT_GNU_STACK && (ph->p_flags & PF_X))
			return false;
		if (ph->p_type == PT_LOAD && (!is_sound(im, ph, (uint64_t)st.st_size) ||
					      !map_part(ph, im->load, fd)))
			return false;
	}
	return true;
}

bool image_map(const char *path, uint64_t *load)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	bool done = fd >= 0 && map_parts(&image, fd);

	if (fd >= 0)
		close(fd);
	if (!done)
		image_unmap();
	*load = image.load;
	return done;
}

/* Where its program headers are in memory; 0: nowhere. */
static uint64_t headers_of(const struct image *im)
{
	for (unsigned i = 0; i < im->eh.e_phnum; i++) {
		const Elf64_Phdr *ph = &im->ph[i];

		if (ph->p_type == PT_LOAD && ph->p_offset <= im->eh.e_phoff &&
		    im->eh.e_phoff - ph->p_offset < ph->p_filesz)
			return im->load + ph->p_vaddr + (im->eh.e_phoff - ph->p_offset);
	}
	return 0;
}

static uint64_t said_of(const struct image *im, const char *path, const Elf64_auxv_t *had)
{
	switch (had->a_type) {
	case AT_PHDR:
		return headers_of(im);
	case AT_PHNUM:
		return im->eh.e_phnum;
	case AT_BASE:
		return 0;
	case AT_ENTRY:
		return im->load + im->eh.e_entry;
	case AT_EXECFN:
		return (uint64_t)path;
	default:
		return had->a_un.a_val;
	}
}

static bool is_for_loader(const char *setting)
{
	return !strncmp(setting, DOOR_START_PROGRAM "=", sizeof(DOOR_START_PROGRAM));
}

void image_jump(uint64_t entry, const void *stack) __attribute__((noreturn));

/* Its stack begins with what the kernel has put on ours, and is below all that runs on it. */
__attribute__((noreturn)) void image_begin(const char *path, int argc, char **argv)
{
	char **envp = argv + argc + 1, **at;
	size_t environment = 0, words;
	const Elf64_auxv_t *had;
	uint64_t *stack, *to;

	while (envp[environment])
		environment++;
	/* Who has taken variables out of it has left places behind its end. */
	for (at = envp + environment; !*at; at++)
		;
	had = (const void *)at;
	words = 1 + (size_t)argc + 1 + environment + 1;
	for (const Elf64_auxv_t *a = had; a->a_type != AT_NULL; a++)
		words += 2;
	words += 2;
	stack = to = alloca((words + 1) * sizeof(*to));
	stack = to = (uint64_t *)(((uint64_t)to + 15) & ~15ull);
	*to++ = (uint64_t)argc;
	for (int i = 0; i <= argc; i++)
		*to++ = (uint64_t)argv[i];
	for (size_t i = 0; i < environment; i++)
		if (!is_for_loader(envp[i]))
			*to++ = (uint64_t)envp[i];
	*to++ = 0;
	for (; had->a_type != AT_NULL; had++) {
		*to++ = had->a_type;
		*to++ = said_of(&image, path, had);
	}
	*to++ = AT_NULL;
	*to++ = 0;
	image_jump(image.load + image.eh.e_entry, stack);
}

__asm__(".pushsection .text\n"
	".globl image_jump\n"
	".hidden image_jump\n"
	".type image_jump, @function\n"
	"image_jump:\n"
	"	.cfi_startproc\n"
	"	.cfi_undefined rip\n"
	"	movq %rsi, %rsp\n"
	"	xorl %edx, %edx\n" /* nothing is to be called at its exit */
	"	xorl %ebp, %ebp\n"
	"	jmp *%rdi\n"
	"	.cfi_endproc\n"
	".size image_jump, . - image_jump\n"
	".popsection\n");
