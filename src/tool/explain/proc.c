/* SPDX-License-Identifier: Apache-2.0 */
/* What /proc says of one process, and whether it is under Viaduct. */
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/program.h"
#include "base/reason.h"
#include "conn/table.h"
#include "tool/doctor/doctor.h"
#include "tool/explain/explain.h"
#include "tool/explain/proc.h"
#include "tool/first_line.h"
#include "tool/library.h"

enum {
	FILE_MAX = 1 << 24,
	FILE_LEAST = 4096,
	COMMAND_MAX = 200,
	ARGS_MAX = 256,
	READ_MS = 2000
};

static _Noreturn void copy(const char *path, int to)
{
	int from = open(path, O_RDONLY | O_CLOEXEC);
	char text[FILE_LEAST];
	ssize_t n = -1;

	while (from >= 0 && (n = read(from, text, sizeof(text))) > 0)
		if (write(to, text, (size_t)n) != n)
			_exit(1);
	_exit(n < 0);
}

/* All that comes within the time, and a zero. False: the end did not come. */
static bool take_all(int from, char **text, size_t *size)
{
	struct pollfd p = {.fd = from, .events = POLLIN};
	uint64_t end = clock_now_ns() + READ_MS * 1000000ull, now;
	size_t room = FILE_LEAST;
	ssize_t n = 1;

	*text = need(malloc(room + 1));
	*size = 0;
	while (n > 0 && *size < FILE_MAX && (now = clock_now_ns()) < end) {
		if (poll(&p, 1, (int)((end - now) / 1000000) + 1) <= 0)
			continue;
		n = read(from, *text + *size, room - *size);
		*size += n > 0 ? (size_t)n : 0;
		if (*size == room)
			*text = need(realloc(*text, (room *= 2) + 1));
	}
	(*text)[*size] = 0;
	return n == 0 || *size >= FILE_MAX;
}

/*
 * Such a file, from the heap, with a zero behind it; NULL when it may not be read. A child opens and reads it: a process
 * can hold the lock of its memory, and with it whoever asks for what lies there.
 */
static char *read_of(pid_t pid, const char *name, size_t *size)
{
	bool is_whole = false;
	char path[64], *text = NULL;
	int line[2], status = 0;
	pid_t child;

	snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, name);
	signal(SIGCHLD, SIG_DFL); /* where it is ignored, a child's status is lost */
	if (pipe2(line, O_CLOEXEC) < 0)
		return NULL;
	child = fork();
	if (child == 0)
		copy(path, line[1]);
	close(line[1]);
	if (child > 0) {
		is_whole = take_all(line[0], &text, size);
		if (!is_whole)
			kill(child, SIGKILL); /* nor is it waited for */
	}
	close(line[0]);
	if (is_whole && waitpid(child, &status, 0) == child && *size == 0 && status != 0)
		is_whole = false;
	if (!is_whole) {
		free(text);
		text = NULL;
	}
	return text;
}

/* Whether a program that is found under this name is the file that the process runs. */
static bool is_file_of(const struct proc *p, const char *name)
{
	char path[PATH_MAX], real[PATH_MAX];

	return program_find(name, path, sizeof(path)) == 0 && realpath(path, real) &&
	       !strcmp(real, p->exe);
}

/* The name to start it by, for want of the arguments. One file may be many programs. */
static char *name_of(const struct proc *p, char *title)
{
	char *file[] = {title, NULL};

	title[strcspn(title, " ")] = 0;
	if (*title && title[strlen(title) - 1] == ':') /* nginx: master process */
		title[strlen(title) - 1] = 0;
	if (!is_file_of(p, title))
		file[0] = (char *)(is_file_of(p, p->name) || !*p->exe ? p->name : p->exe);
	return command_line(file);
}

