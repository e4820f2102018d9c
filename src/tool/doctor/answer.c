/* SPDX-License-Identifier: Apache-2.0 */
/* viaduct doctor --answer: the other end of what `viaduct doctor HOST` tries. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "tool/cli.h"
#include "tool/doctor/far.h"

enum { LISTEN_LIMIT_MS = 10000 };

static uint32_t us_of(double us)
{
	return us < 4e9 ? (uint32_t)us : UINT32_MAX;
}

static void look(const struct far_child *c, const struct far_event *e,
		 struct far_view *out)
{
	struct name_end local = e->local, peer = e->peer;
	char device[sizeof(out->device) + 1] = "";
	struct far_path path;
	struct probed p;
	const char *why;
	int error;

	memset(out, 0, sizeof(*out));
	far_look(c, &e->peer, &path);
	local.port = peer.port = 0;
	relay_probe(&local, &peer, &p);
	why = device_fault(&local, device, sizeof(device), &error);
	if (why)
		snprintf(device, sizeof(device), "%s", why);
	out->tx = (uint8_t)path.tx;
	out->rx = (uint8_t)path.rx;
	/* Of the connections that programs have, for which this child's settings are not. */
	out->reason = path.reason == VD_REASON_NONE && crossover_keeps_tcp(e->peer.addr)
			      ? VD_REASON_SLOWER
			      : path.reason;
	out->has_device = !why;
	out->relay_status = (uint8_t)p.status;
	out->relay_error = p.error;
	out->relay_cause = p.why.cause;
	out->relay_errno = p.why.error;
	out->relay_us = us_of(p.round_trip_us);
	out->relay_daemon = p.daemon;
	memcpy(out->device, device, sizeof(out->device));
}

/* 0, or -errno: the child is no more. */
static int take_event(const struct far_child *c)
{
	char text[LOCAL_END_TEXT_BYTES];
	struct far_event e;
	struct far_view view;
	int r = far_hear(c, &e, sizeof(e), -1);

	if (r < 0)
		return r;
	if (e.what == FAR_CAME) {
		printf("%s has come\n", local_end_text(&e.peer, text));
		fflush(stdout);
		return 0;
	}
	look(c, &e, &view);
	return far_tell(c, &view, sizeof(view));
}

int doctor_answer(uint16_t port)
{
	char number[8];
	char *const argv[] = {(char *)"viaduct", (char *)"doctor", (char *)"--far-answer",
			      (char *)"--port",	 number,	   NULL};
	struct far_child c = {0};
	struct far_event e = {.error = -EPIPE};
	int r;

	snprintf(number, sizeof(number), "%u", port);
	r = far_start(&c, argv, crossover_keeps_any() ? FAR_BY_RING : FAR_AS_SET);
	if (r == 0)
		r = far_hear(&c, &e, sizeof(e), LISTEN_LIMIT_MS);
	if (r == 0)
		r = e.error;
	if (r < 0) {
		warn_line("viaduct doctor: port %u cannot be listened at: %s", port,
			  strerror(-r));
		far_end(&c, 0);
		return 1;
	}
	printf("port %u answers `viaduct doctor HOST` of other hosts until this is "
	       "interrupted\n",
	       port);
	fflush(stdout);
	while (r == 0)
		r = take_event(&c);
	fprintf(stderr, "viaduct doctor: the answering process has ended\n");
	far_end(&c, 0);
	return 1;
}
