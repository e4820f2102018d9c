/* SPDX-License-Identifier: Apache-2.0 */
/* PNG of a picture, by librsvg's own command, where it is installed. */
#include <errno.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tool/report/report.h"

extern char **environ;

static int convert(const char *from, const char *to)
{
	/* Twice the size: sharp on paper and on fine screens. */
	char *argv[] = {(char *)"rsvg-convert",
			(char *)"--zoom=2",
			(char *)"--format=png",
			(char *)"--output",
			(char *)to,
			(char *)from,
			NULL};
	pid_t pid;
	int status, err = posix_spawnp(&pid, argv[0], NULL, NULL, argv, environ);

	if (err)
		return -err;
	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			return -errno;
	return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : -EIO;
}

int png_make(const char *folder, const char *name)
{
	char *from = NULL, *to = NULL;
	int err = -ENOMEM;

	if (asprintf(&from, "%s/%s.svg", folder, name) < 0)
		from = NULL;
	if (asprintf(&to, "%s/%s.png", folder, name) < 0)
		to = NULL;
	if (from && to)
		err = convert(from, to);
	free(from);
	free(to);
	return err;
}
