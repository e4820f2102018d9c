/* SPDX-License-Identifier: Apache-2.0 */
/* viaduct explain PID[:FD]: a process that runs, and its connections. */
#include <errno.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/printable.h"
#include "tool/cli.h"
#include "tool/doctor/doctor.h"
#include "tool/explain/proc.h"
#include "tool/explain/world.h"
#include "tool/fault.h"
#include "tool/library.h"

struct links {
	struct link *items;
	size_t count;
};

static int by_fd(const void *a, const void *b)
{
	const struct link *x = a, *y = b;

	return x->fd - y->fd;
}

/* The TCP sockets of the process, by descriptor. */
static struct links links_of(const struct world *w, const struct observe_process *p)
{
	const struct observe_holder *h = w->holders.items;
	struct links l = {need(calloc(w->holders.count + 1, sizeof(*l.items))), 0};

	for (size_t i = 0; i < w->holders.count; i++) {
		const struct observe_socket *s = world_socket(w, h[i].inode);

		if (!s || world_process(w, &h[i]) != p)
			continue;
		l.items[l.count++] =
			(struct link){p, h[i].fd, s,
				      p->viaduct ? world_conn(w, p->pid, h[i].fd) : NULL};
	}
	qsort(l.items, l.count, sizeof(*l.items), by_fd);
	return l;
}

/* A filter may have come after the start, and forbid what an upgrade needs. */
static void say_filter(const struct proc *p, struct answer *a)
{
	char path[64], mode[16];

	snprintf(path, sizeof(path), "/proc/%d/status", (int)p->pid);
	if (!read_field(path, "Seccomp", mode, sizeof(mode)) || !strcmp(mode, "0"))
		return;
	say(a, POINT_NOTE, "seccomp",
	    "A filter of system calls holds in it: where that forbids what Viaduct calls "
	    "(memfd_create, eventfd2, mmap, socket, getsockopt, poll), connections stay "
	    "on TCP.");
	say_remedy(a, "Nothing to do where its connections are on the direct path; else "
		      "allow these.");
}

static void say_rpc(const struct proc *p, struct answer *a)
{
	if (p->has_rpc) {
		say(a, POINT_YES, "rpc",
		    "Its remote procedure calls over TCP are " LIBRARY_RPC "'s.");
		return;
	}
	say(a, POINT_NOTE, "rpc",
	    "Its remote procedure calls are libtirpc's own, over Viaduct's "
	    "sockets: " LIBRARY_RPC " is not there.");
	say_remedy(a,
		   "Start it by `viaduct run`, which adds that to a program that needs "
		   "libtirpc; or name both in LD_PRELOAD.");
}

/* True when it runs under Viaduct. */
static bool say_process(const struct proc *p, const struct observe_process *seen,
			struct answer *a)
{
	struct outside out;
	bool under = proc_is_under(p, seen && seen->viaduct, &out);

	if (!under) {
		say(a, POINT_NO, out.name, "%s", out.why);
		say_remedy(a, "%s", out.remedy);
	} else {
		say(a, POINT_YES, "viaduct", "It runs under Viaduct.");
		if (seen->trouble) {
			char *why = sentence_of(seen->trouble);

			say(a, POINT_NOTE, "version", "%s", why);
			say_remedy(a, "Ask with the command of the version that it runs "
				      "under, as root.");
			free(why);
		}
		say_filter(p, a);
		if (p->rings_left)
			say(a, POINT_YES, "settings",
			    "VIADUCT_IO_URING=leave held at its start: once it asks for "
			    "io_uring by syscall(), its connections stay on TCP.");
		/* Else it was there by another name, which stands in no environment. */
		if (p->preloaded)
			explain_preloads(p->preload, a);
		if (p->has_libtirpc)
			say_rpc(p, a);
		if (p->rules)
			say(a, POINT_YES, "settings", "These rules held at its start: %s",
			    p->rules);
	}
	outside_finish(&out);
	return under;
}

