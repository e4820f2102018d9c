/* SPDX-License-Identifier: Apache-2.0 */
/* Preloaded into a test: makes its process two users, so that it does not trust itself with
 * the doorbells of one. */
#include <unistd.h>

__attribute__((constructor)) static void become_two_users(void)
{
	if (setreuid((uid_t)-1, 12345) != 0)
		_exit(77);
}
