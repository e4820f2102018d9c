/* SPDX-License-Identifier: Apache-2.0 */
/* Checks the values of viaduct run's options and puts them into the environment. */
#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/conffile.h"
#include "base/config.h"
#include "base/value.h"
#include "cli/setting.h"

enum { VALUE_MAX = 32 << 10, SPIN_MAX_US = 1000000, OPERATIONS_MAX = 1000000000 };

static int check_number(const char *value, uint64_t most, uint64_t *number, char **end)
{
	if (!isdigit((unsigned char)*value))
		return -EINVAL;
	errno = 0;
	*number = strtoull(value, end, 10);
	return errno || *number > most ? -EINVAL : 0;
}

static int plain_number(const char *value, uint64_t most, char *out, size_t size)
{
	uint64_t number;
	char *end;

	if (check_number(value, most, &number, &end) || *end)
		return -EINVAL;
	snprintf(out, size, "%llu", (unsigned long long)number);
	return 0;
}

static int check_count(const char *value, char *out, size_t size)
{
	return plain_number(value, OPERATIONS_MAX, out, size);
}

static int check_spin(const char *value, char *out, size_t size)
{
	if (!strcmp(value, "auto")) {
		snprintf(out, size, "%s", value);
		return 0;
	}
	return plain_number(value, SPIN_MAX_US, out, size);
}

static int check_size(const char *value, char *out, size_t size)
{
	uint64_t number;
	char *end;

	if (check_number(value, 1u << 30, &number, &end))
		return -EINVAL;
	if (*end == 'k' || *end == 'K')
		number <<= 10, end++;
	else if (*end == 'm' || *end == 'M')
		number <<= 20, end++;
	else if (*end == 'g' || *end == 'G')
		number <<= 30, end++;
	if (*end || number < 16 << 10 || number > 1u << 30)
		return -EINVAL;
	snprintf(out, size, "%llu", (unsigned long long)number);
	return 0;
}

static int check_redirect(const char *value, char *out, size_t size)
{
	struct config parsed;
	char why[128];

	value_defaults(&parsed);
	snprintf(out, size, "%s", value);
	return value_parse(VALUE_REDIRECT, value, false, &parsed, why, sizeof(why));
}

static int check_io_uring(const char *value, char *out, size_t size)
{
	struct config parsed;
	char why[128];

	value_defaults(&parsed);
	snprintf(out, size, "%s", value);
	return value_parse(VALUE_IO_URING, value, false, &parsed, why, sizeof(why));
}

/* A file that the library will be able to append to, or to create. */
static bool writable(const char *path)
{
	char folder[PATH_MAX];
	struct stat st;

	if (stat(path, &st) == 0)
		return !S_ISDIR(st.st_mode) && access(path, W_OK) == 0;
	snprintf(folder, sizeof(folder), "%s", path);
	strrchr(folder, '/')[1] = 0;
	return access(folder, W_OK | X_OK) == 0;
}

/* Because the program may change its folder. */
static int absolute(const char *value, char *out, size_t size)
{
	char *cwd = *value == '/' ? NULL : getcwd(NULL, 0);
	int n;

	if (!*value || (*value != '/' && !cwd))
		return -EINVAL;
	n = snprintf(out, size, "%s%s%s", cwd ? cwd : "", cwd ? "/" : "", value);
	free(cwd);
	return n < 0 || (size_t)n >= size || n >= PATH_MAX ? -EINVAL : 0;
}

static int check_file(const char *value, char *out, size_t size)
{
	return absolute(value, out, size) || !writable(out) ? -EINVAL : 0;
}

static int check_profile(const char *value, char *out, size_t size)
{
	snprintf(out, size, "%s", value);
	return value_profile(value) ? 0 : -EINVAL;
}

static char config_complaint[512];

/* Absolute, for the children. What is in it is looked at when all options are known. */
static int check_config(const char *value, char *out, size_t size)
{
	static struct conffile f;

	*out = '\0';
	if (!*value)
		return 0;
	if (absolute(value, out, size))
		return -EINVAL;
	snprintf(f.path, sizeof(f.path), "%s", out);
	conffile_read(&f, CONFFILE_NAMED);
	if (f.state == CONFFILE_READ)
		return 0;
	snprintf(config_complaint, sizeof(config_complaint), "%s", f.why);
	return -EINVAL;
}

