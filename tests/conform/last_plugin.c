/* SPDX-License-Identifier: Apache-2.0 */
/* A library that reads from a connection when the process ends, behind all that other libraries do then. */
#include <sys/socket.h>

static int kept = -1;
static int count;

/* So many bytes of fd are read at the end. */
__attribute__((visibility("default"))) void plugin_keep(int fd, int bytes);
void plugin_keep(int fd, int bytes)
{
	kept = fd;
	count = bytes;
}

__attribute__((destructor)) static void read_kept(void)
{
	char buf[200];

	if (kept >= 0)
		recv(kept, buf, (size_t)count, 0);
}
