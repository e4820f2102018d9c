/* SPDX-License-Identifier: Apache-2.0 */
/* What a process has of an RDMA device: one completion queue, events, a descriptor for both. */
#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>

#include "base/fds.h"
#include "base/kernel.h"
#include "base/low.h"
#include "rdma/verbs.h"
#include "rdma/verbs_parts.h"

enum { BATCH = 16 };

static struct verbs_process *of(struct link_context *c)
{
	return (struct verbs_process *)c;
}

/* ---- completions ---- */

static uint8_t error_of(const struct ibv_wc *wc, bool is_receive)
{
	if (wc->status == IBV_WC_SUCCESS || wc->status == IBV_WC_WR_FLUSH_ERR)
		return LINK_FINE;
	/* It has sent what is no write. */
	if (is_receive)
		return LINK_PEER_WRONG;
	switch (wc->status) {
	case IBV_WC_RETRY_EXC_ERR:
	case IBV_WC_RESP_TIMEOUT_ERR:
		return LINK_PEER_DEAD;
	case IBV_WC_RNR_RETRY_EXC_ERR:
		return LINK_PEER_WRONG;
	case IBV_WC_REM_ACCESS_ERR:
	case IBV_WC_REM_INV_REQ_ERR:
	case IBV_WC_REM_OP_ERR:
	case IBV_WC_REM_ABORT_ERR:
		return LINK_PEER_REFUSED;
	default:
		return LINK_LOCAL_FAULT;
	}
}

/* The device tells of a link, or of itself. Nobody waits for the answer. */
static void device_event(struct verbs_process *p, const struct ibv_async_event *e)
{
	switch (e->event_type) {
	case IBV_EVENT_QP_ACCESS_ERR:
	case IBV_EVENT_QP_REQ_ERR:
		/* The peer has written where it may not. */
		link_fail(e->element.qp->qp_context, LINK_PEER_WRONG);
		break;
	case IBV_EVENT_QP_FATAL:
		link_suspect(e->element.qp->qp_context);
		break;
	case IBV_EVENT_CQ_ERR:
	case IBV_EVENT_DEVICE_FATAL:
		link_fail_all(&p->context, LINK_DEVICE_LOST);
		break;
	default:
		break;
	}
}

static void device_events(struct verbs_process *p)
{
	struct ibv_async_event e;

	while (p->lib->ibv_get_async_event(p->port.device, &e) == 0) {
		device_event(p, &e);
		p->lib->ibv_ack_async_event(&e);
	}
}

static int poll_queue(struct link_context *c, struct fabric_done *out, int max)
{
	struct ibv_wc wc[BATCH];
	bool flushed = false;
	int n = ibv_poll_cq(of(c)->queue, max < BATCH ? max : BATCH, wc);

	if (n < 0)
		return -EIO;
	for (int i = 0; i < n; i++) {
		out[i] = (struct fabric_done){
			.tag = wc[i].wr_id,
			.error = error_of(&wc[i], wc[i].wr_id & LINK_TAG_RECEIVE),
			.flushed = wc[i].status == IBV_WC_WR_FLUSH_ERR,
		};
		if (wc[i].status == IBV_WC_SUCCESS && wc[i].wr_id & LINK_TAG_RECEIVE &&
		    wc[i].wc_flags & IBV_WC_WITH_IMM) {
			out[i].with_immediate = wc[i].opcode == IBV_WC_RECV_RDMA_WITH_IMM;
			out[i].immediate = ntohl(wc[i].imm_data);
			out[i].bytes = wc[i].byte_len;
		}
		flushed |= out[i].flushed;
	}
	/* The cause may be told of there alone. */
	if (flushed)
		device_events(of(c));
	return n;
}

static int arm_queue(struct link_context *c)
{
	return -ibv_req_notify_cq(of(c)->queue, 0);
}

static int answer_queue(struct link_context *c, bool brief)
{
	struct verbs_process *p = of(c);
	struct ibv_cq *queue;
	void *unused;

	while (p->lib->ibv_get_cq_event(p->channel, &queue, &unused) == 0) {
		p->lib->ibv_ack_cq_events(queue, 1);
		if (brief)
			return 1;
	}
	device_events(p);
	return 0;
}

/* ---- the process ---- */

static void finish(struct link_context *c)
{
	struct verbs_process *p = of(c);

	if (c->fd >= 0)
		fds_close(c->fd);
	fds_lost(p->port.device->cmd_fd);
	fds_lost(p->port.device->async_fd);
	if (p->channel)
		fds_lost(p->channel->fd);
	if (p->queue)
		p->lib->ibv_destroy_cq(p->queue);
	if (p->channel)
		p->lib->ibv_destroy_comp_channel(p->channel);
	p->lib->ibv_close_device(p->port.device);
}

