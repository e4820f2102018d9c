/* SPDX-License-Identifier: Apache-2.0 */
/* What /proc says of one process, and whether it is under Viaduct. */
#ifndef VD_TOOL_EXPLAIN_PROC_H
#define VD_TOOL_EXPLAIN_PROC_H

#include <limits.h>
#include <stdbool.h>
#include <sys/types.h>

struct proc {
	pid_t pid;
	uid_t uid; /* effective */
	char name[64];
	char exe[PATH_MAX]; /* "" where it is not told */
	char *command;	    /* the command line as for a shell, or the file's name */
	char *unit;	    /* the system's service that it belongs to, or NULL */
	bool kernel;	    /* a kernel thread, or ended */
	bool maps_known, has_library, has_table; /* table: in its memory */
	bool has_libtirpc, has_rpc;
	bool env_known, preloaded, off;
	bool rings_left; /* VIADUCT_IO_URING=leave */
	char *rules;	 /* VIADUCT_RULES at its start, or NULL */
	char *preload;	 /* LD_PRELOAD then, or NULL */
	bool secure;	 /* it gained privileges at its start */
};

/* Why a process is not under Viaduct. */
struct outside {
	const char *name; /* "plain", or as explain_kind has it, or a reason's */
	char *why;	  /* a sentence, about "it" */
	char *remedy;	  /* sentences */
};

/* 0, or -ESRCH. */
int proc_read(pid_t pid, struct proc *p);
void proc_finish(struct proc *p);
/* True when its connections can be followed: has_table as `observe` tells. Else *out says
 * why not; outside_finish frees it. */
bool proc_is_under(const struct proc *p, bool has_table, struct outside *out);
void outside_finish(struct outside *out);
/* A limit of the process as /proc/PID/limits writes it ("1024", "unlimited"), or "". */
void proc_limit(pid_t pid, const char *name, char *text, size_t size);
/* True when that user of ours has a number in the process's user namespace, or it is not told. */
bool proc_maps_user(pid_t pid, uid_t user);
/* True when both are in the same namespace of that kind, or it is not told. */
bool proc_same_namespace(pid_t a, pid_t b, const char *kind);

#endif
