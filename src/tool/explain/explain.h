/* SPDX-License-Identifier: Apache-2.0 */
/* The vocabulary of `viaduct explain`: what is said of a program, a process or a connection. */
#ifndef VD_TOOL_EXPLAIN_EXPLAIN_H
#define VD_TOOL_EXPLAIN_EXPLAIN_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

/* YES: it is well, or does not matter. NO: this alone keeps everything on TCP. */
enum point_state { POINT_YES, POINT_NOTE, POINT_NO };

struct point {
	enum point_state state;
	const char *name; /* of the reason (base/reason.h), or of the check; static */
	char *about;	  /* the connection, or NULL: the whole */
	char *text;	  /* sentences */
	char *remedy;	  /* sentences; NULL where there is nothing to do */
};

/* Names, for the JSON only: which imports of a file are ours, and which are not. */
struct imports {
	char *file;
	const char **interposed, **outside;
	size_t interposed_count, outside_count;
};

struct answer {
	bool accelerated;
	char *verdict; /* one sentence */
	struct point *points;
	size_t count;
	struct imports *imports;
	size_t imports_count;
	/* What seems to ask for io_uring by syscall(); NULL: nothing does. For free(). */
	char *asks_uring;
};

/* ---- say.c; memory is never short here: the command ends instead ---- */

/* All of these copy what they are given, but for `name`. */
void say(struct answer *a, enum point_state state, const char *name, const char *format,
	 ...) __attribute__((format(printf, 4, 5)));
/* What to do about the last point. */
void say_remedy(struct answer *a, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
/* What the last point is about. */
void say_about(struct answer *a, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
void say_verdict(struct answer *a, bool accelerated, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
bool said_no(const struct answer *a);
/* print.c */
void answer_print(FILE *out, const struct answer *a);
void answer_json(FILE *out, const char *subject, const struct answer *a);
void *need(void *memory); /* memory, or the end */
char *text_of(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Adds `word` to a list that is written with commas. */
void text_list(char **list, const char *word);

/* ---- the subjects: each fills in the answer; 0, or an exit status after a message ---- */

/* program.c: a program before it runs. libs: its libraries, too. */
int explain_program(char **argv, bool libs, struct answer *a);
struct program;
/* What kind of file it is (base/program.h): says why nothing can be preloaded into it, and
 * returns true when something can. file: where its code is read. go: it is also marked by Go's linker. */
bool explain_kind(const struct program *p, const char *file, bool go, struct answer *a);
/* What explain_kind says, of a file that others may change meanwhile. */
bool explain_copied(const struct program *p, const char *file, bool go, struct answer *a);
/* copy.c: a copy in memory of a file that its owner may change meanwhile. Its name is empty where none can be had. */
struct copy {
	int fd;
	char name[32];
};
void copy_make(struct copy *c, const char *path);
void copy_drop(struct copy *c);
/* As a shell would take it; for free(). */
char *command_line(char *const *argv);

/* ---- interpreter.c ---- */

/*
 * After program_inspect: true when something is not there without which the kernel starts
 * nothing: the interpreter of a script, the loader, or the NAME of `env NAME`. Writes its name.
 * Blocks on the disk only.
 */
bool interpreter_lacks(const struct program *p, char *missing, size_t size);
/* Then: it is there, and is a folder, or no file that may be executed. */
bool interpreter_barred(const struct program *p);
/* What to add to that name, in brackets; or "". */
const char *interpreter_lacks_hint(const char *missing);

/* ---- limits.c: what this place will do to a program that is started in it ---- */

void explain_library(bool musl, struct answer *a);
void explain_settings(const char *path, const char *name, struct answer *a);
void explain_limits(struct answer *a);
struct view;
/* What is in force here (settings/view.h) for a program of those names; NULL: for any. */
void view_here(struct view *v, const char *exe, const char *argv0);

/* ---- symbols.c ---- */

bool symbol_is_interposed(const char *name);
/* What a call means that concerns descriptors and that Viaduct does not carry; or NULL. */
struct concern {
	const char *pattern; /* glob(7) */
	const char *group;
	enum point_state state;
	const char *text, *remedy;
};
const struct concern *symbol_concern(const char *name);
/* Calls by which a program makes connections. */
bool symbol_connects(const char *name);
/* ---- elf.c: reads files that may be hostile ---- */

struct elf_view {
	char *strings; /* the dynamic string table, and a zero */
	size_t strings_size;
	const char **needed, **imports; /* into strings */
	size_t needed_count, imports_count;
	const char *rpath, *runpath; /* or NULL */
	unsigned own_calls;  /* system calls in its own code that concern sockets */
	unsigned own_urings; /* of those: io_uring's */
	bool asks_uring; /* passes the number of io_uring_setup on, as for syscall() */
	bool is_go;	 /* marked by Go's linker */
};

/* 0, or -errno (-ENOEXEC: it is not such a file, or it contradicts itself). */
int elf_view_open(const char *path, struct elf_view *e);
/* The same, but looks neither at imports nor at code: what the file needs, and where from. */
int elf_view_glance(const char *path, struct elf_view *e);
void elf_view_finish(struct elf_view *e);

/* Says what the imports mean; symbols.c. */
void explain_imports(const char *file, const struct elf_view *e, bool is_library,
		     struct answer *a);

/* ---- libs.c ---- */

/* Looks into the libraries that the program needs, and those need. */
void explain_libs(const char *path, const struct elf_view *program, struct answer *a);
/* The program needs the library of that name, or one does that it needs. */
bool explain_needs(const char *path, const char *library);
/* Where the loader would find it for any program; for free(), or NULL. */
char *explain_find_library(const char *name);

/* ---- preload.c ---- */

/* Says what the other libraries in a list like LD_PRELOAD's mean. */
void explain_preloads(const char *preload, struct answer *a);

#endif
