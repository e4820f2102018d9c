/* SPDX-License-Identifier: Apache-2.0 */
/* Calls by which a process gives up rights for good: before that it leaves the table of sockets that it
 * shares with others. */
#include <errno.h>
#include <linux/capability.h>
#include <sched.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/kernel.h"
#include "base/log.h"
#include "base/sigsafe.h"
#include "conn/table.h"
#include "preload/hook.h"

/*
 * Counted is what cannot be taken back. A process that keeps CAP_SETGID can have any group again, and
 * one whose saved user is still root can be root again: whoever takes it over is as strong as before.
 * So setgroups and setfsuid are not looked at, and seteuid(user) by root, which servers do amid their
 * work, costs nothing.
 */

/* Real, effective and saved, as the kernel has them. */
struct ids {
	uint32_t id[3];
};
#define SAME UINT32_MAX

#define NAMESPACES (CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNS)

static bool has_thread(void)
{
	return !__libc_single_threaded && !hook_is_alone();
}

static bool matters(void)
{
	return hook_active && !hook_is_borrowed() && table_is_shared() &&
	       !table_is_private();
}

/* What threads do in the table meanwhile cannot be held up: so they go on in a copy, which children
 * do not share. What is direct then could not be a child's as well. */
static void leave_amid_threads(void)
{
	bool parted = load_relaxed(&hook_is_parted);
	int saved = errno;

	/* As in a daemon whose first process has ended. */
	if (!slot_table_has_others())
		return;
	log_info("everything goes back to TCP: %s (%s)", reason_name(VD_REASON_RIGHTS),
		 reason_text(VD_REASON_RIGHTS));
	hook_refuse_all(VD_REASON_RIGHTS);
	if (sock_leave_amid_threads(!parted))
		log_debug("gives up rights: has a copy of the table of sockets now");
	else
		log_error("gives up rights, and still shares the table of sockets with "
			  "processes that keep theirs: there is no way to a copy");
	errno = saved;
}

void credentials_leave(void)
{
	if (!matters())
		return;
	if (has_thread() || load_relaxed(&hook_is_parted))
		leave_amid_threads();
	else if (sock_leave_table())
		log_debug("gives up rights: has a table of sockets of its own now");
	else
		log_error("gives up rights, and still shares the table of sockets: there "
			  "is no memory for another");
}

static bool loses(const struct ids *old, const struct ids *new)
{
	for (int i = 0; i < 3; i++) {
		bool kept = false;

		for (int k = 0; k < 3; k++)
			kept |= new->id[k] == old->id[i];
		if (!kept)
			return true;
	}
	return false;
}

static void replace(struct ids *ids, uint32_t real, uint32_t effective, uint32_t saved)
{
	const uint32_t new[3] = {real, effective, saved};

	for (int i = 0; i < 3; i++)
		if (new[i] != SAME)
			ids->id[i] = new[i];
}

/* By SYS_getresuid or SYS_getresgid: each function of libc is one more to be found at each start. */
static struct ids ids_now(long nr)
{
	struct ids i;

	kernel_call4(nr, (long)&i.id[0], (long)&i.id[1], (long)&i.id[2], 0);
	return i;
}

static bool permitted(uint32_t set[_LINUX_CAPABILITY_U32S_3])
{
	struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3] = {{0}};

	if (kernel_call4(SYS_capget, (long)&head, (long)data, 0, 0) != 0)
		return false;
	for (int i = 0; i < _LINUX_CAPABILITY_U32S_3; i++)
		set[i] = data[i].permitted;
	return true;
}

static bool has(int capability)
{
	uint32_t set[_LINUX_CAPABILITY_U32S_3];

	return permitted(set) &&
	       (set[CAP_TO_INDEX(capability)] & CAP_TO_MASK(capability));
}

static bool is_root(const struct ids *i)
{
	return i->id[0] == 0 || i->id[1] == 0 || i->id[2] == 0;
}

/* CAP_SETUID goes with the last of the three that is root. */
static bool may_have_any_user(const struct ids *old, const struct ids *new)
{
	return (is_root(new) || !is_root(old)) && has(CAP_SETUID);
}

static void users_become(uint32_t real, uint32_t effective, uint32_t saved)
{
	struct ids old, new;

	if (!matters())
		return;
	old = new = ids_now(SYS_getresuid);
	replace(&new, real, effective, saved);
	if (loses(&old, &new) && !may_have_any_user(&old, &new))
		credentials_leave();
}

