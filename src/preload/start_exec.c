/* SPDX-License-Identifier: Apache-2.0 */
/* A statically linked program is executed by way of the loader (src/start), where it is to be followed.
 *
 * That is by name and with the environment alone: who executes by a descriptor, drops LD_PRELOAD, or
 * executes what gains privileges, gets what it asks for, on TCP.
 */
#include "preload/start_exec.h"

#include <elf.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/go_text.h"
#include "base/kernel.h"
#include "base/machine.h"
#include "base/program.h"
#include "base/static_text.h"
#include "preload/carry.h"
#include "preload/door.h"
#include "preload/hook.h"
#include "preload/static.h"
#include "settings/config.h"

#define PRELOAD	 "LD_PRELOAD="
#define VARIABLE DOOR_START_PROGRAM "="
#define SETTING	 "VIADUCT_STATIC"
#define CONFIG	 "VIADUCT_CONFIG"
#define LOADER	 "viaduct-start"

bool start_exec_stops;

/* What one look needs; mapped for as long as it takes. */
struct look {
	struct program program;
	char path[PATH_MAX];
	char loader[PATH_MAX];
};

static bool searches(enum start_exec_name name, const char *path)
{
	return (name == START_EXEC_SEARCH || name == START_EXEC_SEARCH_OF_CHILD) &&
	       !strchr(path, '/');
}

static bool has_us(char *const envp[])
{
	for (; envp && *envp; envp++)
		if (!strncmp(*envp, PRELOAD, sizeof(PRELOAD) - 1) &&
		    carry_is_listed(*envp + sizeof(PRELOAD) - 1))
			return true;
	return false;
}

/* Of a program that no dynamic loader is named for, as few are: all others are asked no further. */
static bool is_static(const char *path)
{
	struct stat st;
	Elf64_Phdr ph[16];
	Elf64_Ehdr eh;
	bool found = false;
	int fd;

	if (kernel_stat(path, &st) < 0 || !S_ISREG(st.st_mode))
		return false;
	fd = kernel_open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC, 0);
	if (fd < 0)
		return false;
	if (kernel_read(fd, &eh, sizeof(eh)) == sizeof(eh) &&
	    memcmp(eh.e_ident, ELFMAG, SELFMAG) == 0 &&
	    eh.e_ident[EI_CLASS] == ELFCLASS64 && eh.e_phentsize == sizeof(ph[0]) &&
	    eh.e_phoff == sizeof(eh) && eh.e_phnum <= sizeof(ph) / sizeof(ph[0])) {
		size_t bytes = eh.e_phnum * sizeof(ph[0]);

		found = kernel_read(fd, ph, bytes) == (ssize_t)bytes;
		for (unsigned i = 0; i < eh.e_phnum; i++)
			found = found && ph[i].p_type != PT_INTERP;
	}
	kernel_close(fd);
	return found;
}

/* Whether that is so of this one is for the loader to say, which executes it itself where it is not. */
static bool is_followed(const char *path)
{
	const struct config *c = config_get();

	if (c->go_followed == c->static_followed)
		return c->go_followed;
	return go_text_begins(path) ? c->go_followed : c->static_followed;
}

/* Nothing but a file that could be executed, and gains nothing by that. */
static bool is_plain_static(struct look *k)
{
	if (program_executable(k->path) != 0)
		return false;
	program_inspect(k->path, false, &k->program);
	return k->program.kind == PROGRAM_STATIC && strcmp(k->program.path, k->path) == 0;
}

/* The folder of the library, with the slash at its end, is so long; 0: it is not known. */
static size_t folder_length(void)
{
	const char *own = carry_own_path(), *slash = own ? strrchr(own, '/') : NULL;

	return slash ? (size_t)(slash - own) + 1 : 0;
}