/* Some write a title over their arguments: then a name must do. */
static char *command_of(const struct proc *p)
{
	char *argv[ARGS_MAX + 1] = {0}, *line;
	size_t size = 0, count = 0;
	char *text = read_of(p->pid, "cmdline", &size);

	for (size_t at = 0; text && at < size && count < ARGS_MAX;
	     at += strlen(text + at) + 1)
		argv[count++] = text + at;
	while (count && !*argv[count - 1]) /* of a title */
		argv[--count] = NULL;
	if (!count || (count == 1 && strchr(argv[0], ' ') && strcmp(argv[0], p->exe))) {
		char title[256] = "", *name;

		snprintf(title, sizeof(title), "%s", count ? argv[0] : p->name);
		name = name_of(p, title);
		line = text_of("%s ...", name);
		free(name);
	} else {
		line = command_line(argv);
	}
	size = strcspn(line, "\n");
	if (size > COMMAND_MAX || line[size]) {
		char *cut = text_of("%.*s ...",
				    (int)(size < COMMAND_MAX ? size : COMMAND_MAX), line);

		free(line);
		line = cut;
	}
	free(text);
	return line;
}

static void read_environment(struct proc *p)
{
	size_t size = 0;
	char *text = read_of(p->pid, "environ", &size);

	p->env_known = text != NULL;
	for (size_t at = 0; text && at < size; at += strlen(text + at) + 1) {
		const char *v = text + at;

		if (!strncmp(v, "LD_PRELOAD=", 11) && !p->preload) {
			p->preload = text_of("%s", v + 11);
			p->preloaded = library_is_named(v);
		} else if (!strcmp(v, "VIADUCT=off")) {
			p->off = true;
		} else if (!strcmp(v, "VIADUCT_IO_URING=leave")) {
			p->rings_left = true;
		} else if (!strncmp(v, "VIADUCT_RULES=", 14) && v[14] && !p->rules) {
			p->rules = text_of("%s", v + 14);
		}
	}
	free(text);
}

static bool is_mapped(const char *slash, const char *name)
{
	return slash && !strncmp(slash + 1, name, strlen(name));
}

static void read_maps(struct proc *p)
{
	size_t size = 0;
	char *text = read_of(p->pid, "maps", &size), *rest = text, *line;

	while (text && (line = strsep(&rest, "\n")) && *line) {
		const char *slash = strrchr(line, '/');

		p->maps_known = true;
		p->has_table |= strstr(line, "/memfd:" TABLE_NAME) != NULL;
		p->has_library |=
			is_mapped(slash, LIBRARY_GLIBC) || is_mapped(slash, LIBRARY_MUSL);
		p->has_rpc |= is_mapped(slash, LIBRARY_RPC);
		p->has_libtirpc |= is_mapped(slash, LIBRARY_LIBTIRPC);
	}
	/* Readable and empty: a kernel thread, or a process that has ended. */
	if (text && !p->maps_known)
		p->kernel = true;
	free(text);
}

static void read_secure(struct proc *p)
{
	size_t size = 0;
	char *text = read_of(p->pid, "auxv", &size);
	Elf64_auxv_t v;

	for (size_t at = 0; text && at + sizeof(v) <= size; at += sizeof(v)) {
		memcpy(&v, text + at, sizeof(v));
		if (v.a_type == AT_SECURE)
			p->secure = v.a_un.a_val != 0;
	}
	free(text);
}

/* "0::/system.slice/redis.service" */
static void read_unit(struct proc *p)
{
	size_t size = 0;
	char *text = read_of(p->pid, "cgroup", &size), *at;

	at = text ? strstr(text, "/system.slice/") : NULL;
	if (at) {
		at += strlen("/system.slice/");
		at[strcspn(at, "/\n")] = 0;
		if (strlen(at) > 8 && !strcmp(at + strlen(at) - 8, ".service"))
			p->unit = text_of("%s", at);
	}
	free(text);
}

