/* SPDX-License-Identifier: Apache-2.0 */
/* What this place does to a program that is started in it: library, settings, limits. */
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "base/reason.h"
#include "conn/table.h"
#include "settings/view.h"
#include "tool/doctor/doctor.h"
#include "tool/explain/explain.h"
#include "tool/library.h"
#include "tool/self.h"

enum { DESCRIPTORS_FEW = 1024, DESCRIPTORS_NONE = 24, DESCRIPTORS_MAX = 1 << 20 };

#define MIB (1u << 20)

void explain_library(bool musl, struct answer *a)
{
	char path[PATH_MAX], *own = NULL;
	const char *preload = getenv("LD_PRELOAD");
	char *list, *rest, *word;

	if ((musl ? library_find_musl : library_find)(path, sizeof(path)) != 0) {
		say(a, POINT_NO, "library",
		    "%s is neither beside this command nor in %s.",
		    musl ? LIBRARY_MUSL : LIBRARY_GLIBC, VD_LIBDIR);
		say_remedy(a, "%s",
			   self_lacks_proc() ? "The command does not find its own "
					       "folder: " SELF_NO_PROC "."
					     : "Build or install it.");
		return;
	}
	if (strpbrk(path, " \t\n:$")) {
		say(a, POINT_NO, "library",
		    "%s cannot be preloaded, because its path has a space, a colon or a "
		    "dollar sign in it.",
		    path);
		say_remedy(a, "Move it.");
		return;
	}
	rest = list = text_of("%s", preload ? preload : "");
	while ((word = strsep(&rest, " :")))
		if (library_is_named(word))
			own = word;
	explain_preloads(preload ? preload : "", a);
	say(a, POINT_YES, "library",
	    own ? "%s is in LD_PRELOAD already." : "%s is there.", own ? own : path);
	free(list);
}

