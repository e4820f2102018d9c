/* SPDX-License-Identifier: Apache-2.0 */
/* Answers of the kernel's netlink, and who may ask there. */
#ifndef VD_RENDEZVOUS_NETLINK_H
#define VD_RENDEZVOUS_NETLINK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct nlmsghdr;

/* The answer to the question of that number, which was sent before; answers to earlier ones are skipped. 0
 * or -errno. Does not block. */
int netlink_receive(int nl, uint32_t sequence, struct nlmsghdr *reply, size_t size);
/* The process, or with 0 this thread, has CAP_NET_ADMIN in its user namespace. */
bool netlink_may_administer(pid_t pid);

#endif
