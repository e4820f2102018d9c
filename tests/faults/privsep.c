/* SPDX-License-Identifier: Apache-2.0 */
/* A server that keeps its rights, and a worker that is taken over after it has given them up. */
/*
 * The worker stores what it likes wherever it can. The server, and its connections, must not notice.
 *
 *	privsep serve CALL    prints its port; the worker makes the call, and serves one connection
 *	privsep talk PORT     echoes, says "up", waits for a line on stdin, echoes again
 */
#include <arpa/inet.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/landlock.h>
#include <linux/seccomp.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define NOBODY	    65534
#define ROUNDS	    200
#define THREADS	    2
#define MAPS_MOST   512
#define MARKS_BYTES 65536u

enum { FAILED_CALL = 3, FAILED_MAPS, FAILED_ECHO, FAILED_ACCEPT };

/* ---- memory that is shared and writable ---- */

struct map {
	unsigned long from, to, offset, inode;
};

static int list_maps(struct map *m)
{
	char line[512], flags[8];
	FILE *f = fopen("/proc/self/maps", "r");
	int n = 0;

	while (f && n < MAPS_MOST && fgets(line, sizeof(line), f))
		if (sscanf(line, "%lx-%lx %7s %lx %*s %lu", &m[n].from, &m[n].to, flags,
			   &m[n].offset, &m[n].inode) == 5 &&
		    flags[1] == 'w' && flags[3] == 's')
			n++;
	if (f)
		fclose(f);
	return n;
}

static struct map before[MAPS_MOST];
static int before_count;

static bool was_there(const struct map *m)
{
	for (int i = 0; i < before_count; i++)
		if (before[i].inode == m->inode)
			return true;
	return false;
}

/* All that the server still looks at; false when that is more than the marks. */
static bool store_into_what_is_left(void)
{
	struct map now[MAPS_MOST];
	int n = list_maps(now);
	bool good = true;

	for (int i = 0; i < n; i++) {
		if (!was_there(&now[i]))
			continue;
		good &= now[i].offset > 0 && now[i].to - now[i].from <= MARKS_BYTES;
		memset((void *)now[i].from, 0xff, now[i].to - now[i].from);
	}
	return good;
}

/* ---- calls that give up rights ---- */

static int drop_capabilities(void)
{
	struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct data[2] = {{0}};

	return (int)syscall(SYS_capset, &head, data);
}

