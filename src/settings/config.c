/* SPDX-License-Identifier: Apache-2.0 */
/* The settings of this process, read once from files and the environment. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/kernel.h"
#include "settings/config.h"
#include "base/log.h"
#include "base/path.h"
#include "base/sections.h"
#include "settings/rules.h"
#include "settings/view.h"

#define CONFIG_NAME_BYTES 256
#define COMPLAINTS_MOST	  10 /* in the log */

static struct config config = {.program = ""};
static struct view config_view; /* touched only as far as there are files and rules */
static bool config_all_tcp;
static char config_report[PATH_MAX];
static char config_program[CONFIG_NAME_BYTES], config_exe[CONFIG_NAME_BYTES];
static pthread_once_t config_once = PTHREAD_ONCE_INIT;
static _Atomic bool config_is_read;

/* The text of a setting in force; an empty one means that nothing is set. */
static const char *config_text(enum value_id id)
{
	const char *text = config_view.source[id].text;

	return text && *text ? text : NULL;
}

static void config_read_report(void)
{
	const char *text = config_text(VALUE_REPORT);
	int rc = text ? path_expand(text, config_report, sizeof(config_report)) : 0;

	if (!text)
		return;
	if (rc == 0)
		config.report = config_report;
	else if (rc != -ENAMETOOLONG)
		log_error("VIADUCT_REPORT=%s: the current folder cannot be told (error "
			  "%d); no report is written",
			  text, -rc);
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

/* The file behind a path, without links: as /proc/self/exe would be. False: there is none. */
static bool config_resolve(const char *path, char *exe, size_t size)
{
	int fd = kernel_open(path, O_PATH | O_CLOEXEC, 0);
	char link[32];
	ssize_t n;

	if (fd < 0)
		return false;
	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	n = kernel_readlink(link, exe, size - 1);
	kernel_close(fd);
	if (n > 0)
		exe[n] = '\0';
	return n > 0;
}

/* Asked of the kernel only where a file or a rule may name a program. */
static void config_read_exe(void)
{
	/* The loader of statically linked programs runs in the place of one. */
	static const char loader[] = "/viaduct-start";
	const char *slash, *instead;
	char exe[PATH_MAX];
	bool needed = secure_getenv("VIADUCT_RULES") != NULL;
	ssize_t n;

	for (int i = 0; i < VIEW_FILES; i++)
		needed = needed || config_view.files[i].state == CONFFILE_READ;
	n = needed ? kernel_readlink("/proc/self/exe", exe, sizeof(exe) - 1) : 0;
	exe[n > 0 ? n : 0] = '\0';
	slash = strrchr(exe, '/');
	instead = slash && !strcmp(slash, loader) ? secure_getenv("VIADUCT_START_PROGRAM")
						  : NULL;
	if (instead && config_resolve(instead, exe, sizeof(exe)))
		slash = strrchr(exe, '/');
	snprintf(config_exe, sizeof(config_exe), "%.255s", slash ? slash + 1 : exe);
}

static void config_complain(struct view *v, enum view_effect effect, const char *file,
			    const char *place, const char *message)
{
	static const char *const effects[] = {
		[VIEW_SKIPPED] = "; it is skipped",
		[VIEW_IGNORED] = "",
		[VIEW_FOREIGN] = "",
		[VIEW_DOUBT] = "; every connection stays on TCP",
	};

	(void)file;
	if (v->complaints <= COMPLAINTS_MOST)
		log_error("%s: %s%s", place, message, effects[effect]);
}

/*
 * The program before the exec looks at VIADUCT=off alone to learn whether this one will take
 * up what is left for it. Where something else switches it off, that is handed out all the
 * same, and all that is new stays on TCP.
 */
static bool config_has_legacy(void)
{
	const char *switched = secure_getenv("VIADUCT");

	return config.off && !(switched && !strcmp(switched, "off")) &&
	       secure_getenv("VIADUCT_CARRY");
}

static void config_read(void)
{
	int saved = errno;

	config_read_program();
	view_load(&config_view);
	config_read_exe();
	config_view.exe = config_exe;
	config_view.argv0 = config_program;
	/* Twice, when there is something to say: only then is it known where to. */
	view_resolve(&config_view);
	log_init(config_text(VALUE_LOG));
	if (config_view.complaints && log_level_now >= LOG_ERROR) {
		config_view.complain = config_complain;
		view_resolve(&config_view);
		if (config_view.complaints > COMPLAINTS_MOST)
			log_error("%u mistakes more: `viaduct config --check` lists all",
				  config_view.complaints - COMPLAINTS_MOST);
	}
	config = config_view.config;
	config.program = config_program;
	config_read_report();
	rules_keep_program(&config_view.rules, config_exe, config_program);
	config_all_tcp = config_view.doubt;
	if (config_has_legacy()) {
		config_all_tcp = true;
		config.off = false;
	}
	errno = saved;
	store_release(&config_is_read, true);
}

FORK_CODE const struct config *config_get(void)
{
	/* Without a call into libc: a child that has just been forked would pay for its page. */
	if (!load_acquire(&config_is_read))
		pthread_once(&config_once, config_read);
	return &config;
}

bool config_is_common(void)
{
	config_get();
	return config_view.sections == 0;
}

bool config_allows(enum config_role role, const struct sockaddr *local,
		   const struct sockaddr *peer)
{
	config_get();
	if (config_all_tcp)
		return false;
	/* Most programs have no rules: do not even look at the addresses. */
	return !config_view.rules.count ||
	       rules_allow(&config_view.rules, role,
			   role == CONFIG_CONNECT ? peer : local);
}

bool config_refuses_rings(void)
{
	const struct config *c = config_get();

	return !c->off && !c->io_uring_left && !config_all_tcp &&
	       !rules_deny_all(&config_view.rules);
}

int config_check_rules(const char *text, char *message, size_t size)
{
	struct rules rules;

	return rules_parse(text, &rules, message, size);
}
