/* SPDX-License-Identifier: Apache-2.0 */
/* For tests: switches a connection down at a moment of the test's choice. */
#include "hook/hook.h"

HOOK void viaduct_test_bounce(int fd);

/* Both directions go down to TCP and may come up again. No effect on other descriptors. */
void viaduct_test_bounce(int fd)
{
	struct sock *s = fd_sock(fd);

	if (s)
		sock_bounce(s, fd);
}
