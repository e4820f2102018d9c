/* SPDX-License-Identifier: Apache-2.0 */
/* A statically linked program in this process, which is its loader: it is made to come here; and its
 * questions for its own file, which would be answered by the loader's. */
#include "preload/start.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/go_text.h"
#include "base/kernel.h"
#include "base/log.h"
#include "base/self.h"
#include "base/sigsafe.h"
#include "conn/report.h"
#include "preload/go.h"
#include "preload/hook.h"
#include "preload/start_exec.h"
#include "preload/static.h"
#include "preload/syscall.h"

struct door_start start_loader;

/* ---- the program's file ---- */

/* Calls by path that follow a link at its end, and where their path is. */
static int path_argument(long nr, const long *a)
{
	switch (nr) {
	case SYS_open:
		return a[1] & O_NOFOLLOW ? -1 : 0;
	case SYS_stat:
	case SYS_access:
	case SYS_execve:
		return 0;
	case SYS_openat:
		return a[2] & O_NOFOLLOW ? -1 : 1;
	case SYS_openat2:
	case SYS_faccessat:
		return 1;
	case SYS_newfstatat:
	case SYS_faccessat2:
		return a[3] & AT_SYMLINK_NOFOLLOW ? -1 : 1;
	case SYS_statx:
		return a[2] & AT_SYMLINK_NOFOLLOW ? -1 : 1;
	case SYS_execveat:
		return a[4] & AT_SYMLINK_NOFOLLOW ? -1 : 1;
	default:
		return -1;
	}
}

static const uint16_t asks[] = {SYS_fstat,     SYS_stat,       SYS_access,
				SYS_readlink,  SYS_readlinkat, SYS_newfstatat,
				SYS_faccessat, SYS_faccessat2, SYS_statx};

/* Whether that begins with, or ends in, `text`: *at then is behind it. */
static bool reads(const char **at, const char *text, size_t len)
{
	char c;

	for (size_t i = 0; i < len; i++)
		if (crit_copy(&c, *at + i, 1) != 0 || c != text[i])
			return false;
	*at += len;
	return true;
}
#define READS(at, text)	    reads((at), (text), sizeof(text) - 1)
#define READS_END(at, text) reads((at), (text), sizeof(text))

static bool names_own_file(long path)
{
	const char *at = (const char *)path;
	char pid[16];
	int len;

	if (!READS(&at, "/proc/"))
		return false;
	if (READS(&at, "self/") || READS(&at, "thread-self/"))
		return READS_END(&at, "exe");
	len = snprintf(pid, sizeof(pid), "%d/", (int)self_pid());
	return reads(&at, pid, (size_t)len) && READS_END(&at, "exe");
}

static long read_own_link(long buf, long size)
{
	size_t len = strlen(start_loader.program);

	if ((int)size <= 0)
		return -EINVAL;
	if (len > (size_t)size)
		len = (size_t)size;
	return crit_copy((void *)buf, start_loader.program, len) == 0 ? (long)len
								      : -EFAULT;
}

/* A look at a descriptor alone, which may be one of ours. */
static bool looks_at_number(long nr, const long *a)
{
	long flags = nr == SYS_statx ? a[2] : a[3];
	char first;

	if (nr == SYS_fstat)
		return true;
	return (nr == SYS_newfstatat || nr == SYS_statx) && (flags & AT_EMPTY_PATH) &&
	       crit_copy(&first, (void *)a[1], 1) == 0 && !first;
}

bool start_own_file(long nr, long *a, long *result)
{
	int at;

	if (looks_at_number(nr, a) && hook_hidden((int)a[0])) {
		*result = -EBADF;
		return true;
	}
	if (nr == SYS_readlink || nr == SYS_readlinkat) {
		long *from = nr == SYS_readlink ? a : a + 1;

		if (!names_own_file(from[0]))
			return false;
		*result = read_own_link(from[1], from[2]);
		return true;
	}
	at = path_argument(nr, a);
	if (at >= 0 && names_own_file(a[at]))
		a[at] = (long)start_loader.program;
	return false;
}

size_t start_asks(uint8_t *to, size_t size)
{
	memcpy(to, hook_kinds, hook_kinds_count);
	for (size_t i = 0; i < sizeof(asks) / sizeof(asks[0]); i++)
		to[asks[i]] = 1;
	return size;
}

/* ---- its begin ---- */

static const char *join(void)
{
	struct go_text text;

	if (!hook_active)
		return "Viaduct is switched off";
	if (!go_text_begins(start_loader.program))
		return static_join();
	return go_text_find(start_loader.program, &text) == 0 ? go_static_join(&text)
							      : text.lacks;
}

int start_join(const struct door_start *from)
{
	const char *lacks;

	if (from)
		start_loader = *from;
	hook_has_no_cancel = true;
	lacks = from ? join() : "its loader cannot prepare for it";
	if (!lacks)
		return true;
	start_exec_stops = true;
	log_info("%s (%s): %s", reason_name(VD_REASON_RAW), reason_text(VD_REASON_RAW),
		 lacks);
	report_add(&report_now.reasons[VD_REASON_RAW], 1);
	report_write_now();
	return false;
}
