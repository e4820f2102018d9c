/* SPDX-License-Identifier: Apache-2.0 */
/* Finds a program in PATH and reads its ELF header or #! line. */
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <paths.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/kernel.h"
#include "base/program.h"
#include "base/regular.h"

/* The kernel follows five scripts to the program. */
enum { SCRIPT_LEVELS = 6, SCRIPT_LINE = 256, MAX_PHDRS = 256, MAX_NOTES = 1024 };

int program_executable(const char *path)
{
	struct stat st;

	int r = kernel_stat(path, &st);

	if (r < 0)
		return r;
	if (!S_ISREG(st.st_mode) || faccessat(AT_FDCWD, path, X_OK, AT_EACCESS))
		return -EACCES;
	return 0;
}

int program_find(const char *name, char *path, size_t size)
{
	char own[PATH_MAX], *rest = own, *dir, *all;
	int rc, worst = -ENOENT;

	if (!*name)
		return -ENOENT;
	if (strchr(name, '/')) {
		rc = program_executable(name);
		if (rc != 0 && rc != -EACCES)
			return -ENOENT;
		snprintf(path, size, "%s", name);
		return rc;
	}
	all = getenv("PATH");
	snprintf(own, sizeof(own), "%s", all ? all : _PATH_DEFPATH);
	while ((dir = strsep(&rest, ":"))) {
		char try[PATH_MAX];
		int n = snprintf(try, sizeof(try), "%s%s%s", dir, *dir ? "/" : "./",
				 name);

		if (n < 0 || (size_t)n >= sizeof(try))
			continue;
		rc = program_executable(try);
		if (rc == 0 || (rc == -EACCES && worst == -ENOENT))
			snprintf(path, size, "%s", try);
		if (rc == 0)
			return 0;
		if (rc == -EACCES)
			worst = -EACCES;
	}
	return worst;
}

/* True when the kernel will run the file in secure mode: LD_PRELOAD is ignored then. */
static bool privileged(int fd, struct program *p)
{
	struct stat st;
	uid_t euid = kernel_geteuid();
	gid_t egid = kernel_getegid();

	if (kernel_fstat(fd, &st))
		return false;
	if (st.st_mode & S_ISUID)
		euid = st.st_uid;
	if ((st.st_mode & (S_ISGID | S_IXGRP)) == (S_ISGID | S_IXGRP))
		egid = st.st_gid;
	if (euid != kernel_getuid())
		snprintf(p->detail, sizeof(p->detail), "setuid to user %u", euid);
	else if (egid != kernel_getgid())
		snprintf(p->detail, sizeof(p->detail), "setgid to group %u", egid);
	else if (kernel_getuid() != 0 &&
		 kernel_fgetxattr(fd, "security.capability", NULL, 0) > 0)
		snprintf(p->detail, sizeof(p->detail), "file capabilities");
	else
		return false;
	return true;
}

static enum program_kind refused(struct program *p, int error)
{
	p->refused = error;
	return PROGRAM_UNREADABLE;
}

static enum program_kind inspect_loader(int fd, const Elf64_Phdr *ph, struct program *p)
{
	char loader[PATH_MAX], *name;
	ssize_t n;

	if (ph->p_filesz == 0 || ph->p_filesz > sizeof(loader))
		return refused(p, ENOEXEC);
	if (ph->p_filesz == sizeof(loader))
		return PROGRAM_UNREADABLE;
	n = kernel_pread(fd, loader, ph->p_filesz, (off_t)ph->p_offset);
	if (n != (ssize_t)ph->p_filesz)
		return refused(p, ENOEXEC);
	loader[n] = 0;
	name = strrchr(loader, '/') ? strrchr(loader, '/') + 1 : loader;
	if (!strcmp(name, PROGRAM_LOADER_GLIBC))
		return PROGRAM_OK;
	snprintf(p->detail, sizeof(p->detail), "loader %.100s", loader);
	return strcmp(name, PROGRAM_LOADER_MUSL) ? PROGRAM_OTHER_LIBC : PROGRAM_MUSL;
}

bool program_note_of_go(const char *at, size_t left)
{
	Elf64_Nhdr note;

	while (left >= sizeof(note)) {
		size_t size = sizeof(note);

		memcpy(&note, at, sizeof(note));
		size += ((note.n_namesz + (size_t)3) & ~(size_t)3) +
			((note.n_descsz + (size_t)3) & ~(size_t)3);
		if (note.n_namesz == 4 && left >= sizeof(note) + 4 &&
		    memcmp(at + sizeof(note), "Go\0", 4) == 0)
			return true;
		if (size > left)
			break;
		at += size;
		left -= size;
	}
	return false;
}

