/* SPDX-License-Identifier: Apache-2.0 */
/* The files of what connections have found out of other hosts: read, and written. */
/*
 * They are written by programs that know nothing of them, in the middle of a receive. So:
 * - Nothing is waited for but the disk: a lock that another process has is not waited for. A process that dies
 *   gives it up, and a forked child does not have it.
 * - The file is replaced by a rename: readers find the old one or the new one, whole.
 * - Lines that a stranger could have written are not taken over, since the new file is this user's own.
 * - errno stays, and no call of the C library is a point of cancellation.
 * - A limit for the size of files sends the program no signal.
 * - Where there is no home, or it cannot be written to, what was learnt holds for the process.
 */
#include <ctype.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fds.h"
#include "base/kernel.h"
#include "base/log.h"
#include "base/quiet.h"
#include "remote/crossover.h"
#include "remote/learnt.h"
#include "settings/conffile.h"

#define DAY_S 86400

const char learnt_system[] = "/var/lib/viaduct/learnt";

static struct {
	struct learnt hosts[LEARNT_MAX];
	size_t count;
} files[2]; /* the user's, root's */
static pthread_once_t once = PTHREAD_ONCE_INIT;

bool learnt_user(char *path, size_t size)
{
	char other[PATH_MAX];
	char *name = crossover_user(other, sizeof(other)) ? strrchr(other, '/') : NULL;
	int n = name ? snprintf(path, size, "%.*s/learnt", (int)(name - other), other)
		     : -1;

	if (n > 0 && (size_t)n < size)
		return true;
	*path = '\0';
	return false;
}

/* ---- days: those of the C library would read the files of time zones ---- */

/* Days since 1970-01-01 of a date in the Gregorian calendar, whose years begin in March here. */
static int64_t day_of(const char date[11])
{
	int64_t y = atoi(date), m = atoi(date + 5), d = atoi(date + 8), era, of_era,
		of_year;

	y -= m <= 2;
	era = y / 400;
	of_era = y - era * 400;
	of_year = (153 * (m + (m > 2 ? -3 : 9)) + 2) / 5 + d - 1;
	return era * 146097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719468;
}

void learnt_date(int64_t day, char date[11])
{
	int64_t z = day + 719468, era = z / 146097, of_era = z - era * 146097;
	int64_t year = (of_era - of_era / 1460 + of_era / 36524 - of_era / 146096) / 365;
	int64_t of_year = of_era - (365 * year + year / 4 - year / 100);
	int64_t m = (5 * of_year + 2) / 153;
	unsigned month = (unsigned)(m < 10 ? m + 3 : m - 9);
	char text[32];

	snprintf(text, sizeof(text), "%04u-%02u-%02u",
		 (unsigned)(year + era * 400 + (month <= 2)) % 10000, month,
		 (unsigned)(of_year - (153 * m + 2) / 5 + 1));
	memcpy(date, text, 11);
}

int64_t learnt_today(void)
{
	struct timespec t;

	clock_read(CLOCK_REALTIME, &t);
	return t.tv_sec / DAY_S;
}

bool learnt_is_old(const char date[11], int64_t today)
{
	int64_t then = day_of(date);

	return then > today || today - then > LEARNT_DAYS;
}

/* ---- lines ---- */

int learnt_parse(const char *line, struct learnt *out)
{
	char address[46], size[12], date[12], fails[12], more, first[80], *end;
	struct crossover c;
	unsigned long n;

	if (sscanf(line, "%45s %11s %11s %11s %63s %c", address, size, date, fails,
		   out->device, &more) != 5)
		return -EINVAL;
	snprintf(first, sizeof(first), "%s %s %s", address, size, date);
	errno = 0;
	n = strtoul(fails, &end, 10);
	if (crossover_parse(first, &c) < 0 || !isdigit((unsigned char)*fails) || *end ||
	    errno || n > CROSSOVER_LEAST_MAX || (c.least && n >= c.least))
		return -EINVAL;
	memcpy(out->addr, c.addr, sizeof(out->addr));
	memcpy(out->date, c.date, sizeof(out->date));
	out->pays = c.least;
	out->fails = (uint32_t)n;
	return 0;
}

char *learnt_text(const struct learnt *l, char text[LEARNT_TEXT])
{
	struct crossover c = {.least = l->pays};
	char first[CROSSOVER_TEXT];

	memcpy(c.addr, l->addr, sizeof(c.addr));
	memcpy(c.date, l->date, sizeof(c.date));
	snprintf(text, LEARNT_TEXT, "%s %u %s", crossover_text(&c, first), l->fails,
		 l->device);
	return text;
}

/* ---- read ---- */

static void read_file(struct conffile *f, enum conffile_level level, size_t which)
{
	const char *line;
	size_t at = 0;

	conffile_read(f, level);
	if (f->state != CONFFILE_READ) {
		if (f->state != CONFFILE_ABSENT)
			log_debug("%s: %s", f->path, f->why);
		return;
	}
	while ((line = conffile_next(f, &at)) && files[which].count < LEARNT_MAX)
		if (learnt_parse(line, &files[which].hosts[files[which].count]) == 0)
			files[which].count++;
}

