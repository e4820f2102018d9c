/* SPDX-License-Identifier: Apache-2.0 */
/* Checks of what limits Viaduct here: resources, filters, containers, settings. */
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/machine.h"
#include "settings/view.h"
#include "tool/doctor/doctor.h"
#include "tool/first_line.h"

enum {
	DESCRIPTORS_MAX = 1048576, /* none beyond is Viaduct's: src/base/fds.c */
	DESCRIPTORS_FEW = 1024,
	MEMORY_LITTLE_MIB = 512,
	GROUP_LITTLE_MIB = 256,
};

#define MIB 1048576.0

static void check_descriptors(struct finding *f)
{
	struct rlimit r = {0};
	rlim_t now;

	getrlimit(RLIMIT_NOFILE, &r);
	now = r.rlim_cur < DESCRIPTORS_MAX ? r.rlim_cur : DESCRIPTORS_MAX;
	found_number(f, (double)now, "descriptors");
	/* Two for each connection, of no more than half of them. */
	found(f, "%lu descriptors: up to %lu connections of a process can be upgraded",
	      (unsigned long)now, (unsigned long)now / 4);
	if (now >= DESCRIPTORS_FEW)
		return;
	if (r.rlim_max > r.rlim_cur)
		found_trouble(f, FINDING_NOTE, "Connections beyond that stay on TCP.",
			      "Raise the limit: `ulimit -n %lu`.",
			      (unsigned long)(r.rlim_max < DESCRIPTORS_MAX
						      ? r.rlim_max
						      : DESCRIPTORS_MAX));
	else
		found_trouble(f, FINDING_NOTE, "Connections beyond that stay on TCP.",
			      "Raise the hard limit: LimitNOFILE= of the service, or "
			      "/etc/security/limits.conf.");
}

static void check_address_space(struct finding *f)
{
	struct rlimit r = {RLIM_INFINITY, RLIM_INFINITY};

	getrlimit(RLIMIT_AS, &r);
	if (r.rlim_cur == RLIM_INFINITY) {
		found_word(f, "unlimited");
		found(f, "unlimited");
		return;
	}
	found_number(f, (double)r.rlim_cur / MIB, "MiB");
	found(f, "limited to %.0f MiB", f->number);
	found_trouble(f, FINDING_NOTE,
		      "An upgraded connection takes 9 MiB of addresses in each process, "
		      "though seldom so much memory.",
		      "Lift the limit: `ulimit -v unlimited`.");
}

static void check_memory(struct finding *f)
{
	char text[64];

	if (!read_field("/proc/meminfo", "MemAvailable", text, sizeof(text))) {
		found(f, "not known: /proc/meminfo does not say");
		found_trouble(f, FINDING_NOTE, "Whether there is enough is not known.",
			      "Mount it: `mount -t proc proc /proc`.");
		return;
	}
	found_number(f, strtod(text, NULL) / 1024, "MiB");
	found(f, "%.0f MiB are available", f->number);
	if (f->number < MEMORY_LITTLE_MIB)
		found_trouble(
			f, FINDING_NOTE,
			"A busy connection takes up to 9 MiB, an idle one 40 KiB.",
			"Free some, or bound the rings: `viaduct run --ring-max 256K`.");
}

static void check_memory_limit(struct finding *f)
{
	double bytes;

	if (!cgroup_memory_bytes(&bytes)) {
		found_word(f, "unlimited");
		found(f, "none set by the control group");
		return;
	}
	found_number(f, bytes / MIB, "MiB");
	found(f, "the control group allows %.0f MiB", f->number);
	if (f->number < GROUP_LITTLE_MIB)
		found_trouble(
			f, FINDING_NOTE,
			"Rings count: a busy connection takes up to 9 MiB, and beyond "
			"the limit processes are killed.",
			"Raise it (memory.max, MemoryMax=, `docker --memory`), or "
			"bound the rings: `viaduct run --ring-max 256K`.");
}

static void check_overcommit(struct finding *f)
{
	char text[32];

	if (!read_first_line("/proc/sys/vm/overcommit_memory", text, sizeof(text)))
		snprintf(text, sizeof(text), "unknown");
	found_word(f, text);
	found(f, "vm.overcommit_memory is %s", text);
	if (!strcmp(text, "2"))
		found_trouble(
			f, FINDING_NOTE,
			"Address space counts as memory: each process needs 4 MB more "
			"under Viaduct, and 2,048 of its sockets at most leave TCP.",
			"Nothing to do for that many; for more: `sysctl -w "
			"vm.overcommit_memory=0`.");
}

static void check_seccomp(struct finding *f)
{
	char text[16];
	bool known = read_field("/proc/self/status", "Seccomp", text, sizeof(text));

	found_word(f, known ? text : "unknown");
	if (known && !strcmp(text, "0")) {
		found(f, "no filter of system calls holds here");
		return;
	}
	found(f, known ? "a filter of system calls holds here"
		       : "whether a filter of system calls holds here is not known");
	found_trouble(
		f, FINDING_NOTE,
		"Programs in another container or service may have another one.",
		"Nothing to do where all above is well; else allow what is missing, "
		"and run this command there, too.");
}