static const char *base_name(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

/* "FILE:LINE", or the variable. */
static char *place_of(const char *file, unsigned line, const char *variable)
{
	return file ? text_of("%s:%u", file, line) : text_of("%s", variable);
}

static void explain_rules(const struct view *v, struct answer *a)
{
	const char *name = reason_name(VD_REASON_RULE);
	const struct rules *rules = &v->rules;
	char *list = NULL;
	unsigned denies = 0;

	for (unsigned i = 0; i < rules->count; i++) {
		const struct rule *r = &rules->rule[i];
		char *place = place_of(r->file, r->line, "VIADUCT_RULES");
		char *word = text_of("`%.*s` (%s)", r->length, r->text, place);

		denies += !r->allow;
		text_list(&list, word);
		free(word);
		free(place);
	}
	if (!list)
		return;
	if (rules_deny_all(rules)) {
		say(a, POINT_NO, name,
		    "A rule keeps all connections of this program on TCP: %s.", list);
		say_remedy(a, "Change it; `viaduct config` shows what holds.");
	} else if (denies) {
		say(a, POINT_NOTE, name,
		    "Rules keep some connections of this program on TCP: %s.", list);
		say_remedy(a, "Nothing to do where that is meant.");
	} else {
		say(a, POINT_YES, name,
		    "The rules keep no connection of this program on TCP: %s.", list);
	}
	free(list);
}

static void explain_off(const struct view *v, struct answer *a)
{
	const struct view_source *s = &v->source[VALUE_VIADUCT];
	char *place = place_of(
		s->file, s->line,
		value_table[s->profile ? VALUE_PROFILE : VALUE_VIADUCT].variable);

	say(a, POINT_NO, reason_name(VD_REASON_OFF),
	    "Viaduct is switched off here, by %s.", place);
	say_remedy(a, s->file ? "Change that line." : "Unset it: `unset %s`.", place);
	free(place);
}

static void explain_values(const struct view *v, struct answer *a)
{
	char *list = NULL;

	for (int i = VALUE_UPGRADE_AFTER; i < VALUE_COUNT; i++) {
		const struct view_source *s = &v->source[i];
		char *place, *word;

		if (!s->text || !*s->text)
			continue;
		place = place_of(s->file, s->line,
				 value_table[s->profile ? VALUE_PROFILE : i].variable);
		word = s->profile ? text_of("%s by the profile %s (%s)",
					    value_table[i].name, s->profile, place)
				  : text_of("%s %s (%s)", value_table[i].name, s->text,
					    place);
		text_list(&list, word);
		free(word);
		free(place);
	}
	if (list)
		say(a, POINT_YES, "settings", "These hold here: %s.", list);
	free(list);
}

static void explain_rings(const struct view *v, struct answer *a)
{
	const char *name = reason_name(VD_REASON_IO_URING);

	if (!a->asks_uring || v->config.off)
		return;
	if (v->config.io_uring_left) {
		say(a, POINT_NOTE, name,
		    "%s seems to set io_uring up by syscall(), as libuv does. The "
		    "setting io_uring = leave lets it, and from then on all connections "
		    "of the process stay on TCP.",
		    a->asks_uring);
		say_remedy(a, "Unless it cannot do without: `--io-uring refuse`, the "
			      "default.");
		return;
	}
	say(a, POINT_NOTE, name,
	    "%s seems to set io_uring up by syscall(), as libuv does. That is answered "
	    "as "
	    "by a kernel without io_uring (ENOSYS), so that its connections can leave "
	    "TCP.",
	    a->asks_uring);
	say_remedy(a, "Nothing to do where it goes on without; else `--io-uring leave`, "
		      "which leaves its connections on TCP.");
}

void view_here(struct view *v, const char *exe, const char *argv0)
{
	memset(v, 0, sizeof(*v));
	v->exe = exe ? base_name(exe) : NULL;
	v->argv0 = argv0 ? base_name(argv0) : NULL;
	view_load(v);
	view_resolve(v);
	rules_keep_program(&v->rules, exe ? v->exe : "", argv0 ? v->argv0 : "");
}

void explain_settings(const char *path, const char *name, struct answer *a)
{
	static struct view v;

	view_here(&v, path, name);
	if (v.config.off)
		explain_off(&v, a);
	if (v.doubt) {
		say(a, POINT_NO, reason_name(VD_REASON_RULE),
		    "A rule, or a file of settings, cannot be understood: every "
		    "connection stays on TCP.");
		say_remedy(a, "Correct it: `viaduct config --check` says what is wrong.");
	}
	explain_rules(&v, a);
	explain_values(&v, a);
	explain_rings(&v, a);
}

static rlim_t soft_limit(int which)
{
	struct rlimit r = {RLIM_INFINITY, RLIM_INFINITY};

	getrlimit(which, &r);
	return r.rlim_cur;
}

static void explain_descriptors(struct answer *a)
{
	rlim_t now = soft_limit(RLIMIT_NOFILE);
	const char *name = reason_name(VD_REASON_FD_LIMIT);

	if (now > DESCRIPTORS_MAX)
		now = DESCRIPTORS_MAX;
	if (now >= DESCRIPTORS_FEW) {
		say(a, POINT_YES, "descriptors",
		    "The limit of %lu descriptors is enough for %lu connections on the "
		    "direct path.",
		    (unsigned long)now, (unsigned long)now / 4);
		return;
	}
	say(a, now < DESCRIPTORS_NONE ? POINT_NO : POINT_NOTE, name,
	    "The limit of %lu descriptors leaves room for %lu connections on the direct "
	    "path at most; others stay on TCP.",
	    (unsigned long)now, now < DESCRIPTORS_NONE ? 0 : (unsigned long)now / 4);
	say_remedy(a, "Raise it: `ulimit -n 65536`, or LimitNOFILE= of the service.");
}

static void explain_memory(struct answer *a)
{
	rlim_t space = soft_limit(RLIMIT_AS), file = soft_limit(RLIMIT_FSIZE);
	const char *name = reason_name(VD_REASON_MEMORY);

	if (file < WIRE_TOTAL_BYTES) {
		say(a, POINT_NO, name,
		    "The limit of a file's size is %lu MiB, and the shared memory of a "
		    "connection counts as a file of %llu MiB.",
		    (unsigned long)(file / MIB), (WIRE_TOTAL_BYTES + MIB - 1) / MIB);
		say_remedy(a, "Lift it: `ulimit -f unlimited`.");
	}
	if (space != RLIM_INFINITY) {
		say(a, POINT_NOTE, name,
		    "The address space is limited to %lu MiB. Viaduct takes no more than "
		    "half of it: 40 MiB at the start, and 9 MiB for each connection.",
		    (unsigned long)(space / MIB));
		say_remedy(a, "Lift it: `ulimit -v unlimited`.");
	}
}

static void explain_filter(struct answer *a)
{
	char mode[16];

	if (!read_field("/proc/self/status", "Seccomp", mode, sizeof(mode)) ||
	    !strcmp(mode, "0"))
		return;
	say(a, POINT_NOTE, "seccomp",
	    "A filter of system calls holds here, and the program inherits it.");
	say_remedy(a, "Try what it allows: `viaduct doctor`.");
}

void explain_limits(struct answer *a)
{
	explain_descriptors(a);
	explain_memory(a);
	explain_filter(a);
}