/* Each of the library's calls would be carried out on the parent's objects. */
static void abandon(struct link_context *c)
{
	struct verbs_process *p = of(c);

	fds_close(c->fd);
	fds_close(p->channel->fd);
	fds_close(p->port.device->async_fd);
	fds_close(p->port.device->cmd_fd);
}

static const struct fabric_ops verbs_ops = {
	.name = "verbs",
	.link_bytes = sizeof(struct verbs_link),
	.open = verbs_link_open,
	.connect = verbs_link_connect,
	.halt = verbs_link_halt,
	.close = verbs_link_close,
	.post = verbs_link_post,
	.receive = verbs_link_receive,
	.add = verbs_link_add,
	.drop = verbs_link_drop,
	.poll = poll_queue,
	.arm = arm_queue,
	.answer = answer_queue,
	.finish = finish,
	.abandon = abandon,
};

/* libibverbs takes the lowest numbers, which are the program's. */
static void move_away(int *fd)
{
	int copy = LOW_MADE(fds_adopt, kernel_dup(*fd));

	if (copy < 0)
		return;
	kernel_close(*fd);
	*fd = copy;
}

static int watch(int epoll, int fd)
{
	struct epoll_event e = {.events = EPOLLIN};
	long flags = kernel_call4(SYS_fcntl, fd, F_GETFL, 0, 0);

	if (flags < 0 || kernel_call4(SYS_fcntl, fd, F_SETFL, flags | O_NONBLOCK, 0) < 0)
		return -EIO;
	return (int)kernel_call4(SYS_epoll_ctl, epoll, EPOLL_CTL_ADD, fd, (long)&e);
}

/* As many links as the device has room for. False: not even one. */
static bool fit(struct link_limits *l, const struct ibv_device_attr *device)
{
	uint32_t sends = l->sends + LINK_SEND_RESERVE;
	uint32_t receives = l->credits + LINK_RESERVE;
	uint32_t most = (uint32_t)device->max_cqe / (sends + receives);

	if (l->links > most)
		l->links = most;
	return l->links > 0 && sends <= (uint32_t)device->max_qp_wr &&
	       receives <= (uint32_t)device->max_qp_wr;
}

static int open_process(struct verbs_process *p, const char **why)
{
	struct link_context *c = &p->context;
	const struct link_limits *l = &c->limits;
	int r;

	*why = "the RDMA device's queues are too short";
	if (!fit(&c->limits, &p->port.limits))
		return -ENOSPC;
	*why = "the RDMA device gives no completion queue";
	p->channel = p->lib->ibv_create_comp_channel(p->port.device);
	if (!p->channel)
		return -errno;
	p->queue = p->lib->ibv_create_cq(p->port.device,
					 (int)(l->links * (l->sends + LINK_SEND_RESERVE +
							   l->credits + LINK_RESERVE)),
					 NULL, p->channel, 0);
	if (!p->queue)
		return -errno;
	move_away(&p->port.device->cmd_fd);
	move_away(&p->port.device->async_fd);
	move_away(&p->channel->fd);
	*why = "descriptors or memory are short";
	c->fd = LOW_MADE(fds_adopt,
			 kernel_call4(SYS_epoll_create1, EPOLL_CLOEXEC, 0, 0, 0));
	r = c->fd < 0 ? c->fd : watch(c->fd, p->channel->fd);
	if (r == 0)
		r = watch(c->fd, p->port.device->async_fd);
	return r < 0 ? r : link_context_init(c);
}

int link_verbs_open(const struct sockaddr *local, const struct link_limits *limits,
		    struct link_context **out, const char **why)
{
	const struct verbs_lib *lib = verbs_lib();
	struct verbs_process *p;
	int r;

	*why = "libibverbs is not installed";
	if (!lib)
		return -ENODEV;
	*why = "out of memory";
	p = calloc(1, sizeof(*p));
	if (!p)
		return -ENOMEM;
	p->lib = lib;
	p->context.ops = &verbs_ops;
	p->context.limits = *limits;
	p->context.fd = -1;
	*why = "the limits are out of range";
	r = link_limits_check(&p->context.limits);
	if (r == 0)
		r = verbs_port_find(lib, local, &p->port, why);
	if (r < 0) {
		free(p);
		return r;
	}
	r = open_process(p, why);
	if (r < 0) {
		finish(&p->context);
		free(p);
		return r;
	}
	*out = &p->context;
	return 0;
}

void link_verbs_name(const struct link_context *c, char *text, size_t size)
{
	const struct verbs_port *p = &((const struct verbs_process *)c)->port;

	snprintf(text, size, "%s, port %u, GID %d", p->device->device->name, p->port,
		 p->gid_index);
}