static void check_no_new_privs(struct finding *f)
{
	char text[16];
	bool known = read_field("/proc/self/status", "NoNewPrivs", text, sizeof(text));

	found_word(f, known ? text : "unknown");
	if (!known || strcmp(text, "1")) {
		found(f, known ? "programs may gain privileges when they start"
			       : "the kernel does not say");
		return;
	}
	found(f, "no_new_privs is set: programs gain no privileges when they start");
	found_trouble(f, FINDING_NOTE,
		      "Viaduct needs none, and `viaduct run` refuses setuid programs "
		      "all the same.",
		      "Nothing to do.");
}

/* Any sign of a container; NULL when there is none. */
static const char *container_sign(void)
{
	static const char *const files[] = {"/.dockerenv", "/run/.containerenv",
					    "/run/systemd/container"};
	const char *name = getenv("container");
	char groups[512];

	for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++)
		if (access(files[i], F_OK) == 0)
			return files[i];
	if (name && *name)
		return "the variable `container`";
	read_first_line("/proc/1/cgroup", groups, sizeof(groups));
	if (strstr(groups, "docker") || strstr(groups, "kubepods") ||
	    strstr(groups, "lxc"))
		return "/proc/1/cgroup";
	return NULL;
}

static void check_container(struct finding *f)
{
	const char *sign = container_sign();

	found_word(f, sign ? sign : "none");
	if (!sign) {
		found(f, "no sign of one");
		return;
	}
	found(f, "this is one, says %s", sign);
	found_trouble(
		f, FINDING_NOTE,
		"Without viaductd, only ends in the same network, user and pid "
		"namespaces "
		"meet.",
		"Put both ends into one container, or let the second join the first: "
		"`docker run --network container:NAME --pid container:NAME`. Or let both "
		"reach viaductd: docs/containers.md says how.");
}

static void found_off(struct finding *f, const struct view_source *s)
{
	const char *name =
		value_table[s->profile ? VALUE_PROFILE : VALUE_VIADUCT].variable;

	if (s->file) {
		found_word(f, s->file);
		found(f, "line %u of %s switches Viaduct off", s->line, s->file);
		found_trouble(f, FINDING_NOTE, "Programs started from here stay on TCP.",
			      "Change that line, unless it is meant.");
	} else {
		found_word(f, "VIADUCT=off");
		found(f, "the variable %s is `off`", name);
		found_trouble(f, FINDING_NOTE, "Programs started from here stay on TCP.",
			      "Unset it: `unset %s`.", name);
	}
}

static void check_settings(struct finding *f)
{
	static struct view v;
	const struct rule *rule = v.rules.rule;

	view_load(&v);
	view_resolve(&v);
	if (v.config.off) {
		found_off(f, &v.source[VALUE_VIADUCT]);
	} else if (v.doubt) {
		found_word(f, "doubt");
		found(f, "a rule, or a file of settings, cannot be understood");
		found_trouble(f, FINDING_NOTE, "Programs started from here stay on TCP.",
			      "Correct it: `viaduct config --check` says what is wrong.");
	} else if (v.rules.count) {
		found_word(f, rule->file ? rule->file : "VIADUCT_RULES");
		found(f, "rules hold here; the first: %.*s", rule->length, rule->text);
		found_trouble(f, FINDING_NOTE,
			      "Programs started from here may stay on TCP by a rule.",
			      "Remove those that are not meant: `viaduct config` lists "
			      "all, with their places.");
	} else {
		found_word(f, "none");
		found(f, "no variable or file keeps programs on TCP");
	}
}

static void check_rings(struct finding *f)
{
	static struct view v;

	view_load(&v);
	view_resolve(&v);
	found_word(f, v.config.io_uring_left ? "leave" : "refuse");
	if (!v.config.io_uring_left) {
		found(f, "io_uring = refuse: a ring that is asked for by syscall() is "
			 "answered ENOSYS");
		return;
	}
	found(f,
	      "io_uring = leave: a ring that is asked for by syscall() is let through");
	found_trouble(f, FINDING_NOTE,
		      "Programs that ask for one stay on TCP: Node.js, and all with a "
		      "current libuv.",
		      "Unset it where they can do without: `viaduct config` says where "
		      "it is set.");
}

static void check_instructions(struct finding *f)
{
	unsigned there = machine_here();
	bool go = !machine_lacks(there, MACHINE_FOR_GO);
	const char *lacks = machine_lacks(there, MACHINE_FOR_STATIC);

	found_word(f, !lacks ? "all" : go ? "no xsavec" : "no rdfsbase");
	if (!lacks) {
		found(f, "rdfsbase and xsavec can be used");
		return;
	}
	found(f, "%s", lacks);
	found_trouble(
		f, FINDING_NOTE,
		go ? "Statically linked programs in C stay on TCP, whatever the settings."
		   : "Statically linked programs in C stay on TCP, whatever the "
		     "settings, "
		     "and so do dynamically linked ones in Go.",
		go ? "Nothing to do for others; these need a newer processor, or a "
		     "virtual machine that does not hide it."
		   : "Nothing to do for others; these need Linux 5.9, and a processor "
		     "with fsgsbase, which a virtual machine may hide.");
}

static const struct check checks[] = {
	{"descriptors", check_descriptors},
	{"address-space", check_address_space},
	{"memory", check_memory},
	{"memory-limit", check_memory_limit},
	{"overcommit", check_overcommit},
	{"seccomp", check_seccomp},
	{"no-new-privs", check_no_new_privs},
	{"container", check_container},
	{"settings", check_settings},
	{"io_uring", check_rings},
	{"instructions", check_instructions},
};
const struct check_group doctor_limits = {"limits", "What limits it", checks,
					  sizeof(checks) / sizeof(checks[0])};
