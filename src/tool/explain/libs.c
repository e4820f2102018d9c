/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the libraries of a program as the loader would, and looks into them. */
#include <fcntl.h>
#include <limits.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tool/explain/explain.h"

enum { LIBS_MAX = 512, CACHE_MAX = 64 << 20 };

/* ld.so.cache, as ldconfig of glibc 2.2 and later writes it. */
struct cache_head {
	char magic[20];
	uint32_t count, strings_size;
	uint8_t flags, pad[3];
	uint32_t extensions, unused[3];
};

struct cache_entry {
	int32_t flags;
	uint32_t name, path; /* offsets from the head */
	uint32_t os_version;
	uint64_t hwcap;
};

static const char cache_magic[] = "glibc-ld.so.cache1.1";
enum { CACHE_X86_64 = 0x0303 };

struct search {
	char *cache; /* NULL, or with a zero behind its end */
	size_t cache_size;
	char *program_rpath; /* expanded, or NULL */
	char *names[LIBS_MAX];
	size_t count;
	struct answer *answer;
};

static void read_cache(struct search *s)
{
	struct stat st;
	int fd = open("/etc/ld.so.cache", O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return;
	if (fstat(fd, &st) == 0 && st.st_size >= (off_t)sizeof(struct cache_head) &&
	    st.st_size < CACHE_MAX) {
		s->cache_size = (size_t)st.st_size;
		s->cache = need(calloc(1, s->cache_size + 1));
		if (pread(fd, s->cache, s->cache_size, 0) != (ssize_t)s->cache_size ||
		    memcmp(s->cache, cache_magic, sizeof(cache_magic) - 1) != 0) {
			free(s->cache);
			s->cache = NULL;
		}
	}
	close(fd);
}

static char *in_cache(const struct search *s, const char *name)
{
	struct cache_head head;
	struct cache_entry e;
	size_t most;

	if (!s->cache)
		return NULL;
	memcpy(&head, s->cache, sizeof(head));
	most = (s->cache_size - sizeof(head)) / sizeof(e);
	for (size_t i = 0; i < head.count && i < most; i++) {
		memcpy(&e, s->cache + sizeof(head) + i * sizeof(e), sizeof(e));
		if (e.flags == CACHE_X86_64 && e.name < s->cache_size &&
		    e.path < s->cache_size && !strcmp(s->cache + e.name, name))
			return text_of("%s", s->cache + e.path);
	}
	return NULL;
}

/* The folder in which a file lies. */
static char *folder_of(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? text_of("%.*s", (int)(slash - path), path) : text_of(".");
}

/* The loader has no longer path either; a hostile file has words without end in it. */
enum { LIST_MOST = 8 * PATH_MAX };

/* With $ORIGIN and $LIB in place; other words of that kind are left as they are. What would be
 * longer than LIST_MOST is cut. */
static char *expanded(const char *list, const char *path)
{
	static const char *const words[] = {"${ORIGIN}", "$ORIGIN", "${LIB}", "$LIB"};
	char *origin = folder_of(path), *text = NULL;
	size_t size = 0, length = 0;
	FILE *out = need(open_memstream(&text, &size));

	while (*list && length < LIST_MOST) {
		const char *add = NULL;
		size_t skip = 1;

		for (size_t i = 0; i < 4 && !add; i++) {
			if (strncmp(list, words[i], strlen(words[i])) != 0)
				continue;
			add = i < 2 ? origin : "lib/x86_64-linux-gnu";
			skip = strlen(words[i]);
		}
		if (add)
			fputs(add, out);
		else
			fputc(*list, out);
		length += add ? strlen(add) : 1;
		list += skip;
	}
	fclose(out);
	free(origin);
	return need(text);
}

static char *in_folders(const char *list, const char *name)
{
	while (list && *list) {
		size_t len = strcspn(list, ":;");
		char *path = len ? text_of("%.*s/%s", (int)len, list, name)
				 : text_of("./%s", name);

		if (access(path, R_OK) == 0)
			return path;
		free(path);
		list += len;
		list += *list != 0;
	}
	return NULL;
}

/* The order is the loader's; a path of the program's own holds for all its libraries. */
static char *find(const struct search *s, const char *name, const struct elf_view *by,
		  const char *by_path)
{
	static const char usual[] = "/lib/x86_64-linux-gnu:/usr/lib/x86_64-linux-gnu:"
				    "/lib64:/usr/lib64:/lib:/usr/lib";
	char *own, *path = NULL;

	if (strchr(name, '/'))
		return access(name, R_OK) ? NULL : text_of("%s", name);
	if (!by->runpath) {
		own = expanded(by->rpath ? by->rpath : "", by_path);
		path = in_folders(own, name);
		free(own);
		if (!path)
			path = in_folders(s->program_rpath, name);
	}
	if (!path)
		path = in_folders(getenv("LD_LIBRARY_PATH"), name);
	if (!path && by->runpath) {
		own = expanded(by->runpath, by_path);
		path = in_folders(own, name);
		free(own);
	}
	if (!path)
		path = in_cache(s, name);
	return path ? path : in_folders(usual, name);
}

/* Parts of the C library: what they do inside is the C library's own. */
static bool is_libc(const char *name)
{
	static const char *const names[] = {
		"libc.so",	 "ld-linux-",	       "libm.so",
		"libpthread.so", "libdl.so",	       "librt.so",
		"libanl.so",	 "libutil.so",	       "libresolv.so",
		"libmvec.so",	 "libviaduct-preload", "libviaduct-rpc.so"};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (!strncmp(name, names[i], strlen(names[i])))
			return true;
	return false;
}

static bool is_known(struct search *s, const char *name)
{
	for (size_t i = 0; i < s->count; i++)
		if (!strcmp(s->names[i], name))
			return true;
	if (s->count == LIBS_MAX)
		return true;
	s->names[s->count++] = text_of("%s", name);
	return false;
}

static void look(struct search *s, const struct elf_view *by, const char *by_path)
{
	for (size_t i = 0; i < by->needed_count; i++) {
		const char *name = by->needed[i];
		struct elf_view e;
		char *path;

		if (is_libc(name) || is_known(s, name))
			continue;
		path = find(s, name, by, by_path);
		if (path && elf_view_open(path, &e) == 0) {
			explain_imports(name, &e, true, s->answer);
			look(s, &e, path);
			elf_view_finish(&e);
		} else {
			say(s->answer, POINT_NOTE, "library",
			    "%s, which %s needs, is not found, or is not what it should "
			    "be.",
			    name, by_path);
			say_remedy(s->answer, "Install it, or name its folder in "
					      "LD_LIBRARY_PATH.");
		}
		free(path);
	}
}

static struct search *search_begin(const char *path, const struct elf_view *program)
{
	struct search *s = need(calloc(1, sizeof(*s)));

	read_cache(s);
	if (program->rpath && !program->runpath)
		s->program_rpath = expanded(program->rpath, path);
	return s;
}

static void search_end(struct search *s)
{
	for (size_t i = 0; i < s->count; i++)
		free(s->names[i]);
	free(s->program_rpath);
	free(s->cache);
	free(s);
}

void explain_libs(const char *path, const struct elf_view *program, struct answer *a)
{
	struct search *s = search_begin(path, program);

	s->answer = a;
	look(s, program, path);
	search_end(s);
}

static bool needs(struct search *s, const struct elf_view *by, const char *by_path,
		  const char *library)
{
	bool found = false;

	for (size_t i = 0; i < by->needed_count && !found; i++) {
		const char *name = by->needed[i];
		struct elf_view e;
		char *path;

		if (!strcmp(name, library))
			return true;
		if (is_libc(name) || is_known(s, name))
			continue;
		path = find(s, name, by, by_path);
		if (path && elf_view_glance(path, &e) == 0) {
			found = needs(s, &e, path, library);
			elf_view_finish(&e);
		}
		free(path);
	}
	return found;
}

bool explain_needs(const char *path, const char *library)
{
	struct elf_view e;
	struct search *s;
	bool found;

	if (elf_view_glance(path, &e) < 0)
		return false;
	s = search_begin(path, &e);
	found = needs(s, &e, path, library);
	search_end(s);
	elf_view_finish(&e);
	return found;
}

char *explain_find_library(const char *name)
{
	const struct elf_view none = {0};
	struct search s = {0};
	char *path;

	read_cache(&s);
	path = find(&s, name, &none, "");
	free(s.cache);
	return path;
}
