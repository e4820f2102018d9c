/* SPDX-License-Identifier: Apache-2.0 */
/* For the tests of the native library: a peer that speaks the frames itself. */
#ifndef VD_TESTS_NATIVE_LIAR_H
#define VD_TESTS_NATIVE_LIAR_H

#include "native/frame.h"
#include "native/rig.h"

struct liar {
	int fd;
	vd_conn *c; /* the victim's end */
};

RIG_FN struct liar liar_open(void)
{
	struct sockaddr_in at = {0};
	socklen_t len = sizeof(at);
	struct liar l = {socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), NULL};
	vd_listener *from;

	alarm(RIG_ALARM_S);
	REQUIRE(vd_listen("127.0.0.1", "0", &from) == 0);
	REQUIRE(getsockname(vd_listener_fd(from), (struct sockaddr *)&at, &len) == 0);
	REQUIRE(connect(l.fd, (struct sockaddr *)&at, len) == 0);
	REQUIRE(vd_accept(from, RIG_MS, &l.c) == 0);
	vd_listener_close(from);
	return l;
}

RIG_FN void say(struct liar *l, struct frame f, const void *payload)
{
	REQUIRE(send(l->fd, &f, sizeof(f), MSG_NOSIGNAL) == sizeof(f));
	if (f.len && payload)
		REQUIRE(send(l->fd, payload, f.len, MSG_NOSIGNAL) == (ssize_t)f.len);
}

RIG_FN void say_hello(struct liar *l)
{
	say(l,
	    (struct frame){
		    .type = FRAME_HELLO, .id = FRAME_PROTOCOL, .offset = FRAME_MAGIC},
	    NULL);
}

/* The victim's next frame of this type; its payload is passed over. */
RIG_FN struct frame hear(struct liar *l, uint8_t type)
{
	struct frame f;
	uint8_t byte;

	do {
		REQUIRE(recv(l->fd, &f, sizeof(f), MSG_WAITALL) == sizeof(f));
		for (uint32_t i = 0; i < f.len; i++)
			REQUIRE(recv(l->fd, &byte, 1, MSG_WAITALL) == 1);
	} while (f.type != type);
	return f;
}

/* Both ends hear of it. */
RIG_FN void check_told(struct liar *l)
{
	struct vd_event ev;

	CHECK_EQ(vd_wait(l->c, &ev, 1, RIG_MS), 1);
	CHECK_EQ(ev.kind, VD_EVENT_END);
	CHECK_EQ(ev.result, -EPROTO);
	CHECK_EQ(vd_flush(l->c), -EPROTO);
	hear(l, FRAME_WRONG);
	CHECK(recv(l->fd, &ev, 1, 0) <= 0);
}

RIG_FN void liar_close(struct liar *l)
{
	vd_close(l->c);
	close(l->fd);
}

RIG_FN void check_caught(struct liar *l)
{
	check_told(l);
	liar_close(l);
}

/* The id of the victim's first export. */
#define ID (1u << FRAME_ID_SHIFT)

/* ---- the victim imports ---- */

struct import_call {
	vd_conn *c;
	vd_remote *h;
	int r;
};

RIG_FN void *import_it(void *arg)
{
	struct import_call *call = arg;

	call->r = vd_import(call->c, "m", RIG_MS, &call->h);
	return NULL;
}

/* Memory that is the victim's for the asking; but it is never brought. */
RIG_FN void export_whole(struct liar *l, uint64_t bytes)
{
	say(l,
	    (struct frame){.type = FRAME_EXPORT,
			   .flags = FRAME_WHOLE,
			   .id = ID,
			   .offset = bytes,
			   .tag = VD_READ | VD_WRITE,
			   .len = 1},
	    "m");
}

#endif
