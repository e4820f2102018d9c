/* SPDX-License-Identifier: Apache-2.0 */
/* Redirection: full, partial and none; and every byte where it ought to be at every moment. */
#include "native/rig.h"

struct mail {
	struct rig r;
	uint8_t *box;
	size_t len;
	vd_region *x;
	vd_remote *h;
};

static struct mail mail_open(size_t len)
{
	struct mail m = {rig_open(), calloc(1, len), len, NULL, NULL};

	REQUIRE(vd_export(m.r.b, "box", m.box, len, VD_WRITE, NULL, &m.x) == 0);
	REQUIRE(vd_import(m.r.a, "box", RIG_MS, &m.h) == 0);
	return m;
}

static void mail_close(struct mail *m)
{
	CHECK_EQ(vd_unexport(m->x), 0);
	rig_check_path(m->r.a);
	rig_close(&m->r);
	free(m->box);
}

static void mail_put(struct mail *m, size_t offset, const uint8_t *src, size_t len)
{
	REQUIRE(vd_put(m->h, offset, src, len, 0, VD_NOTIFY) == 0);
	REQUIRE(rig_event(m->r.b).len == len);
}

NATIVE_TEST(full_partial_none)
{
	size_t len = 500000;
	struct mail m = mail_open(len);
	uint8_t *src = malloc(len), *to = malloc(len);
	struct vd_redirected done;
	vd_detour *d;

	/* In time: the export never sees it. */
	rig_fill(src, len, 1);
	REQUIRE(vd_redirect(m.x, 0, to, len, &d) == 0);
	mail_put(&m, 0, src, len);
	CHECK_EQ(vd_redirect_end(d, &done), 0);
	CHECK_EQ(done.kind, VD_REDIRECT_FULL);
	CHECK_EQ(done.offset, 0);
	CHECK_EQ(done.len, len);
	CHECK(rig_is(to, len, 1));
	for (size_t i = 0; i < len; i++)
		REQUIRE(m.box[i] == 0);

	/* Too late: all of it is copied. */
	rig_fill(src, len, 2);
	mail_put(&m, 0, src, len);
	REQUIRE(vd_redirect(m.x, 0, to, len, &d) == 0);
	CHECK_EQ(vd_redirect_end(d, &done), 0);
	CHECK_EQ(done.kind, VD_REDIRECT_NONE);
	CHECK_EQ(done.len, 0);
	CHECK(rig_is(to, len, 2));

	/* Amid it: the second part is redirected, the first one copied. */
	rig_fill(src, len, 3);
	mail_put(&m, 0, src, 200000);
	REQUIRE(vd_redirect(m.x, 0, to, len, &d) == 0);
	mail_put(&m, 200000, src + 200000, len - 200000);
	CHECK_EQ(vd_redirect_end(d, &done), 0);
	CHECK_EQ(done.kind, VD_REDIRECT_PARTIAL);
	CHECK_EQ(done.offset, 200000);
	CHECK_EQ(done.len, len - 200000);
	CHECK(rig_is(to, len, 3));

	/* Ended before the last of it: what comes then is for the export. */
	rig_fill(src, len, 4);
	REQUIRE(vd_redirect(m.x, 0, to, len, &d) == 0);
	mail_put(&m, 0, src, 100);
	CHECK_EQ(vd_redirect_end(d, NULL), 0);
	mail_put(&m, 100, src + 100, len - 100);
	CHECK(rig_is(to, 100, 4));
	CHECK(rig_is(m.box + 100, len - 100, 104));
	mail_close(&m);
	free(src);
	free(to);
}

NATIVE_TEST(wrong_redirections)
{
	struct mail m = mail_open(100);
	uint8_t to[100];
	vd_region *x;
	vd_detour *d, *e;

	CHECK_EQ(vd_redirect(m.x, 0, to, 0, &d), -EINVAL);
	CHECK_EQ(vd_redirect(m.x, 50, to, 51, &d), -ERANGE);
	CHECK_EQ(vd_redirect(m.x, UINT64_MAX, to, 2, &d), -ERANGE);
	REQUIRE(vd_redirect(m.x, 10, to, 10, &d) == 0);
	CHECK_EQ(vd_redirect(m.x, 19, to, 10, &e), -EBUSY);
	CHECK_EQ(vd_redirect(m.x, 1, to, 10, &e), -EBUSY);
	CHECK_EQ(vd_redirect(m.x, 20, to + 20, 10, &e), 0);
	CHECK_EQ(vd_unexport(m.x), -EBUSY);
	CHECK_EQ(vd_redirect_end(d, NULL), 0);
	CHECK_EQ(vd_unexport(m.x), -EBUSY);
	CHECK_EQ(vd_redirect_end(e, NULL), 0);
	REQUIRE(vd_export(m.r.b, "r", to, 8, VD_READ | VD_WRITE, NULL, &x) == 0);
	CHECK_EQ(vd_redirect(x, 0, to, 8, &d), -EINVAL);
	/* The connection's end takes those that stand along. */
	REQUIRE(vd_redirect(m.x, 10, to, 10, &d) == 0);
	rig_close(&m.r);
	free(m.box);
}

