/* SPDX-License-Identifier: Apache-2.0 */
/* The queue pair of raw verbs: its set-up between two hosts, sends, receives, completions. */
#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "measure/bench.h"
#include "measure/raw.h"

/* A multiple of four. */
enum { DEPTH_MAX = 64, DEPTH_LEAST = 4, DEPTH_BYTES = 8 << 20 };
enum { WORDS_MAX = 4 }; /* messages without bytes that have not been taken */
#define TAG_SEND (UINT64_C(1) << 63)

/* What the ends tell each other over TCP, in the network's order. */
struct raw_address {
	uint32_t pair, lid, mtu;
	uint8_t gid[16];
};

static void fail_if(int error, const char *what)
{
	if (!error)
		return;
	errno = error;
	bench_role_fail(what);
}

static bool find(int fd, struct verbs_port *port)
{
	const struct verbs_lib *lib = verbs_lib();
	struct sockaddr_storage own;
	socklen_t len = sizeof(own);
	const char *why;

	return lib && getsockname(fd, (struct sockaddr *)&own, &len) == 0 &&
	       verbs_port_find(lib, (struct sockaddr *)&own, port, &why) == 0;
}

bool bench_raw_found(int fd)
{
	struct verbs_port port;

	if (!find(fd, &port))
		return false;
	verbs_lib()->ibv_close_device(port.device);
	return true;
}

void raw_post_receive(struct raw *r, unsigned place)
{
	struct ibv_sge part = {.addr = (uintptr_t)r->places +
				       (r->depth + place) * r->size,
			       .length = (uint32_t)r->size,
			       .lkey = r->memory->lkey};
	struct ibv_recv_wr wr = {.wr_id = place, .sg_list = &part, .num_sge = 1}, *bad;

	fail_if(ibv_post_recv(r->pair, &wr, &bad), "a receive");
}

void raw_post_send(struct raw *r, const uint8_t *from, enum raw_word word)
{
	size_t bytes = from ? r->size : 0;
	struct ibv_sge part = {.addr = (uintptr_t)from,
			       .length = (uint32_t)bytes,
			       .lkey = r->memory->lkey};
	struct ibv_send_wr wr = {
		.wr_id = TAG_SEND | ++r->posted,
		.sg_list = &part,
		.num_sge = bytes ? 1 : 0,
		.opcode = word ? IBV_WR_SEND_WITH_IMM : IBV_WR_SEND,
		.send_flags = (r->posted % (r->depth / 4) ? 0 : IBV_SEND_SIGNALED) |
			      (bytes && bytes <= r->inline_max ? IBV_SEND_INLINE : 0),
		.imm_data = htonl(word),
	};
	struct ibv_send_wr *bad;

	fail_if(ibv_post_send(r->pair, &wr, &bad), "a send");
}

static void sleep_for_event(struct raw *r)
{
	struct ibv_cq *queue;
	void *unused;

	if (r->lib->ibv_get_cq_event(r->channel, &queue, &unused))
		bench_role_fail("an event of the device");
	r->lib->ibv_ack_cq_events(queue, 1);
	r->is_armed = false;
}

/* What came before it tells of no event: the caller polls once more. */
static void arm(struct raw *r)
{
	fail_if(ibv_req_notify_cq(r->queue, 0), "the completion queue");
	r->is_armed = true;
}

enum raw_taken raw_look(struct raw *r)
{
	struct ibv_wc wc;
	int n = ibv_poll_cq(r->queue, 1, &wc);

	if (n == 0)
		return RAW_NOTHING;
	if (n < 0 || wc.status != IBV_WC_SUCCESS) {
		errno = n < 0 ? EIO : EREMOTEIO;
		bench_role_fail("the queue pair");
	}
	if (wc.wr_id & TAG_SEND) {
		r->completed = wc.wr_id & ~TAG_SEND;
		return RAW_SENT;
	}
	r->place = (unsigned)wc.wr_id;
	if (!(wc.wc_flags & IBV_WC_WITH_IMM)) {
		fail_if(wc.byte_len == r->size ? 0 : EBADMSG, "the length of a message");
		return RAW_DATA;
	}
	raw_post_receive(r, r->place);
	if (ntohl(wc.imm_data) == RAW_MARK)
		return RAW_MARKED;
	r->credits += r->depth / 2;
	return RAW_CREDITED;
}

enum raw_taken raw_take(struct raw *r)
{
	enum raw_taken what;

	while ((what = raw_look(r)) == RAW_NOTHING) {
		if (r->spins)
			continue;
		if (r->is_armed)
			sleep_for_event(r);
		else
			arm(r);
	}
	return what;
}

/* ---- set-up ---- */

static unsigned receives(const struct raw *r)
{
	return r->depth + WORDS_MAX;
}

