/* SPDX-License-Identifier: Apache-2.0 */
/* Which calls of the C library are interposed, and what the others mean that concern
 * descriptors. */
#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

#include "base/reason.h"
#include "tool/explain/explain.h"

static const char *const interposed[] = {
#include <interposed.h> /* made from preload/exports.map */
};

bool symbol_is_interposed(const char *name)
{
	for (size_t i = 0; i < sizeof(interposed) / sizeof(interposed[0]); i++)
		if (!strcmp(interposed[i], name))
			return true;
	return false;
}

bool symbol_connects(const char *name)
{
	static const char *const names[] = {"connect", "__connect", "accept", "accept4",
					    "listen"};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (!strcmp(names[i], name))
			return true;
	return false;
}

#define URING "io_uring"
#define URING_TEXT                                                                       \
	"can use io_uring (%s): from the moment when a ring is given more than files "   \
	"to read and write, all connections of the process stay on TCP."
#define URING_REMEDY                                                                     \
	"Nothing to do for files; else switch that off in the program's "                \
	"configuration: epoll is carried."
#define AIO_TEXT                                                                         \
	"can use asynchronous I/O (%s): a connection that it is used on goes back to "   \
	"TCP; files do not matter."

/* The first that matches decides. Interposed or not: these do not stay on the direct path.
 * Each text takes the names. */
static const struct concern concerns[] = {
	{"io_uring_*", URING, POINT_NOTE, URING_TEXT, URING_REMEDY},
	{"__io_uring_*", URING, POINT_NOTE, URING_TEXT, URING_REMEDY},
	{"io_submit", "aio", POINT_NOTE,
	 "can use the kernel's asynchronous I/O through libaio (%s), which makes its "
	 "system calls itself: that is well for files; on a connection on the direct "
	 "path it would end it.",
	 "Nothing to do for files; else use `viaduct run --off`, or epoll."},
	{"aio_*", "aio", POINT_NOTE, AIO_TEXT,
	 "Nothing to do for files; else use epoll."},
	{"lio_*", "aio", POINT_NOTE, AIO_TEXT,
	 "Nothing to do for files; else use epoll."},
	{"splice", "splice", POINT_NOTE,
	 "can splice inside the kernel (%s): a connection that it is used on goes "
	 "back to TCP.",
	 "Switch that off in the program's configuration: read, write and sendfile are "
	 "carried."},
	{"popen", "children", POINT_YES,
	 "can start programs inside the C library (%s): a connection that is not "
	 "close-on-exec is inherited there, and goes back to TCP before.",
	 NULL},
	{"system", "children", POINT_YES,
	 "can start programs inside the C library (%s): a connection that is not "
	 "close-on-exec is inherited there, and goes back to TCP before.",
	 NULL},
	{"dlmopen", "namespaces", POINT_NOTE,
	 "can load libraries into a link namespace of their own (%s), with a C "
	 "library of its own: their connections are not followed.",
	 "Nothing to do, unless those libraries use the program's connections: then use "
	 "`viaduct run --off`."},
	{"seccomp_load", "seccomp", POINT_NOTE,
	 "can filter its own system calls (%s): from then on its connections stay on "
	 "TCP, or it is ended, where the filter forbids what Viaduct calls "
	 "(memfd_create, eventfd2, mmap, socket, getsockopt, poll).",
	 "Allow these in the program's configuration, or switch its filter off."},
	{"bpf_map_update_elem", "protocol", POINT_NOTE,
	 "can put sockets into a map of the kernel (%s): such connections stay on "
	 "TCP.",
	 "Nothing to do where it does that with maps of other kinds."},
	{"rsocket", "rsockets", POINT_NOTE,
	 "can use rsockets (%s): these are no TCP connections, and are not followed.",
	 "Use its TCP transport."},
	{"sctp_*", "protocol", POINT_NOTE, "can use SCTP (%s), which is not followed.",
	 "Use TCP."},
	{"dlopen", "plugins", POINT_YES,
	 "can load libraries while it runs (%s): their calls are interposed like its "
	 "own, but cannot be listed here.",
	 NULL},
};

enum { CONCERNS = sizeof(concerns) / sizeof(concerns[0]) };

const struct concern *symbol_concern(const char *name)
{
	for (size_t i = 0; i < CONCERNS; i++)
		if (fnmatch(concerns[i].pattern, name, 0) == 0)
			return &concerns[i];
	return NULL;
}

static struct imports *add_imports(const char *file, size_t most, struct answer *a)
{
	struct imports *m;

