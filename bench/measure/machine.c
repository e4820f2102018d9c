/* SPDX-License-Identifier: Apache-2.0 */
/* What the figures depend on: kernel, processor, how idle cores wait, congestion control.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "measure/bench.h"
#include "tool/json.h"
#include "tool/terminal.h"

/* First line of a file, or "unknown". */
static const char *read_line(const char *path, char *buf, size_t size)
{
	FILE *f = fopen(path, "re");
	if (!f || !fgets(buf, (int)size, f))
		snprintf(buf, size, "unknown");
	if (f)
		fclose(f);
	buf[strcspn(buf, "\n")] = 0;
	return buf;
}

static const char *cpu_model(char *buf, size_t size)
{
	char line[256];
	FILE *f = fopen("/proc/cpuinfo", "re");
	snprintf(buf, size, "unknown");
	while (f && fgets(line, sizeof(line), f)) {
		const char *at = strstr(line, ": ");
		if (strncmp(line, "model name", 10) || !at)
			continue;
		snprintf(buf, size, "%.*s", (int)strcspn(at + 2, "\n"), at + 2);
		break;
	}
	if (f)
		fclose(f);
	return buf;
}

#define CPUIDLE	 "/sys/devices/system/cpu/cpuidle/"
#define HALTPOLL "/sys/module/haltpoll/parameters/"

struct machine {
	struct utsname kernel;
	char cpu[128], driver[64], governor[64], halt_poll_ns[32], congestion[32],
		load[64], frequency[32], clock[32];
	long cpus;
	uint64_t memory_bytes;
};

static void machine_read(struct machine *m)
{
	uname(&m->kernel);
	cpu_model(m->cpu, sizeof(m->cpu));
	m->cpus = sysconf(_SC_NPROCESSORS_ONLN);
	read_line(CPUIDLE "current_driver", m->driver, sizeof(m->driver));
	read_line(CPUIDLE "current_governor", m->governor, sizeof(m->governor));
	read_line(HALTPOLL "guest_halt_poll_ns", m->halt_poll_ns,
		  sizeof(m->halt_poll_ns));
	read_line("/proc/sys/net/ipv4/tcp_congestion_control", m->congestion,
		  sizeof(m->congestion));
	read_line("/proc/loadavg", m->load, sizeof(m->load));
	read_line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", m->frequency,
		  sizeof(m->frequency));
	read_line("/sys/devices/system/clocksource/clocksource0/current_clocksource",
		  m->clock, sizeof(m->clock));
	m->memory_bytes =
		(uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
}

void bench_head_line(FILE *out, const char *format, ...)
{
	char line[1024];
	va_list args;

	va_start(args, format);
	vsnprintf(line, sizeof(line), format, args);
	va_end(args);
	terminal_lines(out, line, BENCH_HEAD_INDENT);
}

void bench_machine_text(FILE *out)
{
	struct machine m;
	machine_read(&m);
	bench_head_line(out, "machine    Linux %s, %s, %ld processors, load %s",
			m.kernel.release, m.cpu, m.cpus, m.load);
	bench_head_line(out,
			"idle       driver %s, governor %s, guest_halt_poll_ns %s (0: a "
			"sleeper's core wakes slowly)",
			m.driver, m.governor, m.halt_poll_ns);
	bench_machine_warn(out);
}

void bench_machine_warn(FILE *out)
{
	struct machine m;
	double load;

	machine_read(&m);
	load = strtod(m.load, NULL);
	/* As the page of the report has it. */
	if (load > 0.5 * (double)m.cpus)
		bench_head_line(out,
				"warning    the machine is not idle: load %.1f on %ld "
				"processor%s. Other work disturbs every figure: repeat "
				"it on a quiet machine",
				load, m.cpus, m.cpus > 1 ? "s" : "");
}

void bench_machine_json(FILE *out)
{
	struct machine m;
	machine_read(&m);
	const struct {
		const char *name, *value;
	} strings[] = {
		{"kernel", m.kernel.release},
		{"cpu", m.cpu},
		{"idle_driver", m.driver},
		{"idle_governor", m.governor},
		{"guest_halt_poll_ns", m.halt_poll_ns},
		{"frequency_governor", m.frequency},
		{"system_congestion", m.congestion},
		{"clocksource", m.clock},
		{"load", m.load},
	};
	fprintf(out, "{\"cpus\":%ld,\"memory_bytes\":%ju", m.cpus,
		(uintmax_t)m.memory_bytes);
	for (size_t i = 0; i < sizeof(strings) / sizeof(strings[0]); i++) {
		fprintf(out, ",\"%s\":", strings[i].name);
		write_json_string(out, strings[i].value);
	}
	fputc('}', out);
}
