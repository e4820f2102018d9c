/* SPDX-License-Identifier: Apache-2.0 */
/* A plugin that brings liburing with it: the program that loads it knows nothing of that. */
#include <liburing.h>

/* What is read, or -errno. */
__attribute__((visibility("default"))) int plugin_read(int fd, void *buf, unsigned len);
int plugin_read(int fd, void *buf, unsigned len)
{
	struct io_uring ring;
	struct io_uring_cqe *cqe;
	int result = io_uring_queue_init(4, &ring, 0);

	if (result < 0)
		return result;
	io_uring_prep_read(io_uring_get_sqe(&ring), fd, buf, len, 0);
	result = io_uring_submit(&ring);
	if (result == 1)
		result = io_uring_wait_cqe(&ring, &cqe);
	if (result == 0)
		result = cqe->res;
	io_uring_queue_exit(&ring);
	return result;
}
