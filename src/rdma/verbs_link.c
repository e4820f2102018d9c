/* SPDX-License-Identifier: Apache-2.0 */
/* One reliably connected queue pair: made, connected, posted to, halted, destroyed. */
#include <arpa/inet.h>
#include <errno.h>
#include <string.h>

#include "base/kernel.h"
#include "rdma/verbs_parts.h"

enum {
	/* 0.27 s without an answer, seven times: devices may take four times as long. A retry
	 * count of 7 would mean for ever. */
	TIMEOUT = 16,
	RETRIES = 6,
	/* A receive queue that is empty is the peer's fault: these are for its haste. */
	RNR_RETRIES = 6,
	RNR_TIMER = 12, /* 0.64 ms */
	HOPS = 64,
	SUBNET_BYTES = 8, /* of a GID */
	RECEIVE_BATCH = 32,
	WINDOW_ACCESS =
		IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ,
};

static struct verbs_link *of(struct link *l)
{
	return (struct verbs_link *)l;
}

static int create_pair(struct link *l)
{
	static const uint32_t inline_bytes[] = {128, 64, 32, 0};
	struct verbs_process *p = verbs_process_of(l);
	const struct link_limits *limits = &l->context->limits;

	for (size_t i = 0; i < sizeof(inline_bytes) / sizeof(inline_bytes[0]); i++) {
		struct ibv_qp_init_attr attr = {
			.qp_context = l,
			.send_cq = p->queue,
			.recv_cq = p->queue,
			.cap = {.max_send_wr = limits->sends + LINK_SEND_RESERVE,
				.max_recv_wr = limits->credits + LINK_RESERVE,
				.max_send_sge = 1,
				.max_recv_sge = 1,
				.max_inline_data = inline_bytes[i]},
			.qp_type = IBV_QPT_RC,
		};

		of(l)->pair = p->lib->ibv_create_qp(of(l)->domain, &attr);
		if (of(l)->pair) {
			l->inline_max = attr.cap.max_inline_data;
			return 0;
		}
		if (errno != EINVAL)
			break;
	}
	return -errno;
}

static int to_init(struct link *l)
{
	struct verbs_process *p = verbs_process_of(l);
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT,
				   .port_num = p->port.port,
				   .qp_access_flags = WINDOW_ACCESS};

	return -p->lib->ibv_modify_qp(of(l)->pair, &attr,
				      IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
					      IBV_QP_ACCESS_FLAGS);
}

/* Numbers that nobody outside can guess: stray packets of older pairs, forged hellos. */
static int address(struct link *l)
{
	const struct verbs_port *port = &verbs_process_of(l)->port;
	uint64_t random[2];

	if (kernel_call4(SYS_getrandom, (long)random, sizeof(random), 0, 0) !=
	    (long)sizeof(random))
		return -EIO;
	l->own = (struct link_address){
		.fabric = port->is_infiniband ? FABRIC_INFINIBAND : FABRIC_ROCE2,
		.mtu = (uint8_t)port->attr.active_mtu,
		.lid = port->is_infiniband ? port->attr.lid : 0,
		.qpn = of(l)->pair->qp_num,
		.psn = (uint32_t)random[1] & 0xffffff,
		.window = (uintptr_t)l->window,
		.window_bytes = l->window_bytes,
		.key = of(l)->window->rkey,
		.nonce = random[0] ? random[0] : 1,
	};
	memcpy(l->own.gid, port->gid.raw, sizeof(l->own.gid));
	l->write_max = port->attr.max_msg_sz;
	return 0;
}

int verbs_link_open(struct link *l)
{
	struct verbs_process *p = verbs_process_of(l);
	struct verbs_link *v = of(l);
	int r = -ENOMEM;

	v->domain =
		l->beside ? of(l->beside)->domain : p->lib->ibv_alloc_pd(p->port.device);
	if (v->domain)
		v->window = (p->lib->ibv_reg_mr)(v->domain, l->window, l->window_bytes,
						 WINDOW_ACCESS);
	if (!v->domain || !v->window)
		r = errno ? -errno : -ENOMEM;
	else
		r = create_pair(l);
	if (r == 0)
		r = to_init(l);
	if (r == 0)
		r = address(l);
	if (r < 0)
		verbs_link_close(l);
	return r;
}

/* 0 or -ENETUNREACH. */
static int to_path(const struct link *l, const struct link_address *peer,
		   struct ibv_ah_attr *path)
{
	const struct verbs_port *port = &verbs_process_of(l)->port;

