/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of vd_alloc: mapped at both ends where that is possible, and the same by the stream. */
#include <sys/syscall.h>

#include "native/rig.h"

/* What vd_remote_reason says where nothing is in the way but the environment. */
static const char *at_best(void)
{
	return rig_path() == VD_PATH_SHM ? "none" : "off";
}

struct box {
	uint8_t *at;
	vd_region *x;
};

static struct box box_open(vd_conn *c, const char *name, size_t len, unsigned rights)
{
	struct box b;
	void *at;

	REQUIRE(vd_alloc(len, &at) == 0);
	b.at = at;
	REQUIRE(vd_export(c, name, at, len, rights, NULL, &b.x) == 0);
	return b;
}

static void box_close(struct box *b)
{
	CHECK_EQ(vd_unexport(b->x), 0);
	CHECK_EQ(vd_free(b->at), 0);
}

NATIVE_TEST(calls_on_mapped_memory)
{
	struct rig r = rig_open();
	size_t len = 300000;
	struct box b = box_open(r.b, "box", len, VD_READ | VD_WRITE);
	uint8_t *src = malloc(len), *dst = malloc(len);
	struct vd_event ev;
	uint64_t old;
	vd_remote *h;

	rig_check_path(r.a);
	REQUIRE(vd_import(r.a, "box", RIG_MS, &h) == 0);
	CHECK_STR(vd_remote_reason(h), at_best());
	CHECK_EQ(vd_remote_size(h), len);
	for (uint32_t i = 0; i < 100; i++) {
		uint32_t n = i * 2999 + 1, at = i * 3;

		rig_fill(src, n, i);
		REQUIRE(vd_put(h, at, src, n, i, VD_NOTIFY) == 0);
		ev = rig_event(r.b);
		CHECK_EQ(ev.tag, i);
		CHECK_EQ(ev.offset, at);
		CHECK_EQ(ev.len, n);
		CHECK(ev.where == b.x);
		REQUIRE(rig_is(b.at + at, n, i));
		REQUIRE(vd_get(h, at, dst, n) == 0);
		REQUIRE(rig_is(dst, n, i));
	}
	CHECK_EQ(vd_put(h, 8, "\7\0\0\0\0\0\0", 8, 0, 0), 0);
	CHECK_EQ(vd_fetch_add(h, 8, 5, &old), 0);
	CHECK_EQ(old, 7);
	CHECK_EQ(vd_compare_swap(h, 8, 11, 1, &old), 0);
	CHECK_EQ(old, 12);
	CHECK_EQ(vd_compare_swap(h, 8, 12, 1, &old), 0);
	CHECK_EQ(old, 12);
	CHECK_EQ(b.at[8], 1);
	CHECK_EQ(vd_put(h, len - 1, src, 2, 0, 0), -ERANGE);
	CHECK_EQ(vd_flush(r.a), 0);
	CHECK_EQ(vd_free(b.at), -EBUSY);
	box_close(&b);
	CHECK_EQ(vd_flush(r.b), 0);
	CHECK_EQ(vd_put(h, 0, src, 1, 0, 0), -ESTALE);
	CHECK_STR(vd_remote_reason(h), "ended");
	rig_check_path(r.a);
	rig_close(&r);
	free(src);
	free(dst);
}

NATIVE_TEST(memory_that_cannot_be_mapped)
{
	struct rig r = rig_open(), s = rig_open();
	static char own[4096];
	struct box b = box_open(r.b, "a", 100000, VD_WRITE);
	vd_region *x, *y, *z;
	vd_remote *h;
	void *p;

	REQUIRE(vd_export(r.b, "own", own, sizeof(own), VD_WRITE, NULL, &x) == 0);
	REQUIRE(vd_export(r.b, "part", b.at, 4096, VD_WRITE, NULL, &y) == 0);
	rig_check_path(r.a);
	REQUIRE(vd_import(r.a, "own", RIG_MS, &h) == 0);
	CHECK_STR(vd_remote_reason(h), "private-memory");
	REQUIRE(vd_import(r.a, "part", RIG_MS, &h) == 0);
	CHECK_STR(vd_remote_reason(h), "private-memory");
	CHECK_EQ(vd_put(h, 5, "part", 5, 0, 0), 0);
	CHECK_EQ(vd_flush(r.a), 0);
	CHECK_STR((char *)b.at + 5, "part");
	/* The one writer has it: another is served by the stream. */
	REQUIRE(vd_import(r.a, "a", RIG_MS, &h) == 0);
	CHECK_STR(vd_remote_reason(h), at_best());
	REQUIRE(vd_export(s.b, "a", b.at, 100000, VD_WRITE, NULL, &z) == 0);
	REQUIRE(vd_import(s.a, "a", RIG_MS, &h) == 0);
	CHECK_STR(vd_remote_reason(h), rig_path() == VD_PATH_SHM ? "full" : "off");
	CHECK_EQ(vd_put(h, 7, "second", 7, 0, 0), 0);
	CHECK_EQ(vd_flush(s.a), 0);
	CHECK_STR((char *)b.at + 7, "second");
	CHECK_EQ(vd_unexport(y), 0);
	CHECK_EQ(vd_unexport(z), 0);
	box_close(&b);
	CHECK_EQ(vd_alloc(0, &p), -EINVAL);
	CHECK_EQ(vd_free(own), -EINVAL);
	CHECK_EQ(vd_free(NULL), 0);
	rig_close(&s);
	rig_close(&r);
}

