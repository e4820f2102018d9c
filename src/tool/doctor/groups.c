/* SPDX-License-Identifier: Apache-2.0 */
/* The checks of what Viaduct needs, in order; for other hosts; and what this version does not use. */
#include <dirent.h>
#include <linux/capability.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "tool/doctor/doctor.h"
#include "tool/first_line.h"

#define MIB 1048576.0
/* What a link to a process of another host pins: src/remote/parts.h. */
#define LINK_MIB 4.33
enum { LINKS_FEW = 4 };

static const struct check needs[] = {
	{"library", check_library},
	{"preload", check_preload},
	{"sealed-memory", check_sealed_memory},
	{"eventfd", check_eventfd},
	{"proc", check_proc},
	{"unix-names", check_unix_names},
	{"loopback", check_loopback},
	{"tcp-counts", check_tcp_counts},
	{"netns", check_netns},
	{"sock-diag", check_sock_diag},
	{"other-users", check_other_users},
	{"direct-path", check_direct_path},
};
const struct check_group doctor_needs = {"needs", "What Viaduct needs", needs,
					 sizeof(needs) / sizeof(needs[0])};

static void note(struct finding *f, const char *meaning)
{
	found_trouble(f, FINDING_NOTE, meaning, "Nothing to do.");
}

static void check_rdma(struct finding *f)
{
	char names[200] = "";
	struct dirent *e;
	int n = 0;
	DIR *d = opendir("/sys/class/infiniband");

	while (d && (e = readdir(d))) {
		size_t at = strlen(names);

		if (e->d_name[0] == '.')
			continue;
		snprintf(names + at, sizeof(names) - at, "%s%.60s", n++ ? ", " : ": ",
			 e->d_name);
	}
	if (d)
		closedir(d);
	found_number(f, n, "devices");
	found(f, "%d RDMA device%s%s", n, n == 1 ? "" : "s", names);
	if (n == 0)
		note(f, "Connections with other hosts stay on TCP.");
}

/* CAP_IPC_LOCK, in the first user namespace: in others it does not count. */
static bool may_lock(void)
{
	char text[64];
	unsigned long count = 0;

	if (read_first_line("/proc/self/uid_map", text, sizeof(text)))
		sscanf(text, "%*u %*u %lu", &count);
	return count == UINT32_MAX &&
	       read_field("/proc/self/status", "CapEff", text, sizeof(text)) &&
	       (strtoull(text, NULL, 16) >> CAP_IPC_LOCK & 1);
}

static void check_locked(struct finding *f)
{
	struct rlimit r = {RLIM_INFINITY, RLIM_INFINITY};
	unsigned links;

	getrlimit(RLIMIT_MEMLOCK, &r);
	if (r.rlim_cur == RLIM_INFINITY || may_lock()) {
		found_word(f, "unlimited");
		found(f, "memory for RDMA is not limited");
		return;
	}
	found_number(f, (double)r.rlim_cur / MIB, "MiB");
	links = (unsigned)(f->number / LINK_MIB);
	found(f, "%.1f MiB of memory may be locked: room for %u link%s", f->number, links,
	      links == 1 ? "" : "s");
	if (f->number < LINKS_FEW * LINK_MIB)
		found_trouble(
			f, FINDING_NOTE,
			"A process takes 4.5 MB for each process of another host, "
			"and for each eight connections; beyond the limit they stay "
			"on TCP.",
			"Raise it: `ulimit -l unlimited`, or LimitMEMLOCK= of the "
			"service.");
}

static void check_single_copy(struct finding *f)
{
	char scope[16];
	bool known = read_first_line("/proc/sys/kernel/yama/ptrace_scope", scope,
				     sizeof(scope));

	found_word(f, known ? scope : "none");
	if (known)
		found(f, "kernel.yama.ptrace_scope is %s", scope);
	else
		found(f, "no ptrace_scope here");
	note(f, "Not used by this version: it reads no other process's memory.");
}

static void check_daemon(struct finding *f)
{
	bool there = access("/run/viaduct/relay.sock", R_OK | W_OK) == 0;

	found_word(f, there ? "running" : "none");
	found(f,
	      there ? "viaductd can be asked" : "no viaductd, which one host needs not");
	if (!there)
		note(f, "Connections with other hosts stay on TCP.");
}

static void check_dev_shm(struct finding *f)
{
	bool there = access("/dev/shm", W_OK) == 0;

	found_word(f, there ? "writable" : "none");
	found(f, there ? "/dev/shm can be written" : "/dev/shm cannot be written");
	note(f, "Not used by this version: its shared memory has no files.");
}

static const struct check hosts[] = {
	{"rdma", check_rdma},		{"locked-memory", check_locked},
	{"daemon", check_daemon},	{"near-socket", check_near},
	{"rewritten", check_rewritten},
};
const struct check_group doctor_hosts = {
	"hosts", "For connections with other hosts and namespaces", hosts,
	sizeof(hosts) / sizeof(hosts[0])};

static const struct check unused[] = {
	{"single-copy", check_single_copy},
	{"dev-shm", check_dev_shm},
};
const struct check_group doctor_unused = {"unused", "What this version does not use",
					  unused, sizeof(unused) / sizeof(unused[0])};