static void groups_become(uint32_t real, uint32_t effective, uint32_t saved)
{
	struct ids old, new;

	if (!matters())
		return;
	old = new = ids_now(SYS_getresgid);
	replace(&new, real, effective, saved);
	if (loses(&old, &new) && !has(CAP_SETGID))
		credentials_leave();
}

/* The saved one follows where the real one is set, or the effective one becomes another. */
static uint32_t saved_by(uint32_t real, uint32_t effective, uint32_t old_real)
{
	return real != SAME || (effective != SAME && effective != old_real) ? effective
									    : SAME;
}

static void capabilities_become(const void *header, const void *sets)
{
	struct __user_cap_header_struct head;
	struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3] = {{0}};
	uint32_t old[_LINUX_CAPABILITY_U32S_3], lost = 0;
	int n = _LINUX_CAPABILITY_U32S_3;

	if (!matters() || crit_copy(&head, header, sizeof(head)) != 0)
		return;
	if (head.version == _LINUX_CAPABILITY_VERSION_1)
		n = _LINUX_CAPABILITY_U32S_1;
	if (crit_copy(data, sets, (size_t)n * sizeof(data[0])) != 0 || !permitted(old))
		return;
	for (int i = 0; i < _LINUX_CAPABILITY_U32S_3; i++)
		lost |= old[i] & ~data[i].permitted;
	if (lost)
		credentials_leave();
}

void credentials_namespaces(unsigned long flags)
{
	if (flags & NAMESPACES)
		credentials_leave();
}

HOOK int setuid(uid_t uid)
{
	users_become(uid, uid, uid);
	return REAL_LATE(setuid)(uid);
}

HOOK int seteuid(uid_t uid)
{
	users_become(SAME, uid, SAME);
	return REAL_LATE(seteuid)(uid);
}

HOOK int setreuid(uid_t real, uid_t effective)
{
	users_become(real, effective,
		     saved_by(real, effective, ids_now(SYS_getresuid).id[0]));
	return REAL_LATE(setreuid)(real, effective);
}

HOOK int setresuid(uid_t real, uid_t effective, uid_t saved)
{
	users_become(real, effective, saved);
	return REAL_LATE(setresuid)(real, effective, saved);
}

HOOK int setgid(gid_t gid)
{
	groups_become(gid, gid, gid);
	return REAL_LATE(setgid)(gid);
}

HOOK int setegid(gid_t gid)
{
	groups_become(SAME, gid, SAME);
	return REAL_LATE(setegid)(gid);
}

HOOK int setregid(gid_t real, gid_t effective)
{
	groups_become(real, effective,
		      saved_by(real, effective, ids_now(SYS_getresgid).id[0]));
	return REAL_LATE(setregid)(real, effective);
}

HOOK int setresgid(gid_t real, gid_t effective, gid_t saved)
{
	groups_become(real, effective, saved);
	return REAL_LATE(setresgid)(real, effective, saved);
}

/* libc has it without a prototype. */
int capset(cap_user_header_t header, cap_user_data_t data);
HOOK int capset(cap_user_header_t header, cap_user_data_t data)
{
	capabilities_become(header, data);
	return REAL_LATE(capset)(header, data);
}

HOOK int chroot(const char *path)
{
	credentials_leave();
	return REAL_LATE(chroot)(path);
}

HOOK int setns(int fd, int type)
{
	/* Without a type it is the descriptor's. */
	if (type == 0 || (type & NAMESPACES))
		credentials_leave();
	return REAL_LATE(setns)(fd, type);
}

void credentials_syscall(long nr, const long a[6])
{
	uint32_t x = (uint32_t)a[0], y = (uint32_t)a[1], z = (uint32_t)a[2];

	switch (nr) {
	case SYS_setuid:
		users_become(x, x, x);
		break;
	case SYS_setreuid:
		users_become(x, y, saved_by(x, y, ids_now(SYS_getresuid).id[0]));
		break;
	case SYS_setresuid:
		users_become(x, y, z);
		break;
	case SYS_setgid:
		groups_become(x, x, x);
		break;
	case SYS_setregid:
		groups_become(x, y, saved_by(x, y, ids_now(SYS_getresgid).id[0]));
		break;
	case SYS_setresgid:
		groups_become(x, y, z);
		break;
	case SYS_capset:
		capabilities_become((const void *)a[0], (const void *)a[1]);
		break;
	case SYS_setns:
		if (y == 0 || (y & NAMESPACES))
			credentials_leave();
		break;
	case SYS_chroot:
	case SYS_pivot_root:
	case SYS_landlock_restrict_self:
		credentials_leave();
		break;
	default:
		break;
	}
}
