/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes unread in the ring go along into an image that will be preloaded, too. */
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/kernel.h"
#include "base/program.h"
#include "conn/exec_carry.h"
#include "preload/carry.h"
#include "preload/foreign.h"
#include "preload/hook.h"
#include "preload/start_exec.h"

/* FD:MEMFD:COOKIE, with commas between them. */
#define CARRY_NAME  "VIADUCT_CARRY="
#define CARRY_EACH  48
#define CARRY_BYTES (sizeof(CARRY_NAME) + CARRY_MOST * CARRY_EACH)

/* The memory of one exec; the vector of the environment begins behind it. */
struct carry_memory {
	struct program program;
	char path[PATH_MAX];
	char text[CARRY_BYTES];
	struct carried item[CARRY_MOST];
	char *envp[];
};

/* The library's own file, as the loader was told of it. */
static const char *own_path;
static struct stat own_file;

/* ---- the target ---- */

static const char *value_of(const char *setting, const char *name)
{
	size_t len = strlen(name);

	return strncmp(setting, name, len) == 0 && setting[len] == '=' ? setting + len + 1
								       : NULL;
}

const char *carry_own_path(void)
{
	return own_path;
}

/* The loader takes the list apart at spaces and colons. */
bool carry_is_listed(const char *list)
{
	size_t len = strlen(own_path);

	while (*list) {
		size_t n = strcspn(list, " :");

		if (n == len && memcmp(list, own_path, n) == 0)
			return true;
		list += n + (list[n] != '\0');
	}
	return false;
}

/* With two settings of one name it depends on who reads them. */
static bool environment_fits(char *const envp[])
{
	int preloads = 0;
	bool listed = false;
	struct stat now;

	for (; *envp; envp++) {
		const char *value = value_of(*envp, "LD_PRELOAD");

		if (value) {
			preloads++;
			listed = carry_is_listed(value);
		}
		value = value_of(*envp, "VIADUCT");
		if (value && strcmp(value, "off") == 0)
			return false;
	}
	return listed && preloads == 1 && kernel_stat(own_path, &now) == 0 &&
	       now.st_dev == own_file.st_dev && now.st_ino == own_file.st_ino;
}

static bool target_path(struct leaving *l, char *out)
{
	const char *path = l->path, *all = getenv("PATH");
	bool search = l->search && !strchr(path, '/');

	if (search && (!all || strlen(all) >= PATH_MAX))
		return false;
	if (search)
		l->error = program_find(path, out, PATH_MAX);
	else if (l->dir != AT_FDCWD)
		return snprintf(out, PATH_MAX, "/proc/self/fd/%d%s%s", l->dir,
				*path ? "/" : "", path) < PATH_MAX;
	else if ((l->error = program_executable(path)) == 0)
		return snprintf(out, PATH_MAX, "%s", path) < PATH_MAX;
	return l->error == 0;
}

/* A directory or a pipe is not opened to look at it. */
static bool program_fits(const struct leaving *l, struct carry_memory *m)
{
	struct stat st;

	if (kernel_stat(m->path, &st) < 0 || !S_ISREG(st.st_mode))
		return false;
	program_inspect(m->path, false, &m->program);
	if (m->program.kind == PROGRAM_STATIC)
		return l->dir == AT_FDCWD && start_exec_takes(m->path, l->envp);
	return foreign_takes(m->program.kind);
}

static size_t environment_length(char *const envp[])
{
	size_t n = 0;

	while (envp[n])
		n++;
	return n;
}

static size_t memory_size(const struct leaving *l)
{
	return sizeof(struct carry_memory) + (l->settings + 2) * sizeof(char *);
}

