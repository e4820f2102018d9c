/* SPDX-License-Identifier: Apache-2.0 */
/* Programs, libraries, scripts and the loader's cache, as `viaduct explain` and exec look into them:
 * base/program.c, tool/explain/elf.c, libs.c, preload.c.
 * No file is opened: what there is is the input, under its own name and under that of each library
 * and interpreter that is looked for.
 * Not reached: programs with other rights, 32-bit loaders, files of more than 16 KiB, and opening
 * them (base/regular.c). */
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/program.h"
#include "base/regular.h"
#include "fuzz/fuzz.h"
#include "tool/explain/explain.h"

/* Of this number is no descriptor. */
enum { INPUT = 1 << 20 };
static const char file_path[] = "/fuzz/program";
static struct fuzz_bytes input; /* whole */
static bool is_cache;

/* ---- in the place of the kernel's, and of base/regular.c ---- */

int regular_open(const char *path)
{
	return *path == '/' ? INPUT : -ENOENT;
}

static ssize_t read_input(int fd, void *to, size_t size, off_t at)
{
	size_t n;

	FUZZ_CHECK(fd == INPUT);
	if (at < 0)
		return -1;
	n = (size_t)at < input.left ? input.left - (size_t)at : 0;
	n = n < size ? n : size;
	memcpy(to, input.at + (n ? at : 0), n);
	return (ssize_t)n;
}

/* Both names: the tool's files have _FILE_OFFSET_BITS. */
ssize_t pread(int fd, void *to, size_t size, off_t at)
{
	return read_input(fd, to, size, at);
}

ssize_t pread64(int fd, void *to, size_t size, off64_t at)
{
	return read_input(fd, to, size, at);
}

int fstat64(int fd, struct stat64 *st)
{
	FUZZ_CHECK(fd == INPUT);
	*st = (struct stat64){.st_mode = S_IFREG, .st_size = (off64_t)input.left};
	return 0;
}

/* Half of all that is looked for is there. */
static int look_for(const char *path)
{
	errno = ENOENT;
	return *path && path[strlen(path) - 1] & 1 ? 0 : -1;
}

int access(const char *path, int mode)
{
	(void)mode;
	return look_for(path);
}

int faccessat(int dir, const char *path, int mode, int flags)
{
	(void)dir;
	(void)mode;
	(void)flags;
	return look_for(path);
}

int stat(const char *path, struct stat *st)
{
	*st = (struct stat){.st_mode = S_IFREG};
	return look_for(path);
}

static int fstat_input(int fd, struct stat *st)
{
	FUZZ_CHECK(fd == INPUT);
	*st = (struct stat){.st_mode = S_IFREG, .st_size = (off_t)input.left};
	return 0;
}

/* The loader's cache. */
static int open_cache(const char *path, int flags)
{
	(void)flags;
	FUZZ_CHECK(strcmp(path, "/etc/ld.so.cache") == 0);
	return is_cache ? INPUT : -1;
}

#define open  open_cache
#define fstat fstat_input
#include "tool/explain/libs.c"
#undef fstat
#undef open

static size_t read_file(const char *path, uint8_t out[FUZZ_MAX])
{
	FILE *f = fopen(path, "r");
	size_t n;

	FUZZ_CHECK(f);
	n = fread(out, 1, FUZZ_MAX, f);
	FUZZ_CHECK(fclose(f) == 0 && n > 0 && n < FUZZ_MAX);
	return n;
}

static size_t make_cache(uint8_t out[FUZZ_MAX])
{
	static const char strings[] = "libfuzz.so.1\0/usr/lib/libfuzz.so.1\0libc.so.6";
	const uint32_t at = sizeof(struct cache_head) + 2 * sizeof(struct cache_entry);
	struct cache_head head = {.count = 2, .strings_size = sizeof(strings)};
	const struct cache_entry entries[2] = {
		{.flags = CACHE_X86_64, .name = at, .path = at + 13},
		{.flags = CACHE_X86_64, .name = at + 35, .path = at + 35}};

	memcpy(head.magic, cache_magic, sizeof(head.magic));
	memcpy(out, &head, sizeof(head));
	memcpy(out + sizeof(head), entries, sizeof(entries));
	memcpy(out + at, strings, sizeof(strings));
	return at + sizeof(strings);
}

size_t fuzz_seed(unsigned n, uint8_t out[FUZZ_MAX])
{
	static const char *const scripts[] = {
		"#!/bin/sh\nexit\n", "#!/usr/bin/env -S python3 -x\n",
		"#! /usr/bin/env nothing-of-this-name\n", "echo\n"};
	const unsigned count = sizeof(scripts) / sizeof(scripts[0]);

	if (n < count) {
		memcpy(out, scripts[n], strlen(scripts[n]));
		return strlen(scripts[n]);
	}
	switch (n - count) {
	case 0:
		return read_file(FUZZ_PROGRAM, out);
	case 1:
		return read_file(FUZZ_LIBRARY, out);
	case 2:
		return make_cache(out);
	default:
		return 0;
	}
}

static void free_names(const char **names, size_t count)
{
	while (count-- > 0)
		free((char *)names[count]);
	free(names);
}

static void finish(struct answer *a)
{
	for (size_t i = 0; i < a->count; i++) {
		FUZZ_CHECK(a->points[i].text && *a->points[i].text);
		free(a->points[i].about);
		free(a->points[i].text);
		free(a->points[i].remedy);
	}
	for (size_t i = 0; i < a->imports_count; i++) {
		free_names(a->imports[i].interposed, a->imports[i].interposed_count);
		free_names(a->imports[i].outside, a->imports[i].outside_count);
		free(a->imports[i].file);
	}
	free(a->points);
	free(a->imports);
	free(a->asks_uring);
}

static void look_into(void)
{
	struct answer a = {0};
	struct program p;
	struct elf_view e;

	for (int through_env = 0; through_env < 2; through_env++) {
		program_inspect(file_path, through_env, &p);
		FUZZ_CHECK(strlen(p.path) < sizeof(p.path) &&
			   strlen(p.detail) < sizeof(p.detail));
	}
	if (elf_view_open(file_path, &e) < 0)
		return;
	FUZZ_CHECK(!e.strings || e.strings[e.strings_size] == '\0');
	explain_imports("fuzz", &e, false, &a);
	explain_libs(file_path, &e, &a);
	explain_preloads("/fuzz/library.so /fuzz/other.so", &a);
	elf_view_finish(&e);
	finish(&a);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	is_cache = size > 0 && *data == *cache_magic;
	input = (struct fuzz_bytes){data, size};
	look_into();
	if (is_cache)
		free(explain_find_library("libfuzz.so.1"));
	return 0;
}
