/* SPDX-License-Identifier: Apache-2.0 */
/* Who is there, and which sockets each has: from /proc. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fds.h"
#include "conn/table.h"
#include "tool/observe/parts.h"
#include "tool/observe/table.h"

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
		/* It may itself contain line ends. */
		char *end = strrchr(text, '\n');

		if (end)
			*end = '\0';
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

/* Whether a descriptor is the table; of a large limit it has this number, or one near it. */
static bool is_table(int dir, int fd)
{
	static const char table[] = "/memfd:" TABLE_NAME " ";
	char name[16], target[sizeof(table)];

	snprintf(name, sizeof(name), "%d", fd);
	return readlinkat(dir, name, target, sizeof(target)) >= (ssize_t)strlen(table) &&
	       memcmp(target, table, strlen(table)) == 0;
}

/* Most of what a process with many connections has is ours: looked at, they cost more than
 * all else. */
static uint64_t *own_numbers(int dir, int32_t pid, int *end)
{
	*end = 0;
	for (int fd = FDS_APART; fd < FDS_APART + 4; fd++)
		if (is_table(dir, fd))
			return observe_own_numbers(dir, fd, pid, end);
	return NULL;
}

static int note_descriptor(int dir, const char *name, struct observe_process *p,
			   struct observe_list *holders)
{
	static const char table[] = "/memfd:" TABLE_NAME " ", sock[] = "socket:[";
	char target[sizeof(table) + 16];
	ssize_t n = readlinkat(dir, name, target, sizeof(target) - 1);
	struct observe_holder *h;

	if (n <= 0)
		return 0;
	target[n] = '\0';
	if (strncmp(target, table, strlen(table)) == 0)
		snprintf(p->table, sizeof(p->table), "fd/%d", atoi(name));
	if (strncmp(target, sock, strlen(sock)) != 0)
		return 0;
	h = observe_add(holders);
	if (!h)
		return -ENOMEM;
	h->inode = bracketed(target);
	h->process = (uint32_t)p->pid;
	h->fd = atoi(name);
	return 0;
}

static int scan_descriptors(DIR *fds, struct observe_process *p,
			    struct observe_list *holders)
{
	int r = 0, end;
	uint64_t *own = own_numbers(dirfd(fds), p->own_pid, &end);
	struct dirent *e;

	while (r == 0 && (e = readdir(fds))) {
		int fd = atoi(e->d_name);

		if (e->d_name[0] != '.' && !(fd < end && (own[fd / 64] >> (fd % 64) & 1)))
			r = note_descriptor(dirfd(fds), e->d_name, p, holders);
	}
	free(own);
	return r;
}

/* One that had no descriptor left for the program has closed its table's, and goes on in the
 * memory. A table that it has left it may still read, and so that mapping cannot be written. */
static void find_mapping(int dir, struct observe_process *p)
{
	int fd = openat(dir, "maps", O_RDONLY | O_CLOEXEC);
	FILE *maps = fd < 0 ? NULL : fdopen(fd, "r");
	unsigned long from, to;
	char *line = NULL;
	size_t room = 0;

	while (maps && !p->gave_back && getline(&line, &room, maps) > 0)
		if (strstr(line, " /memfd:" TABLE_NAME " ") &&
		    strstr(line, " rw-s 00000000 ") &&
		    sscanf(line, "%lx-%lx", &from, &to) == 2) {
			snprintf(p->table, sizeof(p->table), "map_files/%lx-%lx", from,
				 to);
			p->gave_back = true;
		}
	free(line);
	if (maps)
		fclose(maps);
	else if (fd >= 0)
		close(fd);
}

/* Nobody misses kernel threads. By the kernel's own word: a process can hold up whoever reads its arguments. */
static bool is_program(int dir)
{
	const unsigned kernel_thread = 0x00200000;
	char text[512], *at;
	unsigned flags;

	if (!read_file(dir, "stat", text, sizeof(text)))
		return false;
	at = strrchr(text, ')'); /* behind its name */
	return at && sscanf(at, ") %*c %*d %*d %*d %*d %*d %u", &flags) == 1 &&
	       !(flags & kernel_thread);
}

/* What one thread has found. */
struct found {
	struct observe_list processes, holders;
	size_t hidden;
	struct search *search;
	int result;
};

/* Processes are looked at by several threads: each descriptor costs microseconds. */
struct search {
	int proc;
	struct observe_list pids;
	_Atomic size_t next;
};

enum { THREADS_MAX = 4 };

