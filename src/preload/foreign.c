/* SPDX-License-Identifier: Apache-2.0 */
/* A program whose loader cannot take this library is started with the one that it can take in
 * LD_PRELOAD, or with none.
 *
 * There is one library for programs of glibc, and one for those of musl, in one folder. The loader of
 * musl ends a program where a library that is to be preloaded lacks a symbol, and that of glibc where
 * what it needs is not there. glibc's complains about one of another word size, or one that is not there
 * (after chroot). Without Viaduct such a program runs, so it has to run here: on TCP, if need be.
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
#include "preload/exec_given.h"
#include "preload/foreign.h"
#include "preload/hook.h"

#define PRELOAD "LD_PRELOAD="

/* What one look needs; mapped for as long as it takes. */
struct look {
	struct program program;
	char path[PATH_MAX];
	char head[1024];
};

#define NAME_GLIBC "libviaduct-preload.so"
#define NAME_MUSL  "libviaduct-preload-musl.so"
#ifdef __GLIBC__
static const char own_loader[] = PROGRAM_LOADER_GLIBC, other_name[] = NAME_MUSL;
#else
static const char own_loader[] = PROGRAM_LOADER_MUSL, other_name[] = NAME_GLIBC;
#endif
/* How much longer a path can be that stands in the place of this library's. */
#define LONGER (sizeof(NAME_MUSL) - sizeof(NAME_GLIBC))

/* What a program can take. */
enum taken { TAKES_OWN, TAKES_OTHER, TAKES_NONE };

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

	if (kernel_stat(k->path, &st) < 0 || !S_ISREG(st.st_mode))
		return true;
	fd = kernel_open(k->path, O_RDONLY | O_NONBLOCK | O_CLOEXEC, 0);
	if (fd < 0)
		return true;
	n = kernel_pread(fd, k->head, sizeof(k->head), 0);
	kernel_close(fd);
	return n > EI_CLASS && memcmp(k->head, ELFMAG, SELFMAG) == 0 &&
	       k->head[EI_CLASS] == ELFCLASS64 && names_own_loader(k->head, (size_t)n);
}

/* Another C library's loader that is executed itself, to load a program. */
static bool is_loader(const char *path)
{
	const char *slash = strrchr(path, '/'), *base = slash ? slash + 1 : path;

	return (strncmp(base, "ld-", 3) == 0 && strcmp(base, own_loader) != 0) ||
	       (strcmp(base, "libc.so") == 0 &&
		strcmp(own_loader, PROGRAM_LOADER_MUSL) != 0);
}

static enum taken taken_by(struct look *k)
{
	enum taken glibc = TAKES_OWN, musl = TAKES_OTHER;

	if (is_usual(k))
		return TAKES_OWN;
#ifndef __GLIBC__
	glibc = TAKES_OTHER;
	musl = TAKES_OWN;
#endif
	program_inspect(k->path, false, &k->program);
	switch (k->program.kind) {
	case PROGRAM_OK:
	case PROGRAM_GO:
		return glibc;
	case PROGRAM_MUSL:
		return musl;
	case PROGRAM_OTHER_LIBC:
	case PROGRAM_OTHER_CLASS:
		return TAKES_NONE;
	case PROGRAM_STATIC:
		return is_loader(k->program.path) ? TAKES_NONE : TAKES_OWN;
	default:
		return TAKES_OWN;
	}
}

/* The library for programs of the other C library, which may be missing. False: no path. */
static bool other_path(char *path, size_t size)
{
	const char *own = carry_own_path(), *slash = own ? strrchr(own, '/') : NULL;

	return slash && snprintf(path, size, "%.*s/%s", (int)(slash - own), own,
				 other_name) < (int)size;
}

static bool is_there(const char *path)
{
	return kernel_access(path, R_OK) == 0;
}

bool foreign_takes(enum program_kind kind)
{
	char path[PATH_MAX];

	if (kind != PROGRAM_OK && kind != PROGRAM_MUSL)
		return false;
	if ((kind == PROGRAM_OK) == (strcmp(own_loader, PROGRAM_LOADER_GLIBC) == 0))
		return true;
	return other_path(path, sizeof(path)) && is_there(path);
}

static bool target_path(struct look *k, int dir, const char *path, bool search)
{
	const char *gap = *path ? "/" : "";

	if (search && !strchr(path, '/'))
		return program_find(path, k->path, sizeof(k->path)) == 0;
	/* As most are. A format takes 1 KB of a stack that may have 4. */
	if (dir == AT_FDCWD || *path == '/') {
		size_t len = strnlen(path, sizeof(k->path));

		memcpy(k->path, path, len + (len < sizeof(k->path)));
		return len < sizeof(k->path);
	}
	return snprintf(k->path, sizeof(k->path), "/proc/self/fd/%d%s%s", dir, gap,
			path) < PATH_MAX;
}

