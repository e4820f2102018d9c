/* SPDX-License-Identifier: Apache-2.0 */
/* Stands in for the RDMA devices where the header of libibverbs was missing at build time. */
#include <errno.h>
#include <stdio.h>

#include "rdma/verbs.h"

int link_verbs_open(const struct sockaddr *local, const struct link_limits *limits,
		    struct link_context **out, const char **why)
{
	(void)local;
	(void)limits;
	(void)out;
	*why = "built without libibverbs";
	return -ENODEV;
}

void link_verbs_name(const struct link_context *c, char *text, size_t size)
{
	(void)c;
	snprintf(text, size, "none");
}
