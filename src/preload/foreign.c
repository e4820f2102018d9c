/* SPDX-License-Identifier: Apache-2.0 */
/* A program whose loader cannot take this library is started without it in LD_PRELOAD.
 *
 * The loader of musl ends a program where a library that is to be preloaded lacks a symbol, and
 * glibc's complains about one of another word size, or one that is not there (after chroot).
 * Without Viaduct such a program runs, so it has to run here: on TCP.
 */
#include <elf.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/kernel.h"
#include "base/log.h"
#include "base/program.h"
#include "preload/carry.h"
#include "preload/foreign.h"
#include "preload/hook.h"

#define PRELOAD "LD_PRELOAD="

/* What one look needs; mapped for as long as it takes. */
struct look {
	struct program program;
	char path[PATH_MAX];
	char head[1024];
};

static const char own_loader[] = "ld-linux-x86-64.so.2";

static bool is_preload(const char *setting)
{
	return strncmp(setting, PRELOAD, sizeof(PRELOAD) - 1) == 0;
}

/* ---- the target ---- */

static bool names_own_loader(const char *bytes, size_t len)
{
	for (size_t i = 0; i + sizeof(own_loader) <= len; i++)
		if (bytes[i] == own_loader[0] &&
		    memcmp(bytes + i, own_loader, sizeof(own_loader)) == 0)
			return true;
	return false;
}

/* As most are: its first bytes name glibc's loader. Also what is no regular file: left alone. */
static bool is_usual(struct look *k)
{
	struct stat st;
	ssize_t n;
	int fd;

	if (stat(k->path, &st) < 0 || !S_ISREG(st.st_mode))
		return true;
	fd = kernel_open(k->path, O_RDONLY | O_NONBLOCK | O_CLOEXEC, 0);
	if (fd < 0)
		return true;
	n = pread(fd, k->head, sizeof(k->head), 0);
	kernel_close(fd);
	return n > EI_CLASS && memcmp(k->head, ELFMAG, SELFMAG) == 0 &&
	       k->head[EI_CLASS] == ELFCLASS64 && names_own_loader(k->head, (size_t)n);
}

/* Another C library's loader that is executed itself, to load a program. */
static bool is_loader(const char *path)
{
	const char *slash = strrchr(path, '/'), *base = slash ? slash + 1 : path;

	return (strncmp(base, "ld-", 3) == 0 && strcmp(base, own_loader) != 0) ||
	       strcmp(base, "libc.so") == 0;
}

static bool is_foreign(struct look *k)
{
	if (is_usual(k))
		return false;
	program_inspect(k->path, false, &k->program);
	return k->program.kind == PROGRAM_OTHER_LIBC ||
	       k->program.kind == PROGRAM_OTHER_CLASS ||
	       (k->program.kind == PROGRAM_STATIC && is_loader(k->program.path));
}

static bool target_path(struct look *k, int dir, const char *path, bool search)
{
	const char *gap = *path ? "/" : "";

	if (search && !strchr(path, '/'))
		return program_find(path, k->path, sizeof(k->path)) == 0;
	if (dir == AT_FDCWD || *path == '/')
		return snprintf(k->path, sizeof(k->path), "%s", path) < PATH_MAX;
	return snprintf(k->path, sizeof(k->path), "/proc/self/fd/%d%s%s", dir, gap,
			path) < PATH_MAX;
}

static bool cannot_take_it(int dir, const char *path, bool search)
{
	struct look *k;
	struct stat own;
	bool foreign;

	if (stat(carry_own_path(), &own) != 0) {
		if (log_level_now >= LOG_INFO)
			log_line_apart(LOG_INFO,
				       "exec: %s runs on TCP: %s is not to be seen there",
				       path, carry_own_path());
		return true;
	}
	k = mmap(NULL, sizeof(*k), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
		 -1, 0);
	if (k == MAP_FAILED)
		return false;
	foreign = target_path(k, dir, path, search) && is_foreign(k);
	if (foreign && log_level_now >= LOG_INFO)
		log_line_apart(LOG_INFO,
			       "exec: %s runs on TCP: libviaduct-preload.so cannot be "
			       "loaded there%s%s",
			       k->program.path, *k->program.detail ? ": " : "",
			       k->program.detail);
	munmap(k, sizeof(*k));
	return foreign;
}

/* ---- the environment ---- */

size_t foreign_room(int dir, const char *path, bool search, char *const envp[])
{
	size_t settings = 0, text = 0;
	int saved = errno;
	bool foreign;

	if (!path || !envp || !carry_own_path())
		return 0;
	for (; envp[settings]; settings++)
		if (is_preload(envp[settings]) &&
		    carry_is_listed(envp[settings] + sizeof(PRELOAD) - 1))
			text += strlen(envp[settings]) + 1;
	foreign = text && cannot_take_it(dir, path, search);
	errno = saved;
	return foreign ? (settings + 1) * sizeof(char *) + text : 0;
}

/* This library, or its module for RPC, which lies beside it. */
static bool is_ours(const char *path, size_t len)
{
	static const char module[] = "/libviaduct-rpc.so";
	const char *own = carry_own_path();

	return (len == strlen(own) && memcmp(path, own, len) == 0) ||
	       (len >= sizeof(module) - 1 && memcmp(path + len - (sizeof(module) - 1),
						    module, sizeof(module) - 1) == 0);
}

/* The list without this library; NULL when nothing is left of it. Writes behind `text`. */
static char *without_us(const char *setting, char **text)
{
	const char *at = setting + sizeof(PRELOAD) - 1;
	char *begin = *text, *to = stpcpy(begin, PRELOAD);
	bool some = false;

	while (*at) {
		size_t n = strcspn(at, " :");

		if (n && !is_ours(at, n)) {
			if (some)
				*to++ = ':';
			memcpy(to, at, n);
			to += n;
			some = true;
		}
		at += n + (at[n] != '\0');
	}
	*to++ = '\0';
	*text = to;
	return some ? begin : NULL;
}

char *const *foreign_environment(char *const envp[], void *room)
{
	char **list = room, *text;
	size_t n = 0;

	while (envp[n])
		n++;
	text = (char *)(list + n + 1);
	n = 0;
	for (; *envp; envp++) {
		char *setting =
			is_preload(*envp) && carry_is_listed(*envp + sizeof(PRELOAD) - 1)
				? without_us(*envp, &text)
				: *envp;

		if (setting)
			list[n++] = setting;
	}
	list[n] = NULL;
	return list;
}
