/* SPDX-License-Identifier: Apache-2.0 */
/* Programs whose system calls are searched for, statically linked and of Go: base/static_text.c, static_sweep.c,
 * insn.c, go_text.c.
 * One memory file is kept, and each input is put there. Not reached: opening it (base/regular.c), and files of more
 * than 16 KiB. */
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/go_text.h"
#include "base/insn.h"
#include "base/regular.h"
#include "base/static_text.h"
#include "fuzz/fuzz.h"

static int kept = -1;

/* ---- in the place of base/regular.c ---- */

int regular_open(const char *path)
{
	(void)path;
	return fcntl(kept, F_DUPFD_CLOEXEC, 0);
}

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

/* Each part of an instruction lies in it, and it lies in what there is. */
static void decode(const uint8_t *data, size_t size)
{
	for (size_t at = 0; at < size && at < 256; at++) {
		struct insn x;

		if (!insn_decode(data + at, size - at, &x))
			continue;
		FUZZ_CHECK(x.len >= 1 && x.len <= INSN_MOST && x.len <= size - at);
		FUZZ_CHECK(x.modrm_at < x.len && x.disp_at + x.disp_len <= x.len &&
			   x.imm_at + x.imm_len <= x.len);
		insn_leads_away(data + at, &x);
		insn_may_write_rax(data + at, &x);
	}
}

/* What is to be changed lies in the file's code, and no two changes meet. */
static void check(const struct static_text *t)
{
	uint64_t end = 0;

	FUZZ_CHECK(t->count <= STATIC_SITES_MOST && !t->lacks);
	for (size_t i = 0; i < t->count; i++) {
		const struct static_site *s = &t->sites[i];

		FUZZ_CHECK(s->at >= end && s->kind <= STATIC_PAD);
		FUZZ_CHECK(s->head_bytes <= STATIC_MOVED &&
			   s->tail_bytes <= STATIC_MOVED);
		FUZZ_CHECK(s->cond == 0 || (s->cond & 0xf0) == 0x80);
		FUZZ_CHECK(s->kind == STATIC_LEAVE || s->jump <= s->at);
		FUZZ_CHECK(s->kind != STATIC_PAD || s->pad);
		end = s->at + 2;
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint8_t concerns[512];
	struct static_text found;
	struct go_text go;

	if (kept < 0)
		kept = memfd_create("fuzz", MFD_CLOEXEC);
	FUZZ_CHECK(ftruncate(kept, (off_t)size) == 0 &&
		   pwrite(kept, data, size, 0) == (ssize_t)size);
	memset(concerns, size & 1, sizeof(concerns));
	decode(data, size);
	if (static_text_find("input", concerns, sizeof(concerns), &found) == 0) {
		check(&found);
		static_text_finish(&found);
	} else {
		FUZZ_CHECK(size == 0 || found.lacks);
	}
	FUZZ_CHECK((go_text_find("input", &go) == 0) == !go.lacks);
	return 0;
}
