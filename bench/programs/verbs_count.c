/* SPDX-License-Identifier: Apache-2.0 */
/* Preloaded: counts what a process asks of its RDMA device, and writes that at its end to the file
 * VERBS_COUNT. Each line is a name and a number. It counts for one thread at a time. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
	POST_SEND, /* calls */
	SENDS,	   /* what they post */
	SIGNALLED, /* of these: with a completion of their own */
	POST_RECEIVE,
	RECEIVES,
	POLL,
	COMPLETIONS,
	ARM,
	EVENT, /* taken from the channel */
	COUNTS
};

static const char *const names[COUNTS] = {"post-send",	 "sends",    "signalled",
					  "post-recv",	 "receives", "poll",
					  "completions", "arm",	     "event"};
static unsigned long counts[COUNTS];
/* Of the device's provider: all devices of one kind have the same. */
static struct ibv_context_ops ops;

static void *(*next_dlsym)(void *, const char *);
static struct ibv_context *(*next_open)(struct ibv_device *);
static int (*next_event)(struct ibv_comp_channel *, struct ibv_cq **, void **);

static void *find(void *handle, const char *name)
{
	if (!next_dlsym)
		next_dlsym = dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.34");
	if (!next_dlsym)
		next_dlsym = dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5");
	return next_dlsym(handle, name);
}

static int post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	counts[POST_SEND]++;
	for (const struct ibv_send_wr *w = wr; w; w = w->next) {
		counts[SENDS]++;
		counts[SIGNALLED] += (w->send_flags & IBV_SEND_SIGNALED) != 0;
	}
	return ops.post_send(qp, wr, bad);
}

static int post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	counts[POST_RECEIVE]++;
	for (const struct ibv_recv_wr *w = wr; w; w = w->next)
		counts[RECEIVES]++;
	return ops.post_recv(qp, wr, bad);
}

static int poll_cq(struct ibv_cq *cq, int max, struct ibv_wc *wc)
{
	int n = ops.poll_cq(cq, max, wc);

	counts[POLL]++;
	counts[COMPLETIONS] += n > 0 ? (unsigned long)n : 0;
	return n;
}

static int req_notify_cq(struct ibv_cq *cq, int solicited_only)
{
	counts[ARM]++;
	return ops.req_notify_cq(cq, solicited_only);
}

struct ibv_context *ibv_open_device(struct ibv_device *device)
{
	struct ibv_context *context;

	if (!next_open)
		*(void **)&next_open = find(RTLD_NEXT, "ibv_open_device");
	context = next_open(device);
	if (!context)
		return NULL;
	ops = context->ops;
	context->ops.post_send = post_send;
	context->ops.post_recv = post_recv;
	context->ops.poll_cq = poll_cq;
	context->ops.req_notify_cq = req_notify_cq;
	return context;
}

int ibv_get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **cq, void **of)
{
	int r;

	if (!next_event)
		*(void **)&next_event = find(RTLD_NEXT, "ibv_get_cq_event");
	r = next_event(channel, cq, of);
	counts[EVENT] += r == 0;
	return r;
}

/* Who looks the library's functions up gets those above. The last call is a jump, so that RTLD_NEXT
 * is the next one after the caller. */
void *dlsym(void *handle, const char *name)
{
	if (handle != RTLD_NEXT && !strcmp(name, "ibv_open_device")) {
		*(void **)&next_open = find(handle, name);
		return (void *)ibv_open_device;
	}
	if (handle != RTLD_NEXT && !strcmp(name, "ibv_get_cq_event")) {
		*(void **)&next_event = find(handle, name);
		return (void *)ibv_get_cq_event;
	}
	if (!next_dlsym)
		find(RTLD_DEFAULT, "dlsym");
	return next_dlsym(handle, name);
}

__attribute__((destructor)) static void tell(void)
{
	const char *path = getenv("VERBS_COUNT");
	int fd = path && counts[POLL]
			 ? open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644)
			 : -1;

	for (int i = 0; fd >= 0 && i < COUNTS; i++)
		dprintf(fd, "%s %lu\n", names[i], counts[i]);
	if (fd >= 0)
		close(fd);
}
