/* SPDX-License-Identifier: Apache-2.0 */
/* The settings of this process, read once from the environment. */
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/config.h"
#include "base/log.h"
#include "base/path.h"
#include "base/rules.h"

#define CONFIG_UPGRADE_AFTER_MAX 1000000000u
#define CONFIG_SPIN_US_MAX	 1000000u
#define CONFIG_NAME_BYTES	 256

static struct config config = {
	.upgrade_after = 16,
	.spin_ns = 50 * 1000,
	.area_limit = 2,
	.program = "",
};
static struct rules config_rules;
static bool config_rules_bad;
static char config_report[PATH_MAX];
static char config_program[CONFIG_NAME_BYTES];
static pthread_once_t config_once = PTHREAD_ONCE_INIT;

/* Sizes of the ring's areas, smallest first; the ring checks that they are its own. */
static const uint32_t config_areas[] = {16u << 10, 256u << 10, 4u << 20};

/*
 * A setuid program takes nothing from the environment: its user could make it write
 * files or move its connections. An empty value means that nothing is set.
 */
static const char *config_env(const char *name)
{
	const char *value = secure_getenv(name);

	return value && *value ? value : NULL;
}

static bool config_digits(const char *text, uint64_t *value, const char **end)
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

/* Returns whether the variable is set to a good value, which then is in *value. */
static bool config_number(const char *name, uint32_t max, uint32_t *value)
{
	const char *text = config_env(name), *end;
	uint64_t v;

	if (!text)
		return false;
	if (!config_digits(text, &v, &end) || *end || v > max) {
		log_error("%s=%s: a whole number from 0 to %u is allowed; using the "
			  "default",
			  name, text, max);
		return false;
	}
	*value = (uint32_t)v;
	return true;
}

static void config_read_off(void)
{
	const char *text = config_env("VIADUCT");

	if (!text || !strcmp(text, "on"))
		return;
	if (!strcmp(text, "off"))
		config.off = true;
	else
		log_error("VIADUCT=%s: on or off is allowed; using on", text);
}

static void config_read_spin(void)
{
	uint32_t us;

	if (!config_number("VIADUCT_SPIN", CONFIG_SPIN_US_MAX, &us))
		return;
	config.spin_ns = us * 1000;
	config.spin_fixed = true;
}

static unsigned config_shift(char suffix)
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

static void config_read_ring_max(void)
{
	const char *text = config_env("VIADUCT_RING_MAX"), *end;
	uint64_t bytes;

	if (!text)
		return;
	if (config_digits(text, &bytes, &end)) {
		unsigned shift = config_shift(*end);
		if (shift)
			end++;
		if (!*end && bytes <= UINT64_MAX >> shift &&
		    bytes << shift >= config_areas[0]) {
			config.area_limit = 0;
			for (uint32_t i = 1; i < 3; i++)
				if (bytes << shift >= config_areas[i])
					config.area_limit = i;
			return;
		}
	}
	log_error("VIADUCT_RING_MAX=%s: a number of bytes from 16K is allowed, with K, M "
		  "or G after it; using 4M",
		  text);
}

static void config_read_report(void)
{
	const char *text = config_env("VIADUCT_REPORT");

	if (!text)
		return;
	if (path_expand(text, config_report, sizeof(config_report)) == 0)
		config.report = config_report;
	else
		log_error("VIADUCT_REPORT=%s: a file name of at most %d bytes is "
			  "allowed; no report is written",
			  text, PATH_MAX - 1);
}

static void config_read_program(void)
{
	/* Copied: programs write their status over argv. */
	snprintf(config_program, sizeof(config_program), "%s",
		 program_invocation_short_name ? program_invocation_short_name : "");
	config.program = config_program;
}

static void config_read_rules(void)
{
	const char *text = config_env("VIADUCT_RULES"), *slash;
	char message[256], exe[PATH_MAX];
	ssize_t n;

	if (!text)
		return;
	if (rules_parse(text, &config_rules, message, sizeof(message)) != 0) {
		config_rules_bad = true;
		log_error("VIADUCT_RULES=%s: %s; every connection stays on TCP", text,
			  message);
		return;
	}
	n = readlink("/proc/self/exe", exe, sizeof(exe) - 1);
	exe[n > 0 ? n : 0] = '\0';
	slash = strrchr(exe, '/');
	rules_keep_program(&config_rules, slash ? slash + 1 : exe, config_program);
}

static void config_read(void)
{
	int saved = errno;

	log_init(config_env("VIADUCT_LOG"));
	config_read_off();
	config_number("VIADUCT_UPGRADE_AFTER", CONFIG_UPGRADE_AFTER_MAX,
		      &config.upgrade_after);
	config_read_spin();
	config_read_ring_max();
	config_read_report();
	config_read_program();
	config_read_rules();
	errno = saved;
}

const struct config *config_get(void)
{
	pthread_once(&config_once, config_read);
	return &config;
}

bool config_allows(enum config_role role, const struct sockaddr *local,
		   const struct sockaddr *peer)
{
	config_get();
	if (config_rules_bad)
		return false;
	/* Most programs have no rules: do not even look at the addresses. */
	return !config_rules.count ||
	       rules_allow(&config_rules, role, role == CONFIG_CONNECT ? peer : local);
}

int config_check_rules(const char *text, char *message, size_t size)
{
	struct rules rules;

	return rules_parse(text, &rules, message, size);
}
