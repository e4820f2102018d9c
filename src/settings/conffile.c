/* SPDX-License-Identifier: Apache-2.0 */
/* A configuration file: found, judged, and read whole into memory of the caller. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "settings/conffile.h"
#include "base/kernel.h"

const char conffile_system[] = VD_SYSCONFDIR "/viaduct.conf";

/* A relative name would lead each process to another file: one day to a stranger's. */
static const char *folder(const char *variable)
{
	const char *value = secure_getenv(variable);

	return value && *value == '/' ? value : NULL;
}

bool conffile_user(char *path, size_t size)
{
	const char *xdg = folder("XDG_CONFIG_HOME"), *home = folder("HOME");
	int n = 0;

	if (xdg || home)
		n = snprintf(path, size, "%s%s/viaduct.conf", xdg ? xdg : home,
			     xdg ? "" : "/.config");
	if (n > 0 && (size_t)n < size)
		return true;
	*path = '\0';
	return false;
}

static void verdict(struct conffile *f, enum conffile_state state, const char *format,
		    ...) __attribute__((format(printf, 3, 4)));

static void verdict(struct conffile *f, enum conffile_state state, const char *format,
		    ...)
{
	va_list args;

	f->state = state;
	va_start(args, format);
	vsnprintf(f->why, sizeof(f->why), format, args);
	va_end(args);
}

static void unreadable(struct conffile *f, int error)
{
	const char *name = strerrordesc_np(error); /* strerror may allocate */

	verdict(f, CONFFILE_BAD, "it cannot be read: %s", name ? name : "unknown error");
}

/* Without a free descriptor nothing is opened, not even to learn that it is absent. */
static bool is_absent(const struct conffile *f, int error)
{
	struct stat st;

	if (error == EMFILE || error == ENFILE)
		error = -kernel_stat(f->path, &st);
	return error == ENOENT || error == ENOTDIR;
}

static void cannot_open(struct conffile *f, int error)
{
	if (f->level <= CONFFILE_USER && is_absent(f, error))
		f->state = CONFFILE_ABSENT;
	else if (f->level == CONFFILE_USER && error == EACCES)
		/* Whoever has given up its rights has still the HOME of before. */
		verdict(f, CONFFILE_FOREIGN,
			"it may not be read by user %u, and so is ignored: set HOME to "
			"that user's folder",
			(unsigned)kernel_geteuid());
	else
		unreadable(f, error);
}

static bool is_trusted(struct conffile *f, const struct stat *st)
{
	enum conffile_state foreign = CONFFILE_FOREIGN, loose = CONFFILE_LOOSE;
	bool system = f->level == CONFFILE_SYSTEM;

	if (f->level == CONFFILE_CHECKED)
		return true;
	/* What was asked for by name may hold rules that somebody counts on. */
	if (f->level == CONFFILE_NAMED)
		foreign = loose = CONFFILE_BAD;
	if (st->st_uid != 0 && (system || st->st_uid != kernel_geteuid()))
		verdict(f, foreign,
			"it belongs to user %u, and so is ignored: make it %s, with "
			"`chown`",
			(unsigned)st->st_uid, system ? "root's" : "root's or your own");
	else if (st->st_mode & (S_IWGRP | S_IWOTH))
		verdict(f, loose,
			"other users can write to it, and so it is ignored: `chmod go-w "
			"%s`",
			f->path);
	else
		return true;
	return false;
}

/* In place: each line trimmed, without its comment, and closed by a zero byte. An editor may put a
 * mark before UTF-8, which nobody sees. */
static void split(struct conffile *f)
{
	bool marked = f->size >= 3 && memcmp(f->text, "\xef\xbb\xbf", 3) == 0;
	char *out = f->text;
	const char *end = f->text + f->size, *next;

	for (const char *line = f->text + (marked ? 3 : 0); line < end; line = next) {
		const char *stop = memchr(line, '\n', (size_t)(end - line));

		stop = stop ? stop : end;
		next = stop + 1;
		while (line < stop && strchr(" \t\r", *line))
			line++;
		for (const char *s = line; s < stop; s++)
			if (*s == '#' && (s == line || s[-1] == ' ' || s[-1] == '\t'))
				stop = s;
		while (stop > line && strchr(" \t\r", stop[-1]))
			stop--;
		memmove(out, line, (size_t)(stop - line));
		out += stop - line;
		*out++ = '\0';
	}
	f->size = (size_t)(out - f->text);
}

static void take(struct conffile *f, int fd)
{
	ssize_t n;

	f->size = 0;
	/* EINTR: not from a disk, but from a file system of a program. */
	while ((n = kernel_read(fd, f->text + f->size, sizeof(f->text) - f->size)) > 0 ||
	       n == -EINTR)
		f->size += n > 0 ? (size_t)n : 0;
	if (n < 0)
		unreadable(f, (int)-n);
	else if (f->size > CONFFILE_BYTES)
		verdict(f, CONFFILE_BAD, "it has more than %u bytes: shorten it",
			CONFFILE_BYTES);
	else if (memchr(f->text, '\0', f->size))
		verdict(f, CONFFILE_BAD,
			"it has a zero byte in it: give it text, one setting or rule a "
			"line");
	else
		f->state = CONFFILE_READ;
	if (f->state == CONFFILE_READ)
		split(f);
	else
		f->size = 0;
}

void conffile_read(struct conffile *f, enum conffile_level level)
{
	struct stat st;
	int fd;

	/* O_NONBLOCK: opening a FIFO must not hang the program. */
	do
		fd = kernel_open(f->path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK,
				 0);
	while (fd == -EINTR);
	f->level = level;
	f->size = 0;
	f->why[0] = '\0';
	if (fd < 0) {
		cannot_open(f, -fd);
		return;
	}
	int r = kernel_fstat(fd, &st);
	if (r < 0)
		unreadable(f, -r);
	else if (!S_ISREG(st.st_mode))
		verdict(f, CONFFILE_BAD,
			"it is no regular file: remove it, or replace it");
	else if (is_trusted(f, &st))
		take(f, fd);
	kernel_close(fd);
}

const char *conffile_next(const struct conffile *f, size_t *at)
{
	const char *line = f->text + *at;

	if (*at >= f->size)
		return NULL;
	*at += strlen(line) + 1;
	return line;
}
