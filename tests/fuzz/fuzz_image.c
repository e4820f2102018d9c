/* SPDX-License-Identifier: Apache-2.0 */
/* A statically linked program, as viaduct-start maps it in the kernel's place: start/image.c.
 * One memory file is kept, and each input is put there. Not reached: opening it, and what begins it. */
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fuzz/fuzz.h"

static int kept = -1;

static int open_kept(const char *path, int flags)
{
	(void)path;
	(void)flags;
	return fcntl(kept, F_DUPFD_CLOEXEC, 0);
}

#define open open_kept
#include "start/image.c"
#undef open

size_t fuzz_seed(unsigned n, uint8_t out[FUZZ_MAX])
{
	static const char *const files[] = {FUZZ_STATIC, FUZZ_PROGRAM};
	size_t size;
	FILE *f;

	if (n >= sizeof(files) / sizeof(files[0]))
		return 0;
	f = fopen(files[n], "r");
	FUZZ_CHECK(f);
	size = fread(out, 1, FUZZ_MAX, f);
	FUZZ_CHECK(fclose(f) == 0 && size > 0 && size < FUZZ_MAX);
	return size;
}

/* What is in the file is there, and zeros behind it. */
static void check(const uint8_t *data, size_t size)
{
	for (unsigned i = 0; i < image.eh.e_phnum; i++) {
		const Elf64_Phdr *ph = &image.ph[i];
		const uint8_t *at = (const uint8_t *)image.load + ph->p_vaddr;

		if (ph->p_type != PT_LOAD || !(ph->p_flags & PF_R))
			continue;
		FUZZ_CHECK(ph->p_offset <= size && ph->p_filesz <= size - ph->p_offset);
		FUZZ_CHECK(memcmp(at, data + ph->p_offset, ph->p_filesz) == 0);
		for (uint64_t j = ph->p_filesz; j < ph->p_memsz && j < 2 * PAGE_BYTES;
		     j++)
			FUZZ_CHECK(at[j] == 0);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint64_t load;

	if (kept < 0)
		kept = memfd_create("fuzz", MFD_CLOEXEC);
	FUZZ_CHECK(ftruncate(kept, (off_t)size) == 0 &&
		   pwrite(kept, data, size, 0) == (ssize_t)size);
	memset(&image, 0, sizeof(image));
	if (image_map("input", &load)) {
		check(data, size);
		image_unmap();
	}
	return 0;
}
