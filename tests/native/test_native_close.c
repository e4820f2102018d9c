/* SPDX-License-Identifier: Apache-2.0 */
/* A close, and the end of an export, while other threads are in mid-call. */
#include "native/rig.h"

/* ---- a close under calls that block in a send ---- */

static void export_and_stop(vd_conn *c)
{
	static uint8_t box[1 << 20];
	struct vd_event ev;
	vd_region *x;

	REQUIRE(vd_export(c, "box", box, sizeof(box), VD_WRITE, NULL, &x) == 0);
	REQUIRE(vd_wait(c, &ev, 1, RIG_MS) == 1);
	raise(SIGSTOP);
}

struct blocked {
	vd_conn *c;
	vd_remote *r;
	_Atomic uint32_t done;
	int result;
};

static void *put_until_the_end(void *arg)
{
	static uint8_t src[300000];
	struct blocked *b = arg;

	while ((b->result = vd_put(b->r, 0, src, sizeof(src), 0, 0)) == 0)
		atomic_fetch_add(&b->done, 1);
	return NULL;
}

static void *send_until_the_end(void *arg)
{
	struct blocked *b = arg;
	void *p;

	while ((b->result = vd_reserve(b->c, 300000, &p)) == 0 &&
	       (b->result = vd_commit(b->c, 300000)) == 0)
		atomic_fetch_add(&b->done, 1);
	return NULL;
}

/* The peer has stopped, and a thread blocks in a send to it, as a rule. */
static pthread_t block(const struct rig_child *child, struct blocked *b,
		       void *(*how)(void *))
{
	pthread_t thread;
	uint32_t before;

	REQUIRE(vd_import(child->c, "box", RIG_MS, &b->r) == 0);
	REQUIRE(vd_put(b->r, 0, "", 0, 0, VD_NOTIFY) == 0);
	REQUIRE(waitpid(child->pid, NULL, WUNTRACED) == child->pid);
	REQUIRE(pthread_create(&thread, NULL, how, b) == 0);
	do {
		before = atomic_load(&b->done);
		usleep(30000);
	} while (before != atomic_load(&b->done));
	return thread;
}

NATIVE_TEST(close_under_blocked_sends)
{
	for (int i = 0; i < 6; i++) {
		struct rig_child child = rig_spawn(export_and_stop);
		struct blocked b = {.c = child.c};
		pthread_t thread;

		thread =
			block(&child, &b, i % 2 ? send_until_the_end : put_until_the_end);
		vd_close(child.c);
		pthread_join(thread, NULL);
		CHECK(b.result == -EPIPE || b.result == -ECONNRESET);
		kill(child.pid, SIGKILL);
		rig_reap(&child, 128 + SIGKILL);
	}
}

static void import_and_stop(vd_conn *c)
{
	vd_remote *h;

	REQUIRE(vd_import(c, "mine", RIG_MS, &h) == 0);
	export_and_stop(c);
}

/* Neither waits for its turn to write to a peer that does not read. */
NATIVE_TEST(unexport_and_close_under_a_blocked_put)
{
	for (int i = 0; i < 2; i++) {
		struct rig_child child = rig_spawn(import_and_stop);
		struct blocked b = {.c = child.c};
		pthread_t thread;
		vd_region *x;
		void *at;

		REQUIRE(vd_alloc(4096, &at) == 0);
		REQUIRE(vd_export(child.c, "mine", at, 4096, VD_WRITE, NULL, &x) == 0);
		thread = block(&child, &b, put_until_the_end);
		if (i == 0) {
			CHECK_EQ(vd_unexport(x), 0);
			CHECK_EQ(vd_free(at), 0);
		}
		vd_close(child.c);
		pthread_join(thread, NULL);
		CHECK(b.result == -EPIPE || b.result == -ECONNRESET);
		if (i == 1)
			CHECK_EQ(vd_free(at), 0);
		kill(child.pid, SIGKILL);
		rig_reap(&child, 128 + SIGKILL);
	}
}

/* What ends while nothing can be sent is told before all that comes behind it: a name is not found twice. */
static void import_anew(vd_conn *c)
{
	vd_remote *old, *new;

	REQUIRE(vd_import(c, "mine", RIG_MS, &old) == 0);
	export_and_stop(c);
	REQUIRE(vd_import(c, "signal", RIG_MS, &new) == 0);
	CHECK_EQ(vd_put(old, 0, "old", 4, 0, 0), -ESTALE);
	REQUIRE(vd_import(c, "mine", RIG_MS, &new) == 0);
	CHECK_EQ(vd_put(new, 0, "new", 4, 0, VD_NOTIFY), 0);
	vd_close(c);
}

