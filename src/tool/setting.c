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

/* Of a value that is wrong, so much is repeated. */
enum { VALUE_MAX = 32 << 10, VALUE_SHOWN = 160 };

/* What is wrong, where that is more than the setting's `want`. */
static char complaint[512];

/* As the library will take it. */
static int check_value(enum value_id id, const char *value, char *out, size_t size)
{
	struct config parsed;

	value_defaults(&parsed);
	snprintf(out, size, "%s", value);
	return value_parse(id, value, false, &parsed, complaint, sizeof(complaint));
}

static int check_size(enum value_id id, const char *value, char *out, size_t size)
{
	uint32_t bytes = 0;

	if (check_value(id, value, out, size))
		return -EINVAL;
	if (value_rounds(id, value, &bytes))
		warn_line("viaduct run: --%s %s: " SETTING_ROUNDED, value_table[id].name,
			  value, bytes >> 10);
	snprintf(out, size, "%u", bytes);
	return 0;
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

/* A name that does not begin with / cannot be used where the folder has been removed. */
static void say_no_folder(int error, char *why, size_t size)
{
	snprintf(why, size,
		 "the current folder cannot be told: %s: name the file from / on",
		 strerror(error));
}

int setting_file(const char *text, char *why, size_t size)
{
	char path[PATH_MAX], *slash;
	struct stat st;
	int rc = path_expand(text, path, sizeof(path));

	if (rc == -ENAMETOOLONG)
		snprintf(why, size, "a file name of at most %d bytes is allowed",
			 PATH_MAX - 1);
	else if (rc)
		say_no_folder(-rc, why, size);
	if (rc)
		return -EINVAL;
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
	char *cwd = *value == '/' || !*value ? NULL : getcwd(NULL, 0);
	int n;

	if (!*value)
		return -EINVAL;
	if (*value != '/' && !cwd) {
		say_no_folder(errno, complaint, sizeof(complaint));
		return -EINVAL;
	}
	n = snprintf(out, size, "%s%s%s", cwd ? cwd : "", cwd ? "/" : "", value);
	free(cwd);
	return n < 0 || (size_t)n >= size || n >= PATH_MAX ? -EINVAL : 0;
}

static int check_file(enum value_id id, const char *value, char *out, size_t size)
{
	(void)id;
	return absolute(value, out, size) ||
			       setting_file(out, complaint, sizeof(complaint))
		       ? -EINVAL
		       : 0;
}

/* Absolute, for the children. What is in it is looked at when all options are known. */
static int check_config(enum value_id id, const char *value, char *out, size_t size)
{
	static struct conffile f;

	(void)id;
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

static int check_log(enum value_id id, const char *value, char *out, size_t size)
{
	const char *file = strchrnul(value, ':');
	size_t len = (size_t)(file - value);

	if (check_value(id, value, out, size))
		return -EINVAL;
	if (!*file || !strcmp(file, ":stderr"))
		return 0;
	return check_file(id, file + 1, out + len + 1, size - len - 1);
}

static int check_rules(enum value_id id, const char *value, char *out, size_t size)
{
	size_t used = strlen(out);

	(void)id;
	if (config_check_rules(value, complaint, sizeof(complaint)))
		return -EINVAL;
	/* Each --rule and --rules is added to those before it on the command line. */
	if (used + strlen(value) + 2 > size)
		return -EINVAL;
	snprintf(out + used, size - used, "%s%s", used ? ";" : "", value);
	return config_check_rules(out, complaint, sizeof(complaint));
}

static int check_off(enum value_id id, const char *value, char *out, size_t size)
{
	(void)id;
	(void)value;
	snprintf(out, size, "off");
	return 0;
}

#define RULES_WANT "too many rules"

static const struct {
	enum value_id id; /* VALUE_COUNT: it is `own` */
	struct value_info own;
	/* Writes the variable's value. Returns 0, or -EINVAL when value cannot be right. */
	int (*check)(enum value_id id, const char *value, char *out, size_t size);
} settings[] = {
	{VALUE_COUNT,
	 {"off", "VIADUCT", NULL, "keep every connection on TCP", ""},
	 check_off},
	{VALUE_PROFILE, {0}, check_value},
	{VALUE_COUNT,
	 {"config", "VIADUCT_CONFIG", "FILE",
	  "read this file, not the system's and the user's",
	  "it takes a file, or an empty name for none"},
	 check_config},
	{VALUE_LOG, {0}, check_log},
	{VALUE_REPORT, {0}, check_file},
	{VALUE_UPGRADE_AFTER, {0}, check_value},
	{VALUE_SPIN, {0}, check_value},
	{VALUE_RING_MAX, {0}, check_size},
	{VALUE_REDIRECT, {0}, check_value},
	{VALUE_REGISTRATION, {0}, check_value},
	{VALUE_IO_URING, {0}, check_value},
	{VALUE_GO, {0}, check_value},
	{VALUE_STATIC, {0}, check_value},
	{VALUE_COUNT,
	 {"rule", "VIADUCT_RULES", "RULE",
	  "which connections may be upgraded; repeatable", RULES_WANT},
	 check_rules},
	{VALUE_COUNT,
	 {"rules", "VIADUCT_RULES", "TEXT", "several rules at once", RULES_WANT},
	 check_rules},
};

const size_t setting_count = sizeof(settings) / sizeof(settings[0]);
_Static_assert(sizeof(settings) / sizeof(settings[0]) <= SETTINGS_MAX,
	       "room for options");

const struct value_info *setting_info(size_t i)
{
	return settings[i].id == VALUE_COUNT ? &settings[i].own
					     : &value_table[settings[i].id];
}

int setting_apply(size_t i, const char *value)
{
	static char rules[VALUE_MAX], single[VALUE_MAX];
	char *out = settings[i].check == check_rules ? rules : single;
	const struct value_info *info = setting_info(i);

	*complaint = '\0';
	if (settings[i].check(settings[i].id, value, out, VALUE_MAX)) {
		usage_error("run", "--%s cannot be `%.*s%s`: %s", info->name, VALUE_SHOWN,
			    value, strlen(value) > VALUE_SHOWN ? "..." : "",
			    *complaint ? complaint : info->allowed);
		return -EINVAL;
	}
	return setenv(info->variable, out, 1) ? -errno : 0;
}
