/* SPDX-License-Identifier: Apache-2.0 */
/* What this place does to a program that is started in it: library, settings, limits. */
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "base/reason.h"
#include "base/rules.h"
#include "cli/doctor.h"
#include "cli/explain.h"
#include "cli/library.h"
#include "stream/table.h"

enum { DESCRIPTORS_FEW = 1024, DESCRIPTORS_NONE = 24, DESCRIPTORS_MAX = 1 << 20 };

#define MIB (1u << 20)

void explain_library(struct answer *a)
{
	char path[PATH_MAX], *own = NULL, *others = NULL;
	const char *preload = getenv("LD_PRELOAD");
	char *list, *rest, *word;

	if (library_find(path, sizeof(path)) != 0) {
		say(a, POINT_NO, "library",
		    "libviaduct.so is neither beside this command nor in %s.", VD_LIBDIR);
		say_remedy(a, "Build or install it.");
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
	while ((word = strsep(&rest, " :"))) {
		if (*word && !strstr(word, "libviaduct.so"))
			text_list(&others, word);
		else if (*word)
			own = word;
	}
	if (others) {
		say(a, POINT_NOTE, "preload",
		    "LD_PRELOAD names other libraries, too: %s. Calls that these make "
		    "past the next library (libviaduct.so) are not followed.",
		    others);
		say_remedy(a, "Nothing to do, unless one of them carries connections "
			      "itself: then choose one.");
	}
	say(a, POINT_YES, "library",
	    own ? "%s is in LD_PRELOAD already." : "%s is there.", own ? own : path);
	free(list);
	free(others);
}

static void explain_rules(const char *path, const char *name, struct answer *a)
{
	const char *text = getenv("VIADUCT_RULES");
	const char *slash = strrchr(path, '/'), *name_slash = strrchr(name, '/');
	static struct rules rules;
	char message[256];
	unsigned denies = 0;

	if (!text || !*text)
		return;
	if (rules_parse(text, &rules, message, sizeof(message)) != 0) {
		say(a, POINT_NO, reason_name(VD_REASON_RULE),
		    "VIADUCT_RULES cannot be understood: %s. Every connection stays on "
		    "TCP.",
		    message);
		say_remedy(a, "Correct it, or unset it: `unset VIADUCT_RULES`.");
		return;
	}
	rules_keep_program(&rules, slash ? slash + 1 : path,
			   name_slash ? name_slash + 1 : name);
	for (unsigned i = 0; i < rules.count; i++)
		denies += !rules.rule[i].allow;
	if (rules.count && !rules.rule[0].allow && rules.rule[0].any_role &&
	    rules.rule[0].any_addr && rules.rule[0].port_low == 0 &&
	    rules.rule[0].port_high == 65535) {
		say(a, POINT_NO, reason_name(VD_REASON_RULE),
		    "A rule keeps all connections of this program on TCP: "
		    "VIADUCT_RULES=%s",
		    text);
		say_remedy(a, "Change it, or unset it: `unset VIADUCT_RULES`.");
	} else if (denies) {
		say(a, POINT_NOTE, reason_name(VD_REASON_RULE),
		    "Rules keep some connections of this program on TCP: "
		    "VIADUCT_RULES=%s",
		    text);
		say_remedy(a, "Nothing to do where that is meant.");
	} else {
		say(a, POINT_YES, reason_name(VD_REASON_RULE),
		    "The rules keep no connection of this program on TCP: "
		    "VIADUCT_RULES=%s",
		    text);
	}
}

void explain_settings(const char *path, const char *name, struct answer *a)
{
	static const char *const names[] = {"VIADUCT_UPGRADE_AFTER", "VIADUCT_SPIN",
					    "VIADUCT_RING_MAX", "VIADUCT_LOG",
					    "VIADUCT_REPORT"};
	const char *off = getenv("VIADUCT"), *value;
	char *list = NULL;

	if (off && !strcmp(off, "off")) {
		say(a, POINT_NO, reason_name(VD_REASON_OFF),
		    "Viaduct is switched off here: the variable VIADUCT is `off`.");
		say_remedy(a, "Unset it: `unset VIADUCT`.");
	}
	explain_rules(path, name, a);
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		char *word;

		value = getenv(names[i]);
		if (!value || !*value)
			continue;
		word = text_of("%s=%s", names[i], value);
		text_list(&list, word);
		free(word);
	}
	if (list)
		say(a, POINT_YES, "settings", "These hold here: %s.", list);
	free(list);
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
