/* SPDX-License-Identifier: Apache-2.0 */
/* The functions of libibverbs that are no inline ones: found at run time, never linked. */
#ifndef VD_RDMA_VERBS_LIB_H
#define VD_RDMA_VERBS_LIB_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <sys/socket.h>

#define VERBS_FUNCTIONS(X)                                                               \
	X(ibv_get_device_list)                                                           \
	X(ibv_free_device_list)                                                          \
	X(ibv_open_device)                                                               \
	X(ibv_close_device)                                                              \
	X(ibv_query_device)                                                              \
	X(ibv_query_port)                                                                \
	X(ibv_query_gid)                                                                 \
	X(_ibv_query_gid_ex)                                                             \
	X(ibv_get_async_event)                                                           \
	X(ibv_ack_async_event)                                                           \
	X(ibv_create_comp_channel)                                                       \
	X(ibv_destroy_comp_channel)                                                      \
	X(ibv_create_cq)                                                                 \
	X(ibv_destroy_cq)                                                                \
	X(ibv_get_cq_event)                                                              \
	X(ibv_ack_cq_events)                                                             \
	X(ibv_alloc_pd)                                                                  \
	X(ibv_dealloc_pd)                                                                \
	X(ibv_reg_mr)                                                                    \
	X(ibv_dereg_mr)                                                                  \
	X(ibv_create_qp)                                                                 \
	X(ibv_modify_qp)                                                                 \
	X(ibv_destroy_qp)

struct verbs_lib {
#define X(name) __typeof__(&name) name;
	VERBS_FUNCTIONS(X)
#undef X
};

/* NULL: it is not installed, or too old. It stays loaded. */
const struct verbs_lib *verbs_lib(void);

/* A port of an open device, and its address there. */
struct verbs_port {
	struct ibv_context *device;
	struct ibv_device_attr limits;
	struct ibv_port_attr attr;
	uint8_t port;
	bool is_infiniband;
	int gid_index;
	union ibv_gid gid;
};

/* Opens the device that has the address. 0, or -errno and a sentence. */
int verbs_port_find(const struct verbs_lib *lib, const struct sockaddr *local,
		    struct verbs_port *out, const char **why);

#endif
