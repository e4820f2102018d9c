/* SPDX-License-Identifier: Apache-2.0 */
/* Checks the values of viaduct run's options and puts them into the environment. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/path.h"
#include "settings/conffile.h"
#include "settings/config.h"
#include "settings/value.h"
#include "tool/cli.h"
#include "tool/setting.h"

enum { VALUE_MAX = 32 << 10 };

/* What is wrong, where that is more than the setting's `want`. */
static char complaint[512];

/* As the library will take it. */
static int check_as(enum value_id id, const char *value, char *out, size_t size)
{
	struct config parsed;

	value_defaults(&parsed);
	snprintf(out, size, "%s", value);
	return value_parse(id, value, false, &parsed, complaint, sizeof(complaint));
}

static int check_count(const char *value, char *out, size_t size)
{
	return check_as(VALUE_UPGRADE_AFTER, value, out, size);
}

static int check_spin(const char *value, char *out, size_t size)
{
	return check_as(VALUE_SPIN, value, out, size);
}

static int check_size(const char *value, char *out, size_t size)
{
	uint32_t bytes = 0;

	if (check_as(VALUE_RING_MAX, value, out, size))
		return -EINVAL;
	if (value_rounds(VALUE_RING_MAX, value, &bytes))
		warn_line("viaduct run: --ring-max %s: " SETTING_ROUNDED, value,
			  bytes >> 10);
	snprintf(out, size, "%u", bytes);
	return 0;
}

static int check_redirect(const char *value, char *out, size_t size)
{
	return check_as(VALUE_REDIRECT, value, out, size);
}

static int check_io_uring(const char *value, char *out, size_t size)
{
	return check_as(VALUE_IO_URING, value, out, size);
}

static int check_folder(const char *folder, char *why, size_t size)
{
	struct stat st;
	int err = stat(folder, &st) ? errno : S_ISDIR(st.st_mode) ? 0 : ENOTDIR;

	if (err == ENOENT)
		snprintf(why, size, "there is no folder %s: make it", folder);
	else if (err)
		snprintf(why, size, "the folder %s cannot be reached: %s", folder,
			 strerror(err));
	return -err;
}

/* As access(2), for the user who will write. */
static int check_access(const char *path, int mode, char *why, size_t size)
{
	const char *what = mode & X_OK ? "the folder " : "";

	if (faccessat(AT_FDCWD, path, mode, AT_EACCESS) == 0)
		return 0;
	if (errno == EACCES)
		snprintf(why, size, "user %u may not write to %s%s: name another",
			 (unsigned)geteuid(), what, path);
	else
		snprintf(why, size, "%s%s cannot be written to: %s", what, path,
			 strerror(errno));
	return -EINVAL;
}

int setting_file(const char *text, char *why, size_t size)
{
	char path[PATH_MAX], *slash;
	struct stat st;

	if (path_expand(text, path, sizeof(path)) != 0) {
		snprintf(why, size, "a file name of at most %d bytes is allowed",
			 PATH_MAX - 1);
		return -EINVAL;
	}
	if (stat(path, &st) == 0 && S_ISDIR(st.st_mode)) {
		snprintf(why, size, "%s is a folder: name a file in it", path);
		return -EISDIR;
	}
	if (access(path, F_OK) == 0)
		return check_access(path, W_OK, why, size);
	slash = strrchr(path, '/');
	slash[slash == path] = '\0';
	return check_folder(path, why, size) || check_access(path, W_OK | X_OK, why, size)
		       ? -EINVAL
		       : 0;
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
	return absolute(value, out, size) ||
			       setting_file(out, complaint, sizeof(complaint))
		       ? -EINVAL
		       : 0;
}

static int check_profile(const char *value, char *out, size_t size)
{
	snprintf(out, size, "%s", value);
	return value_profile(value) ? 0 : -EINVAL;
}

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
	snprintf(complaint, sizeof(complaint), "%s", f.why);
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

static int check_rules(const char *value, char *out, size_t size)
{
	size_t used = strlen(out);

	if (config_check_rules(value, complaint, sizeof(complaint)))
		return -EINVAL;
	/* Each --rule and --rules is added to those before it on the command line. */
	if (used + strlen(value) + 2 > size)
		return -EINVAL;
	snprintf(out + used, size - used, "%s%s", used ? ";" : "", value);
	return config_check_rules(out, complaint, sizeof(complaint));
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
	{"upgrade-after", "N", "VIADUCT_UPGRADE_AFTER", check_count, NULL,
	 "operations before a connection is upgraded"},
	{"spin", "US", "VIADUCT_SPIN", check_spin, NULL,
	 "longest spin before a sleep, microseconds"},
	{"ring-max", "SIZE", "VIADUCT_RING_MAX", check_size, NULL,
	 "largest ring of a direction, such as 256K"},
	{"redirect", "SIZE", "VIADUCT_REDIRECT", check_redirect, NULL,
	 "receives from other hosts past the ring, from SIZE"},
	{"io-uring", "WHAT", "VIADUCT_IO_URING", check_io_uring, NULL,
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

	*complaint = '\0';
	if (s->check(value, out, VALUE_MAX)) {
		warn_line("viaduct run: --%s cannot be `%s`: %s", s->option, value,
			  *complaint ? complaint : s->want);
		return -EINVAL;
	}
	return setenv(s->variable, out, 1) ? -errno : 0;
}
