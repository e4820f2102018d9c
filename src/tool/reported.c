/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the reports of processes, and says what became of their connections. */
#include "tool/reported.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

static uint64_t field(const char *line, const char *name)
{
	char key[40];
	const char *at;

	snprintf(key, sizeof(key), "\"%s\":", name);
	at = strstr(line, key);
	return at ? strtoull(at + strlen(key), NULL, 10) : 0;
}

void reported_add(struct reported *sum, const char *path)
{
	char line[4096];
	FILE *f = fopen(path, "re");

	while (f && fgets(line, sizeof(line), f)) {
		const char *reasons = strstr(line, "\"reasons\":");

		sum->connections += field(line, "connections");
		sum->upgraded += field(line, "upgraded");
		sum->direct_bytes +=
			field(line, "tx_direct_bytes") + field(line, "rx_direct_bytes");
		sum->tcp_bytes +=
			field(line, "tx_tcp_bytes") + field(line, "rx_tcp_bytes");
		for (uint32_t r = 0; reasons && r < VD_REASON_COUNT; r++)
			sum->reasons[r] += field(reasons, reason_name(r));
	}
	if (f)
		fclose(f);
}

double reported_direct(const struct reported *r)
{
	uint64_t all = r->direct_bytes + r->tcp_bytes;

	return all ? 100.0 * (double)r->direct_bytes / (double)all : 0;
}

static void add(char *text, size_t size, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

static void add(char *text, size_t size, const char *fmt, ...)
{
	size_t at = strlen(text);
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text + at, size - at, fmt, ap);
	va_end(ap);
}

/* ": too-short", or ": too-short 3, plain-peer 1". */
static void add_reasons(const struct reported *r, char *text, size_t size)
{
	const char *comma = ": ";
	unsigned kinds = 0;

	for (uint32_t i = 1; i < VD_REASON_COUNT; i++)
		kinds += r->reasons[i] > 0;
	for (uint32_t i = 1; i < VD_REASON_COUNT; i++) {
		if (!r->reasons[i])
			continue;
		add(text, size, "%s%s", comma, reason_name(i));
		if (kinds > 1)
			add(text, size, " %ju", (uintmax_t)r->reasons[i]);
		comma = ", ";
	}
}

void reported_paths(const struct reported *r, const char *before, char *text, size_t size)
{
	uint64_t on_tcp = r->connections - r->upgraded;

	if (!r->connections) {
		add(text, size,
		    "%sno report tells of a TCP connection: was there one, and did the "
		    "programs end by themselves?",
		    before);
		return;
	}
	if (r->upgraded)
		add(text, size,
		    "%s%ju of %ju connections went direct, with %.1f %% of their bytes",
		    before, (uintmax_t)r->upgraded, (uintmax_t)r->connections,
		    reported_direct(r));
	if (on_tcp)
		add(text, size, "%s%ju of %ju connections stayed on TCP",
		    r->upgraded ? "; " : before, (uintmax_t)on_tcp,
		    (uintmax_t)r->connections);
	add_reasons(r, text, size);
}

void reported_reasons(FILE *out, const struct reported *r)
{
	for (uint32_t i = 1; i < VD_REASON_COUNT; i++)
		if (r->reasons[i])
			fprintf(out, "on TCP   %s, %ju: %s; %s\n", reason_name(i),
				(uintmax_t)r->reasons[i], reason_text(i),
				reason_remedy(i));
}