int proc_read(pid_t pid, struct proc *p)
{
	char path[64], uids[64];
	unsigned real = 0, effective = 0;
	struct stat st;
	ssize_t n;

	memset(p, 0, sizeof(*p));
	p->pid = pid;
	snprintf(path, sizeof(path), "/proc/%d", (int)pid);
	if (stat(path, &st) != 0)
		return -ESRCH;
	snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
	p->uid = st.st_uid;
	if (read_field(path, "Uid", uids, sizeof(uids)) &&
	    sscanf(uids, "%u %u", &real, &effective) == 2)
		p->uid = effective;
	snprintf(path, sizeof(path), "/proc/%d/comm", (int)pid);
	read_first_line(path, p->name, sizeof(p->name));
	snprintf(path, sizeof(path), "/proc/%d/exe", (int)pid);
	n = readlink(path, p->exe, sizeof(p->exe) - 1);
	p->exe[n > 0 ? n : 0] = 0;
	read_maps(p);
	read_environment(p);
	read_secure(p);
	read_unit(p);
	p->command = command_of(p);
	return 0;
}

void proc_finish(struct proc *p)
{
	free(p->command);
	free(p->unit);
	free(p->rules);
	free(p->preload);
}

void outside_finish(struct outside *out)
{
	free(out->why);
	free(out->remedy);
}

static bool is_of_musl(const struct proc *p)
{
	struct program *program = need(calloc(1, sizeof(*program)));
	char path[64];
	bool musl;

	snprintf(path, sizeof(path), "/proc/%d/exe", (int)p->pid);
	program_inspect(path, false, program);
	musl = program->kind == PROGRAM_MUSL;
	free(program);
	return musl;
}

static char *how_to_start(const struct proc *p)
{
	char library[PATH_MAX];
	bool musl;

	if (p->pid == 1)
		return text_of("Nothing to do for the system's first process. A "
			       "container's is given the library by its image: see "
			       "docs/containers.md.");
	if (!p->unit)
		return text_of("Start it with: viaduct run -- %s", p->command);
	musl = is_of_musl(p);
	if ((musl ? library_find_musl : library_find)(library, sizeof(library)) != 0)
		snprintf(library, sizeof(library), "%s/%s", VD_LIBDIR,
			 musl ? LIBRARY_MUSL : LIBRARY_GLIBC);
	return text_of(
		"It is the service %s: put `[Service]` and "
		"`Environment=LD_PRELOAD=%s` into a drop-in (`systemctl edit %s`), "
		"and restart it.",
		p->unit, library, p->unit);
}

/* The file itself forbids it: true, and *out says why. */
static bool forbidden(const struct proc *p, struct outside *out)
{
	struct answer a = {0};
	struct elf_view e = {0};
	struct program *program = need(calloc(1, sizeof(*program)));
	char path[64];
	bool found;

	snprintf(path, sizeof(path), "/proc/%d/exe", (int)p->pid);
	program_inspect(path, false, program);
	/* Privileges are those of its start, not of one by us. */
	if (program->kind == PROGRAM_PRIVILEGED && !p->secure)
		program->kind = PROGRAM_OK;
	if (p->secure) {
		program->kind = PROGRAM_PRIVILEGED;
		snprintf(program->detail, sizeof(program->detail), "%s",
			 "setuid, setgid or file capabilities");
	}
	snprintf(program->path, sizeof(program->path), "%s", p->exe); /* to be said */
	elf_view_open(path, &e);
	found = !explain_copied(program, path, e.is_go, &a);
	if (found)
		*out = (struct outside){a.points[0].name, a.points[0].text,
					a.points[0].remedy};
	elf_view_finish(&e);
	free(a.points);
	free(program);
	return found;
}

