/* SPDX-License-Identifier: Apache-2.0 */
/* Checks of what decides the speed: processors, how they idle, where they are, TCP's own. */
#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tool/doctor/doctor.h"
#include "tool/first_line.h"

#define CPUIDLE	 "/sys/devices/system/cpu/cpuidle/"
#define HALTPOLL "/sys/module/haltpoll/parameters/guest_halt_poll_ns"

enum { CPUS_MAX = 1024 };

static void check_processors(struct finding *f)
{
	int n = processors_allowed(NULL, 0);

	found_number(f, n, "processors");
	found(f, "%d of %ld processors are allowed to this process", n,
	      sysconf(_SC_NPROCESSORS_ONLN));
	if (n < 2)
		found_trouble(
			f, FINDING_NOTE,
			"Ends that share one take turns: two to three times the speed "
			"of TCP, not more.",
			"Allow a second one: `taskset`, or cpuset of the container.");
}

static void check_cpu_quota(struct finding *f)
{
	double quota;

	if (!cgroup_processors(&quota)) {
		found_word(f, "unlimited");
		found(f, "none set by the control group");
		return;
	}
	found_number(f, quota, "processors");
	found(f, "the control group allows the time of %.2f processors", quota);
	if (quota < 2)
		found_trouble(
			f, FINDING_NOTE,
			"Ends that run at once are stopped when the time is used up.",
			"Raise it: cpu.max, CPUQuota=, or `docker --cpus`.");
}

static void check_load(struct finding *f)
{
	int n = processors_allowed(NULL, 0);

	found_number(f, load_now(), "threads");
	found(f, "%.1f threads ran or waited to run in the last minute", f->number);
	if (f->number > n)
		found_trouble(
			f, FINDING_NOTE,
			"Two ends that seldom run at once meet seldom in memory, and "
			"measurements are disturbed.",
			"Leave a processor to each busy end.");
}

static void check_halt_poll(struct finding *f)
{
	char driver[48], governor[48], poll[32];

	if (!read_first_line(CPUIDLE "current_driver", driver, sizeof(driver)))
		snprintf(driver, sizeof(driver), "unknown");
	if (!read_first_line(CPUIDLE "current_governor", governor, sizeof(governor)))
		snprintf(governor, sizeof(governor), "unknown");
	if (!read_first_line(HALTPOLL, poll, sizeof(poll))) {
		found_word(f, driver);
		found(f, "no haltpoll here; idle driver %s, governor %s", driver,
		      governor);
		return;
	}
	found_number(f, strtod(poll, NULL), "ns");
	if (f->number > 0)
		found(f, "idle processors poll for up to %s ns; driver %s, governor %s",
		      poll, driver, governor);
	else
		found(f, "idle processors do not poll; driver %s, governor %s", driver,
		      governor);
	if (f->number <= 0)
		found_trouble(
			f, FINDING_NOTE,
			"A virtual processor that slept is slow to wake, on TCP too.",
			"Let it poll first: `echo 200000 >" HALTPOLL "`.");
}

/* The first number of a list such as "0-1,8"; -1 when there is none. */
static int first_sibling(int cpu)
{
	char path[96], text[64];

	snprintf(path, sizeof(path),
		 "/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", cpu);
	return read_first_line(path, text, sizeof(text)) ? atoi(text) : -1;
}

/* The NUMA node of a processor: its folder has a link of that name. -1 unknown. */
static int node_of(int cpu)
{
	char path[64];
	struct dirent *e;
	int node = -1;
	DIR *d;

	snprintf(path, sizeof(path), "/sys/devices/system/cpu/cpu%d", cpu);
	d = opendir(path);
	while (d && node < 0 && (e = readdir(d)))
		if (!strncmp(e->d_name, "node", 4))
			node = atoi(e->d_name + 4);
	if (d)
		closedir(d);
	return node;
}

static int count_different(const int *list, int n)
{
	int different = 0;

	for (int i = 0; i < n; i++) {
		int j = 0;

		while (j < i && list[j] != list[i])
			j++;
		different += j == i;
	}
	return different;
}

static void check_topology(struct finding *f)
{
	static int cpus[CPUS_MAX], cores[CPUS_MAX], nodes[CPUS_MAX];
	int n = processors_allowed(cpus, CPUS_MAX), in_cores, in_nodes;

	n = n < CPUS_MAX ? n : CPUS_MAX;
	for (int i = 0; i < n; i++) {
		cores[i] = first_sibling(cpus[i]);
		nodes[i] = node_of(cpus[i]);
	}
	in_cores = count_different(cores, n);
	in_nodes = count_different(nodes, n);
	found_number(f, in_cores, "cores");
	found(f, "%d cores with %d threads that are allowed, in %d NUMA node%s", in_cores,
	      n, in_nodes, in_nodes == 1 ? "" : "s");
	if (in_nodes > 1)
		found_trouble(f, FINDING_NOTE,
			      "Ends on different nodes have a slow way between them.",
			      "Keep both on one node: `numactl --cpunodebind=%d "
			      "--membind=%d`.",
			      nodes[0], nodes[0]);
	else if (n > 1 && in_cores == 1)
		found_trouble(f, FINDING_NOTE,
			      "Ends that are threads of one core slow each other down.",
			      "Allow processors of a second core: `taskset`, or cpuset.");
}

static void check_congestion(struct finding *f)
{
	char name[64];

	if (!read_first_line("/proc/sys/net/ipv4/tcp_congestion_control", name,
			     sizeof(name)))
		snprintf(name, sizeof(name), "unknown");
	found_word(f, name);
	found(f, "TCP uses %s", name);
	if (!strncmp(name, "bbr", 3))
		found_trouble(f, FINDING_NOTE,
			      "It paces packets, which loopback does not need: streams "
			      "over TCP "
			      "are slower, and comparisons flatter Viaduct.",
			      "For comparisons: `sysctl -w "
			      "net.ipv4.tcp_congestion_control=cubic`.");
}

static const struct check checks[] = {
	{"processors", check_processors},
	{"cpu-quota", check_cpu_quota},
	{"load", check_load},
	{"wake-up", check_wake_up},
	{"halt-poll", check_halt_poll},
	{"cache-line", check_cache_line},
	{"topology", check_topology},
	{"clock", check_clock},
	{"congestion", check_congestion},
};
const struct check_group doctor_speed = {"speed", "What decides its speed", checks,
					 sizeof(checks) / sizeof(checks[0])};