/* ---- another user ---- */

enum { OTHER = 65534 };
static _Atomic bool is_hostile;

/* Of this thread alone, and past all hooks. */
static long become(uid_t effective)
{
	return syscall(SYS_setresuid, -1, effective, -1);
}

/* In the place of libc's, for the library as well. A hostile importer names where the exporter's user
 * listens: here it is that user for so long. */
__attribute__((visibility("default"))) int bind(int fd, const struct sockaddr *addr,
						socklen_t len)
{
	if (atomic_load(&is_hostile) && addr->sa_family == AF_UNIX)
		become(0);
	return (int)syscall(SYS_bind, fd, addr, len);
}

static void be_another(vd_conn *c)
{
	vd_remote *h;

	while (vd_path(c) != VD_PATH_SHM)
		REQUIRE(vd_flush(c) == 0);
	atomic_store(&is_hostile, true);
	REQUIRE(vd_import(c, "m", RIG_MS, &h) == 0);
	atomic_store(&is_hostile, false);
	become(OTHER);
	CHECK_STR(vd_remote_reason(h), "uid");
	CHECK_EQ(vd_put(h, 0, "by stream", 10, 0, 0), 0);
	CHECK_EQ(vd_flush(c), 0);
	vd_close(c);
}

/* Else that listener, which awaits the memory of another export, would get this one's. */
NATIVE_TEST(another_user_names_a_listener_of_ours)
{
	struct rig_child r;
	struct box b;

	if (rig_path() != VD_PATH_SHM || getuid() != 0)
		return;
	/* Before it connects: the kernel tells whose each end is. */
	rig_as_user = OTHER;
	r = rig_spawn(be_another);
	rig_as_user = 0;
	while (vd_path(r.c) != VD_PATH_SHM)
		REQUIRE(vd_flush(r.c) == 0);
	b = box_open(r.c, "m", 4096, VD_READ | VD_WRITE);
	rig_reap(&r, 0);
	CHECK_STR((char *)b.at, "by stream");
	box_close(&b);
	vd_close(r.c);
}

NATIVE_TEST(several_readers)
{
	struct rig r[3];
	vd_remote *h[3];
	vd_region *x[3];
	char got[8];
	void *at;

	REQUIRE(vd_alloc(5000, &at) == 0);
	for (int i = 0; i < 3; i++) {
		r[i] = rig_open();
		rig_check_path(r[i].a);
		REQUIRE(vd_export(r[i].b, "t", at, 5000, VD_READ, NULL, &x[i]) == 0);
		REQUIRE(vd_import(r[i].a, "t", RIG_MS, &h[i]) == 0);
		CHECK_STR(vd_remote_reason(h[i]), at_best());
		CHECK_EQ(vd_put(h[i], 0, "x", 1, 0, 0), -EACCES);
	}
	memcpy((char *)at + 4000, "shared", 7);
	for (int i = 0; i < 3; i++) {
		CHECK_EQ(vd_get(h[i], 4000, got, 7), 0);
		CHECK_STR(got, "shared");
		CHECK_EQ(vd_unexport(x[i]), 0);
		CHECK_EQ(vd_flush(r[i].b), 0);
		CHECK_EQ(vd_get(h[i], 4000, got, 7), -ESTALE);
		rig_close(&r[i]);
	}
	CHECK_EQ(vd_free(at), 0);
}

/* ---- nothing comes there afterwards ---- */

struct writer {
	vd_remote *h;
	size_t len;
	int r;
};