/* Mapped memory knows none, and all bytes are there all the same. */
NATIVE_TEST(of_mapped_memory)
{
	struct rig r = rig_open();
	struct vd_redirected done;
	uint8_t src[5000], to[5000];
	void *at;
	vd_region *x;
	vd_remote *h;
	vd_detour *d;

	REQUIRE(vd_alloc(5000, &at) == 0);
	REQUIRE(vd_export(r.b, "box", at, 5000, VD_WRITE, NULL, &x) == 0);
	REQUIRE(vd_import(r.a, "box", RIG_MS, &h) == 0);
	REQUIRE(vd_redirect(x, 0, to, 5000, &d) == 0);
	rig_fill(src, 5000, 9);
	REQUIRE(vd_put(h, 0, src, 5000, 0, VD_NOTIFY) == 0);
	rig_event(r.b);
	CHECK_EQ(vd_redirect_end(d, &done), 0);
	CHECK_EQ(done.kind, VD_REDIRECT_NONE);
	CHECK(rig_is(to, 5000, 9));
	rig_close(&r);
	CHECK_EQ(vd_free(at), 0);
}

static uint32_t next(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return (uint32_t)(*state >> 16);
}

/*
 * Puts anywhere, of any size, while redirections come and go anywhere: with each of them at its end,
 * and in the export outside of them, are the bytes that a simple model has there.
 */
#define BOX_BYTES 60000u
#define DETOURS	  3

struct redirection {
	vd_detour *d;
	uint32_t offset, len;
	uint8_t to[BOX_BYTES];
};

static void end_one(struct mail *m, struct redirection *v, const uint8_t *model)
{
	struct vd_redirected done;

	REQUIRE(vd_redirect_end(v->d, &done) == 0);
	v->d = NULL;
	REQUIRE(memcmp(v->to, model + v->offset, v->len) == 0);
	REQUIRE(done.offset + done.len <= v->len);
	/* The export has older bytes there: what the next redirection copies would be these. */
	memcpy(m->box + v->offset + done.offset, v->to + done.offset, done.len);
	REQUIRE((done.kind == VD_REDIRECT_FULL) == (done.len == v->len));
}

static void begin_one(struct mail *m, struct redirection *v, uint64_t *state)
{
	int r;

	v->offset = next(state) % BOX_BYTES;
	v->len = 1 + next(state) % (BOX_BYTES - v->offset);
	r = vd_redirect(m->x, v->offset, v->to, v->len, &v->d);
	REQUIRE(r == 0 || r == -EBUSY);
	if (r < 0)
		v->d = NULL;
}

NATIVE_TEST(random_redirections)
{
	struct mail m = mail_open(BOX_BYTES);
	static uint8_t model[BOX_BYTES], src[BOX_BYTES];
	static struct redirection v[DETOURS];
	uint64_t state = 0x9e3779b97f4a7c15ull;
	int redirected = 0;

	memset(model, 0, sizeof(model));
	for (uint32_t i = 0; i < 3000; i++) {
		struct redirection *w = &v[next(&state) % DETOURS];
		uint32_t at = next(&state) % BOX_BYTES,
			 len = 1 + next(&state) % (BOX_BYTES - at);

		if (i % 3 == 0)
			len = 1 + len % 50;
		if (w->d)
			end_one(&m, w, model), redirected++;
		else
			begin_one(&m, w, &state);
		rig_fill(src, len, next(&state));
		memcpy(model + at, src, len);
		mail_put(&m, at, src, len);
	}
	for (int k = 0; k < DETOURS; k++)
		if (v[k].d)
			end_one(&m, &v[k], model);
	CHECK(redirected > 300);
	mail_close(&m);
}
