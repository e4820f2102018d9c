/* SPDX-License-Identifier: Apache-2.0 */
/* The receiver's side of connections that are passed on: see received.h. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "base/kernel.h"
#include "base/low.h"
#include "base/put.h"
#include "base/tcp.h"
#include "conn/conn.h"
#include "conn/passed.h"
#include "conn/received.h"
#include "conn/table.h"
#include "rendezvous/diag.h"

/* Of the sender's table in pieces: handlers have small stacks. */
#define ENTRIES_AT_ONCE 32u

enum origin_state { ORIGIN_UNKNOWN, ORIGIN_SOUGHT, ORIGIN_KNOWN, ORIGIN_NONE };

/* Written once, by the thread that has made it SOUGHT, before it is KNOWN. */
static struct {
	_Atomic uint32_t state; /* enum origin_state */
	uint64_t channel, peer; /* inodes of both ends of the AF_UNIX socket */
	uint64_t memory;	/* inode of the sender's table */
	int32_t pid,
		number; /* the process at the other end, and its descriptor of that */
} origin;

static bool is_table(int dir, const char *name)
{
	static const char table[] = "/memfd:" TABLE_NAME " ";
	char target[sizeof(table)];
	long n = kernel_call4(SYS_readlinkat, dir, (long)name, (long)target,
			      sizeof(target));

	return n >= (long)sizeof(table) - 1 &&
	       memcmp(target, table, sizeof(table) - 1) == 0;
}

/* The descriptor of its table, or -1. The kernel writes what is struct dirent here. */
static int table_number(int dir)
{
	char bytes[1024];
	long n;

	while ((n = kernel_call4(SYS_getdents64, dir, (long)bytes, sizeof(bytes), 0)) > 0)
		for (long at = 0; at < n;) {
			const struct dirent *d = (const void *)(bytes + at);

			if (is_table(dir, d->d_name))
				return atoi(d->d_name);
			at += d->d_reclen;
		}
	return -1;
}

static char *put_folder(char *to, int32_t pid)
{
	return put_text(put_number(put_text(to, "/proc/"), pid), "/fd");
}

/* As a descriptor for a moment, under low_lock; or -errno. */
static int open_table(struct stat *st)
{
	char path[48];
	int fd;

	put_number(put_text(put_folder(path, origin.pid), "/"), origin.number);
	fd = kernel_open(path, O_RDONLY | O_CLOEXEC, 0);
	if (fd >= 0 && kernel_fstat(fd, st) == 0 &&
	    st->st_uid == (uid_t)kernel_call4(SYS_geteuid, 0, 0, 0, 0))
		return fd;
	if (fd >= 0)
		kernel_close(fd);
	return fd < 0 ? fd : -EACCES;
}

static bool is_like_ours(int fd)
{
	struct slot_table head;
	const size_t size = offsetof(struct slot_table, next_process);

	return kernel_pread(fd, &head, size, 0) == (ssize_t)size &&
	       head.magic == TABLE_MAGIC && head.layout == TABLE_LAYOUT &&
	       head.table_bytes == sizeof(struct slot_table);
}

static bool find_table(void)
{
	char path[32];
	struct stat st;
	int dir, fd;
	bool found = false;

	put_folder(path, origin.pid);
	low_begin();
	dir = kernel_open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
	if (dir >= 0) {
		origin.number = table_number(dir);
		kernel_close(dir);
		fd = origin.number < 0 ? -1 : open_table(&st);
		if (fd >= 0) {
			found = is_like_ours(fd);
			origin.memory = st.st_ino;
			kernel_close(fd);
		}
	}
	low_end();
	return found;
}

/* Who made the pair, or listens: of the same user alone, who could stop us anyway. */
static bool find_process(int channel)
{
	struct ucred who;
	socklen_t len = sizeof(who);

	if (kernel_call6(SYS_getsockopt, channel, SOL_SOCKET, SO_PEERCRED, (long)&who,
			 (long)&len, 0) < 0 ||
	    who.pid <= 0 || who.uid != (uid_t)kernel_call4(SYS_geteuid, 0, 0, 0, 0))
		return false;
	origin.pid = who.pid;
	return true;
}

