/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the verbs interconnect share: its context, its links, its queue pairs. */
#ifndef VD_RDMA_VERBS_PARTS_H
#define VD_RDMA_VERBS_PARTS_H

#include "rdma/fabric.h"
#include "rdma/verbs_lib.h"

struct verbs_process {
	struct link_context context;
	const struct verbs_lib *lib;
	struct verbs_port port;
	struct ibv_comp_channel *channel;
	struct ibv_cq *queue;
};

/* A protection domain each, since a key is good in the whole of one; but for links to the same
 * process. */
struct verbs_link {
	struct link link;
	struct ibv_pd *domain;
	struct ibv_mr *window;
	struct ibv_qp *pair;
};

static inline struct verbs_process *verbs_process_of(const struct link *l)
{
	return (struct verbs_process *)l->context;
}

/* The operations that concern one link: verbs_link.c. */
int verbs_link_open(struct link *l);
int verbs_link_connect(struct link *l, const struct link_address *peer);
void verbs_link_halt(struct link *l);
void verbs_link_close(struct link *l);
int verbs_link_post(struct link *l, const struct fabric_work *w);
int verbs_link_receive(struct link *l, uint32_t count, uint64_t tag);
int verbs_link_add(struct link *l, void *start, size_t bytes, uint32_t access,
		   struct link_memory *out);
void verbs_link_drop(struct link *l, struct link_memory *m);

#endif