static enum taken look_at(struct look *k, int dir, const char *path, bool search)
{
	enum taken t = target_path(k, dir, path, search) ? taken_by(k) : TAKES_OWN;
	bool lacks;

	if (t == TAKES_OWN)
		return t;
	lacks = t == TAKES_OTHER &&
		!(other_path(k->path, sizeof(k->path)) && is_there(k->path));
	if (t == TAKES_OTHER && !lacks)
		return t;
	if (log_level_now >= LOG_INFO)
		log_line_apart(LOG_INFO,
			       "exec: %s runs on TCP: %s cannot be %s there%s%s",
			       k->program.path, lacks ? other_name : "the library",
			       lacks ? "found, as it would be" : "loaded",
			       *k->program.detail ? ": " : "", k->program.detail);
	return TAKES_NONE;
}

static enum taken target_takes(int dir, const char *path, bool search)
{
	struct look *k;
	struct stat own;
	enum taken t;

	if (kernel_stat(carry_own_path(), &own) != 0) {
		if (log_level_now >= LOG_INFO)
			log_line_apart(LOG_INFO,
				       "exec: %s runs on TCP: %s is not to be seen there",
				       path, carry_own_path());
		return TAKES_NONE;
	}
	k = mmap(NULL, sizeof(*k), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
		 -1, 0);
	if (k == MAP_FAILED)
		return TAKES_OWN;
	t = look_at(k, dir, path, search);
	munmap(k, sizeof(*k));
	return t;
}

/* ---- the environment ---- */

size_t foreign_room(int dir, const char *path, bool search, char *const envp[],
		    bool *swaps)
{
	size_t settings = 0, text = 0;
	enum taken t = TAKES_OWN;
	int saved = errno;

	if (!path || !envp || !carry_own_path())
		return 0;
	for (; envp[settings]; settings++)
		if (is_preload(envp[settings]) &&
		    carry_is_listed(envp[settings] + sizeof(PRELOAD) - 1)) {
			size_t len = strlen(envp[settings]);

			/* It may be there more than once. */
			text += len + 1 + len / strlen(carry_own_path()) * LONGER;
		}
	if (text && (hook_active || exec_string_is_good(path)))
		t = target_takes(dir, path, search);
	errno = saved;
	*swaps = t == TAKES_OTHER;
	return t == TAKES_OWN ? 0 : (settings + 1) * sizeof(char *) + text;
}

/* This library. */
static bool is_own(const char *path, size_t len)
{
	const char *own = carry_own_path();

	return len == strlen(own) && memcmp(path, own, len) == 0;
}

/* Its module for RPC, which lies beside it, and is for programs of glibc. */
static bool is_module(const char *path, size_t len)
{
	static const char module[] = "/libviaduct-rpc.so";

	return len >= sizeof(module) - 1 &&
	       memcmp(path + len - (sizeof(module) - 1), module, sizeof(module) - 1) == 0;
}

/* Puts what stands for one path of the list at `to`. Returns its end. */
static char *put_path(char *to, const char *path, size_t len, bool swaps)
{
	const char *own = carry_own_path();
	size_t folder = (size_t)(strrchr(own, '/') + 1 - own);

	if (is_own(path, len) && !swaps)
		return to;
	if (is_own(path, len)) {
		memcpy(to, own, folder);
		return stpcpy(to + folder, other_name);
	}
	if (is_module(path, len))
		return to;
	memcpy(to, path, len);
	return to + len;
}

/* The list as it is to be; NULL when nothing is left of it. Writes behind `text`. */
static char *list_for(const char *setting, bool swaps, char **text)
{
	const char *at = setting + sizeof(PRELOAD) - 1;
	char *begin = *text, *to = stpcpy(begin, PRELOAD), *first = to;

	while (*at) {
		size_t n = strcspn(at, " :");
		char *from = to > first ? to + 1 : to, *end;

		end = n ? put_path(from, at, n, swaps) : from;
		if (end > from) {
			if (from > to)
				*to = ':';
			to = end;
		}
		at += n + (at[n] != '\0');
	}
	*to = '\0';
	*text = to + 1;
	return to > first ? begin : NULL;
}

char *const *foreign_environment(char *const envp[], bool swaps, void *room)
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
				? list_for(*envp, swaps, &text)
				: *envp;

		if (setting)
			list[n++] = setting;
	}
	list[n] = NULL;
	return list;
}