static void *write_on(void *arg)
{
	struct writer *w = arg;
	uint8_t *src = malloc(w->len);

	memset(src, 0xff, w->len);
	do
		w->r = vd_put(w->h, 0, src, w->len, 1, 0);
	while (w->r == 0);
	free(src);
	return NULL;
}

NATIVE_TEST(unexport_while_others_write)
{
	struct rig r = rig_open();

	for (int i = 0; i < 100; i++) {
		size_t len = i % 2 ? 100 : 200000;
		struct box b = box_open(r.b, "box", len, VD_WRITE);
		struct writer w[2];
		pthread_t thread[2];

		for (int k = 0; k < 2; k++) {
			w[k].len = len;
			REQUIRE(vd_import(r.a, "box", RIG_MS, &w[k].h) == 0);
			REQUIRE(pthread_create(&thread[k], NULL, write_on, &w[k]) == 0);
		}
		while (i % 3 && ((volatile uint8_t *)b.at)[len - 1] != 0xff)
			;
		CHECK_EQ(vd_unexport(b.x), 0);
		memset(b.at, 0, len);
		for (int k = 0; k < 2; k++) {
			pthread_join(thread[k], NULL);
			CHECK_EQ(w[k].r, -ESTALE);
			vd_unimport(w[k].h);
		}
		for (size_t k = 0; k < len; k++)
			REQUIRE(b.at[k] == 0);
		CHECK_EQ(vd_free(b.at), 0);
	}
	rig_check_path(r.a);
	rig_close(&r);
}

#define PAIRS	  2048u
#define IMPORTERS 3u

struct pairs {
	vd_conn *c;
	uint32_t at;
};

/* Two puts to each byte: the second one stands, whichever way each of them takes. */
static void *import_and_put(void *arg)
{
	const struct pairs *p = arg;
	vd_remote *h;

	REQUIRE(vd_import(p->c, "box", RIG_MS, &h) == 0);
	for (uint32_t i = p->at; i < p->at + PAIRS; i++) {
		REQUIRE(vd_put(h, i, "\1", 1, 0, 0) == 0);
		REQUIRE(vd_put(h, i, "\2", 1, 0, 0) == 0);
	}
	vd_unimport(h);
	return NULL;
}

static void own_boxes(vd_conn *c)
{
	static char word;
	struct vd_event ev;
	vd_remote *again;
	vd_region *x;
	struct box b;

	REQUIRE(vd_export(c, "word", &word, 1, VD_WRITE, NULL, &x) == 0);
	REQUIRE(vd_import(c, "again", RIG_MS, &again) == 0);
	b = box_open(c, "box", IMPORTERS * PAIRS, VD_WRITE);
	while (vd_wait(c, &ev, 1, RIG_MS) == 1 && ev.kind == VD_EVENT_NOTIFY) {
		for (uint32_t i = 0; i < IMPORTERS * PAIRS; i++)
			REQUIRE(b.at[i] == 2);
		box_close(&b);
		b = box_open(c, "box", IMPORTERS * PAIRS, VD_WRITE);
		REQUIRE(vd_put(again, 0, "", 0, 0, VD_NOTIFY) == 0);
	}
	vd_close(c);
	CHECK_EQ(vd_free(b.at), 0);
}

/* The memory is mapped for one import while another of the same export begins. */
NATIVE_TEST(imports_at_the_same_time)
{
	struct rig_child child = rig_spawn(own_boxes);
	static char again;
	vd_remote *word;
	vd_region *x;

	REQUIRE(vd_export(child.c, "again", &again, 1, VD_WRITE, NULL, &x) == 0);
	REQUIRE(vd_import(child.c, "word", RIG_MS, &word) == 0);
	for (int i = 0; i < 50; i++) {
		pthread_t thread[IMPORTERS];
		struct pairs p[IMPORTERS];

		for (uint32_t k = 0; k < IMPORTERS; k++) {
			p[k] = (struct pairs){child.c, k * PAIRS};
			REQUIRE(pthread_create(&thread[k], NULL, import_and_put, &p[k]) ==
				0);
		}
		for (uint32_t k = 0; k < IMPORTERS; k++)
			pthread_join(thread[k], NULL);
		REQUIRE(vd_put(word, 0, "", 0, 0, VD_NOTIFY) == 0);
		/* The next one of this name, not this once more. */
		REQUIRE(rig_event(child.c).kind == VD_EVENT_NOTIFY);
	}
	vd_close(child.c);
	rig_reap(&child, 0);
}