static void read_files(void)
{
	static struct conffile f;

	if (learnt_user(f.path, sizeof(f.path)))
		read_file(&f, CONFFILE_USER, 0);
	snprintf(f.path, sizeof(f.path), "%s", learnt_system);
	read_file(&f, CONFFILE_SYSTEM, 1);
}

void learnt_read(void)
{
	int saved = errno;

	pthread_once(&once, read_files);
	errno = saved;
}

bool learnt_find(const uint8_t addr[16], const char *device, struct learnt *out)
{
	int64_t today = learnt_today();

	for (size_t which = 0; which < 2; which++)
		for (size_t i = 0; i < files[which].count; i++) {
			*out = files[which].hosts[i];
			if (memcmp(out->addr, addr, sizeof(out->addr)) == 0 &&
			    (!device || !strcmp(out->device, device)) &&
			    !learnt_is_old(out->date, today))
				return true;
		}
	return false;
}

/* ---- written ---- */

/* With the folders above it. */
static void make_folders(const char *path)
{
	char folder[PATH_MAX];

	snprintf(folder, sizeof(folder), "%s", path);
	for (char *at = strchr(folder + 1, '/'); at; at = strchr(at + 1, '/')) {
		*at = '\0';
		kernel_call4(SYS_mkdir, (long)folder, 0755, 0, 0);
		*at = '/';
	}
}

/* Among the library's own descriptors; or -errno. */
static int open_own(const char *path, int flags, mode_t mode)
{
	int fd = kernel_open(path, flags | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, mode);

	return fd < 0 ? fd : fds_adopt(fd);
}

/* Nobody else can open the lock's file, and so nobody else can hold it. The descriptor, or -errno. */
static int lock(const char *path)
{
	struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
	char name[PATH_MAX + 8];
	struct stat st;
	int fd, r;

	snprintf(name, sizeof(name), "%s.lock", path);
	fd = open_own(name, O_RDWR | O_CREAT, 0600);
	if (fd < 0)
		return fd;
	r = kernel_fstat(fd, &st);
	if (r == 0 && (!S_ISREG(st.st_mode) || st.st_uid != kernel_geteuid()))
		r = -EPERM;
	if (r == 0)
		r = (int)kernel_call4(SYS_fcntl, fd, F_SETLK, (long)&whole, 0);
	if (r == 0)
		return fd;
	fds_close(fd);
	return r == -EACCES ? -EAGAIN : r;
}

static size_t put_line(char *text, size_t at, const struct learnt *l)
{
	char line[LEARNT_TEXT];

	return at + (size_t)sprintf(text + at, "%s\n", learnt_text(l, line));
}

/* Ours comes first: only so many are read. */
static size_t new_text(char *text, const struct conffile *old, const struct learnt *l)
{
	static const char head[] =
		"# What connections have found out of other hosts: see "
		"REDIRECTION in viaduct(1).\n";
	int64_t today = learnt_today();
	size_t at = sizeof(head) - 1, from = 0;
	struct learnt other;
	const char *line;

	memcpy(text, head, at);
	at = put_line(text, at, l);
	for (int count = 1; old->state == CONFFILE_READ && count < LEARNT_MAX &&
			    (line = conffile_next(old, &from));) {
		if (learnt_parse(line, &other) < 0 || learnt_is_old(other.date, today) ||
		    (memcmp(other.addr, l->addr, sizeof(l->addr)) == 0 &&
		     !strcmp(other.device, l->device)))
			continue;
		at = put_line(text, at, &other);
		count++;
	}
	return at;
}

static int replace(const char *path, const char *text, size_t bytes)
{
	char next[PATH_MAX + 8];
	ssize_t r;
	int fd;

	snprintf(next, sizeof(next), "%s.new", path);
	/* Of a process that died here. */
	kernel_call4(SYS_unlink, (long)next, 0, 0, 0);
	fd = open_own(next, O_WRONLY | O_CREAT | O_EXCL, 0644);
	if (fd < 0)
		return fd;
	kernel_call4(SYS_fchmod, fd, 0644, 0, 0);
	r = quiet_write(fd, text, bytes);
	fds_close(fd);
	if (r >= 0 && (size_t)r != bytes)
		r = -ENOSPC;
	if (r >= 0)
		r = kernel_call4(SYS_rename, (long)next, (long)path, 0, 0);
	if (r < 0)
		kernel_call4(SYS_unlink, (long)next, 0, 0, 0);
	return r < 0 ? (int)r : 0;
}

static int save(const struct learnt *l)
{
	static char text[128 + LEARNT_MAX * LEARNT_TEXT];
	static struct conffile old;
	bool is_root = kernel_geteuid() == 0;
	int held, r;

	if (is_root)
		snprintf(old.path, sizeof(old.path), "%s", learnt_system);
	else if (!learnt_user(old.path, sizeof(old.path)))
		return -ENOENT;
	make_folders(old.path);
	held = lock(old.path);
	if (held < 0)
		return held;
	conffile_read(&old, is_root ? CONFFILE_SYSTEM : CONFFILE_USER);
	r = replace(old.path, text, new_text(text, &old, l));
	fds_close(held);
	return r;
}

int learnt_save(const struct learnt *l)
{
	int saved = errno, r = save(l);

	errno = saved;
	return r;
}
