/* SPDX-License-Identifier: Apache-2.0 */
/* The process to be traced: who it is, whether we may, and the words that ask it. */
#include "base/atomic.h"
#include "tool/trace/trace.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <pwd.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/kernel.h"
#include "conn/table.h"
#include "tool/cli.h"
#include "tool/fault.h"
#include "tool/observe/file.h"
#include "tool/observe/table.h"

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
		warn_line("viaduct trace: process %d belongs to %s, and you are %s: only "
			  "its "
			  "owner and root may trace it",
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
	char path[40], thread[96];
	int fd;

	if (fault_of_thread(pid, thread, sizeof(thread))) {
		warn_line("viaduct trace: %s", thread);
		return false;
	}
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
		warn_line("viaduct trace: %s", message);
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
		warn_line(
			"viaduct trace: %s (%d) does not run under Viaduct, so nothing "
			"of "
			"it is on the direct path: start it with `viaduct run`, or look "
			"at "
			"its TCP packets with tcpdump or tshark",
			t->name, (int)t->pid);
	else if (!p->family)
		warn_line("viaduct trace: %s (%d) cannot be traced: %s", t->name,
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
	warn_line("viaduct trace: %s (%d) cannot be traced: it has no place in its "
		  "family's "
		  "table, which has room for %d processes",
		  t->name, (int)t->pid, TABLE_PROCESSES);
	return false;
}

/* The kernel gives the lock up for us, however we end. See is_reader_there in trace.c. */
static bool lock_entry(struct trace_target *t, int index)
{
	struct flock lock = {
		.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = index, .l_len = 1};
	struct observe_file file;

	if (observe_file_open(t->path, O_RDWR, &file) < 0)
		return refused(t->pid);
	t->table = file.fd;
	t->table_inode = file.inode;
	t->table_uid = file.uid;
	if (fcntl(t->table, F_SETLK, &lock) == 0)
		return true;
	if ((errno == EAGAIN || errno == EACCES) &&
	    fcntl(t->table, F_GETLK, &lock) == 0 && lock.l_type != F_UNLCK &&
	    lock.l_pid > 0)
		warn_line(
			"viaduct trace: %s (%d) is being traced already, by process %d: "
			"end that one first",
			t->name, (int)t->pid, (int)lock.l_pid);
	else
		warn_line("viaduct trace: %s (%d) is being traced already, or cannot be "
			  "marked as traced: try again",
			  t->name, (int)t->pid);
	return false;
}

bool trace_target_open(struct trace_target *t, pid_t pid)
{
	const struct observe_process *p;
	int index = 0;

	*t = (struct trace_target){.pid = pid, .table = -1, .pidfd = -1, .memory = -1};
	if (!exists(pid))
		return false;
	/* Before all else: from here on the number is this process's, or the end is seen. */
	t->pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
	if (t->pidfd < 0) {
		warn_line("viaduct trace: process %d: %s", (int)pid, strerror(errno));
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

/*
 * The words that ask for a trace lie in the process's memory, at an address that its table
 * tells, and the table can be forged. What keeps our stores out of another program's memory,
 * such as that of a setuid program that the process becomes by exec:
 *
 * /proc/PID/mem, once opened, stands for the memory that the process had at that moment, not
 * for what it gets by exec. That memory is gone after an exec: stores to it fail. So we open it
 * first and judge the process after: if what we judged is a later program than the one whose
 * memory we hold, no store can reach anything.
 */

/* The user that the process runs as now. */
static bool effective_uid(pid_t pid, uid_t *uid)
{
	char path[40], text[4096];
	unsigned real, effective;
	const char *at;

	snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
	at = kernel_read_text(path, text, sizeof(text)) ? strstr(text, "\nUid:") : NULL;
	if (!at || sscanf(at, "\nUid: %u %u", &real, &effective) != 2)
		return false;
	*uid = effective;
	return true;
}

/* A line of /proc/PID/maps: private memory that may be written, and is the library's. */
static bool is_library_data(const char *line, uint64_t at, size_t size)
{
	unsigned long from, to;
	const char *name;
	char mode[5];

	if (sscanf(line, "%lx-%lx %4s", &from, &to, mode) != 3 || at < from || at >= to ||
	    size > to - at || strcmp(mode, "rw-p") != 0)
		return false;
	name = strrchr(line, '/');
	return name && strncmp(name, "/libviaduct", strlen("/libviaduct")) == 0;
}

static bool wish_is_librarys(const struct trace_target *t)
{
	char path[40], *line = NULL;
	bool found = false;
	size_t room = 0;
	FILE *maps;

	snprintf(path, sizeof(path), "/proc/%d/maps", (int)t->pid);
	maps = fopen(path, "re");
	while (maps && !found && getline(&line, &room, maps) > 0)
		found = is_library_data(line, t->wish_at, sizeof(struct trace_wish));
	free(line);
	if (maps)
		fclose(maps);
	return found;
}

/* Null when the process is the one that made the table, or was root as it made it. */
static const char *why_not(const struct trace_target *t)
{
	uid_t uid;

	if (trace_target_is_other(t) || !effective_uid(t->pid, &uid))
		return "it has become another program";
	if (t->table_uid != uid && t->table_uid != 0)
		return "its table was made by another user than it runs as";
	if (t->wish_at % alignof(struct trace_wish) != 0 || !wish_is_librarys(t))
		return "its table names memory that is not the library's";
	return NULL;
}

static bool open_memory(struct trace_target *t)
{
	const char *why;
	char path[40];

	snprintf(path, sizeof(path), "/proc/%d/mem", (int)t->pid);
	t->memory = open(path, O_RDWR | O_CLOEXEC);
	if (t->memory < 0)
		return refused(t->pid);
	why = why_not(t);
	if (why)
		warn_line("viaduct trace: %s (%d) is not asked for a trace: %s", t->name,
			  (int)t->pid, why);
	return !why;
}

static bool store_word(struct trace_target *t, uint64_t at, uint32_t word)
{
	ssize_t n = pwrite(t->memory, &word, sizeof(word), (off_t)at);

	if (n == 0)
		errno = ESRCH;
	return n == sizeof(word);
}

static bool wish(struct trace_target *t, uint32_t session)
{
	return store_word(t, t->wish_at + offsetof(struct trace_wish, session), session);
}

bool trace_target_ask(struct trace_target *t, uint32_t area_bytes)
{
	uint32_t last = load_relaxed(&t->answer->session);

	/* Another one than the last, of which it may still have the buffer. */
	t->session = last < TRACE_FIRST_SESSION || last >= TRACE_LAST_SESSION
			     ? TRACE_FIRST_SESSION
			     : last + 1;
	if (!open_memory(t))
		return false;
	if (store_word(t, t->wish_at + offsetof(struct trace_wish, area_bytes),
		       area_bytes) &&
	    wish(t, t->session))
		return true;
	warn_line("viaduct trace: %s (%d) cannot be asked for a trace: %s", t->name,
		  (int)t->pid, strerror(errno));
	return false;
}

void trace_target_stop(struct trace_target *t)
{
	wish(t, TRACE_STOP);
}

void trace_target_close(struct trace_target *t)
{
	close(t->table);
	close(t->memory);
	close(t->pidfd);
	observe_free(&t->observe);
}

bool trace_target_is_other(const struct trace_target *t)
{
	struct observe_file file;

	if (observe_file_look(t->path, &file) < 0)
		return true;
	return file.inode != t->table_inode;
}