static bool seek(int channel, uint64_t inode)
{
	uint64_t netns;
	uint32_t peer;

	if (tcp_netns_cookie(channel, &netns) < 0 ||
	    diag_unix_peer(netns, (uint32_t)inode, &peer) <= 0 || !find_process(channel))
		return false;
	origin.channel = inode;
	origin.peer = peer;
	return find_table();
}

static bool is_from_origin(int channel)
{
	uint32_t state = load_acquire(&origin.state), unknown = ORIGIN_UNKNOWN;
	struct stat st;

	if (state == ORIGIN_NONE || state == ORIGIN_SOUGHT ||
	    kernel_fstat(channel, &st) != 0)
		return false;
	if (state == ORIGIN_KNOWN)
		return st.st_ino == origin.channel;
	if (!atomic_compare_exchange_strong(&origin.state, &unknown, ORIGIN_SOUGHT))
		return false;
	state = seek(channel, st.st_ino) ? ORIGIN_KNOWN : ORIGIN_NONE;
	store_release(&origin.state, state);
	return state == ORIGIN_KNOWN;
}

static int option_of(int fd, int name)
{
	int value = -1;
	socklen_t len = sizeof(value);

	kernel_call6(SYS_getsockopt, fd, SOL_SOCKET, name, (long)&value, (long)&len, 0);
	return value;
}

static bool is_connection(int fd)
{
	return option_of(fd, SO_PROTOCOL) == IPPROTO_TCP &&
	       option_of(fd, SO_TYPE) == SOCK_STREAM && option_of(fd, SO_ACCEPTCONN) == 0;
}

void received_open(int fd, int channel, bool peeked)
{
	struct sock *s;
	int flags;

	if (load_relaxed(&origin.state) == ORIGIN_NONE || !is_connection(fd))
		return;
	/* By two numbers here, and the table would know one. */
	if (peeked)
		store_release(&origin.state, ORIGIN_NONE);
	if (!is_from_origin(channel))
		return;
	flags = (int)kernel_call4(SYS_fcntl, fd, F_GETFL, 0, 0);
	s = fd_open_accepted(fd, flags & O_NONBLOCK);
	if (s)
		atomic_fetch_or(&s->slot->ever, EVER_RECEIVED);
}

/* Of all, in pieces: one that is there is found, since it stays as long as PASSED_ENTRIES others do not come. */
static int state_in(int fd, uint64_t cookie)
{
	struct passed_entry some[ENTRIES_AT_ONCE];
	off_t at = offsetof(struct slot_table, passed);

	for (uint32_t i = 0; i < PASSED_ENTRIES;
	     i += ENTRIES_AT_ONCE, at += sizeof(some)) {
		if (kernel_pread(fd, some, sizeof(some), at) != (ssize_t)sizeof(some))
			return -VD_REASON_ROLE;
		for (uint32_t k = 0; k < ENTRIES_AT_ONCE; k++) {
			uint64_t word = load_relaxed(&some[k].word);

			if (word >> PASSED_SHIFT == cookie && word != 0)
				return load_relaxed(&some[k].channel) != origin.peer
					       ? -VD_REASON_ROLE
				       : word == passed_word(cookie, PASSED_RELEASED) ? 1
										      : 0;
		}
	}
	return -VD_REASON_ROLE;
}

int received_is_free(struct slot *sl)
{
	int r = -VD_REASON_ROLE, fd;
	struct stat st;

	if (!(load_relaxed(&sl->ever) & EVER_RECEIVED))
		return 1;
	if (load_acquire(&origin.state) != ORIGIN_KNOWN)
		return r;
	low_begin();
	fd = open_table(&st);
	if (fd >= 0) {
		if (st.st_ino == origin.memory)
			r = state_in(fd, atomic_load(&sl->cookie));
		kernel_close(fd);
	}
	low_end();
	if (r == 1)
		atomic_fetch_and(&sl->ever, ~(uint32_t)EVER_RECEIVED);
	return r;
}