static bool find_loader(char loader[PATH_MAX])
{
	size_t folder = folder_length();

	if (!folder || folder + sizeof(LOADER) > PATH_MAX)
		return false;
	snprintf(loader, PATH_MAX, "%.*s%s", (int)folder, carry_own_path(), LOADER);
	return program_executable(loader) == 0;
}

static bool may_load(void)
{
	return hook_active && !start_exec_stops && carry_own_path() &&
	       (config_get()->go_followed || config_get()->static_followed);
}

/* By the environment, which counts more than any file; and no file has something else for this program alone. */
static bool follows_by(char *const envp[])
{
	const char *files = getenv(CONFIG), *then = NULL;
	bool follows = false;

	for (; *envp; envp++)
		if (!strncmp(*envp, SETTING "=", sizeof(SETTING)))
			follows = !strcmp(*envp + sizeof(SETTING), "follow");
		else if (!strncmp(*envp, CONFIG "=", sizeof(CONFIG)))
			then = *envp + sizeof(CONFIG);
	return follows && (files && then ? !strcmp(files, then) : files == then) &&
	       config_is_common();
}

static bool can_be_carried(const char *path)
{
	struct static_text text;
	uint8_t numbers[512];

	if (go_text_begins(path) || machine_lacks(machine_here(), MACHINE_FOR_STATIC))
		return false;
	static_concerns(numbers, sizeof(numbers));
	if (static_text_find(path, numbers, sizeof(numbers), &text) != 0)
		return false;
	static_text_finish(&text);
	return true;
}

bool start_exec_takes(const char *path, char *const envp[])
{
	char loader[PATH_MAX];

	return may_load() && config_get()->static_followed && is_static(path) &&
	       find_loader(loader) && follows_by(envp) && can_be_carried(path);
}

static bool loads(struct look *k, const char *path, enum start_exec_name name,
		  char *const envp[])
{
	if (searches(name, path)) {
		if (program_find(path, k->path, sizeof(k->path)) != 0)
			return false;
	} else if (snprintf(k->path, sizeof(k->path), "%s", path) >= PATH_MAX) {
		return false;
	}
	if (name >= START_EXEC_PATH_OF_CHILD && *k->path != '/')
		return false;
	return is_static(k->path) && is_followed(k->path) && has_us(envp) &&
	       is_plain_static(k) && find_loader(k->loader);
}

/* With the two that end the lists, and the variable in front. */
static size_t room_for(const struct look *k, char *const envp[])
{
	size_t n = 0;

	while (envp[n])
		n++;
	return (n + 2) * sizeof(char *) + strlen(k->loader) + 1 + sizeof(VARIABLE) +
	       strlen(k->path);
}

size_t start_exec_room(const char *path, enum start_exec_name name, char *const envp[])
{
	struct look *k;
	int saved = errno;
	size_t room = 0;

	if (!path || !envp || !may_load())
		return 0;
	k = mmap(NULL, sizeof(*k), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
		 -1, 0);
	if (k != MAP_FAILED) {
		if (loads(k, path, name, envp))
			room = room_for(k, envp);
		munmap(k, sizeof(*k));
	}
	errno = saved;
	return room;
}

const char *start_exec_loader(const char *path, enum start_exec_name name,
			      char *const **envp, void *room, size_t size)
{
	char **list = room, **to = list + 1, *loader, *text;
	size_t folder = folder_length();

	for (char *const *at = *envp; *at; at++)
		if (strncmp(*at, VARIABLE, sizeof(VARIABLE) - 1) != 0)
			*to++ = *at;
	*to++ = NULL;
	loader = (char *)to;
	memcpy(loader, carry_own_path(), folder);
	memcpy(loader + folder, LOADER, sizeof(LOADER));
	text = *list = loader + folder + sizeof(LOADER);
	text = stpcpy(text, VARIABLE);
	size -= (size_t)(text - (char *)room);
	if (!searches(name, path) || program_find(path, text, size) != 0)
		snprintf(text, size, "%s", path);
	*envp = list;
	return loader;
}
