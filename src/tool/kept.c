/* SPDX-License-Identifier: Apache-2.0 */
/* The file of what was measured of other hosts: written. remote/crossover.c reads it. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "settings/conffile.h"
#include "tool/kept.h"

#define DAY_S 86400

static bool file_path(char *path, size_t size)
{
	if (geteuid() != 0)
		return crossover_user(path, size);
	snprintf(path, size, "%s", crossover_system);
	return true;
}

/* With the folders above it. */
static void make_folders(const char *path)
{
	char folder[PATH_MAX];

	snprintf(folder, sizeof(folder), "%s", path);
	for (char *at = strchr(folder + 1, '/'); at; at = strchr(at + 1, '/')) {
		*at = '\0';
		mkdir(folder, 0755);
		*at = '/';
	}
}

/* Nobody else can open the lock's file, and so nobody else can hold it. The descriptor, or -errno. */
static int lock(const char *path)
{
	char name[PATH_MAX + 8];
	struct stat st;
	int fd, r;

	snprintf(name, sizeof(name), "%s.lock", path);
	fd = open(name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
	if (fd < 0)
		return -errno;
	if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || st.st_uid != geteuid()) {
		close(fd);
		return -EPERM;
	}
	do
		r = flock(fd, LOCK_EX);
	while (r < 0 && errno == EINTR);
	if (r == 0)
		return fd;
	r = -errno;
	close(fd);
	return r;
}

/* Ours comes first: only so many are read. 0 or -errno. */
static int write_lines(FILE *out, const struct conffile *old, const struct crossover *c)
{
	char text[CROSSOVER_TEXT];
	struct crossover other;
	const char *line;
	size_t at = 0;
	int count = 1;

	fprintf(out, "# From how many bytes on receives are redirected, and whether RDMA "
		     "is slower than TCP, by host: see viaduct-doctor(1).\n");
	fprintf(out, "%s\n", crossover_text(c, text));
	while (old->state == CONFFILE_READ && count < CROSSOVERS_MAX &&
	       (line = conffile_next(old, &at))) {
		if (crossover_parse(line, &other) < 0 ||
		    memcmp(other.addr, c->addr, sizeof(c->addr)) == 0)
			continue;
		fprintf(out, "%s\n", crossover_text(&other, text));
		count++;
	}
	return fflush(out) || ferror(out) || fsync(fileno(out)) ? -errno : 0;
}

static int replace(const char *path, const struct conffile *old,
		   const struct crossover *c)
{
	char next[PATH_MAX + 8];
	FILE *out;
	int fd, r;

	snprintf(next, sizeof(next), "%s.XXXXXX", path);
	fd = mkstemp(next);
	if (fd < 0)
		return -errno;
	fchmod(fd, 0644);
	out = fdopen(fd, "w");
	r = out ? write_lines(out, old, c) : -errno;
	if (out)
		fclose(out);
	else
		close(fd);
	if (r == 0 && rename(next, path) != 0)
		r = -errno;
	if (r < 0)
		unlink(next);
	return r;
}

int kept_write(const struct crossover *c, char path[PATH_MAX])
{
	static struct conffile old;
	int held, r;

	if (!file_path(path, PATH_MAX))
		return -ENOENT;
	make_folders(path);
	held = lock(path);
	if (held < 0)
		return held;
	snprintf(old.path, sizeof(old.path), "%s", path);
	/* The new file is ours alone: a stranger's lines would be believed from there on. */
	conffile_read(&old, geteuid() == 0 ? CONFFILE_SYSTEM : CONFFILE_USER);
	r = replace(path, &old, c);
	close(held);
	return r;
}

bool kept_is_old(const struct crossover *c, time_t now)
{
	struct tm day = {0};
	time_t then;

	if (sscanf(c->date, "%d-%d-%d", &day.tm_year, &day.tm_mon, &day.tm_mday) != 3)
		return true;
	day.tm_year -= 1900;
	day.tm_mon -= 1;
	then = timegm(&day);
	return then > now || now - then > (KEPT_DAYS + 1) * (time_t)DAY_S;
}