/* In doubt it does not fit: bytes that the new image does not take up are lost. */
static bool target_fits(struct leaving *l)
{
	static char *const empty[] = {NULL};
	void *memory;

	if (!l->path)
		return false;
	if (!l->envp)
		l->envp = empty;
	l->settings = environment_length(l->envp);
	memory = mmap(NULL, memory_size(l), PROT_READ | PROT_WRITE,
		      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (memory == MAP_FAILED)
		return false;
	l->memory = memory;
	l->item = ((struct carry_memory *)memory)->item;
	return target_path(l, ((struct carry_memory *)memory)->path) && own_path &&
	       environment_fits(l->envp) && program_fits(l, memory);
}

bool carry_is_followed(const struct leaving *of, int *error)
{
	struct leaving l = {
		.dir = of->dir, .path = of->path, .search = of->search, .envp = of->envp};
	bool fits = target_fits(&l);

	if (fits) {
		enum program_kind kind = ((struct carry_memory *)l.memory)->program.kind;

		fits = kind == PROGRAM_OK || kind == PROGRAM_MUSL;
	}
	*error = l.error;
	if (l.memory)
		munmap(l.memory, memory_size(&l));
	return fits;
}

/* ---- this image ---- */

bool carry_has(const struct leaving *l, const struct sock *s)
{
	for (uint32_t i = 0; i < l->count; i++)
		if (l->item[i].s == s)
			return true;
	return false;
}

static bool survives(int fd, const struct sock *s)
{
	int flags = fd_sock(fd) == s ? REAL(fcntl64)(fd, F_GETFD) : -1;

	return flags >= 0 && !(flags & FD_CLOEXEC);
}

/* All numbers of the socket have to be known there. The first three never are ours. */
static bool numbers_fit(const struct leaving *l, const struct sock *s)
{
	uint32_t n = 0;

	for (int fd = 0; fd < fd_limit(); fd++)
		if (survives(fd, s) && (fd <= 2 || ++n > CARRY_MOST - l->count))
			return false;
	return true;
}

bool carry_along(struct leaving *l, struct sock *s, int fd)
{
	uint64_t cookie;
	int memfd;

	/* The memory of a child of vfork is its parent's, who reads on. */
	if (hook_is_borrowed())
		return false;
	if (!l->is_judged)
		l->fits = target_fits(l);
	l->is_judged = true;
	if (!l->fits || !numbers_fit(l, s))
		return false;
	memfd = carry_out(s, fd, &cookie);
	if (memfd <= 0)
		return memfd == 0;
	for (int other = 0; other < fd_limit() && l->count < CARRY_MOST; other++) {
		if (!survives(other, s))
			continue;
		l->item[l->count].s = s;
		l->item[l->count].fd = other;
		l->item[l->count].memfd = memfd;
		l->item[l->count++].cookie = cookie;
	}
	return true;
}

char *const *carry_environment(struct leaving *l)
{
	struct carry_memory *m = (struct carry_memory *)l->memory;
	char *at;
	size_t n = 0;

	if (l->count == 0)
		return l->envp;
	at = stpcpy(m->text, CARRY_NAME);
	for (uint32_t i = 0; i < l->count; i++)
		at += snprintf(at, CARRY_EACH, "%s%d:%d:%llu", i ? "," : "",
			       l->item[i].fd, l->item[i].memfd,
			       (unsigned long long)l->item[i].cookie);
	for (char *const *e = l->envp; *e && n < l->settings; e++)
		if (!value_of(*e, "VIADUCT_CARRY"))
			m->envp[n++] = *e;
	m->envp[n++] = m->text;
	m->envp[n] = NULL;
	return m->envp;
}

void carry_failed(struct leaving *l)
{
	for (uint32_t i = 0; i < l->count; i++)
		if (i == 0 || l->item[i].memfd != l->item[i - 1].memfd)
			carry_undo(l->item[i].s, l->item[i].fd, l->item[i].memfd);
	l->count = 0;
	if (l->memory)
		munmap(l->memory, memory_size(l));
}

/* ---- the new image ---- */

static void take_up(const char *text)
{
	int fd, memfd, n;
	unsigned long long cookie;

	for (; sscanf(text, "%d:%d:%llu%n", &fd, &memfd, &cookie, &n) == 3; text++) {
		if (carry_in(fd, memfd, cookie) == 1 && fd_sock(fd))
			hook_known(fd);
		text += n;
		if (*text != ',')
			break;
	}
}

void carry_init(void)
{
	const char *text = secure_getenv("VIADUCT_CARRY");
	Dl_info info;

	if (text)
		take_up(text);
	unsetenv("VIADUCT_CARRY");
	if (dladdr((void *)carry_init, &info) && info.dli_fname[0] == '/' &&
	    kernel_stat(info.dli_fname, &own_file) == 0)
		own_path = info.dli_fname;
}