/* Kernel threads and processes that end meanwhile are left out. */
static int scan_process(int proc, const char *name, struct found *f)
{
	int dir = openat(proc, name, O_PATH | O_DIRECTORY | O_CLOEXEC), fd, r = 0;
	struct observe_process *p;
	struct stat st;
	DIR *fds;

	if (dir < 0)
		return 0;
	fd = openat(dir, "fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	f->hidden += fd < 0 && errno == EACCES && is_program(dir);
	fds = fd < 0 ? NULL : fdopendir(fd);
	if (!fds || fstat(dir, &st) != 0) {
		if (fds)
			closedir(fds);
		close(dir);
		return 0;
	}
	p = observe_add(&f->processes);
	if (p) {
		p->pid = atoi(name);
		p->uid = st.st_uid;
		describe(dir, p);
		r = scan_descriptors(fds, p, &f->holders);
		if (!*p->table)
			find_mapping(dir, p);
	}
	closedir(fds);
	close(dir);
	return p ? r : -ENOMEM;
}

static void *scan_some(void *arg)
{
	struct found *f = arg;
	struct search *s = f->search;
	char name[16];

	while (f->result == 0) {
		size_t i = atomic_fetch_add(&s->next, 1);

		if (i >= s->pids.count)
			break;
		snprintf(name, sizeof(name), "%d", ((int *)s->pids.items)[i]);
		f->result = scan_process(s->proc, name, f);
	}
	return NULL;
}

static int list_pids(DIR *proc, struct observe_list *pids)
{
	struct dirent *e;

	while ((e = readdir(proc))) {
		int *pid;

		if (e->d_name[0] < '1' || e->d_name[0] > '9')
			continue;
		pid = observe_add(pids);
		if (!pid)
			return -ENOMEM;
		*pid = atoi(e->d_name);
	}
	return 0;
}

static int append(struct observe_list *to, struct observe_list *from)
{
	for (size_t i = 0; i < from->count; i++) {
		void *item = observe_add(to);

		if (!item)
			return -ENOMEM;
		memcpy(item, (char *)from->items + i * from->item_bytes,
		       from->item_bytes);
	}
	return 0;
}

static int compare_pids(const void *a, const void *b)
{
	const struct observe_process *x = a, *y = b;

	return x->pid < y->pid ? -1 : x->pid > y->pid;
}

static int compare_holders(const void *a, const void *b)
{
	const struct observe_holder *x = a, *y = b;

	if (x->process != y->process)
		return x->process < y->process ? -1 : 1;
	return x->fd - y->fd;
}

/* Holders come with the pid in place of the index, and in the order of the threads. */
static void index_holders(struct observe_list *processes, struct observe_list *holders)
{
	struct observe_holder *h = holders->items;

	if (processes->count > 0)
		qsort(processes->items, processes->count, processes->item_bytes,
		      compare_pids);
	for (size_t i = 0; i < holders->count; i++) {
		struct observe_process key = {.pid = (pid_t)h[i].process}, *p;

		p = bsearch(&key, processes->items, processes->count, sizeof(key),
			    compare_pids);
		h[i].process = (uint32_t)(p - (struct observe_process *)processes->items);
	}
	if (holders->count > 0)
		qsort(h, holders->count, sizeof(*h), compare_holders);
}

static int scan_all(struct search *s, struct observe_list *processes,
		    struct observe_list *holders, size_t *hidden)
{
	struct found found[THREADS_MAX];
	pthread_t threads[THREADS_MAX];
	long processors = sysconf(_SC_NPROCESSORS_ONLN);
	int n = processors < 1		   ? 1
		: processors > THREADS_MAX ? THREADS_MAX
					   : (int)processors;
	int started = 1, r = 0;

	memset(found, 0, sizeof(found));
	for (int i = 0; i < n; i++) {
		found[i].processes.item_bytes = processes->item_bytes;
		found[i].holders.item_bytes = holders->item_bytes;
		found[i].search = s;
	}
	while (started < n &&
	       pthread_create(&threads[started], NULL, scan_some, &found[started]) == 0)
		started++;
	scan_some(&found[0]);
	for (int i = 0; i < started; i++) {
		if (i > 0)
			pthread_join(threads[i], NULL);
		r = r ? r : found[i].result;
		r = r ? r : append(processes, &found[i].processes);
		r = r ? r : append(holders, &found[i].holders);
		*hidden += found[i].hidden;
		free(found[i].processes.items);
		free(found[i].holders.items);
	}
	if (r == 0)
		index_holders(processes, holders);
	return r;
}

int observe_scan(struct observe_list *processes, struct observe_list *holders,
		 size_t *hidden)
{
	DIR *proc = opendir("/proc");
	struct search s = {.pids.item_bytes = sizeof(int)};
	int r;

	if (!proc)
		return -errno;
	*hidden = 0;
	s.proc = dirfd(proc);
	r = list_pids(proc, &s.pids);
	if (r == 0)
		r = scan_all(&s, processes, holders, hidden);
	free(s.pids.items);
	closedir(proc);
	return r;
}