static void say_links(struct world *w, const struct links *l, struct answer *a,
		      size_t *open, size_t *direct)
{
	for (size_t i = 0; i < l->count; i++) {
		if (l->items[i].socket->state == TCP_LISTEN) {
			explain_listener(w, &l->items[i], a);
			continue;
		}
		(*open)++;
		*direct += explain_link(w, &l->items[i], a);
	}
}

static int say_one(struct world *w, const struct links *l, pid_t pid, int fd,
		   struct answer *a)
{
	char path[64], what[64];
	ssize_t n;

	for (size_t i = 0; i < l->count; i++) {
		const struct link *at = &l->items[i];
		bool direct;

		if (at->fd != fd)
			continue;
		direct = at->socket->state == TCP_LISTEN ? explain_listener(w, at, a)
							 : explain_link(w, at, a);
		say_verdict(a, direct,
			    at->socket->state == TCP_LISTEN
				    ? direct ? "Connections to it can be accelerated."
					     : "Connections to it stay on TCP."
			    : direct ? "The connection is on the direct path."
				     : "The connection is on TCP.");
		return 0;
	}
	snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)pid, fd);
	n = readlink(path, what, sizeof(what) - 1);
	what[n > 0 ? n : 0] = 0;
	printable(what);
	if (n > 0)
		warn_line("viaduct explain: descriptor %d of process %d is no TCP "
			  "connection, but %s",
			  fd, (int)pid, what);
	else
		fprintf(stderr,
			"viaduct explain: process %d has no descriptor %d, or it may not "
			"be seen: ask as root\n",
			(int)pid, fd);
	return EXIT_USAGE;
}

static void say_all(struct world *w, const struct links *l, const struct proc *p,
		    bool under, struct answer *a)
{
	size_t open = 0, direct = 0;
	const char *why = a->count ? a->points[0].name : "";
	char *which;

	say_links(w, l, a, &open, &direct);
	if (open == 1)
		which = text_of("Its connection is");
	else if (direct == 0 || direct == open)
		which = text_of("Its %zu connections are", open);
	else
		which = text_of("Of its %zu connections %zu %s", open, direct,
				direct == 1 ? "is" : "are");
	if (!under)
		say_verdict(a, false, "%s (pid %d) %s", p->name, (int)p->pid,
			    !strcmp(why, "hidden") ? "may not be looked into from here."
			    : p->has_library ? "has the library, but its connections are "
					       "on TCP, or cannot be followed."
					     : "does not run under Viaduct: its "
					       "connections are on TCP.");
	else if (open == 0)
		say_verdict(a, true,
			    "%s (pid %d) runs under Viaduct, and has no connection now.",
			    p->name, (int)p->pid);
	else
		say_verdict(a, direct > 0, "%s (pid %d) runs under Viaduct. %s %s.",
			    p->name, (int)p->pid, which,
			    direct ? "on the direct path" : "on TCP");
	free(which);
}

int explain_pid(pid_t pid, int fd, struct answer *a)
{
	const struct observe_process *seen;
	struct links l = {0};
	struct world w;
	char thread[96];
	struct proc p;
	bool under;
	int rc = 0;

	if (fault_of_thread(pid, thread, sizeof(thread))) {
		warn_line("viaduct explain: %s", thread);
		return EXIT_USAGE;
	}
	if (proc_read(pid, &p) != 0) {
		fprintf(stderr, "viaduct explain: there is no process %d\n", (int)pid);
		return EXIT_USAGE;
	}
	if (world_take(pid, &w) != 0)
		return EXIT_USAGE;
	seen = observe_process(&w.o, pid);
	w.said = seen;
	if (seen)
		l = links_of(&w, seen);
	under = say_process(&p, seen, a);
	w.said_name = a->points[0].name;
	if (fd >= 0)
		rc = say_one(&w, &l, pid, fd, a);
	else
		say_all(&w, &l, &p, under, a);
	free(l.items);
	proc_finish(&p);
	world_finish(&w);
	return rc;
}