	a->imports =
		need(realloc(a->imports, (a->imports_count + 1) * sizeof(*a->imports)));
	m = &a->imports[a->imports_count++];
	*m = (struct imports){.file = text_of("%s", file),
			      .interposed =
				      need(calloc(most + 1, sizeof(*m->interposed))),
			      .outside = need(calloc(most + 1, sizeof(*m->outside)))};
	return m;
}

static int by_name(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Each once: a name of two versions, as of libpthread's before glibc 2.34, is imported twice. Returns how many. */
static size_t sort_names(const char **names, size_t count)
{
	size_t kept = 0;

	qsort(names, count, sizeof(*names), by_name);
	for (size_t i = 0; i < count; i++)
		if (kept && !strcmp(names[kept - 1], names[i]))
			free((void *)names[i]);
		else
			names[kept++] = names[i];
	return kept;
}

static bool is_new_text(size_t concern)
{
	for (size_t i = 0; i < concern; i++)
		if (!strcmp(concerns[i].text, concerns[concern].text))
			return false;
	return true;
}

/* One point for each text, with all names that it is about. */
static void say_concerns(const char *subject, const char *const *names, size_t count,
			 struct answer *a)
{
	for (size_t c = 0; c < CONCERNS; c++) {
		const char *text = concerns[c].text, *gap = strstr(text, "%s");
		char *list = NULL;

		for (size_t i = 0; is_new_text(c) && i < count; i++) {
			const struct concern *found = symbol_concern(names[i]);

			if (found && !strcmp(found->text, text))
				text_list(&list, names[i]);
		}
		if (!list)
			continue;
		say(a, concerns[c].state, concerns[c].group, "%s %.*s%s%s", subject,
		    (int)(gap - text), text, list, gap + 2);
		if (concerns[c].remedy)
			say_remedy(a, "%s", concerns[c].remedy);
		free(list);
	}
}

/* The number is there, and the function that takes it. */
static bool asks_uring(const struct elf_view *e)
{
	bool imported = false;

	for (size_t i = 0; e->asks_uring && !imported && i < e->imports_count; i++)
		imported = !strcmp(e->imports[i], "syscall");
	return imported;
}

/* Sorts the names into the two lists. True when one of them makes connections. */
static bool sort_imports(struct imports *m, const char *const *names, size_t count)
{
	bool connects = false;

	for (size_t i = 0; i < count; i++) {
		if (symbol_is_interposed(names[i]))
			m->interposed[m->interposed_count++] = text_of("%s", names[i]);
		else if (symbol_concern(names[i]))
			m->outside[m->outside_count++] = text_of("%s", names[i]);
		connects |= symbol_connects(names[i]);
	}
	m->interposed_count = sort_names(m->interposed, m->interposed_count);
	m->outside_count = sort_names(m->outside, m->outside_count);
	return connects;
}

void explain_imports(const char *file, const struct elf_view *e, bool is_library,
		     struct answer *a)
{
	struct imports *m = add_imports(file, e->imports_count, a);
	bool connects = sort_imports(m, e->imports, e->imports_count);
	const char *subject = is_library ? file : "The program";
	char *list = NULL;

	for (size_t i = 0; i < m->interposed_count; i++)
		text_list(&list, m->interposed[i]);
	if (list && (connects || !is_library))
		say(a, POINT_YES, "imports",
		    m->interposed_count == 1
			    ? "%s imports %zu call that is interposed: %s."
			    : "%s imports %zu calls that are interposed: %s.",
		    subject, m->interposed_count, list);
	if (!is_library && !connects)
		say(a, POINT_YES, "imports",
		    "The program itself imports no call that makes connections: its "
		    "libraries may (see --libs), or programs that it starts.");
	free(list);
	say_concerns(subject, e->imports, e->imports_count, a);
	if (!a->asks_uring && asks_uring(e))
		a->asks_uring = text_of("%s", subject);
	if (e->own_urings)
		say(a, POINT_NOTE, URING,
		    "%s has code of its own that uses io_uring without the C library or "
		    "liburing. Where such a ring is used on a connection on the direct "
		    "path, it gets no bytes, and what it sends ends the connection.",
		    subject);
	else if (e->own_calls)
		say(a, POINT_NOTE, reason_name(VD_REASON_RAW),
		    "%s has code of its own that makes system calls on sockets without "
		    "the C library (in %u places). On a connection on the direct path "
		    "such a call gets no bytes, and what it sends ends the connection.",
		    subject, e->own_calls);
	if (e->own_calls)
		say_remedy(a, "%s",
			   "If it does so with its connections, run it with "
			   "`viaduct run --off`, or keep its ports out by a rule.");
}
