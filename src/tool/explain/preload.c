/* SPDX-License-Identifier: Apache-2.0 */
/* Other libraries in LD_PRELOAD: which of our calls they wrap as well, and who is asked first. */
#include <elf.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/regular.h"
#include "tool/explain/explain.h"
#include "tool/library.h"

/* A file that may be hostile. It is read, not mapped: it may shrink meanwhile. */
struct file {
	int fd;
	uint64_t size;
};

enum { PART_MOST = 64 << 20 };

/* A copy, with a zero behind its end; NULL where there is no such part. */
static char *part(const struct file *f, uint64_t offset, uint64_t size)
{
	char *copy;

	if (offset > f->size || size > f->size - offset || size > PART_MOST)
		return NULL;
	copy = need(malloc(size + 1));
	copy[size] = '\0';
	if (pread(f->fd, copy, size, (off_t)offset) == (ssize_t)size)
		return copy;
	free(copy);
	return NULL;
}

static bool defines(const Elf64_Sym *s)
{
	return s->st_shndx != SHN_UNDEF && ELF64_ST_BIND(s->st_info) != STB_LOCAL &&
	       ELF64_ST_TYPE(s->st_info) == STT_FUNC;
}

/* The calls of ours that the table of symbols defines. */
static void add_calls(const struct file *f, const Elf64_Shdr *table,
		      const Elf64_Shdr *names, char **list)
{
	char *symbols = part(f, table->sh_offset, table->sh_size);
	char *text = part(f, names->sh_offset, names->sh_size);
	Elf64_Sym s;

	for (uint64_t i = 0; symbols && text && i < table->sh_size / sizeof(s); i++) {
		memcpy(&s, symbols + i * sizeof(s), sizeof(s));
		if (defines(&s) && s.st_name < names->sh_size &&
		    symbol_is_interposed(text + s.st_name))
			text_list(list, text + s.st_name);
	}
	free(symbols);
	free(text);
}

static void read_calls(const struct file *f, char **list)
{
	Elf64_Shdr table, names;
	char *sections;
	Elf64_Ehdr head;

	if (pread(f->fd, &head, sizeof(head), 0) != (ssize_t)sizeof(head) ||
	    memcmp(head.e_ident, ELFMAG, SELFMAG) != 0 ||
	    head.e_ident[EI_CLASS] != ELFCLASS64 || head.e_shentsize != sizeof(table))
		return;
	sections = part(f, head.e_shoff, (uint64_t)head.e_shnum * sizeof(table));
	for (unsigned i = 0; sections && i < head.e_shnum; i++) {
		memcpy(&table, sections + i * sizeof(table), sizeof(table));
		if (table.sh_type != SHT_DYNSYM || table.sh_link >= head.e_shnum)
			continue;
		memcpy(&names, sections + table.sh_link * sizeof(names), sizeof(names));
		add_calls(f, &table, &names, list);
		break; /* a library has one */
	}
	free(sections);
}

/* NULL: none, or it is not found. */
static char *calls_of(const char *name)
{
	char *path = explain_find_library(name), *list = NULL;
	struct file f = {.fd = path ? regular_open(path) : -1};
	struct stat st;

	free(path);
	if (f.fd < 0)
		return NULL;
	if (fstat(f.fd, &st) == 0) {
		f.size = (uint64_t)st.st_size;
		read_calls(&f, &list);
	}
	close(f.fd);
	return list;
}

static void say_behind(const char *name, const char *calls, struct answer *a)
{
	say(a, POINT_NOTE, "preload",
	    "LD_PRELOAD has %s behind libviaduct-preload.so, and that has functions of "
	    "its own "
	    "for "
	    "%s: they are passed over where a connection is on the direct path.",
	    name, calls);
	say_remedy(a,
		   "If it has to see the program's connections, put it in front, which "
		   "`viaduct run` does not: LD_PRELOAD=%s:.../libviaduct-preload.so "
		   "PROGRAM. Or "
		   "keep their ports out by a rule.",
		   name);
}

void explain_preloads(const char *preload, struct answer *a)
{
	char *list = text_of("%s", preload), *rest = list, *word, *others = NULL;
	bool behind = !library_is_named(preload);

	while ((word = strsep(&rest, " :"))) {
		bool own = library_is_named(word) || strstr(word, LIBRARY_RPC);
		char *calls = *word && !own ? calls_of(word) : NULL;

		behind |= library_is_named(word);
		if (!*word || own)
			continue;
		if (calls && behind)
			say_behind(word, calls, a);
		else if (calls)
			say(a, POINT_YES, "preload",
			    "LD_PRELOAD has %s in front of libviaduct-preload.so: its "
			    "own "
			    "functions for %s are called first.",
			    word, calls);
		else
			text_list(&others, word);
		free(calls);
	}
	if (others) {
		say(a, POINT_NOTE, "preload",
		    "LD_PRELOAD names other libraries, too: %s. Calls that these make "
		    "past the next library (libviaduct-preload.so) are not followed.",
		    others);
		say_remedy(a, "Nothing to do, unless one of them carries connections "
			      "itself: then choose one.");
	}
	free(others);
	free(list);
}