struct exporting {
	vd_conn *c;
	vd_region *x, *y;
	char *box;
};

static void *export_two(void *arg)
{
	struct exporting *e = arg;

	CHECK_EQ(vd_export(e->c, "mine", e->box, 8, VD_WRITE, NULL, &e->x), 0);
	CHECK_EQ(vd_export(e->c, "signal", e->box, 8, VD_WRITE, NULL, &e->y), 0);
	return NULL;
}

NATIVE_TEST(unexport_and_export_under_a_blocked_put)
{
	struct rig_child child = rig_spawn(import_anew);
	struct blocked b = {.c = child.c};
	char old[8] = "", new[8] = "";
	struct exporting e = {.c = child.c, .box = new};
	pthread_t thread, exporter;
	vd_region *x;

	REQUIRE(vd_export(child.c, "mine", old, 8, VD_WRITE, NULL, &x) == 0);
	thread = block(&child, &b, put_until_the_end);
	CHECK_EQ(vd_unexport(x), 0);
	REQUIRE(pthread_create(&exporter, NULL, export_two, &e) == 0);
	usleep(30000);
	kill(child.pid, SIGCONT);
	pthread_join(exporter, NULL);
	CHECK(rig_event(child.c).where == e.x);
	CHECK_STR(old, "");
	CHECK_STR(new, "new");
	pthread_join(thread, NULL);
	CHECK_EQ(b.result, -EPIPE);
	vd_close(child.c);
	rig_reap(&child, 0);
}

/* ---- a close under a copy to mapped memory ---- */

#define COPY_BYTES (1u << 20)

/* Its last half faults, and the copy stands, until `may_copy`. */
static uint8_t *half;
static _Atomic bool is_copying, may_copy;

static void stand_still(int sig, siginfo_t *info, void *context)
{
	const uint8_t *at = info->si_addr;

	(void)context;
	if (at < half || at >= half + COPY_BYTES)
		signal(sig, SIG_DFL);
	atomic_store(&is_copying, true);
	while (!atomic_load(&may_copy))
		usleep(1000);
	mprotect(half, COPY_BYTES, PROT_READ);
}

static void *put_once(void *arg)
{
	CHECK_EQ(vd_put(arg, 0, half, COPY_BYTES, 0, 0), 0);
	return NULL;
}

static void *close_it(void *arg)
{
	vd_close(arg);
	return NULL;
}

/* The peer is not told that all is returned before it is. */
NATIVE_TEST(close_under_a_copy)
{
	struct sigaction stands = {.sa_sigaction = stand_still, .sa_flags = SA_SIGINFO},
			 was;
	struct rig r = rig_open();
	pthread_t putter, closer;
	struct vd_event ev;
	vd_region *x;
	vd_remote *h;
	uint8_t *box;

	/* The kernel does not wait for a handler. */
	if (rig_path() != VD_PATH_SHM) {
		rig_close(&r);
		return;
	}
	half = mmap(NULL, COPY_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
		    -1, 0);
	REQUIRE(half != MAP_FAILED);
	memset(half, 5, COPY_BYTES);
	mprotect(half + COPY_BYTES / 2, COPY_BYTES / 2, PROT_NONE);
	sigaction(SIGSEGV, &stands, &was);
	REQUIRE(vd_alloc(COPY_BYTES, (void **)&box) == 0);
	REQUIRE(vd_export(r.b, "box", box, COPY_BYTES, VD_WRITE, NULL, &x) == 0);
	REQUIRE(vd_import(r.a, "box", RIG_MS, &h) == 0);
	CHECK_STR(vd_remote_reason(h), "none");
	REQUIRE(pthread_create(&putter, NULL, put_once, h) == 0);
	while (!atomic_load(&is_copying))
		usleep(1000);
	REQUIRE(pthread_create(&closer, NULL, close_it, r.a) == 0);
	ev = rig_event(r.b);
	CHECK(ev.kind == VD_EVENT_END && ev.result == -ECONNRESET);
	CHECK_EQ(vd_unexport(x), 0);
	memset(box, 9, COPY_BYTES);
	atomic_store(&may_copy, true);
	pthread_join(putter, NULL);
	pthread_join(closer, NULL);
	for (size_t i = 0; i < COPY_BYTES; i++)
		REQUIRE(box[i] == 9);
	vd_close(r.b);
	CHECK_EQ(vd_free(box), 0);
	sigaction(SIGSEGV, &was, NULL);
	munmap(half, COPY_BYTES);
}