static bool is_go(int fd, const Elf64_Phdr *ph)
{
	char notes[MAX_NOTES];
	size_t len = ph->p_filesz < sizeof(notes) ? ph->p_filesz : sizeof(notes);

	return kernel_pread(fd, notes, len, (off_t)ph->p_offset) == (ssize_t)len &&
	       program_note_of_go(notes, len);
}

static enum program_kind inspect_elf(int fd, const Elf64_Ehdr *eh, struct program *p)
{
	enum program_kind kind = PROGRAM_STATIC;
	bool go = false;
	Elf64_Phdr ph;

	if (eh->e_ident[EI_CLASS] != ELFCLASS64) {
		snprintf(p->detail, sizeof(p->detail), "32-bit");
		return PROGRAM_OTHER_CLASS;
	}
	if (eh->e_machine != EM_X86_64) {
		snprintf(p->detail, sizeof(p->detail), "ELF machine %u", eh->e_machine);
		return PROGRAM_OTHER_CLASS;
	}
	if (eh->e_phentsize != sizeof(ph))
		return refused(p, ENOEXEC);
	if (eh->e_phnum > MAX_PHDRS)
		return PROGRAM_UNREADABLE;
	for (unsigned i = 0; i < eh->e_phnum; i++) {
		off_t at = (off_t)(eh->e_phoff + i * sizeof(ph));

		if (kernel_pread(fd, &ph, sizeof(ph), at) != sizeof(ph))
			return refused(p, ENOEXEC);
		if (ph.p_type == PT_INTERP)
			kind = inspect_loader(fd, &ph, p);
		go |= ph.p_type == PT_NOTE && is_go(fd, &ph);
	}
	if (go && kind == PROGRAM_MUSL)
		return PROGRAM_OTHER_LIBC;
	return kind == PROGRAM_OK && go ? PROGRAM_GO : kind;
}

/* Writes the interpreter of a #! line; for `env NAME`, maybe the NAME that env will find. */
static bool interpreter(char *line, bool through_env, struct program *p)
{
	char *rest = line + 2, *word, *base;
	int rc;

	line[strcspn(line, "\n")] = 0;
	rest += strspn(rest, " \t");
	word = strsep(&rest, " \t");
	if (!*word)
		return false;
	base = strrchr(word, '/');
	if (through_env && rest && base && !strcmp(base, "/env")) {
		rest += strspn(rest, " \t");
		if (!strncmp(rest, "-S", 2))
			rest += 2 + strspn(rest + 2, " \t");
		base = strsep(&rest, " \t");
		rc = program_find(base, p->path, sizeof(p->path));
		if (rc == 0)
			return true;
		/* Not where an option of env, or a setting, comes first. */
		if (rc == -ENOENT && *base != '-' && !strchr(base, '='))
			snprintf(p->unknown, sizeof(p->unknown), "%s", base);
	}
	snprintf(p->path, sizeof(p->path), "%s", word);
	return true;
}

/* One file. True when it is a script: path then holds what to look into next. */
static bool inspect_file(struct program *p, bool through_env)
{
	union {
		Elf64_Ehdr elf;
		char text[SCRIPT_LINE + 1];
	} head;
	ssize_t n;
	int fd = regular_open(p->path);

	p->kind = PROGRAM_UNREADABLE;
	if (fd < 0)
		return false;
	memset(&head, 0, sizeof(head));
	n = kernel_pread(fd, head.text, SCRIPT_LINE, 0);
	if (n >= SELFMAG && !memcmp(head.text, ELFMAG, SELFMAG)) {
		if (privileged(fd, p))
			p->kind = PROGRAM_PRIVILEGED;
		/* One of 32 bits may be shorter. */
		else if (n < (ssize_t)sizeof(head.elf) &&
			 head.elf.e_ident[EI_CLASS] != ELFCLASS32)
			p->kind = refused(p, ENOEXEC);
		else
			p->kind = inspect_elf(fd, &head.elf, p);
	}
	kernel_close(fd);
	if (n >= SELFMAG && !memcmp(head.text, ELFMAG, SELFMAG))
		return false;
	/* A file without either, or with an empty `#!` line, is a script of the shell, as execvp(3) has it. */
	if (n < 2 || head.text[0] != '#' || head.text[1] != '!' ||
	    !interpreter(head.text, through_env, p))
		snprintf(p->path, sizeof(p->path), "%s", _PATH_BSHELL);
	return true;
}

void program_inspect(const char *path, bool through_env, struct program *p)
{
	memset(p, 0, sizeof(*p));
	snprintf(p->path, sizeof(p->path), "%s", path);
	for (int level = 0; level < SCRIPT_LEVELS; level++)
		if (!inspect_file(p, through_env))
			return;
	p->kind = refused(p, ELOOP);
}
