/* SPDX-License-Identifier: Apache-2.0 */
/* For the tests of the rendezvous in network namespaces of their own. */
#ifndef VD_TESTS_UNIT_RENDEZVOUS_NETNS_H
#define VD_TESTS_UNIT_RENDEZVOUS_NETNS_H

#include <fcntl.h>
#include <linux/capability.h>
#include <sched.h>
#include <sys/syscall.h>

#include "unit/rendezvous_pair.h"
#include "unit/test.h"

enum { UNSUPPORTED = 77 };

PAIR_FN bool shell(const char *command)
{
	return system(command) == 0;
}

PAIR_FN void need(bool there)
{
	if (!there)
		_exit(UNSUPPORTED);
}

/* Runs fn in a network namespace of its own. */
#define NETNS_TEST(id)                                                                   \
	static void netns_test_##id(void *);                                             \
	TEST(id)                                                                         \
	{                                                                                \
		int status = child_wait(child_start(netns_test_##id, NULL));             \
		if (status == UNSUPPORTED)                                               \
			SKIP("needs root, ip and nft");                                  \
		CHECK_EQ(status, 0);                                                     \
	}                                                                                \
	static void netns_test_##id(void *arg __attribute__((unused)))

PAIR_FN void enter_netns(void)
{
	need(unshare(CLONE_NEWNET) == 0);
	need(shell("ip link set lo up 2>/dev/null"));
}

PAIR_FN const char *const redirect =
	"nft 'add table inet t; add chain inet t o { type nat hook output priority -100; "
	"};"
	" add rule inet t o tcp dport 80 redirect to :8080' 2>/dev/null";

/* What this process may do with the network: an end asks conntrack only where it may. */
PAIR_FN void permit(bool may)
{
	struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct data[2];

	REQUIRE(syscall(SYS_capget, &head, data) == 0);
	if (may)
		data[0].effective |= 1u << CAP_NET_ADMIN;
	else
		data[0].effective &= ~(1u << CAP_NET_ADMIN);
	REQUIRE(syscall(SYS_capset, &head, data) == 0);
}

#endif
