/* SPDX-License-Identifier: Apache-2.0 */
/* When a server is ready: sockets that listen, joined with the processes that hold them. */
#include <ctype.h>
#include <dirent.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "measure/pair.h"

enum {
	STATE_LISTEN = 0x0a,
	PROCESSES_MAX = 16384,
	DESCENDANTS_MAX = 1024,
	SPARED_MAX = 64
};

/* Calls each line of /proc/net/tcp and tcp6 that listens: its port and inode. */
static void each_listener(pid_t pid,
			  void (*visit)(void *arg, unsigned port, uint64_t inode),
			  void *arg)
{
	static const char *const names[] = {"tcp", "tcp6"};
	char path[64], line[512];

	for (int i = 0; i < 2; i++) {
		FILE *f;
		snprintf(path, sizeof(path), "/proc/%d/net/%s", (int)pid, names[i]);
		f = fopen(path, "re");
		while (f && fgets(line, sizeof(line), f)) {
			unsigned port, state;
			uint64_t inode;
			if (sscanf(line, " %*d: %*[^:]:%x %*s %x %*s %*s %*s %*u %*u %lu",
				   &port, &state, &inode) == 3 &&
			    state == STATE_LISTEN)
				visit(arg, port, inode);
		}
		if (f)
			fclose(f);
	}
}

static void add_inode(void *arg, unsigned port, uint64_t inode)
{
	struct listen_set *set = arg;
	(void)port;
	if (set->n < LISTEN_MAX)
		set->inodes[set->n++] = inode;
}

void listen_read(pid_t pid, struct listen_set *set)
{
	set->n = 0;
	each_listener(pid, add_inode, set);
}

static bool set_has(const struct listen_set *set, uint64_t inode)
{
	for (unsigned i = 0; i < set->n; i++)
		if (set->inodes[i] == inode)
			return true;
	return false;
}

static pid_t parent_of(const char *pid)
{
	char path[300], line[512];
	const char *at;
	FILE *f;
	int parent = 0;

	snprintf(path, sizeof(path), "/proc/%s/stat", pid);
	f = fopen(path, "re");
	if (!f)
		return 0;
	/* The name, in brackets, may hold anything. */
	if (fgets(line, sizeof(line), f) && (at = strrchr(line, ')')))
		sscanf(at + 1, " %*c %d", &parent);
	fclose(f);
	return parent;
}

struct process {
	pid_t pid, parent;
	bool ours;
};

static unsigned read_processes(struct process *all, unsigned max)
{
	DIR *dir = opendir("/proc");
	unsigned n = 0;

	for (struct dirent *d; dir && n < max && (d = readdir(dir));)
		if (isdigit((unsigned char)d->d_name[0]))
			all[n++] = (struct process){atoi(d->d_name), parent_of(d->d_name),
						    false};
	if (dir)
		closedir(dir);
	return n;
}

static pid_t spared[SPARED_MAX];
static unsigned spared_count;

void listen_spare(void)
{
	unsigned n = listen_descendants(spared, SPARED_MAX);
	spared_count = n < SPARED_MAX ? n : SPARED_MAX;
}

static bool is_spared(pid_t pid)
{
	for (unsigned i = 0; i < spared_count; i++)
		if (spared[i] == pid)
			return true;
	return false;
}

unsigned listen_descendants(pid_t *pids, unsigned max)
{
	static struct process all[PROCESSES_MAX];
	unsigned n = read_processes(all, PROCESSES_MAX), found = 0;

	/* Numbers wrap around, so a child may come before its parent: until nothing new. */
	for (unsigned before = ~0u; before != found;) {
		before = found;
		for (unsigned i = 0; i < n; i++) {
			bool ours = all[i].parent == getpid();
			for (unsigned k = 0; !ours && k < found && k < max; k++)
				ours = pids[k] == all[i].parent;
			if (!ours || all[i].ours || is_spared(all[i].pid))
				continue;
			all[i].ours = true;
			if (found < max)
				pids[found] = all[i].pid;
			found++;
		}
	}
	return found;
}

static bool holds_new(pid_t pid, const struct listen_set *before,
		      const struct listen_set *now)
{
	char path[64], link[64];
	uint64_t inode;
	bool found = false;
	DIR *dir;

	snprintf(path, sizeof(path), "/proc/%d/fd", (int)pid);
	dir = opendir(path);
	for (struct dirent *d; dir && !found && (d = readdir(dir));) {
		ssize_t n = readlinkat(dirfd(dir), d->d_name, link, sizeof(link) - 1);
		link[n > 0 ? n : 0] = 0;
		found = sscanf(link, "socket:[%lu]", &inode) == 1 &&
			set_has(now, inode) && !set_has(before, inode);
	}
	if (dir)
		closedir(dir);
	return found;
}

bool listen_found(const struct listen_set *before)
{
	static struct listen_set now;
	static pid_t pids[DESCENDANTS_MAX];
	unsigned n = listen_descendants(pids, DESCENDANTS_MAX);

	for (unsigned i = 0; i < n && i < DESCENDANTS_MAX; i++) {
		listen_read(pids[i], &now); /* of its own network namespace */
		if (holds_new(pids[i], before, &now))
			return true;
	}
	return false;
}

static bool is_free(unsigned port)
{
	struct sockaddr_in sin = {.sin_family = AF_INET,
				  .sin_port = htons((uint16_t)port)};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	bool free = fd >= 0 && bind(fd, (struct sockaddr *)&sin, sizeof(sin)) == 0;

	if (fd >= 0)
		close(fd);
	return free;
}

/* One of those that the kernel gives by itself may be somebody's again before the server has it. Those
 * below LOWEST are for the tests' own servers. */
unsigned listen_free_port(void)
{
	enum { LOWEST = 30000, HIGHEST = 65535, TRIES = 1000 };
	unsigned low = 32768, high = 60999, port;
	FILE *f = fopen("/proc/sys/net/ipv4/ip_local_port_range", "re");

	if (f && fscanf(f, "%u %u", &low, &high) != 2)
		low = high = 0;
	if (f)
		fclose(f);
	for (int i = 0; i < TRIES; i++) {
		if (getrandom(&port, sizeof(port), 0) != sizeof(port))
			return 0;
		port = LOWEST + port % (HIGHEST - LOWEST + 1);
		/* Where it gives nearly all, any will have to do. */
		if ((port < low || port > high || i > TRIES / 2) && is_free(port))
			return port;
	}
	return 0;
}

struct wanted {
	unsigned port;
	bool found;
};

static void look_for_port(void *arg, unsigned port, uint64_t inode)
{
	struct wanted *w = arg;
	(void)inode;
	w->found = w->found || w->port == port;
}

bool listen_on_port(unsigned port)
{
	struct wanted w = {.port = port};
	each_listener(getpid(), look_for_port, &w);
	return w.found;
}
