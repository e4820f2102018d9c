/* SPDX-License-Identifier: Apache-2.0 */
/* What kind of file a program is, and whether a library can be preloaded into it. */
#ifndef VD_BASE_PROGRAM_H
#define VD_BASE_PROGRAM_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>

enum program_kind {
	PROGRAM_OK,	     /* its loader is glibc's */
	PROGRAM_STATIC,	     /* no dynamic loader, so nothing can be preloaded */
	PROGRAM_PRIVILEGED,  /* the loader ignores LD_PRELOAD there */
	PROGRAM_OTHER_CLASS, /* an ELF file of another word size or processor */
	PROGRAM_OTHER_LIBC,  /* its loader is neither glibc's nor musl's */
	PROGRAM_MUSL,	     /* as PROGRAM_OK, but its loader is musl's */
	PROGRAM_GO,	     /* its system calls go past the C library */
	PROGRAM_UNREADABLE,  /* cannot be looked into: nothing is known */
};

/* What the loaders are called. */
#define PROGRAM_LOADER_GLIBC "ld-linux-x86-64.so.2"
#define PROGRAM_LOADER_MUSL  "ld-musl-x86_64.so.1"

struct program {
	enum program_kind kind;
	/* The file that `kind` is about: the program, or the interpreter of its script.
	 */
	char path[PATH_MAX];
	/* The errno with which the kernel refuses that file, where that is sure; 0: it is not. */
	int refused;
	char detail[128]; /* what was found, to go into brackets; may be empty */
	char unknown
		[128]; /* a NAME that `env NAME` in a script will not find; or empty */
};

/* 0, or the -errno with which execve(2) will refuse the file. */
int program_executable(const char *path);
/*
 * Looks name up as execvp(3) does. Returns 0, -ENOENT, or -EACCES (found, but it may not
 * be executed). Writes at most size bytes, only on success or -EACCES.
 */
int program_find(const char *name, char *path, size_t size);
/*
 * Looks into path, and through #! lines into the interpreter; through_env: for `env NAME` into
 * that NAME. No heap. Blocks on the disk only.
 */
void program_inspect(const char *path, bool through_env, struct program *p);
/* The linker's mark of Go is among these notes of an ELF file. */
bool program_note_of_go(const char *notes, size_t len);

#endif
