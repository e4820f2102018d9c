/* SPDX-License-Identifier: Apache-2.0 */
/* The beginning: what `conn` asks of readiness is answered here. */
#include "readiness/epoll.h"
#include "readiness/pollset.h"
#include "readiness/ready.h"

void ready_init(void)
{
	epoll_table_init();
	pollset_init();
	sock_may_attach = epoll_may_attach;
	sock_on_attach = epoll_on_attach;
	sock_on_final = epoll_on_final;
	sock_on_release = epoll_on_release;
}
