/* SPDX-License-Identifier: Apache-2.0 */
/* Who a process is, and whether a connection belongs to it, as the kernel says. */
#ifndef VD_DAEMON_OWNER_H
#define VD_DAEMON_OWNER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "daemon_client/local.h"

#define OWNER_PROGRAM_BYTES 16 /* as long as the kernel has it */

struct owner {
	pid_t pid;
	uint32_t uid;
	bool same_netns; /* it made its socket in our network namespace */
	char program[OWNER_PROGRAM_BYTES]; /* empty: not known */
};

/* Its user is somebody: users without a number in our user namespace all have the same one. */
bool owner_has_number(const struct owner *o);
/* Once, before processes are looked at: learns our network namespace. 0 or -errno. */
int owner_init(void);
/* Of the process that has connected to us, without its program. 0 or -errno. */
int owner_of_peer(int sock, struct owner *out);
/* What the process says of itself: good for sorting, not for keeping anybody out. Nothing that lies in its memory, of
 * which it can hold the lock for as long as it likes. */
void owner_learn_program(struct owner *o);
/*
 * LOCAL_OK where the kernel has a connection of these ends that the peer has answered, that
 * belongs to the user of the process and has a descriptor; *cookie is its SO_COOKIE then. Does not block.
 */
enum local_status owner_check(const struct owner *o, const struct name_end *local,
			      const struct name_end *peer, uint64_t *cookie);

#endif