static int filter(void)
{
	struct sock_filter all[] = {BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
	struct sock_fprog program = {1, all};

	return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
	       prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

/* From now on it makes no block devices. */
static int landlock(void)
{
	struct landlock_ruleset_attr rules = {.handled_access_fs =
						      LANDLOCK_ACCESS_FS_MAKE_BLOCK};
	long fd = syscall(SYS_landlock_create_ruleset, &rules, sizeof(rules), 0);
	int result = fd < 0 ? -1 : (int)syscall(SYS_landlock_restrict_self, fd, 0);

	if (fd >= 0)
		close((int)fd);
	return result;
}

static void *open_and_close(void *arg)
{
	(void)arg;
	for (;;)
		close(socket(AF_INET, SOCK_STREAM, 0));
	return NULL;
}

/* Threads are at work while the rights are given up. */
static int call_amid_threads(void)
{
	pthread_t thread;

	for (int i = 0; i < THREADS; i++)
		if (pthread_create(&thread, NULL, open_and_close, NULL) != 0)
			return -1;
	usleep(10000);
	return setgid(NOBODY) || setuid(NOBODY);
}

/* There is none for another table; one is left for what is served afterwards. */
static int call_without_descriptors(void)
{
	int spare = dup(STDOUT_FILENO), result;
	const struct rlimit none = {(rlim_t)spare + 1, (rlim_t)spare + 1};

	if (spare < 0 || setrlimit(RLIMIT_NOFILE, &none) != 0 || dup(STDOUT_FILENO) >= 0)
		return -1;
	result = setgid(NOBODY) || setuid(NOBODY);
	close(spare);
	return result;
}

static int call(const char *name)
{
	if (strcmp(name, "no-descriptors") == 0)
		return call_without_descriptors();
	if (strcmp(name, "threads") == 0)
		return call_amid_threads();
	if (strcmp(name, "setuid") == 0)
		return setgid(NOBODY) || setuid(NOBODY);
	if (strcmp(name, "setreuid") == 0)
		return setreuid(NOBODY, NOBODY);
	if (strcmp(name, "setresuid") == 0)
		return setresuid(NOBODY, NOBODY, NOBODY);
	if (strcmp(name, "syscall") == 0)
		return (int)syscall(SYS_setuid, NOBODY);
	if (strcmp(name, "chroot") == 0)
		return chroot("/");
	if (strcmp(name, "capset") == 0)
		return drop_capabilities();
	if (strcmp(name, "seccomp") == 0)
		return filter();
	if (strcmp(name, "landlock") == 0)
		return landlock();
	if (strcmp(name, "namespace") == 0)
		return unshare(CLONE_NEWNS);
	/* These can be taken back. */
	if (strcmp(name, "seteuid") == 0)
		return seteuid(NOBODY) || seteuid(0);
	return setgid(NOBODY);
}

/* ---- both ends ---- */

static bool echo(int fd, int rounds, bool first)
{
	char sent[100], got[sizeof(sent)];

	for (int i = 0; i < rounds; i++) {
		memset(sent, i, sizeof(sent));
		if (first && send(fd, sent, sizeof(sent), 0) != sizeof(sent))
			return false;
		if (recv(fd, got, sizeof(got), MSG_WAITALL) != sizeof(got) ||
		    memcmp(sent, got, sizeof(got)) != 0)
			return false;
		if (!first && send(fd, sent, sizeof(sent), 0) != sizeof(sent))
			return false;
	}
	return true;
}

static int talk(int port)
{
	struct sockaddr_in at = {.sin_family = AF_INET,
				 .sin_port = htons((uint16_t)port),
				 .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	if (connect(fd, (struct sockaddr *)&at, sizeof(at)) != 0 ||
	    !echo(fd, ROUNDS, true))
		return 1;
	puts("up");
	fflush(stdout);
	if (getchar() == EOF || !echo(fd, ROUNDS, true))
		return 1;
	close(fd);
	return 0;
}

static void work(int listener, int kept, const char *name)
{
	int fd;

	close(kept);
	before_count = list_maps(before);
	if (call(name) != 0)
		_exit(FAILED_CALL);
	fd = accept(listener, NULL, NULL);
	if (fd < 0 || !echo(fd, ROUNDS, false) || !echo(fd, ROUNDS, false))
		_exit(FAILED_ECHO);
	close(fd);
	if (!store_into_what_is_left())
		_exit(FAILED_MAPS);
	/* Its own is worth nothing now. */
	kill(getpid(), SIGKILL);
}

/* What reads the table. */
static bool connects(int listener, const struct sockaddr_in *at)
{
	for (int i = 0; i < 50; i++) {
		int fd = socket(AF_INET, SOCK_STREAM, 0), other;

		if (connect(fd, (const struct sockaddr *)at, sizeof(*at)) != 0)
			return false;
		other = accept(listener, NULL, NULL);
		if (other < 0)
			return false;
		close(other);
		close(fd);
	}
	return true;
}

static int serve(const char *name)
{
	struct sockaddr_in at = {.sin_family = AF_INET,
				 .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof(at);
	int listener = socket(AF_INET, SOCK_STREAM, 0), kept, status;
	pid_t worker;

	if (bind(listener, (struct sockaddr *)&at, len) != 0 ||
	    listen(listener, 8) != 0 ||
	    getsockname(listener, (struct sockaddr *)&at, &len) != 0)
		return 1;
	printf("%d\n", ntohs(at.sin_port));
	fflush(stdout);
	kept = accept(listener, NULL, NULL);
	if (kept < 0 || !echo(kept, ROUNDS, false))
		return FAILED_ECHO;
	worker = fork();
	if (worker == 0)
		work(listener, kept, name);
	printf("%d\n", (int)worker);
	fflush(stdout);
	if (waitpid(worker, &status, 0) != worker)
		return 1;
	if (!WIFSIGNALED(status))
		return WEXITSTATUS(status);
	if (!connects(listener, &at))
		return FAILED_ACCEPT;
	return echo(kept, ROUNDS, false) ? 0 : FAILED_ECHO;
}

int main(int argc, char **argv)
{
	if (argc != 3)
		return 2;
	return strcmp(argv[1], "serve") == 0 ? serve(argv[2]) : talk(atoi(argv[2]));
}
