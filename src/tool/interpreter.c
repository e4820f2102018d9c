/* SPDX-License-Identifier: Apache-2.0 */
/* Whether what a program needs to be started at all is there: its interpreter, or its loader. */
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/program.h"
#include "base/regular.h"
#include "tool/explain/explain.h"

enum { MAX_PHDRS = 256 };

static bool read_loader(int fd, uint64_t at, uint64_t size, char loader[PATH_MAX])
{
	if (size == 0 || size >= PATH_MAX ||
	    pread(fd, loader, size, (off_t)at) != (ssize_t)size)
		return false;
	loader[size] = '\0';
	return true;
}

static bool loader_of_64(int fd, const Elf64_Ehdr *eh, char loader[PATH_MAX])
{
	Elf64_Phdr ph;

	if (eh->e_phentsize != sizeof(ph) || eh->e_phnum > MAX_PHDRS)
		return false;
	for (unsigned i = 0; i < eh->e_phnum; i++)
		if (pread(fd, &ph, sizeof(ph), (off_t)(eh->e_phoff + i * sizeof(ph))) ==
			    sizeof(ph) &&
		    ph.p_type == PT_INTERP)
			return read_loader(fd, ph.p_offset, ph.p_filesz, loader);
	return false;
}

static bool loader_of_32(int fd, char loader[PATH_MAX])
{
	Elf32_Ehdr eh;
	Elf32_Phdr ph;

	if (pread(fd, &eh, sizeof(eh), 0) != sizeof(eh) || eh.e_phentsize != sizeof(ph) ||
	    eh.e_phnum > MAX_PHDRS)
		return false;
	for (unsigned i = 0; i < eh.e_phnum; i++)
		if (pread(fd, &ph, sizeof(ph),
			  (off_t)eh.e_phoff + i * (off_t)sizeof(ph)) == sizeof(ph) &&
		    ph.p_type == PT_INTERP)
			return read_loader(fd, ph.p_offset, ph.p_filesz, loader);
	return false;
}

/*
 * The loader that an ELF file names. Where the processor is another one, an emulator may run the file, and
 * look for the loader in a folder of its own.
 */
static bool loader_of(const char *path, char loader[PATH_MAX])
{
	int fd = regular_open(path);
	bool found = false;
	Elf64_Ehdr eh;

	if (fd < 0)
		return false;
	memset(&eh, 0, sizeof(eh));
	if (pread(fd, &eh, sizeof(eh), 0) >= (ssize_t)sizeof(Elf32_Ehdr) &&
	    !memcmp(eh.e_ident, ELFMAG, SELFMAG)) {
		if (eh.e_ident[EI_CLASS] == ELFCLASS64 && eh.e_machine == EM_X86_64)
			found = loader_of_64(fd, &eh, loader);
		else if (eh.e_ident[EI_CLASS] == ELFCLASS32 && eh.e_machine == EM_386)
			found = loader_of_32(fd, loader);
	}
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

bool interpreter_barred(const struct program *p)
{
	struct stat st;

	return stat(p->path, &st) == 0 &&
	       (!S_ISREG(st.st_mode) || access(p->path, X_OK) != 0);
}

const char *interpreter_lacks_hint(const char *missing)
{
	return strstr(missing, "\\r") ? " (its first line ends in a carriage return: "
					"convert the file with dos2unix)"
				      : "";
}
