/* SPDX-License-Identifier: Apache-2.0 */
/* The settings by name: what each accepts, and the profiles, which set several at once. */
#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "settings/value.h"

#define UPGRADE_AFTER_MAX 1000000000u
#define SPIN_US_MAX	  1000000u
#define SPIN_AUTO_US	  50
#define SIZE_MOST	  (1u << 30)

#define SIZE_RULE "with K, M or G after it"

const struct value_info value_table[VALUE_COUNT] = {
	[VALUE_PROFILE] = {"profile", "VIADUCT_PROFILE", "NAME",
			   "latency, throughput, frugal or off: sets several at once",
			   "latency, throughput, frugal, off or default is allowed"},
	[VALUE_VIADUCT] = {"viaduct", "VIADUCT", NULL, NULL, "on or off is allowed"},
	[VALUE_UPGRADE_AFTER] = {"upgrade-after", "VIADUCT_UPGRADE_AFTER", "N",
				 "operations before a connection is upgraded",
				 "a whole number from 0 to 1000000000 is allowed"},
	[VALUE_SPIN] = {"spin", "VIADUCT_SPIN", "US",
			"longest spin before a sleep, microseconds",
			"a whole number from 0 to 1000000, or auto, is allowed"},
	[VALUE_RING_MAX] = {"ring-max", "VIADUCT_RING_MAX", "SIZE",
			    "largest ring of a direction, such as 256K",
			    "a number of bytes from 16K to 1G is allowed, " SIZE_RULE},
	[VALUE_REDIRECT] =
		{"redirect", "VIADUCT_REDIRECT", "SIZE",
		 "receives from other hosts past the ring, from SIZE",
		 "auto, off, or a number of bytes from 1 to 1G is allowed, " SIZE_RULE},
	[VALUE_REGISTRATION] = {"registration", "VIADUCT_REGISTRATION", "HOW",
				"keep, check or once: memory that a device knows",
				"keep, check or once is allowed"},
	[VALUE_IO_URING] = {"io-uring", "VIADUCT_IO_URING", "WHAT",
			    "refuse or leave: io_uring that is asked for by syscall()",
			    "refuse or leave is allowed"},
	[VALUE_GO] = {"go", "VIADUCT_GO", "WHAT", "leave or follow: programs in Go",
		      "leave or follow is allowed"},
	[VALUE_STATIC] = {"static", "VIADUCT_STATIC", "WHAT",
			  "leave or follow: C programs that are linked statically",
			  "leave or follow is allowed"},
	[VALUE_LOG] =
		{"log", "VIADUCT_LOG", "LEVEL[:FILE]",
		 "log: off, error, info or debug, to FILE or stderr",
		 "off, error, info or debug is allowed, with :stderr or :FILE after it"},
	[VALUE_REPORT] = {"report", "VIADUCT_REPORT", "FILE",
			  "append one line of JSON for each process",
			  "a file name of at most 4095 bytes is allowed"},
};

/* Sizes of the ring's areas, smallest first; the ring checks that they are its own. */
static const uint32_t areas[] = {16u << 10, 256u << 10, 4u << 20};
static const char *const area_names[] = {"16K", "256K", "4M"};

#define SPIN_AUTO .spin_ns = SPIN_AUTO_US * 1000
#define SPIN(us)  .spin_ns = (us)*1000, .spin_fixed = true

/*
 * Each sets all of its fields, so that a profile means the same after any other one.
 * latency: the first message is to be fast already, and a wait is to end in memory. 200 us
 * are several times the wake-up of an idle processor, which is what a sleep costs.
 * throughput: an upgrade, with the first touch of its memory (3 us a page), costs processor
 * time that short connections do not earn back: they stay where they are.
 * frugal: no processor time for waiting; memory, and the two descriptors of each upgraded
 * connection, for those only that move much.
 */
static const struct {
	const char *name;
	struct config config;
} profiles[] = {
	{"default", {.upgrade_after = 16, SPIN_AUTO, .area_limit = 2}},
	{"latency",
	 {.upgrade_after = 0, .upgrade_fixed = true, SPIN(200), .area_limit = 2}},
	{"throughput",
	 {.upgrade_after = 64, .upgrade_fixed = true, SPIN_AUTO, .area_limit = 2}},
	{"frugal",
	 {.upgrade_after = 256, .upgrade_fixed = true, SPIN(0), .area_limit = 1}},
	{"off", {.off = true, .upgrade_after = 16, SPIN_AUTO, .area_limit = 2}},
};

