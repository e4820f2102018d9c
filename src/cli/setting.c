/* SPDX-License-Identifier: Apache-2.0 */
/* Checks the values of viaduct run's options and puts them into the environment. */
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/config.h"
#include "cli/setting.h"

enum { VALUE_MAX = 32 << 10, SPIN_MAX_US = 1000000 };

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
	return plain_number(value, UINT32_MAX, out, size);
}

static int check_spin(const char *value, char *out, size_t size)
{
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
	if (*end || number < 16 << 10 || number > 1u << 30)
		return -EINVAL;
	snprintf(out, size, "%llu", (unsigned long long)number);
	return 0;
}

/* Absolute, because the program may change its folder, and open to writing. */
static int check_file(const char *value, char *out, size_t size)
{
	char *cwd = *value == '/' ? NULL : getcwd(NULL, 0);
	int n, fd;

	if (!*value || (*value != '/' && !cwd))
		return -EINVAL;
	n = snprintf(out, size, "%s%s%s", cwd ? cwd : "", cwd ? "/" : "", value);
	free(cwd);
	if (n < 0 || (size_t)n >= size)
		return -EINVAL;
	fd = open(out, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY, 0666);
	if (fd < 0)
		return -EINVAL;
	close(fd);
	return 0;
}

static int check_log(const char *value, char *out, size_t size)
{
	static const char *const levels[] = {"off", "error", "info", "debug"};
	size_t len = strcspn(value, ":");

	for (size_t i = 0; i < sizeof(levels) / sizeof(levels[0]); i++) {
		if (strlen(levels[i]) != len || strncmp(value, levels[i], len))
			continue;
		if (!value[len]) {
			snprintf(out, size, "%s", value);
			return 0;
		}
		memcpy(out, value, len + 1);
		return check_file(value + len + 1, out + len + 1, size - len - 1);
	}
	return -EINVAL;
}

static int check_rules(const char *value, char *out, size_t size)
{
	size_t used;

	if (config_check_rules(value))
		return -EINVAL;
	/* Each --rule and --rules is added to those before it on the command line. */
	used = strlen(out);
	if (used + strlen(value) + 2 > size)
		return -EINVAL;
	snprintf(out + used, size - used, "%s%s", used ? ";" : "", value);
	return 0;
}

static int check_off(const char *value, char *out, size_t size)
{
	(void)value;
	snprintf(out, size, "off");
	return 0;
}

#define RULES_WANT "a rule as viaduct-run(1) describes it"

const struct setting settings[] = {
	{"off", NULL, "VIADUCT", check_off, "", "keep every connection on TCP"},
	{"log", "LEVEL[:FILE]", "VIADUCT_LOG", check_log,
	 "off, error, info or debug, and a file that can be written",
	 "log to FILE: off, error, info or debug"},
	{"report", "FILE", "VIADUCT_REPORT", check_file, "a file that can be written",
	 "append one line of JSON for each process"},
	{"upgrade-after", "N", "VIADUCT_UPGRADE_AFTER", check_count, "a number from 0 on",
	 "operations before a connection is upgraded"},
	{"spin", "US", "VIADUCT_SPIN", check_spin, "microseconds from 0 to 1000000",
	 "longest spin before a sleep, microseconds"},
	{"ring-max", "SIZE", "VIADUCT_RING_MAX", check_size, "a size from 16K to 1024M",
	 "largest ring of a direction, such as 256K"},
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
		fprintf(stderr, "viaduct run: --%s cannot be `%s`: it takes %s\n",
			s->option, value, s->want);
		return -EINVAL;
	}
	return setenv(s->variable, out, 1) ? -errno : 0;
}