/* Imports "box", says so, and writes there until that fails. Then asks to be asked. */
static void write_until_stale(vd_conn *c)
{
	struct writer w = {.len = 100000};
	char ready;
	vd_region *x;

	rig_check_path(c);
	REQUIRE(vd_import(c, "box", RIG_MS, &w.h) == 0);
	CHECK_STR(vd_remote_reason(w.h), at_best());
	REQUIRE(vd_export(c, "ready", &ready, 1, VD_WRITE, NULL, &x) == 0);
	write_on(&w);
	CHECK(w.r == -ESTALE || w.r == -EPIPE);
	vd_close(c);
}

static struct box child_box(struct rig_child *child)
{
	struct box b = box_open(child->c, "box", 100000, VD_WRITE);
	vd_remote *h;

	REQUIRE(vd_import(child->c, "ready", RIG_MS, &h) == 0);
	while (((volatile uint8_t *)b.at)[99999] != 0xff)
		;
	return b;
}

/* It does not answer: the memory that it has is nobody's afterwards. */
NATIVE_TEST(unexport_while_the_peer_is_stopped)
{
	for (int i = 0; i < 3; i++) {
		struct rig_child child = rig_spawn(write_until_stale);
		struct box b = child_box(&child);
		struct vd_event ev;

		kill(child.pid, SIGSTOP);
		REQUIRE(waitpid(child.pid, NULL, WUNTRACED) == child.pid);
		CHECK_EQ(vd_unexport(b.x), 0);
		memset(b.at, 3, 100000);
		kill(child.pid, SIGCONT);
		CHECK_EQ(vd_wait(child.c, &ev, 1, RIG_MS), 1);
		CHECK_EQ(ev.kind, VD_EVENT_END);
		CHECK_EQ(ev.result, 0);
		for (int k = 0; k < 100000; k++)
			REQUIRE(b.at[k] == 3);
		CHECK_EQ(vd_free(b.at), 0);
		vd_close(child.c);
		rig_reap(&child, 0);
	}
}

NATIVE_TEST(peer_is_killed_while_it_writes)
{
	for (int i = 0; i < 5; i++) {
		struct rig_child child = rig_spawn(write_until_stale);
		struct box b = child_box(&child);
		struct vd_event ev;

		kill(child.pid, SIGKILL);
		CHECK_EQ(vd_wait(child.c, &ev, 1, RIG_MS), 1);
		CHECK_EQ(ev.kind, VD_EVENT_END);
		CHECK_EQ(ev.result, -ECONNRESET);
		if (i % 2)
			CHECK_EQ(vd_unexport(b.x), 0);
		vd_close(child.c);
		CHECK_EQ(b.at[50000], 0xff);
		CHECK_EQ(vd_free(b.at), 0);
		rig_reap(&child, 128 + SIGKILL);
	}
}

NATIVE_TEST(close_while_the_peer_writes)
{
	struct rig_child child = rig_spawn(write_until_stale);
	struct box b = child_box(&child);

	vd_close(child.c);
	memset(b.at, 3, 100000);
	rig_reap(&child, 0);
	for (int k = 0; k < 100000; k++)
		REQUIRE(b.at[k] == 3);
	CHECK_EQ(vd_free(b.at), 0);
}

#define PART_BYTES (32u << 20)

static void map_and_pause(vd_conn *c)
{
	vd_remote *h;

	REQUIRE(vd_import(c, "box", RIG_MS, &h) == 0);
	CHECK_STR(vd_remote_reason(h), at_best());
	REQUIRE(vd_put(h, 0, "", 0, 0, VD_NOTIFY) == 0);
	pause();
}

/* One adds by way of the connection, the other is the owner. */
struct adder {
	vd_remote *h;
	_Atomic uint64_t *word;
	_Atomic bool is_over;
	_Atomic uint64_t done;
};

static void *add_on(void *arg)
{
	struct adder *a = arg;

	while (!atomic_load(&a->is_over)) {
		if (a->h)
			REQUIRE(vd_fetch_add(a->h, 0, 1, NULL) == 0);
		else
			atomic_fetch_add(a->word, 1);
		atomic_fetch_add(&a->done, 1);
	}
	return NULL;
}

