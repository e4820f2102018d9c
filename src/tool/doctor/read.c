/* SPDX-License-Identifier: Apache-2.0 */
/* What files of /proc and /sys say: one field, the limits of control groups. */
#include <ctype.h>
#include <limits.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "tool/doctor/doctor.h"
#include "tool/first_line.h"

/* Version 1 says "no limit" by a number that no machine has. */
#define NO_MEMORY_LIMIT 1e18

bool read_field(const char *path, const char *name, char *buf, size_t size)
{
	size_t len = strlen(name);
	char line[512];
	bool there = false;
	FILE *f = fopen(path, "re");

	while (f && !there && fgets(line, sizeof(line), f)) {
		if (strncmp(line, name, len) || line[len] != ':')
			continue;
		const char *at = line + len + 1;
		at += strspn(at, " \t");
		snprintf(buf, size, "%.*s", (int)strcspn(at, "\n"), at);
		there = true;
	}
	if (f)
		fclose(f);
	if (!there)
		buf[0] = 0;
	return there;
}

/* True when `name` is one of a list that is separated by commas. */
static bool is_listed(const char *list, const char *name)
{
	size_t len = strlen(name);

	for (const char *at = list; at; at = strchr(at, ',')) {
		at += *at == ',';
		if (!strncmp(at, name, len) && (!at[len] || strchr(",\n", at[len])))
			return true;
	}
	return false;
}

/* Our group's name for a controller; the empty controller is version 2. */
static bool group_name(const char *controller, char *name, size_t size)
{
	char line[PATH_MAX + 64];
	bool there = false;
	FILE *f = fopen("/proc/self/cgroup", "re");

	/* A line is NUMBER:CONTROLLERS:NAME. */
	while (f && !there && fgets(line, sizeof(line), f)) {
		char *list = strchr(line, ':'), *at = list ? strchr(list + 1, ':') : NULL;

		if (!at)
			continue;
		*at = 0;
		if (*controller ? !is_listed(list + 1, controller) : list[1] != 0)
			continue;
		at[1 + strcspn(at + 1, "\n")] = 0;
		snprintf(name, size, "%s", at + 1);
		there = true;
	}
	if (f)
		fclose(f);
	return there;
}

struct folder {
	char path[2 * PATH_MAX];
	size_t top; /* length of the path of the mount */
};

/* Where the hierarchy is mounted, and our group below it. */
static bool group_folder(const char *controller, struct folder *out)
{
	char line[3 * PATH_MAX], name[PATH_MAX], root[PATH_MAX], at[PATH_MAX], type[32],
		options[512];
	bool there = false;
	FILE *f;

	if (!group_name(controller, name, sizeof(name)))
		return false;
	f = fopen("/proc/self/mountinfo", "re");
	while (f && !there && fgets(line, sizeof(line), f)) {
		char *dash = strstr(line, " - ");

		if (!dash || sscanf(dash, " - %31s %*s %511s", type, options) != 2 ||
		    sscanf(line, "%*s %*s %*s %4095s %4095s", root, at) != 2)
			continue;
		if (strcmp(type, *controller ? "cgroup" : "cgroup2") ||
		    (*controller && !is_listed(options, controller)))
			continue;
		/* Inside a container the mount may begin at our own group. */
		size_t skip = strcmp(root, "/") ? strlen(root) : 0;
		bool below = !strncmp(name, root, skip);
		snprintf(out->path, sizeof(out->path), "%s%s", at,
			 below && strcmp(name + skip, "/") ? name + skip : "");
		out->top = strlen(at);
		there = true;
	}
	if (f)
		fclose(f);
	return there;
}

/* A file of a group; false when there is none, or it sets no limit. */
typedef bool read_limit(const char *folder, double *limit);

static bool read_of(const char *folder, const char *file, char *buf, size_t size)
{
	char path[2 * PATH_MAX + 64];

	snprintf(path, sizeof(path), "%s/%s", folder, file);
	return read_first_line(path, buf, size);
}

static bool memory_v1(const char *folder, double *limit)
{
	char text[64];

	if (!read_of(folder, "memory.limit_in_bytes", text, sizeof(text)))
		return false;
	*limit = strtod(text, NULL);
	return *limit < NO_MEMORY_LIMIT;
}

static bool memory_v2(const char *folder, double *limit)
{
	char text[64];

	if (!read_of(folder, "memory.max", text, sizeof(text)) || !isdigit(text[0]))
		return false;
	*limit = strtod(text, NULL);
	return true;
}

static bool cpu_v1(const char *folder, double *limit)
{
	char quota[64], period[64];

	if (!read_of(folder, "cpu.cfs_quota_us", quota, sizeof(quota)) ||
	    !read_of(folder, "cpu.cfs_period_us", period, sizeof(period)) ||
	    strtod(quota, NULL) <= 0 || strtod(period, NULL) <= 0)
		return false;
	*limit = strtod(quota, NULL) / strtod(period, NULL);
	return true;
}

static bool cpu_v2(const char *folder, double *limit)
{
	char text[64];
	double quota, period;

	if (!read_of(folder, "cpu.max", text, sizeof(text)) ||
	    sscanf(text, "%lf %lf", &quota, &period) != 2 || period <= 0)
		return false;
	*limit = quota / period;
	return true;
}

/* The least of our group's and of those around it. */
static bool least_limit(const char *controller, read_limit *read, double *limit)
{
	static struct folder in;
	bool there = false;
	double one;

	if (!group_folder(controller, &in))
		return false;
	for (;;) {
		if (read(in.path, &one) && (!there || one < *limit)) {
			*limit = one;
			there = true;
		}
		char *slash = strrchr(in.path, '/');
		if (!slash || (size_t)(slash - in.path) < in.top)
			return there;
		*slash = 0;
	}
}

bool cgroup_memory_bytes(double *bytes)
{
	return least_limit("memory", memory_v1, bytes) ||
	       least_limit("", memory_v2, bytes);
}

bool cgroup_processors(double *processors)
{
	return least_limit("cpu", cpu_v1, processors) ||
	       least_limit("", cpu_v2, processors);
}

int processors_allowed(int *list, int max)
{
	cpu_set_t sets[8]; /* one is not enough for a kernel of more than 1024 */
	int n = 0;

	CPU_ZERO_S(sizeof(sets), sets);
	sched_getaffinity(0, sizeof(sets), sets);
	for (int cpu = 0; cpu < 8 * CPU_SETSIZE; cpu++)
		if (CPU_ISSET_S((unsigned)cpu, sizeof(sets), sets) && n++ < max)
			list[n - 1] = cpu;
	return n;
}

double load_now(void)
{
	char text[64];

	/* Not getloadavg: in some containers the file speaks of the container. */
	return read_first_line("/proc/loadavg", text, sizeof(text)) ? strtod(text, NULL)
								    : 0;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

double median_of(double *values, size_t n)
{
	qsort(values, n, sizeof(*values), by_value);
	return n ? values[n / 2] : 0;
}
