/* SPDX-License-Identifier: Apache-2.0 */
/* What questions to the kernel's netlink have in common. */
#include <errno.h>
#include <linux/capability.h>
#include <linux/netlink.h>
#include <sys/socket.h>

#include "base/kernel.h"
#include "rendezvous/netlink.h"

#define STALE_MAX 16 /* answers to earlier questions that are skipped */

/* The kernel has answered before send returned: what is not there will not come. */
int netlink_receive(int nl, uint32_t sequence, struct nlmsghdr *reply, size_t size)
{
	struct sockaddr_nl from;

	for (int i = 0; i < STALE_MAX; i++) {
		socklen_t from_len = sizeof(from);
		ssize_t n = kernel_call6(SYS_recvfrom, nl, (long)reply, (long)size,
					 MSG_DONTWAIT, (long)&from, (long)&from_len);
		if (n < 0)
			return (int)n;
		if (from_len == sizeof(from) && from.nl_pid == 0 && NLMSG_OK(reply, n) &&
		    reply->nlmsg_seq == sequence)
			return 0;
	}
	return -EPROTO;
}

bool netlink_may_administer(pid_t pid)
{
	struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3,
						.pid = pid};
	struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3] = {0};

	return kernel_call4(SYS_capget, (long)&head, (long)data, 0, 0) == 0 &&
	       (data[CAP_TO_INDEX(CAP_NET_ADMIN)].effective & CAP_TO_MASK(CAP_NET_ADMIN));
}