static int check_log(const char *value, char *out, size_t size)
{
	static const char *const levels[] = {"off", "error", "info", "debug"};
	size_t len = strcspn(value, ":");

	for (size_t i = 0; i < sizeof(levels) / sizeof(levels[0]); i++) {
		if (strlen(levels[i]) != len || strncmp(value, levels[i], len))
			continue;
		if (!value[len] || !strcmp(value + len, ":stderr")) {
			snprintf(out, size, "%s", value);
			return 0;
		}
		memcpy(out, value, len + 1);
		return check_file(value + len + 1, out + len + 1, size - len - 1);
	}
	return -EINVAL;
}

static char rules_complaint[256];

static int check_rules(const char *value, char *out, size_t size)
{
	size_t used = strlen(out);

	if (config_check_rules(value, rules_complaint, sizeof(rules_complaint)))
		return -EINVAL;
	/* Each --rule and --rules is added to those before it on the command line. */
	if (used + strlen(value) + 2 > size)
		return -EINVAL;
	snprintf(out + used, size - used, "%s%s", used ? ";" : "", value);
	return config_check_rules(out, rules_complaint, sizeof(rules_complaint));
}

static int check_off(const char *value, char *out, size_t size)
{
	(void)value;
	snprintf(out, size, "off");
	return 0;
}

#define RULES_WANT "too many rules"

const struct setting settings[] = {
	{"off", NULL, "VIADUCT", check_off, "", "keep every connection on TCP"},
	{"profile", "NAME", "VIADUCT_PROFILE", check_profile,
	 "it takes latency, throughput, frugal, off or default",
	 "latency, throughput, frugal or off: sets several at once"},
	{"config", "FILE", "VIADUCT_CONFIG", check_config,
	 "it takes a file, or an empty name for none",
	 "read this file, not the system's and the user's"},
	{"log", "LEVEL[:FILE]", "VIADUCT_LOG", check_log,
	 "it takes off, error, info or debug, with `:stderr` or `:` and a writable file "
	 "after it",
	 "log: off, error, info or debug, to FILE or stderr"},
	{"report", "FILE", "VIADUCT_REPORT", check_file,
	 "it takes a file that can be written",
	 "append one line of JSON for each process"},
	{"upgrade-after", "N", "VIADUCT_UPGRADE_AFTER", check_count,
	 "it takes a number from 0 to 1000000000",
	 "operations before a connection is upgraded"},
	{"spin", "US", "VIADUCT_SPIN", check_spin,
	 "it takes microseconds from 0 to 1000000, or auto",
	 "longest spin before a sleep, microseconds"},
	{"ring-max", "SIZE", "VIADUCT_RING_MAX", check_size,
	 "it takes a size from 16K to 1G", "largest ring of a direction, such as 256K"},
	{"redirect", "SIZE", "VIADUCT_REDIRECT", check_redirect,
	 "it takes auto, off, or a size such as 64K",
	 "receives from other hosts past the ring, from SIZE"},
	{"io-uring", "WHAT", "VIADUCT_IO_URING", check_io_uring,
	 "it takes refuse or leave",
	 "refuse or leave: io_uring that is asked for by syscall()"},
	{"rule", "RULE", "VIADUCT_RULES", check_rules, RULES_WANT,
	 "which connections may be upgraded; repeatable"},
	{"rules", "TEXT", "VIADUCT_RULES", check_rules, RULES_WANT,
	 "several rules at once"},
};

const size_t setting_count = sizeof(settings) / sizeof(settings[0]);
_Static_assert(sizeof(settings) / sizeof(settings[0]) <= SETTINGS_MAX,
	       "room for options");

int setting_apply(const struct setting *s, const char *value)
{
	static char rules[VALUE_MAX], single[VALUE_MAX];
	char *out = s->check == check_rules ? rules : single;

	if (s->check(value, out, VALUE_MAX)) {
		fprintf(stderr, "viaduct run: --%s cannot be `%s`: %s\n", s->option,
			value,
			*rules_complaint    ? rules_complaint
			: *config_complaint ? config_complaint
					    : s->want);
		return -EINVAL;
	}
	return setenv(s->variable, out, 1) ? -errno : 0;
}