	path->port_num = port->port;
	/* Within one subnet of InfiniBand, LIDs are enough. Into another one packets go by a router,
	 * whose LID only the subnet's administration knows: such connections stay on TCP. */
	if (port->is_infiniband) {
		path->dlid = peer->lid;
		return memcmp(peer->gid, l->own.gid, SUBNET_BYTES) == 0 ? 0
									: -ENETUNREACH;
	}
	path->is_global = 1;
	memcpy(path->grh.dgid.raw, peer->gid, sizeof(peer->gid));
	path->grh.sgid_index = (uint8_t)port->gid_index;
	path->grh.hop_limit = HOPS;
	return 0;
}

int verbs_link_connect(struct link *l, const struct link_address *peer)
{
	const struct verbs_lib *lib = verbs_process_of(l)->lib;
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = peer->mtu < l->own.mtu ? peer->mtu : l->own.mtu,
		.dest_qp_num = peer->qpn,
		.rq_psn = peer->psn,
		.max_dest_rd_atomic = 1,
		.min_rnr_timer = RNR_TIMER,
	};
	int r = to_path(l, peer, &attr.ah_attr);

	if (r < 0)
		return r;
	r = lib->ibv_modify_qp(of(l)->pair, &attr,
			       IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU |
				       IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
				       IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
	if (r)
		return -r;
	attr = (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTS,
		.timeout = TIMEOUT,
		.retry_cnt = RETRIES,
		.rnr_retry = RNR_RETRIES,
		.sq_psn = l->own.psn,
		.max_rd_atomic = 1,
	};
	return -lib->ibv_modify_qp(of(l)->pair, &attr,
				   IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
					   IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
					   IBV_QP_MAX_QP_RD_ATOMIC);
}

void verbs_link_halt(struct link *l)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};

	verbs_process_of(l)->lib->ibv_modify_qp(of(l)->pair, &attr, IBV_QP_STATE);
}

void verbs_link_close(struct link *l)
{
	const struct verbs_lib *lib = verbs_process_of(l)->lib;

	if (of(l)->pair)
		lib->ibv_destroy_qp(of(l)->pair);
	if (of(l)->window)
		lib->ibv_dereg_mr(of(l)->window);
	if (of(l)->domain && !l->beside)
		lib->ibv_dealloc_pd(of(l)->domain);
}

int verbs_link_post(struct link *l, const struct fabric_work *w)
{
	struct ibv_sge part = {.addr = (uintptr_t)w->from,
			       .length = w->bytes,
			       .lkey = w->in_window ? of(l)->window->lkey : w->key};
	struct ibv_send_wr wr = {
		.wr_id = w->tag,
		.sg_list = &part,
		.num_sge = w->bytes ? 1 : 0,
		.opcode = w->is_read	      ? IBV_WR_RDMA_READ
			  : w->with_immediate ? IBV_WR_RDMA_WRITE_WITH_IMM
					      : IBV_WR_RDMA_WRITE,
		.send_flags = (w->is_signalled ? IBV_SEND_SIGNALED : 0) |
			      (w->is_inline && w->bytes ? IBV_SEND_INLINE : 0),
		.imm_data = htonl(w->immediate),
		.wr.rdma = {.remote_addr = w->to, .rkey = w->to_key},
	};
	struct ibv_send_wr *bad;

	return -ibv_post_send(of(l)->pair, &wr, &bad);
}

int verbs_link_receive(struct link *l, uint32_t count, uint64_t tag)
{
	struct ibv_recv_wr wr[RECEIVE_BATCH], *bad;

	while (count) {
		uint32_t n = count < RECEIVE_BATCH ? count : RECEIVE_BATCH;
		int r;

		for (uint32_t i = 0; i < n; i++)
			wr[i] = (struct ibv_recv_wr){
				.wr_id = tag, .next = i < n - 1 ? &wr[i + 1] : NULL};
		r = ibv_post_recv(of(l)->pair, wr, &bad);
		if (r)
			return -r;
		count -= n;
	}
	return 0;
}

/* Where devices only read, read-only memory will do. */
static int flags_of(uint32_t access)
{
	return (access & LINK_MAY_READ ? IBV_ACCESS_REMOTE_READ : 0) |
	       (access & LINK_MAY_WRITE ? IBV_ACCESS_REMOTE_WRITE : 0) |
	       (access & (LINK_MAY_WRITE | LINK_MAY_SINK) ? IBV_ACCESS_LOCAL_WRITE : 0);
}

int verbs_link_add(struct link *l, void *start, size_t bytes, uint32_t access,
		   struct link_memory *out)
{
	struct ibv_mr *mr;

	mr = (verbs_process_of(l)->lib->ibv_reg_mr)(of(l)->domain, start, bytes,
						    flags_of(access));
	if (!mr)
		return errno ? -errno : -ENOMEM;
	out->handle = mr;
	out->key = mr->lkey;
	out->peer_key = mr->rkey;
	return 0;
}

void verbs_link_drop(struct link *l, struct link_memory *m)
{
	verbs_process_of(l)->lib->ibv_dereg_mr(m->handle);
}