enum { PROFILES = sizeof(profiles) / sizeof(profiles[0]) };

enum value_id value_find(const char *text, size_t length)
{
	for (int id = 0; id < VALUE_COUNT; id++) {
		const char *name = value_table[id].name;
		size_t i = 0;

		if (strlen(name) != length)
			continue;
		while (i < length &&
		       (text[i] == '_' ? '-' : tolower((unsigned char)text[i])) ==
			       name[i])
			i++;
		if (i == length)
			return (enum value_id)id;
	}
	return VALUE_COUNT;
}

const char *value_list(char *buf, size_t size)
{
	size_t used = 0;

	*buf = '\0';
	for (int id = 0; id < VALUE_COUNT && used < size; id++)
		used += (size_t)snprintf(buf + used, size - used, "%s%s",
					 id == 0		 ? ""
					 : id == VALUE_COUNT - 1 ? " and "
								 : ", ",
					 value_table[id].name);
	return buf;
}

static void put_profile(struct config *config, const struct config *from)
{
	config->off = from->off;
	config->upgrade_after = from->upgrade_after;
	config->upgrade_fixed = from->upgrade_fixed;
	config->spin_ns = from->spin_ns;
	config->spin_fixed = from->spin_fixed;
	config->area_limit = from->area_limit;
}

void value_defaults(struct config *config)
{
	put_profile(config, &profiles[0].config);
	config->redirect = CONFIG_MEASURED;
	config->registration = CONFIG_REGISTER_KEEP;
	config->io_uring_left = false;
	config->go_followed = true;
	config->static_followed = false;
}

static int profile_of(const char *name)
{
	for (int i = 0; i < PROFILES; i++)
		if (!strcmp(name, profiles[i].name))
			return i;
	return -1;
}

const char *value_profile(const char *name)
{
	int i = profile_of(name);

	return i < 0 ? NULL : profiles[i].name;
}

static bool digits(const char *text, uint64_t *value, const char **end)
{
	uint64_t v = 0;
	const char *s = text;

	for (; *s >= '0' && *s <= '9'; s++) {
		if (v > UINT64_MAX / 10 - 1)
			return false;
		v = v * 10 + (uint64_t)(*s - '0');
	}
	*value = v;
	*end = s;
	return s != text;
}

static bool number(const char *text, uint32_t max, uint32_t *value)
{
	const char *end;
	uint64_t v;

	if (!digits(text, &v, &end) || *end || v > max)
		return false;
	*value = (uint32_t)v;
	return true;
}

static unsigned shift_of(char suffix)
{
	switch (suffix) {
	case 'k':
	case 'K':
		return 10;
	case 'm':
	case 'M':
		return 20;
	case 'g':
	case 'G':
		return 30;
	default:
		return 0;
	}
}

static bool size(const char *text, uint64_t least, uint32_t *bytes)
{
	const char *end;
	uint64_t count;
	unsigned shift;

	if (!digits(text, &count, &end))
		return false;
	shift = shift_of(*end);
	if (shift)
		end++;
	if (*end || count > SIZE_MOST >> shift || count << shift < least)
		return false;
	*bytes = (uint32_t)(count << shift);
	return true;
}

static bool ring_area(const char *text, uint32_t *area)
{
	uint32_t bytes;

	if (!size(text, areas[0], &bytes))
		return false;
	*area = 0;
	for (uint32_t i = 1; i < 3; i++)
		if (bytes >= areas[i])
			*area = i;
	return true;
}

bool value_rounds(enum value_id id, const char *text, uint32_t *bytes)
{
	uint32_t area, asked;

	if (id != VALUE_RING_MAX || !size(text, areas[0], &asked) ||
	    !ring_area(text, &area))
		return false;
	*bytes = areas[area];
	return asked != areas[area];
}

static bool redirect(const char *text, uint32_t *least)
{
	if (!strcmp(text, "auto"))
		*least = CONFIG_MEASURED;
	else if (!strcmp(text, "off"))
		*least = 0;
	else
		return size(text, 1, least);
	return true;
}

