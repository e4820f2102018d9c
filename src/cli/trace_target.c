/* SPDX-License-Identifier: Apache-2.0 */
/* The process to be traced: who it is, whether we may, and the words that ask it. */
#include "cli/trace.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <pwd.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "cli/observe_table.h"
#include "stream/table.h"

static const char *user_name(uid_t uid, char text[32])
{
	struct passwd *pw = getpwuid(uid);

	if (pw && strlen(pw->pw_name) < 32)
		return strcpy(text, pw->pw_name);
	snprintf(text, 32, "uid %u", uid);
	return text;
}

static int ptrace_scope(void)
{
	FILE *f = fopen("/proc/sys/kernel/yama/ptrace_scope", "re");
	int scope = 0;

	if (f && fscanf(f, "%d", &scope) != 1)
		scope = 0;
	if (f)
		fclose(f);
	return scope;
}

/* The kernel has said EPERM or EACCES. */
static bool refused(pid_t pid)
{
	char path[32], theirs[32], ours[32];
	struct stat st;

	snprintf(path, sizeof(path), "/proc/%d", (int)pid);
	if (stat(path, &st) == 0 && st.st_uid != geteuid() && geteuid() != 0)
		fprintf(stderr,
			"viaduct trace: process %d belongs to %s, and you are %s: only "
			"its "
			"owner and root may trace it\n",
			(int)pid, user_name(st.st_uid, theirs),
			user_name(geteuid(), ours));
	else if (ptrace_scope() > 0 && geteuid() != 0)
		fprintf(stderr,
			"viaduct trace: the kernel does not let you look into process %d "
			"(kernel.yama.ptrace_scope is %d): do it as root, or, if you "
			"trust "
			"all of your programs, `sysctl kernel.yama.ptrace_scope=0`\n",
			(int)pid, ptrace_scope());
	else
		fprintf(stderr,
			"viaduct trace: the kernel does not let you look into process "
			"%d: "
			"do it as root, in a container with the capability SYS_PTRACE, "
			"or "
			"from outside of it\n",
			(int)pid);
	return false;
}

/* 1 there is a process that may be seen; 0 after a message. */
static bool exists(pid_t pid)
{
	char path[40];
	int fd;

	if (kill(pid, 0) != 0 && errno == ESRCH) {
		fprintf(stderr, "viaduct trace: there is no process %d\n", (int)pid);
		return false;
	}
	snprintf(path, sizeof(path), "/proc/%d/fd", (int)pid);
	fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return refused(pid);
	close(fd);
	return true;
}

static void copy_name(char to[16], const char *from)
{
	for (int i = 0; i < 16; i++)
		to[i] = from[i] && !isprint((unsigned char)from[i]) ? '?' : from[i];
}

static const struct observe_process *find(struct trace_target *t)
{
	const struct observe_process *p;
	char message[128];

	if (observe_take(&t->observe, message, sizeof(message)) < 0) {
		fprintf(stderr, "viaduct trace: %s\n", message);
		return NULL;
	}
	p = observe_process(&t->observe, t->pid);
	if (!p) {
		fprintf(stderr, "viaduct trace: there is no process %d any more\n",
			(int)t->pid);
		return NULL;
	}
	copy_name(t->name, p->name);
	if (!*p->table)
		fprintf(stderr,
			"viaduct trace: %s (%d) does not run under Viaduct, so nothing "
			"of "
			"it is on the direct path: start it with `viaduct run`, or look "
			"at "
			"its TCP packets with tcpdump or tshark\n",
			t->name, (int)t->pid);
	else if (!p->family)
		fprintf(stderr, "viaduct trace: %s (%d) cannot be traced: %s\n", t->name,
			(int)t->pid,
			p->trouble ? p->trouble : "its table cannot be read");
	return p->family ? p : NULL;
}

