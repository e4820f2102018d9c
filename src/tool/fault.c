/* SPDX-License-Identifier: Apache-2.0 */
/* Says why a program that a command line names cannot be started, or a process not be looked into. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "tool/cli.h"
#include "tool/fault.h"

static const char *absence(const char *name)
{
	struct stat st;

	if (!strchr(name, '/'))
		return "check the name and PATH";
	if (stat(name, &st) != 0 && errno == ELOOP)
		return "its symbolic links lead in a circle";
	if (lstat(name, &st) == 0 && S_ISLNK(st.st_mode))
		return "it is a symbolic link to a file that is missing";
	return "check the name";
}

static const char *refusal(const char *path)
{
	struct stat st;

	if (stat(path, &st) != 0)
		return "this user may not enter a folder on the way to it";
	if (S_ISDIR(st.st_mode))
		return "it is a folder";
	return S_ISREG(st.st_mode) ? "make it an executable file"
				   : "it is no regular file";
}

int fault_of_program(int rc, const char *name, const char *path, char *text, size_t size)
{
	struct stat st;

	if (rc != -EACCES) {
		snprintf(text, size, "there is no program `%s`: %s", name, absence(name));
		return EXIT_NOT_FOUND;
	}
	/* A folder of PATH that may not be entered: most likely the program is not in it. */
	if (!strchr(name, '/') && stat(path, &st) != 0)
		snprintf(text, size,
			 "there is no program `%s` in those folders of PATH that this "
			 "user may enter: check the name and PATH",
			 name);
	else
		snprintf(text, size, "%s cannot be executed: %s", path, refusal(path));
	return EXIT_REFUSED;
}

bool fault_of_thread(pid_t pid, char *text, size_t size)
{
	char line[256];
	int leader = 0;
	FILE *f;

	snprintf(line, sizeof(line), "/proc/%d/status", (int)pid);
	f = fopen(line, "re");
	while (f && fgets(line, sizeof(line), f) &&
	       sscanf(line, "Tgid: %d", &leader) != 1)
		;
	if (f)
		fclose(f);
	if (leader == 0 || leader == pid)
		return false;
	snprintf(text, size, "%d is a thread of process %d: ask for that process",
		 (int)pid, leader);
	return true;
}
