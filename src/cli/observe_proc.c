/* SPDX-License-Identifier: Apache-2.0 */
/* Who is there, and which sockets each has: from /proc. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/observe_parts.h"
#include "stream/table.h"

void *observe_add(struct observe_list *list)
{
	void *item;

	if (list->count == list->room) {
		size_t room = list->room ? list->room * 2 : 256;
		void *items = realloc(list->items, room * list->item_bytes);

		if (!items)
			return NULL;
		list->items = items;
		list->room = room;
	}
	item = (char *)list->items + list->count++ * list->item_bytes;
	return memset(item, 0, list->item_bytes);
}

static bool read_file(int dir, const char *name, char *text, size_t size)
{
	int fd = openat(dir, name, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, text, size - 1);

	if (fd >= 0)
		close(fd);
	if (n < 0)
		return false;
	text[n] = '\0';
	return true;
}

/* "name:[number]" */
static uint64_t bracketed(const char *text)
{
	const char *at = strchr(text, '[');

	return at ? strtoull(at + 1, NULL, 10) : 0;
}

/* The last of the numbers that a process has, one for each pid namespace around it. */
static int32_t own_pid(const char *status)
{
	const char *at = strstr(status, "\nNSpid:");
	int32_t pid = 0;

	if (!at)
		return 0;
	for (at += strlen("\nNSpid:"); *at && *at != '\n';) {
		char *end;
		long n = strtol(at, &end, 10);

		if (end == at)
			break;
		pid = (int32_t)n;
		at = end;
	}
	return pid;
}

static void describe(int dir, struct observe_process *p)
{
	char text[4096];
	ssize_t n;

	if (read_file(dir, "comm", text, sizeof(text))) {
		text[strcspn(text, "\n")] = '\0';
		snprintf(p->name, sizeof(p->name), "%.15s", text);
	}
	p->own_pid = p->pid;
	if (read_file(dir, "status", text, sizeof(text)) && own_pid(text))
		p->own_pid = own_pid(text);
	n = readlinkat(dir, "ns/net", text, sizeof(text) - 1);
	if (n > 0) {
		text[n] = '\0';
		p->netns = bracketed(text);
	}
}

static int note_descriptor(int dir, const char *name, uint32_t process,
			   struct observe_list *holders, int *table_fd)
{
	static const char table[] = "/memfd:" TABLE_NAME " ", sock[] = "socket:[";
	char target[sizeof(table) + 16];
	ssize_t n = readlinkat(dir, name, target, sizeof(target) - 1);
	struct observe_holder *h;

	if (n <= 0)
		return 0;
	target[n] = '\0';
	if (strncmp(target, table, strlen(table)) == 0)
		*table_fd = atoi(name);
	if (strncmp(target, sock, strlen(sock)) != 0)
		return 0;
	h = observe_add(holders);
	if (!h)
		return -ENOMEM;
	h->inode = bracketed(target);
	h->process = process;
	h->fd = atoi(name);
	return 0;
}

static int scan_descriptors(DIR *fds, uint32_t process, struct observe_list *holders,
			    int *table_fd)
{
	struct dirent *e;
	int r = 0;

	while (r == 0 && (e = readdir(fds)))
		if (e->d_name[0] != '.')
			r = note_descriptor(dirfd(fds), e->d_name, process, holders,
					    table_fd);
	return r;
}

/* Kernel threads and processes that end meanwhile are left out. */
static int scan_process(int proc, const char *name, struct observe_list *processes,
			struct observe_list *holders, size_t *hidden)
{
	int dir = openat(proc, name, O_PATH | O_DIRECTORY | O_CLOEXEC), fd, r = 0;
	struct observe_process *p;
	struct stat st;
	DIR *fds;

	if (dir < 0)
		return 0;
	fd = openat(dir, "fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	*hidden += fd < 0 && errno == EACCES;
	fds = fd < 0 ? NULL : fdopendir(fd);
	if (!fds || fstat(dir, &st) != 0) {
		if (fds)
			closedir(fds);
		close(dir);
		return 0;
	}
	p = observe_add(processes);
	if (p) {
		p->pid = atoi(name);
		p->uid = st.st_uid;
		p->table_fd = -1;
		describe(dir, p);
		r = scan_descriptors(fds, (uint32_t)processes->count - 1, holders,
				     &p->table_fd);
	}
	closedir(fds);
	close(dir);
	return p ? r : -ENOMEM;
}

int observe_scan(struct observe_list *processes, struct observe_list *holders,
		 size_t *hidden)
{
	DIR *proc = opendir("/proc");
	struct dirent *e;
	int r = 0;

	if (!proc)
		return -errno;
	*hidden = 0;
	while (r == 0 && (e = readdir(proc)))
		if (e->d_name[0] >= '1' && e->d_name[0] <= '9')
			r = scan_process(dirfd(proc), e->d_name, processes, holders,
					 hidden);
	closedir(proc);
	return r;
}