static const char *const registrations[] = {
	[CONFIG_REGISTER_KEEP] = "keep",
	[CONFIG_REGISTER_CHECK] = "check",
	[CONFIG_REGISTER_ONCE] = "once",
};

static bool registration(const char *text, uint32_t *how)
{
	for (*how = 0; *how <= CONFIG_REGISTER_ONCE; ++*how)
		if (!strcmp(text, registrations[*how]))
			return true;
	return false;
}

static bool spin(const char *text, struct config *config)
{
	uint32_t us = SPIN_AUTO_US;
	bool fixed = strcmp(text, "auto") != 0;

	if (fixed && !number(text, SPIN_US_MAX, &us))
		return false;
	config->spin_ns = us * 1000;
	config->spin_fixed = fixed;
	return true;
}

static bool file_name(const char *text, bool in_file)
{
	return strlen(text) < PATH_MAX && (*text == '/' || !in_file);
}

static bool log_setting(const char *text, bool in_file)
{
	const char *file = strchrnul(text, ':');

	return log_level_of(text, (size_t)(file - text)) >= 0 &&
	       (!*file || !strcmp(file, ":stderr") ||
		(file[1] && file_name(file + 1, in_file)));
}

static bool take(enum value_id id, const char *text, bool in_file, struct config *c)
{
	switch (id) {
	case VALUE_PROFILE:
		if (profile_of(text) < 0)
			return false;
		put_profile(c, &profiles[profile_of(text)].config);
		return true;
	case VALUE_VIADUCT:
		c->off = !strcmp(text, "off");
		return c->off || !strcmp(text, "on");
	case VALUE_UPGRADE_AFTER:
		return number(text, UPGRADE_AFTER_MAX, &c->upgrade_after) &&
		       (c->upgrade_fixed = true);
	case VALUE_SPIN:
		return spin(text, c);
	case VALUE_RING_MAX:
		return ring_area(text, &c->area_limit);
	case VALUE_REDIRECT:
		return redirect(text, &c->redirect);
	case VALUE_REGISTRATION:
		return registration(text, &c->registration);
	case VALUE_IO_URING:
		c->io_uring_left = !strcmp(text, "leave");
		return c->io_uring_left || !strcmp(text, "refuse");
	case VALUE_GO:
		c->go_followed = !strcmp(text, "follow");
		return c->go_followed || !strcmp(text, "leave");
	case VALUE_STATIC:
		c->static_followed = !strcmp(text, "follow");
		return c->static_followed || !strcmp(text, "leave");
	case VALUE_LOG:
		return log_setting(text, in_file);
	case VALUE_REPORT:
		return !*text || file_name(text, in_file);
	case VALUE_COUNT:
		break;
	}
	return false;
}

int value_parse(enum value_id id, const char *text, bool in_file, struct config *config,
		char *message, size_t size)
{
	struct config changed = *config;
	bool has_file = id == VALUE_LOG || id == VALUE_REPORT;

	if (take(id, text, in_file, &changed)) {
		*config = changed;
		return 0;
	}
	snprintf(message, size, "%s%s", value_table[id].allowed,
		 has_file && in_file ? "; the name of a file begins with /" : "");
	return -EINVAL;
}

void value_print(enum value_id id, const struct config *config, char *out, size_t size)
{
	const char *word = "";
	uint32_t count = config->upgrade_after;

	if (id == VALUE_VIADUCT)
		word = config->off ? "off" : "on";
	else if (id == VALUE_REGISTRATION)
		word = registrations[config->registration];
	else if (id == VALUE_IO_URING)
		word = config->io_uring_left ? "leave" : "refuse";
	else if (id == VALUE_GO)
		word = config->go_followed ? "follow" : "leave";
	else if (id == VALUE_STATIC)
		word = config->static_followed ? "follow" : "leave";
	else if (id == VALUE_RING_MAX)
		word = area_names[config->area_limit];
	else if (id == VALUE_REDIRECT && config->redirect == 0)
		word = "off";
	else if (id == VALUE_REDIRECT && config->redirect != CONFIG_MEASURED)
		count = config->redirect;
	else if (id == VALUE_REDIRECT || (id == VALUE_SPIN && !config->spin_fixed))
		word = "auto";
	else if (id == VALUE_SPIN)
		count = config->spin_ns / 1000;
	if (*word)
		snprintf(out, size, "%s", word);
	else
		snprintf(out, size, "%u", count);
}
