/* SPDX-License-Identifier: Apache-2.0 */
/* Whether what a program needs to be started at all is there: its interpreter, or its loader. */
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/program.h"
#include "base/regular.h"
#include "tool/explain/explain.h"

enum { MAX_PHDRS = 256 };

static bool read_loader(int fd, const Elf64_Phdr *ph, char loader[PATH_MAX])
{
	if (ph->p_filesz == 0 || ph->p_filesz >= PATH_MAX ||
	    pread(fd, loader, ph->p_filesz, (off_t)ph->p_offset) != (ssize_t)ph->p_filesz)
		return false;
	loader[ph->p_filesz] = '\0';
	return true;
}

/* The loader that an ELF file names. */
static bool loader_of(const char *path, char loader[PATH_MAX])
{
	int fd = regular_open(path);
	bool found = false;
	Elf64_Ehdr eh;
	Elf64_Phdr ph;

	if (fd < 0)
		return false;
	if (pread(fd, &eh, sizeof(eh), 0) == sizeof(eh) &&
	    !memcmp(eh.e_ident, ELFMAG, SELFMAG) && eh.e_ident[EI_CLASS] == ELFCLASS64 &&
	    eh.e_phentsize == sizeof(ph) && eh.e_phnum <= MAX_PHDRS)
		for (unsigned i = 0; i < eh.e_phnum && !found; i++)
			found = pread(fd, &ph, sizeof(ph),
				      (off_t)(eh.e_phoff + i * sizeof(ph))) ==
					sizeof(ph) &&
				ph.p_type == PT_INTERP && read_loader(fd, &ph, loader);
	close(fd);
	return found;
}

static bool is_absent(const char *path)
{
	struct stat st;

	return stat(path, &st) != 0 && (errno == ENOENT || errno == ENOTDIR);
}

bool interpreter_lacks(const struct program *p, char *missing, size_t size)
{
	char loader[PATH_MAX];
	const char *what = NULL;
	size_t n;

	if (*p->unknown)
		what = p->unknown;
	else if (is_absent(p->path))
		what = p->path;
	else if (loader_of(p->path, loader) && is_absent(loader))
		what = loader;
	if (!what)
		return false;
	/* A file from Windows: the carriage return counts as a part of the name. */
	n = strcspn(what, "\r");
	snprintf(missing, size, "%.*s%s", (int)n, what, what[n] ? "\\r" : "");
	return true;
}

const char *interpreter_lacks_hint(const char *missing)
{
	return strstr(missing, "\\r") ? " (its first line ends in a carriage return: "
					"convert the file with dos2unix)"
				      : "";
}