static bool find_entry(struct trace_target *t, const struct observe_process *p,
		       int *index)
{
	const struct slot_table *table =
		((const struct observe_family *)p->family)->table;

	for (int i = 0; i < TABLE_PROCESSES; i++) {
		const struct table_process *e = &table->processes[i];

		if (atomic_load(&e->pid) != p->own_pid)
			continue;
		t->wish_at = table->trace_wish_at;
		t->answer = &e->trace;
		*index = i;
		return true;
	}
	fprintf(stderr,
		"viaduct trace: %s (%d) cannot be traced: it has no place in its "
		"family's "
		"table, which has room for %d processes\n",
		t->name, (int)t->pid, TABLE_PROCESSES);
	return false;
}

/* The kernel gives the lock up for us, however we end. See is_reader_there in trace.c. */
static bool lock_entry(struct trace_target *t, int index)
{
	struct flock lock = {
		.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = index, .l_len = 1};
	struct stat st;

	t->table = open(t->path, O_RDWR | O_CLOEXEC);
	if (t->table < 0 || fstat(t->table, &st) != 0)
		return refused(t->pid);
	t->table_inode = st.st_ino;
	if (fcntl(t->table, F_SETLK, &lock) == 0)
		return true;
	if ((errno == EAGAIN || errno == EACCES) &&
	    fcntl(t->table, F_GETLK, &lock) == 0 && lock.l_type != F_UNLCK &&
	    lock.l_pid > 0)
		fprintf(stderr,
			"viaduct trace: %s (%d) is being traced already, by process %d: "
			"end that one first\n",
			t->name, (int)t->pid, (int)lock.l_pid);
	else
		fprintf(stderr,
			"viaduct trace: %s (%d) is being traced already, or cannot be "
			"marked as traced: try again\n",
			t->name, (int)t->pid);
	return false;
}

bool trace_target_open(struct trace_target *t, pid_t pid)
{
	const struct observe_process *p;
	int index = 0;

	*t = (struct trace_target){.pid = pid, .table = -1, .pidfd = -1};
	if (!exists(pid))
		return false;
	/* Before all else: from here on the number is this process's, or the end is seen. */
	t->pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
	if (t->pidfd < 0) {
		fprintf(stderr, "viaduct trace: process %d: %s\n", (int)pid,
			strerror(errno));
		return false;
	}
	p = find(t);
	if (!p)
		return false;
	snprintf(t->path, sizeof(t->path), "/proc/%d/%s", (int)pid, p->table);
	for (size_t i = 0; i < t->observe.conn_count; i++) {
		const struct observe_conn *c = &t->observe.conns[i];

		t->upgraded += c->process == p &&
			       (observe_is_direct(c->tx) || observe_is_direct(c->rx));
	}
	return find_entry(t, p, &index) && lock_entry(t, index);
}

static bool store_word(struct trace_target *t, uint64_t at, uint32_t word)
{
	struct iovec from = {&word, sizeof(word)},
		     to = {(void *)(uintptr_t)at, sizeof(word)};

	return process_vm_writev(t->pid, &from, 1, &to, 1, 0) == sizeof(word);
}

static bool wish(struct trace_target *t, uint32_t session)
{
	return store_word(t, t->wish_at + offsetof(struct trace_wish, session), session);
}

bool trace_target_ask(struct trace_target *t, uint32_t area_bytes)
{
	uint32_t last = atomic_load_explicit(&t->answer->session, memory_order_relaxed);

	/* Another one than the last, of which it may still have the buffer. */
	t->session = last < TRACE_FIRST_SESSION || last >= TRACE_LAST_SESSION
			     ? TRACE_FIRST_SESSION
			     : last + 1;
	if (store_word(t, t->wish_at + offsetof(struct trace_wish, area_bytes),
		       area_bytes) &&
	    wish(t, t->session))
		return true;
	if (errno == EPERM)
		return refused(t->pid);
	fprintf(stderr, "viaduct trace: %s (%d) cannot be asked for a trace: %s\n",
		t->name, (int)t->pid, strerror(errno));
	return false;
}

void trace_target_stop(struct trace_target *t)
{
	if (!trace_target_is_other(t))
		wish(t, TRACE_STOP);
}

void trace_target_close(struct trace_target *t)
{
	close(t->table);
	close(t->pidfd);
	observe_free(&t->observe);
}

bool trace_target_is_other(const struct trace_target *t)
{
	struct stat st;

	return stat(t->path, &st) != 0 || st.st_ino != t->table_inode;
}
