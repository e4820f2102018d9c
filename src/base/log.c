/* SPDX-License-Identifier: Apache-2.0 */
/* The log: one line an event, to a file, never to the program's own stderr unless asked.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/appended.h"
#include "base/atomic.h"
#include "base/borrowed.h"
#include "base/fds.h"
#include "base/kernel.h"
#include "base/log.h"
#include "base/path.h"
#include "base/printable.h"
#include "base/quiet.h"
#include "base/real.h"
#include "base/scratch.h"

#define LOG_LINE_BYTES 1024
#define LOG_UNOPENED   (-1)
#define LOG_GIVEN_UP   (-2)

int log_level_now = LOG_OFF;

static char log_path[PATH_MAX];
static bool log_path_is_own; /* the name is ours, not the user's: trust no file there */
static _Atomic int log_fd = LOG_UNOPENED;

static const char *const log_level_names[] = {"off", "error", "info", "debug"};

int log_level_of(const char *name, size_t len)
{
	for (int i = LOG_OFF; i <= LOG_DEBUG; i++)
		if (strlen(log_level_names[i]) == len &&
		    !memcmp(log_level_names[i], name, len))
			return i;
	return -1;
}

static void log_default_path(char *path, size_t size)
{
	const char *dir = secure_getenv("XDG_RUNTIME_DIR");

	if (!dir || dir[0] != '/')
		dir = secure_getenv("TMPDIR");
	if (!dir || dir[0] != '/')
		dir = "/tmp";
	if (snprintf(path, size, "%s/viaduct-%u-%d.log", dir, (unsigned)kernel_getuid(),
		     (int)kernel_getpid()) >= (int)size)
		*path = '\0';
}

bool log_file(const char *setting, char *path, size_t size)
{
	const char *file = strchrnul(setting, ':');

	if (log_level_of(setting, (size_t)(file - setting)) == LOG_OFF ||
	    !strcmp(file, ":stderr"))
		return false;
	if (!*file || !file[1] || path_expand(file + 1, path, size) != 0)
		log_default_path(path, size);
	return true;
}

/* The program may close or re-use its descriptor 2, so a copy is taken at once. */
static void log_to_stderr(void)
{
	int fd = REAL(fcntl64)(2, F_DUPFD_CLOEXEC, 3);

	if (fd >= 0)
		fd = fds_adopt(fd);
	store_relaxed(&log_fd, fd >= 0 ? fd : LOG_GIVEN_UP);
}

void log_init(const char *setting)
{
	int saved = errno, level;
	const char *file;

	if (!setting || !*setting)
		return;
	file = strchrnul(setting, ':');
	level = log_level_of(setting, (size_t)(file - setting));
	if (level == LOG_OFF)
		return;
	if (*file == ':')
		file++;
	if (!strcmp(file, "stderr")) {
		log_to_stderr();
	} else if (!*file || path_expand(file, log_path, sizeof(log_path)) != 0) {
		log_path_is_own = true;
		log_default_path(log_path, sizeof(log_path));
	}
	/* A log was asked for, so a misspelt level still gets its complaint. */
	log_level_now = level < 0 ? LOG_ERROR : level;
	if (level < 0)
		log_error("VIADUCT_LOG=%s: unknown level; error, info, debug or off is "
			  "allowed, with :FILE after it; using error",
			  setting);
	errno = saved;
}

/* Somebody else may have made a file of this name in /tmp before us. */
static bool log_file_is_safe(int fd)
{
	struct stat st;

	return !log_path_is_own || (kernel_fstat(fd, &st) == 0 && S_ISREG(st.st_mode) &&
				    st.st_uid == kernel_geteuid());
}

static int log_open_file(void)
{
	int fd = appended_open(log_path, 0600, false);

	if (fd >= 0 && !log_file_is_safe(fd)) {
		kernel_close(fd);
		fd = -1;
	}
	return fd;
}

static int log_open(void)
{
	int expect = LOG_UNOPENED, fd = log_open_file();

	if (fd >= 0)
		fd = fds_adopt(fd);
	if (fd < 0)
		fd = LOG_GIVEN_UP;
	/* Relaxed: the number is all there is to see. */
	if (atomic_compare_exchange_strong_explicit(
		    &log_fd, &expect, fd, memory_order_relaxed, memory_order_relaxed))
		return fd;
	fds_close(fd); /* another thread was faster */
	return expect;
}

/* Not gmtime_r: it takes a lock, which a fork may have left taken in the child. */
static int log_time(char *out, size_t size)
{
	struct timespec now;
	long days, secs, era, doe, yoe, doy, mp;

	clock_gettime(CLOCK_REALTIME, &now);
	days = now.tv_sec / 86400 + 719468; /* since 1 March of the year 0 */
	secs = now.tv_sec % 86400;
	era = days / 146097; /* 400 years each */
	doe = days % 146097;
	yoe = (doe - doe / 1460 + doe / 36524 - doe / 146096) / 365;
	doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
	mp = (5 * doy + 2) / 153; /* months since March */
	return snprintf(out, size, "%04ld-%02ld-%02ldT%02ld:%02ld:%02ld.%03ldZ",
			yoe + era * 400 + (mp >= 10), mp < 10 ? mp + 3 : mp - 9,
			doy - (153 * mp + 2) / 5 + 1, secs / 3600, secs / 60 % 60,
			secs % 60, now.tv_nsec / 1000000);
}

static void log_put(int fd, enum log_level level, const char *fmt, va_list args)
{
	char line[LOG_LINE_BYTES];
	size_t len, room;
	int n;

	len = (size_t)log_time(line, sizeof(line));
	len += (size_t)snprintf(line + len, sizeof(line) - len, " %d %d %s ",
				(int)kernel_getpid(), (int)kernel_gettid(),
				log_level_names[level]);
	room = sizeof(line) - len; /* the newline goes where the NUL was */
	n = vsnprintf(line + len, room, fmt, args);
	/* One line, and harmless to show, whatever the names in it are. */
	if (n > 0)
		printable(line + len);
	if (n > 0)
		len += (size_t)n < room ? (size_t)n : room - 1;
	line[len++] = '\n';
	quiet_write(fd, line, len); /* if not, there is nobody left to tell */
}

/* `apart`: the file is open for this line only, where nobody else has opened it. */
static void log_args(bool apart, enum log_level level, const char *fmt, va_list args)
{
	int saved = errno, fd = load_relaxed(&log_fd);
	bool opens = fd == LOG_UNOPENED;

	if (opens)
		fd = apart ? log_open_file() : log_open();
	if (fd >= 0)
		log_put(fd, level, fmt, args);
	if (opens && apart && fd >= 0)
		kernel_close(fd);
	errno = saved;
}

void log_line(enum log_level level, const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	/* In a child of vfork the number would be the child's, and the note of it its
	 * parent's, where it may be a connection. */
	log_args(is_borrowed(), level, fmt, args);
	va_end(args);
}

void log_line_apart(enum log_level level, const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	log_args(true, level, fmt, args);
	va_end(args);
}