static void make_pair(struct raw *r)
{
	struct ibv_qp_init_attr attr = {
		.send_cq = r->queue,
		.recv_cq = r->queue,
		.cap = {.max_send_wr = 2 * r->depth + WORDS_MAX,
			.max_recv_wr = receives(r),
			.max_send_sge = 1,
			.max_recv_sge = 1,
			.max_inline_data = 64},
		.qp_type = IBV_QPT_RC,
	};
	struct ibv_qp_attr init = {.qp_state = IBV_QPS_INIT, .port_num = r->port.port};

	r->pair = r->lib->ibv_create_qp(r->domain, &attr);
	if (!r->pair)
		bench_role_fail("a queue pair");
	r->inline_max = attr.cap.max_inline_data;
	fail_if(r->lib->ibv_modify_qp(r->pair, &init,
				      IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
					      IBV_QP_ACCESS_FLAGS),
		"the queue pair's port");
}

static void open_raw(struct raw *r, bool spins, size_t size, int fd)
{
	size_t fit = DEPTH_BYTES / size, count;

	*r = (struct raw){.lib = verbs_lib(), .size = size, .spins = spins};
	r->depth = fit > DEPTH_MAX     ? DEPTH_MAX
		   : fit < DEPTH_LEAST ? DEPTH_LEAST
				       : fit & ~3u;
	r->credits = r->depth;
	errno = ENODEV;
	if (!find(fd, &r->port))
		bench_role_fail("no RDMA device has this address");
	count = r->depth + receives(r);
	r->places = bench_buffer(count * r->size);
	/* As bench_buffer makes one message. */
	for (unsigned i = 1; i < r->depth; i++)
		memcpy(r->places + i * r->size, r->places, r->size);
	r->last = r->places[r->size - 1];
	r->domain = r->lib->ibv_alloc_pd(r->port.device);
	r->channel = r->lib->ibv_create_comp_channel(r->port.device);
	if (r->channel)
		r->queue = r->lib->ibv_create_cq(
			r->port.device, (int)(2 * r->depth + WORDS_MAX + receives(r)),
			NULL, r->channel, 0);
	if (!r->domain || !r->queue)
		bench_role_fail("the device's queues");
	r->memory = (r->lib->ibv_reg_mr)(r->domain, r->places, count * r->size,
					 IBV_ACCESS_LOCAL_WRITE);
	if (!r->memory)
		bench_role_fail("memory for the device (ulimit -l)");
	make_pair(r);
	for (unsigned i = 0; i < receives(r); i++)
		raw_post_receive(r, i);
}

static void connect_pair(struct raw *r, const struct raw_address *peer)
{
	uint32_t mtu = ntohl(peer->mtu);
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = mtu < r->port.attr.active_mtu ? mtu : r->port.attr.active_mtu,
		.dest_qp_num = ntohl(peer->pair),
		.max_dest_rd_atomic = 1,
		.min_rnr_timer = 12,
		.ah_attr = {.port_num = r->port.port},
	};

	if (r->port.is_infiniband) {
		attr.ah_attr.dlid = (uint16_t)ntohl(peer->lid);
	} else {
		attr.ah_attr.is_global = 1;
		memcpy(attr.ah_attr.grh.dgid.raw, peer->gid, sizeof(peer->gid));
		attr.ah_attr.grh.sgid_index = (uint8_t)r->port.gid_index;
		attr.ah_attr.grh.hop_limit = 64;
	}
	fail_if(r->lib->ibv_modify_qp(r->pair, &attr,
				      IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU |
					      IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
					      IBV_QP_MAX_DEST_RD_ATOMIC |
					      IBV_QP_MIN_RNR_TIMER),
		"the way to the other host");
	attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS,
				    .timeout = 16,
				    .retry_cnt = 6,
				    .rnr_retry = 6,
				    .max_rd_atomic = 1};
	fail_if(r->lib->ibv_modify_qp(r->pair, &attr,
				      IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
					      IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
					      IBV_QP_MAX_QP_RD_ATOMIC),
		"the queue pair's start");
}

/* Both are there. */
static void meet(int fd)
{
	uint8_t word = 1;

	bench_send_all(fd, &word, 1, false);
	if (!bench_recv_all(fd, &word, 1, false))
		bench_role_fail("the other end went away");
}

void raw_start(struct raw *r, bool spins, size_t size, int fd)
{
	struct raw_address own = {0}, peer;

	open_raw(r, spins, size, fd);
	own.pair = htonl(r->pair->qp_num);
	own.lid = htonl(r->port.attr.lid);
	own.mtu = htonl(r->port.attr.active_mtu);
	memcpy(own.gid, r->port.gid.raw, sizeof(own.gid));
	bench_send_all(fd, &own, sizeof(own), false);
	if (!bench_recv_all(fd, &peer, sizeof(peer), false))
		bench_role_fail("the other end went away");
	connect_pair(r, &peer);
	meet(fd);
}

void raw_end(struct raw *r, int fd)
{
	/* With the queue pair what is still on its way would go. */
	meet(fd);
	r->lib->ibv_destroy_qp(r->pair);
	r->lib->ibv_dereg_mr(r->memory);
	free(r->places);
}
