/* SPDX-License-Identifier: Apache-2.0 */
/* A process that shows the commands forged tables and buffers, for tests/cli/forged.py. */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/fds.h"
#include "conn/table.h"

#define SLOTS 4096u

/* The file of this program is named as the library, so this lies in "the library's" memory. It
 * has a value, or it would lie in memory of no file. */
static struct trace_wish wish = {.area_bytes = 7};
static struct trace_wish *asked = &wish;

static void fail(const char *what)
{
	perror(what);
	exit(1);
}

static void say(const char *what)
{
	puts(what);
	fflush(stdout);
}

static void *memory(const char *name, size_t size, int flags, int *fd)
{
	void *map;

	*fd = memfd_create(name, MFD_ALLOW_SEALING | (unsigned)flags);
	if (*fd < 0 || ftruncate(*fd, (off_t)size) != 0)
		fail("memfd");
	map = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, *fd, 0);
	if (map == MAP_FAILED || fcntl(*fd, F_ADD_SEALS, F_SEAL_SHRINK) != 0)
		fail("memory");
	return map;
}

/* It stays open over an exec. */
static struct slot_table *table(void)
{
	int fd;
	struct slot_table *t =
		memory(TABLE_NAME, sizeof(*t) + SLOTS * sizeof(struct slot), 0, &fd);

	t->layout = TABLE_LAYOUT;
	t->table_bytes = sizeof(*t);
	t->slot_bytes = sizeof(struct slot);
	t->process_bytes = sizeof(struct table_process);
	t->process_count = TABLE_PROCESSES;
	t->slot_count = SLOTS;
	t->sheet_bytes = sizeof(struct call_sheet);
	t->trace_wish_at = (uintptr_t)asked;
	t->processes[0].pid = getpid();
	t->magic = TABLE_MAGIC;
	/* Where the library would have it, which the commands look at first. */
	if (dup2(fd, FDS_APART) < 0)
		fail("dup2");
	close(fd);
	return t;
}

/* ---- the table's counts change under the reader's hands ---- */

static void flip(void)
{
	struct slot_table *t = table();
	_Atomic uint32_t *count = (_Atomic uint32_t *)&t->slot_count;

	for (uint32_t i = 0; i < SLOTS; i++) {
		t->slots[i].used = 1;
		t->slots[i].cookie = i + 1;
		t->slots[i].holders[0] = getpid();
	}
	t->fresh = UINT32_MAX;
	say("ready");
	for (uint32_t turn = 0;; turn++) {
		atomic_store(count, turn & 1 ? UINT32_MAX : SLOTS);
		atomic_store(&t->slots[turn % SLOTS].cookie, turn * 2654435761u);
		for (_Atomic int i = 0; i < 40; i++)
			;
	}
}

/* ---- whatever is opened here says so ---- */

static int watch(const char *node)
{
	int in = inotify_init1(IN_CLOEXEC);

	if (in < 0 || inotify_add_watch(in, node, IN_OPEN) < 0)
		fail("inotify");
	return in;
}

static void report(int in)
{
	char event[4096];

	for (;;)
		if (read(in, event, sizeof(event)) > 0)
			say("opened");
}

static void watch_only(const char *node)
{
	int in = watch(node);

	say("ready");
	report(in);
}

/* A node with the table's name, which is ours alone in a file system of our own. */
static void named(const char *node, const char *folder)
{
	static const char name[] = "memfd:" TABLE_NAME " (deleted)";
	struct stat st;
	char path[64];
	int in = watch(node);

	if (stat(node, &st) != 0)
		fail(node);
	if (unshare(CLONE_NEWNS) != 0 ||
	    mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0) {
		say("skip");
		exit(0);
	}
	if (mount("none", folder, "tmpfs", 0, NULL) != 0 || chdir(folder) != 0)
		fail("tmpfs");
	close(open(name, O_CREAT | O_WRONLY, 0600));
	mkdir("old", 0700);
	if (mount(node, name, NULL, MS_BIND, NULL) != 0 ||
	    syscall(SYS_pivot_root, ".", "old") != 0)
		fail("pivot_root");
	snprintf(path, sizeof(path), "/%s", name);
	if (open(path, O_PATH) < 0)
		fail("open");
	say("ready");
	report(in);
}

static void lease(void)
{
	int fd = memfd_create(TABLE_NAME, MFD_ALLOW_SEALING), again;
	char path[64];

	signal(SIGIO, SIG_IGN);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	if (fd < 0 || ftruncate(fd, 4096) != 0)
		fail("memfd");
	again = open(path, O_RDWR | O_CLOEXEC);
	close(fd);
	if (again < 0 || fcntl(again, F_SETLEASE, F_WRLCK) != 0)
		fail("lease");
	say("ready");
	for (;;)
		pause();
}

/* ---- the other side of a trace ---- */

static uint32_t session(void)
{
	uint32_t n;

	while ((n = atomic_load(&asked->session)) < TRACE_FIRST_SESSION)
		usleep(1000);
	return n;
}

static void answer(struct slot_table *t, int fd)
{
	struct trace_answer *a = &t->processes[0].trace;
	uint32_t n;

	say("ready");
	n = session();
	atomic_store(&a->fd, fd);
	atomic_store(&a->session, n);
}

/* Its descriptor of the "buffer" is one of a node that it might not even open. */
static void answer_node(const char *node)
{
	int in = watch(node), fd = open(node, O_PATH);

	if (fd < 0)
		fail(node);
	answer(table(), fd);
	report(in);
}

/* Is asked, and then another program, with a word of its own in the same place. */
static void become(const char *self)
{
	table();
	say("ready");
	session();
	execl(self, self, "victim", NULL);
	fail(self);
}

static void victim(void)
{
	atomic_store(&wish.session, 77);
	say("victim");
	getchar();
	say(atomic_load(&wish.session) == 77 && atomic_load(&wish.area_bytes) == 7
		    ? "untouched"
		    : "touched");
}

/* Has its words in memory that is not the library's. */
static void elsewhere(void)
{
	asked = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
		     0);
	if (asked == MAP_FAILED)
		fail("mmap");
	table();
	say("ready");
	getchar();
	say(atomic_load(&asked->session) || atomic_load(&asked->area_bytes)
		    ? "touched"
		    : "untouched");
}

int main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "";

	if (!strcmp(what, "flip"))
		flip();
	else if (!strcmp(what, "named") && argc > 3)
		named(argv[2], argv[3]);
	else if (!strcmp(what, "watch") && argc > 2)
		watch_only(argv[2]);
	else if (!strcmp(what, "lease"))
		lease();
	else if (!strcmp(what, "node") && argc > 2)
		answer_node(argv[2]);
	else if (!strcmp(what, "become"))
		become(argv[0]);
	else if (!strcmp(what, "victim"))
		victim();
	else if (!strcmp(what, "elsewhere"))
		elsewhere();
	return 0;
}
