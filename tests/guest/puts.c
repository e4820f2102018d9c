/* SPDX-License-Identifier: Apache-2.0 */
/* Puts and gets between two hosts, each byte checked: the exports come and go under the writer's hands. */
/*
 * When an event comes its bytes are there, and after an export has ended its memory does not change.
 *
 *	puts own PORT			exports, checks, and ends when the writer has gone
 *	puts write HOST PORT ROUNDS	writes, in so many exports
 */
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <viaduct/viaduct.h>

#define BOX_BYTES (300u << 10)
#define PATIENT	  60000
#define CALM_PUTS 12u
#define PIECES	  16u /* of a box, that are lent at once */

#define MUST(call)                                                                       \
	do {                                                                             \
		int r_ = (call);                                                         \
		if (r_ < 0) {                                                            \
			fprintf(stderr, "%s: %s\n", #call, strerror(-r_));               \
			exit(1);                                                         \
		}                                                                        \
	} while (0)

static uint8_t byte_of(uint32_t tag, size_t at)
{
	return (uint8_t)(tag * 37 + at * 131 + (at >> 8) * 17);
}

static void fill(uint8_t *to, size_t len, uint32_t tag)
{
	for (size_t i = 0; i < len; i++)
		to[i] = byte_of(tag, i);
}

static void check(const uint8_t *box, size_t offset, size_t len, uint32_t tag)
{
	for (size_t i = 0; i < len; i++)
		if (box[offset + i] != byte_of(tag, i)) {
			fprintf(stderr, "put %u of %zu bytes: byte %zu is %u, not %u\n",
				tag, len, i, box[offset + i], byte_of(tag, i));
			exit(1);
		}
}

static void name_of(char name[16], uint32_t round)
{
	snprintf(name, 16, "box%u", round);
}

/* ---- the owner ---- */

/* Each is there when its event is, and stays until the writer hears that. */
static bool take_calm(vd_conn *c, vd_remote *acks, const uint8_t *box)
{
	struct vd_event ev;

	for (uint32_t i = 0; i < CALM_PUTS; i++) {
		MUST(vd_wait(c, &ev, 1, PATIENT));
		if (ev.kind == VD_EVENT_END) {
			printf("%s\n", ev.result ? strerror(-ev.result) : "closed");
			return false;
		}
		check(box, ev.offset, ev.len, ev.tag);
		vd_put(acks, 0, "", 0, ev.tag, VD_NOTIFY); /* the end is an event, too */
	}
	return true;
}

/* Nobody else writes there any more. */
static void check_still(uint8_t *box, uint32_t round)
{
	static uint8_t was[BOX_BYTES];

	memset(box, (int)round, BOX_BYTES);
	memset(was, (int)round, BOX_BYTES);
	for (int i = 0; i < 10; i++) {
		usleep(5000);
		if (memcmp(box, was, BOX_BYTES) != 0) {
			fprintf(stderr, "round %u: it was written to after its end\n",
				round);
			exit(1);
		}
	}
}

/* A writer that goes on for as long as it can. */
static void end_under_fire(vd_region *x, uint8_t *box, uint32_t round)
{
	usleep(1000 * (round * 7 % 60));
	MUST(vd_unexport(x));
	check_still(box, round);
}

static int own(const char *port)
{
	static uint8_t plain[BOX_BYTES];
	void *shared;
	vd_listener *l;
	vd_conn *c;
	vd_remote *acks;

	MUST(vd_listen(NULL, port, &l));
	MUST(vd_accept(l, PATIENT, &c));
	MUST(vd_alloc(BOX_BYTES, &shared));
	MUST(vd_import(c, "acks", PATIENT, &acks));
	for (uint32_t round = 0;; round++) {
		uint8_t *box = round % 2 ? shared : plain;
		char name[16];
		vd_region *x;

		name_of(name, round);
		/* Of a writer that is killed under fire it is the next one that tells. */
		if (vd_export(c, name, box, BOX_BYTES, VD_READ | VD_WRITE, NULL, &x) <
			    0 ||
		    !take_calm(c, acks, box)) {
			check_still(box, round);
			break;
		}
		end_under_fire(x, box, round);
	}
	vd_close(c);
	vd_listener_close(l);
	return 0;
}

/* ---- the writer ---- */

/* What lies there is what was put last, in all that is asked for and nowhere else. */
static void get_back(vd_remote *r, uint32_t offset, size_t len, uint32_t tag)
{
	static uint8_t dst[BOX_BYTES + 2];

	memset(dst, 0xcc, sizeof(dst));
	MUST(vd_get(r, offset, dst + 1, len));
	check(dst, 1, len, tag);
	if (dst[0] != 0xcc || dst[len + 1] != 0xcc) {
		fprintf(stderr, "get %u of %zu bytes: more was written\n", tag, len);
		exit(1);
	}
}

static uint32_t lent; /* whose events have not come */

/* Other events than those of lent puts; NULL: one of these. */
static void next_event(vd_conn *c, struct vd_event *other)
{
	struct vd_event ev;

	do {
		MUST(vd_wait(c, &ev, 1, PATIENT));
		if (ev.kind == VD_EVENT_END)
			MUST(ev.result ? ev.result : -EPIPE);
		if (ev.kind == VD_EVENT_DONE)
			lent--;
		else if (other)
			*other = ev;
	} while (other && ev.kind == VD_EVENT_DONE);
}

/* The whole box, by pieces that are under way together. */
static int lend_pieces(vd_conn *c, vd_remote *r)
{
	static uint8_t older[BOX_BYTES];
	const size_t len = BOX_BYTES / PIECES;
	int error = 0;

	memset(older, 0xaa, sizeof(older)); /* as it is */
	for (uint32_t i = 0; i < PIECES && error == 0; i++) {
		while (lent == PIECES)
			next_event(c, NULL);
		error = vd_put(r, i * len, older + i * len, len, 0, VD_LEND);
		lent += error == 0;
	}
	return error;
}

/* In turn with the owner: long ones, short ones, and some that lie across each other. */
static void put_calmly(vd_conn *c, vd_remote *r, uint32_t round)
{
	static uint8_t src[BOX_BYTES];
	struct vd_event ev;

	for (uint32_t i = 0; i < CALM_PUTS; i++) {
		uint32_t tag = round * CALM_PUTS + i, offset = i * 1009 % 5000;
		size_t len = i % 4 == 3 ? 100 + i : BOX_BYTES - 5000;
		bool lends = i % 4 == 2;

		/* Older ones, beneath it. */
		memset(src, 0xaa, sizeof(src));
		if (i % 2)
			MUST(vd_put(r, offset, src, 700, 0, 0));
		if (i % 3 == 0)
			MUST(vd_put(r, 0, src, BOX_BYTES, 0, 0));
		else if (i % 3 == 1)
			MUST(lend_pieces(c, r));
		fill(src, len, tag);
		MUST(vd_put(r, offset, src, len, tag, VD_NOTIFY | (lends ? VD_LEND : 0)));
		lent += lends;
		if (!lends)
			memset(src, 0xbb, sizeof(src));
		next_event(c, &ev);
		while (lent > 0)
			next_event(c, NULL);
		if (ev.tag != tag) {
			fprintf(stderr, "tag %u, not %u\n", ev.tag, tag);
			exit(1);
		}
		/* After the last one the owner goes on to end it. */
		if (i + 1 < CALM_PUTS)
			get_back(r, offset, len, tag);
	}
}

static int write_all(const char *host, const char *port, uint32_t rounds)
{
	static uint8_t src[BOX_BYTES], ack;
	uint32_t fired = 0;
	vd_region *x;
	vd_conn *c;

	MUST(vd_connect(host, port, PATIENT, &c));
	MUST(vd_export(c, "acks", &ack, 1, VD_WRITE, NULL, &x));
	while (vd_path(c) != VD_PATH_RDMA && rounds)
		MUST(vd_flush(c));
	for (uint32_t round = 0; round < rounds; round++) {
		char name[16];
		vd_remote *r;
		int error;

		name_of(name, round);
		MUST(vd_import(c, name, PATIENT, &r));
		put_calmly(c, r, round);
		do
			error = round % 3 == 2	 ? vd_get(r, 0, src, BOX_BYTES)
				: round % 3 == 1 ? lend_pieces(c, r)
						 : vd_put(r, 0, src, BOX_BYTES, 0, 0);
		while (error == 0 && ++fired);
		if (error != -ESTALE)
			MUST(error);
		while (lent > 0)
			next_event(c, NULL);
		vd_unimport(r);
	}
	vd_close(c);
	printf("%u rounds, %u under fire\n", rounds, fired);
	return 0;
}

int main(int argc, char **argv)
{
	if (argc == 3 && !strcmp(argv[1], "own"))
		return own(argv[2]);
	if (argc == 5 && !strcmp(argv[1], "write"))
		return write_all(argv[2], argv[3], (uint32_t)atoi(argv[4]));
	return 2;
}