/* What others write while the memory becomes a copy is in the copy. */
NATIVE_TEST(others_write_while_memory_parts)
{
	struct rig_child child = rig_spawn(map_and_pause);
	struct rig r = rig_open();
	struct box b = box_open(child.c, "box", PART_BYTES, VD_READ | VD_WRITE);
	_Atomic uint64_t *words = (_Atomic uint64_t *)(void *)b.at;
	struct adder adders[2] = {{.word = NULL}, {.word = &words[1]}};
	pthread_t threads[2];
	vd_region *second;

	memset(b.at + 4096, 3, PART_BYTES - 4096);
	REQUIRE(rig_event(child.c).where == b.x);
	/* It is lent: this peer gets none of it. */
	REQUIRE(vd_export(r.b, "box", b.at, PART_BYTES, VD_READ | VD_WRITE, NULL,
			  &second) == 0);
	REQUIRE(vd_import(r.a, "box", RIG_MS, &adders[0].h) == 0);
	for (int i = 0; i < 2; i++)
		REQUIRE(pthread_create(&threads[i], NULL, add_on, &adders[i]) == 0);
	kill(child.pid, SIGKILL);
	rig_reap(&child, 128 + SIGKILL);
	CHECK_EQ(vd_unexport(b.x), 0);
	for (int i = 0; i < 2; i++)
		atomic_store(&adders[i].is_over, true);
	for (int i = 0; i < 2; i++) {
		pthread_join(threads[i], NULL);
		CHECK_EQ(atomic_load(&words[i]), atomic_load(&adders[i].done));
	}
	for (size_t i = 4096; i < PART_BYTES; i++)
		REQUIRE(b.at[i] == 3);
	CHECK_EQ(vd_unexport(second), 0);
	vd_close(child.c);
	rig_close(&r);
	CHECK_EQ(vd_free(b.at), 0);
}

NATIVE_TEST(forked_child_has_no_mapped_memory)
{
	struct rig r = rig_open();
	struct box b = box_open(r.b, "box", 5000, VD_WRITE);
	vd_remote *h;
	unsigned char vec;
	void *own;
	int status;
	pid_t pid;

	REQUIRE(vd_import(r.a, "box", RIG_MS, &h) == 0);
	fflush(NULL);
	pid = fork();
	REQUIRE(pid >= 0);
	if (pid == 0) {
		atomic_store(&test_failures, 0);
		CHECK(mincore(b.at, 4096, &vec) < 0 && errno == ENOMEM);
		CHECK_EQ(vd_put(h, 0, "x", 1, 0, 0), -ECHILD);
		CHECK_EQ(vd_alloc(100, &own), 0);
		CHECK_EQ(vd_free(own), 0);
		fflush(NULL);
		_exit(atomic_load(&test_failures) ? 1 : 0);
	}
	REQUIRE(waitpid(pid, &status, 0) == pid);
	CHECK_EQ(status, 0);
	CHECK_EQ(vd_put(h, 0, "parent", 7, 1, VD_NOTIFY), 0);
	CHECK_EQ(rig_event(r.b).tag, 1);
	CHECK_STR((char *)b.at, "parent");
	rig_close(&r);
	CHECK_EQ(vd_free(b.at), 0);
}

/* Imports and exports coming and going in several threads, of memory of both kinds. */
static void *come_and_go(void *arg)
{
	struct rig *r = arg;
	static _Atomic int names;
	char name[16];

	for (int i = 0; i < 100; i++) {
		size_t len = 1000 + (size_t)i * 50;
		bool back = i & 1;
		uint8_t got[6000];
		struct box b;
		vd_remote *h;

		snprintf(name, sizeof(name), "n%d", atomic_fetch_add(&names, 1));
		b = box_open(back ? r->a : r->b, name, len, VD_READ | VD_WRITE);
		REQUIRE(vd_import(back ? r->b : r->a, name, RIG_MS, &h) == 0);
		rig_fill(got, len, (uint64_t)i);
		REQUIRE(vd_put(h, 0, got, len, 0, 0) == 0);
		REQUIRE(vd_flush(back ? r->b : r->a) == 0);
		REQUIRE(rig_is(b.at, len, (uint64_t)i));
		memset(got, 0, sizeof(got));
		REQUIRE(vd_get(h, 0, got, len) == 0);
		REQUIRE(rig_is(got, len, (uint64_t)i));
		box_close(&b);
		vd_unimport(h);
	}
	return NULL;
}

NATIVE_TEST(exports_come_and_go)
{
	struct rig r = rig_open();
	pthread_t threads[6];

	for (int i = 0; i < 6; i++)
		REQUIRE(pthread_create(&threads[i], NULL, come_and_go, &r) == 0);
	for (int i = 0; i < 6; i++)
		pthread_join(threads[i], NULL);
	rig_check_path(r.a);
	rig_close(&r);
}