/* The library is there, but no table of connections that we could read. */
static void say_no_table(const struct proc *p, struct outside *out)
{
	enum { FEW = 64 };
	char limit[32], space[32], file[32];

	proc_limit(p->pid, "Max open files", limit, sizeof(limit));
	proc_limit(p->pid, "Max address space", space, sizeof(space));
	proc_limit(p->pid, "Max file size", file, sizeof(file));
	if (p->off) {
		out->name = reason_name(VD_REASON_OFF);
		out->why =
			text_of("It has the library, but Viaduct is switched off there: "
				"VIADUCT=off.");
		out->remedy =
			text_of("Start it again without VIADUCT=off: viaduct run -- %s",
				p->command);
	} else if (p->has_table || (*limit && atoi(limit) > 0 && atoi(limit) < FEW)) {
		out->name = reason_name(VD_REASON_FD_LIMIT);
		out->why =
			text_of("It runs under Viaduct, but is short of descriptors "
				"(it may have %s): its connections go back to TCP, and "
				"cannot be listed from outside.",
				limit);
		out->remedy = text_of("Raise the limit for its next connections: "
				      "`prlimit --pid %d --nofile=65536`, or at its "
				      "start: `ulimit -n`, LimitNOFILE= of the service.",
				      (int)p->pid);
	} else if (strcmp(space, "unlimited") != 0 || strcmp(file, "unlimited") != 0) {
		out->name = reason_name(VD_REASON_MEMORY);
		out->why = text_of("It has the library, but its limits leave too little "
				   "for the direct path, or for a table of its "
				   "connections: address space %s, file size %s.",
				   space, file);
		out->remedy = text_of("Lift them: `ulimit -v unlimited -f unlimited`, "
				      "LimitAS= and LimitFSIZE= of the service.");
	} else {
		out->name = reason_name(VD_REASON_OFF);
		out->why = text_of("It has the library, but Viaduct is switched off "
				   "there, or had no memory for its tables at the start; "
				   "its log says which.");
		out->remedy = text_of("See its settings (`viaduct config --program %s`); "
				      "then start it again.",
				      p->name);
	}
}

bool proc_is_under(const struct proc *p, bool has_table, struct outside *out)
{
	*out = (struct outside){.name = "plain"};
	if (has_table)
		return true;
	if (p->kernel) {
		out->why = text_of("It is a thread of the kernel, or has ended.");
		out->remedy = text_of("Nothing to do.");
	} else if (!p->maps_known) {
		out->name = "hidden";
		out->why = text_of("Whether it runs under Viaduct cannot be seen: it "
				   "belongs to user %u, or hides itself.",
				   p->uid);
		out->remedy = text_of(geteuid() == 0 ? "Ask from where it may be seen: "
						       "not even root may, here."
						     : "Ask as root, or as that user.");
	} else if (forbidden(p, out)) {
		;
	} else if (p->has_library) {
		say_no_table(p, out);
	} else if (p->env_known && p->preloaded) {
		out->name = "preload";
		out->why = text_of(
			"LD_PRELOAD names Viaduct's library there, but the loader "
			"has not found the file, or the program has dropped "
			"it.");
		out->remedy = text_of("See to it that the file is there, in the "
				      "program's own root directory, too.");
	} else {
		out->why = text_of("It was started without Viaduct.");
		out->remedy = how_to_start(p);
	}
	return false;
}

void proc_limit(pid_t pid, const char *name, char *text, size_t size)
{
	size_t length = 0;
	char *limits = read_of(pid, "limits", &length);
	char *at = limits ? strstr(limits, name) : NULL;

	*text = 0;
	if (at) {
		at += strlen(name);
		at += strspn(at, " ");
		snprintf(text, size, "%.*s", (int)strcspn(at, " \n"), at);
	}
	free(limits);
}

bool proc_maps_user(pid_t pid, uid_t user)
{
	size_t length = 0;
	char *map = read_of(pid, "uid_map", &length);
	unsigned long inside, outside, count;
	bool found = !map;
	int n;

	for (const char *at = map;
	     at && sscanf(at, "%lu %lu %lu%n", &inside, &outside, &count, &n) == 3;
	     at += n)
		found |= user >= outside && user - outside < count;
	free(map);
	return found;
}

bool proc_same_namespace(pid_t a, pid_t b, const char *kind)
{
	struct stat one, other;
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/ns/%s", (int)a, kind);
	if (stat(path, &one) != 0)
		return true;
	snprintf(path, sizeof(path), "/proc/%d/ns/%s", (int)b, kind);
	if (stat(path, &other) != 0)
		return true;
	return one.st_dev == other.st_dev && one.st_ino == other.st_ino;
}
