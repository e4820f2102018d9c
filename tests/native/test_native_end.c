/* SPDX-License-Identifier: Apache-2.0 */
/* How native connections begin otherwise, and end: by close, by death, and in a forked child. */
#include <sys/mman.h>

#include "native/rig.h"

NATIVE_TEST(events_are_kept_past_the_end)
{
	struct rig r = rig_open();
	char box[8] = "";
	struct vd_event ev[4];
	vd_region *x;
	vd_remote *h;

	REQUIRE(vd_export(r.b, "box", box, sizeof(box), VD_WRITE, NULL, &x) == 0);
	REQUIRE(vd_import(r.a, "box", RIG_MS, &h) == 0);
	CHECK_EQ(vd_put(h, 0, "abc", 4, 1, VD_NOTIFY), 0);
	CHECK_EQ(vd_put(h, 0, "xyz", 4, 2, VD_NOTIFY), 0);
	vd_close(r.a);
	CHECK_STR(box, "xyz");
	CHECK_EQ(vd_wait(r.b, ev, 1, RIG_MS), 1);
	CHECK_EQ(ev[0].tag, 1);
	CHECK_EQ(vd_wait(r.b, ev, 4, RIG_MS), 2);
	CHECK_EQ(ev[0].tag, 2);
	CHECK_EQ(ev[1].kind, VD_EVENT_END);
	CHECK_EQ(ev[1].result, 0);
	CHECK_EQ(vd_wait(r.b, ev, 4, RIG_MS), -EPIPE);
	CHECK_EQ(vd_flush(r.b), -EPIPE);
	CHECK_EQ(vd_unexport(x), 0);
	vd_close(r.b);
}

struct close_call {
	vd_conn *c;
	int r;
	struct vd_event ev;
};

static void *wait_for_end(void *arg)
{
	struct close_call *w = arg;

	w->r = vd_wait(w->c, &w->ev, 1, -1);
	return NULL;
}

NATIVE_TEST(close_wakes_those_who_wait)
{
	struct rig r = rig_open();
	struct close_call w[3];
	pthread_t threads[3];

	for (int i = 0; i < 3; i++) {
		w[i] = (struct close_call){.c = r.a};
		REQUIRE(pthread_create(&threads[i], NULL, wait_for_end, &w[i]) == 0);
	}
	vd_close(r.b);
	for (int i = 0; i < 3; i++)
		pthread_join(threads[i], NULL);
	/* One has got the event, the others what it is for those who come later. */
	CHECK_EQ((w[0].r == 1) + (w[1].r == 1) + (w[2].r == 1), 1);
	for (int i = 0; i < 3; i++)
		CHECK(w[i].r == 1 ? w[i].ev.kind == VD_EVENT_END : w[i].r == -EPIPE);
	vd_close(r.a);
}

/* What it asks for is on its way when the other end closes. */
static void *ask_on(void *arg)
{
	vd_remote *h = arg;
	uint8_t to[8];
	int r;

	do
		r = vd_get(h, 0, to, sizeof(to));
	while (r == 0);
	CHECK_EQ(r, -EPIPE);
	return NULL;
}

NATIVE_TEST(close_amid_questions)
{
	for (int i = 0; i < 50; i++) {
		struct rig r = rig_open();
		static uint8_t box[8];
		pthread_t threads[3];
		vd_region *x;
		vd_remote *h;

		REQUIRE(vd_export(r.b, "box", box, sizeof(box), VD_READ, NULL, &x) == 0);
		REQUIRE(vd_import(r.a, "box", RIG_MS, &h) == 0);
		for (int k = 0; k < 3; k++)
			REQUIRE(pthread_create(&threads[k], NULL, ask_on, h) == 0);
		usleep((useconds_t)i * 20);
		vd_close(r.b);
		for (int k = 0; k < 3; k++)
			pthread_join(threads[k], NULL);
		vd_close(r.a);
	}
}

/* What is mapped goes back by the close itself. */
NATIVE_TEST(close_with_mapped_memory)
{
	struct rig r = rig_open();
	struct vd_event ev;
	vd_region *x;
	vd_remote *h;
	void *at;

	REQUIRE(vd_alloc(100, &at) == 0);
	REQUIRE(vd_export(r.b, "page", at, 100, VD_READ | VD_WRITE, NULL, &x) == 0);
	REQUIRE(vd_import(r.a, "page", RIG_MS, &h) == 0);
	rig_check_path(r.a);
	vd_close(r.a);
	ev = rig_event(r.b);
	CHECK(ev.kind == VD_EVENT_END && ev.result == 0);
	CHECK_EQ(vd_unexport(x), 0);
	vd_close(r.b);
	CHECK_EQ(vd_free(at), 0);
}

static void ready_then_wait(vd_conn *c)
{
	static char box[1 << 16];
	struct vd_event ev;
	vd_region *x;

	REQUIRE(vd_export(c, "box", box, sizeof(box), VD_READ | VD_WRITE, NULL, &x) == 0);
	vd_wait(c, &ev, 1, -1);
	pause();
}

NATIVE_TEST(peer_is_killed)
{
	for (int i = 0; i < 20; i++) {
		struct rig_child child = rig_spawn(ready_then_wait);
		static char src[1 << 16];
		struct vd_event ev;
		vd_remote *h;
		int r = 0;

		REQUIRE(vd_import(child.c, "box", RIG_MS, &h) == 0);
		for (int k = 0; k < i * 5; k++)
			REQUIRE(vd_put(h, 0, src, sizeof(src), 0, 0) == 0);
		if (i % 2)
			rig_check_path(child.c);
		kill(child.pid, SIGKILL);
		for (int k = 0; k < 100000 && r == 0; k++)
			r = i % 3 == 0	 ? vd_put(h, 0, src, sizeof(src), 0, 0)
			    : i % 3 == 1 ? vd_get(h, 0, src, sizeof(src))
					 : vd_flush(child.c);
		CHECK_EQ(r, -ECONNRESET);
		CHECK_EQ(vd_wait(child.c, &ev, 1, RIG_MS), 1);
		CHECK_EQ(ev.kind, VD_EVENT_END);
		CHECK_EQ(ev.result, -ECONNRESET);
		CHECK_EQ(vd_wait(child.c, &ev, 1, RIG_MS), -ECONNRESET);
		vd_close(child.c);
		rig_reap(&child, 128 + SIGKILL);
	}
}

/* The peer has not called anything: a stopped one only delays. */
NATIVE_TEST(peer_is_stopped)
{
	struct rig_child child = rig_spawn(ready_then_wait);
	static char src[1 << 16];
	vd_remote *h;

	REQUIRE(vd_import(child.c, "box", RIG_MS, &h) == 0);
	kill(child.pid, SIGSTOP);
	CHECK_EQ(vd_put(h, 0, src, 4096, 0, 0), 0);
	vd_close(child.c);
	kill(child.pid, SIGKILL);
	rig_reap(&child, 128 + SIGKILL);
}

NATIVE_TEST(forked_child_has_none_of_it)
{
	struct rig r = rig_open();
	char box[8];
	struct vd_event ev;
	vd_region *x;
	vd_remote *h;
	int status;
	pid_t pid;

	REQUIRE(vd_export(r.b, "box", box, sizeof(box), VD_WRITE, NULL, &x) == 0);
	REQUIRE(vd_import(r.a, "box", RIG_MS, &h) == 0);
	fflush(NULL);
	pid = fork();
	REQUIRE(pid >= 0);
	if (pid == 0) {
		struct rig own;

		atomic_store(&test_failures, 0);
		CHECK_EQ(vd_put(h, 0, "child", 6, 0, 0), -ECHILD);
		CHECK_EQ(vd_wait(r.b, &ev, 1, 0), -ECHILD);
		CHECK_EQ(vd_flush(r.a), -ECHILD);
		CHECK_EQ(vd_unexport(x), -ECHILD);
		CHECK_EQ(vd_path(r.a), -ECHILD);
		CHECK_EQ(vd_fd(r.a), -ECHILD);
		vd_close(r.a);
		own = rig_open();
		rig_check_path(own.a);
		CHECK_EQ(vd_put(h, 0, "child", 6, 0, 0), -ECHILD);
		rig_close(&own);
		fflush(NULL);
		_exit(atomic_load(&test_failures) ? 1 : 0);
	}
	CHECK_EQ(vd_put(h, 0, "parent", 7, 3, VD_NOTIFY), 0);
	CHECK_EQ(rig_event(r.b).tag, 3);
	CHECK_STR(box, "parent");
	REQUIRE(waitpid(pid, &status, 0) == pid);
	CHECK_EQ(status, 0);
	CHECK_EQ(vd_put(h, 0, "after", 6, 4, VD_NOTIFY), 0);
	CHECK_EQ(rig_event(r.b).tag, 4);
	rig_check_path(r.a);
	rig_close(&r);
}

/* A TCP connection that has been used as such. */
NATIVE_TEST(adopt)
{
	struct sockaddr_in at = {.sin_family = AF_INET,
				 .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int l = socket(AF_INET, SOCK_STREAM, 0), c = socket(AF_INET, SOCK_STREAM, 0), s;
	socklen_t len = sizeof(at);
	struct rig r;
	char box[8] = "";
	vd_region *x;
	vd_remote *h;

	REQUIRE(bind(l, (struct sockaddr *)&at, len) == 0 && listen(l, 1) == 0);
	REQUIRE(getsockname(l, (struct sockaddr *)&at, &len) == 0);
	CHECK_EQ(vd_adopt(c, VD_CONNECTED, &r.a), -ENOTCONN);
	CHECK_EQ(vd_adopt(-1, VD_CONNECTED, &r.a), -EBADF);
	REQUIRE(connect(c, (struct sockaddr *)&at, len) == 0);
	s = accept(l, NULL, NULL);
	REQUIRE(s >= 0);
	CHECK_EQ(vd_adopt(c, 0, &r.a), -EINVAL);
	REQUIRE(write(c, "hi", 2) == 2 && read(s, box, 8) == 2);
	REQUIRE(fcntl(s, F_SETFL, O_NONBLOCK) == 0);
	REQUIRE(vd_adopt(s, VD_ACCEPTED, &r.b) == 0);
	REQUIRE(vd_adopt(c, VD_CONNECTED, &r.a) == 0);
	close(l);
	REQUIRE(vd_export(r.b, "box", box, sizeof(box), VD_WRITE, NULL, &x) == 0);
	REQUIRE(vd_import(r.a, "box", RIG_MS, &h) == 0);
	CHECK_EQ(vd_put(h, 0, "adopted", 8, 9, VD_NOTIFY), 0);
	CHECK_EQ(rig_event(r.b).tag, 9);
	CHECK_STR(box, "adopted");
	rig_check_path(r.a);
	rig_close(&r);
}

NATIVE_TEST(names_and_times)
{
	vd_listener *l, *m;
	vd_conn *c;
	char port[8];

	CHECK_EQ(vd_connect("127.0.0.1", "1", RIG_MS, &c), -ECONNREFUSED);
	CHECK_EQ(vd_connect("no.such.host.invalid", "1", RIG_MS, &c), -EHOSTUNREACH);
	CHECK_EQ(vd_connect("127.0.0.1", NULL, RIG_MS, &c), -EHOSTUNREACH);
	CHECK_EQ(vd_listen("127.0.0.1", "no such service", &l), -EHOSTUNREACH);
	REQUIRE(vd_listen("127.0.0.1", "0", &l) == 0);
	CHECK_EQ(vd_listen("127.0.0.1", rig_port(l, port), &m), -EADDRINUSE);
	CHECK_EQ(vd_accept(l, 0, &c), -ETIMEDOUT);
	CHECK_EQ(vd_accept(l, 20, &c), -ETIMEDOUT);
	vd_listener_close(l);
}

/* What its peer has reset before it is accepted is none: a listener's loop goes on. */
NATIVE_TEST(what_was_reset_is_passed)
{
	const struct linger at_once = {1, 0};
	struct rig r = {NULL, NULL};
	vd_listener *l;
	char port[8];

	REQUIRE(vd_listen("127.0.0.1", "0", &l) == 0);
	for (int i = 0; i < 3; i++) {
		struct sockaddr_in at;
		socklen_t len = sizeof(at);
		int s = socket(AF_INET, SOCK_STREAM, 0);

		REQUIRE(getsockname(vd_listener_fd(l), (struct sockaddr *)&at, &len) ==
			0);
		REQUIRE(connect(s, (struct sockaddr *)&at, len) == 0);
		REQUIRE(setsockopt(s, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once)) ==
			0);
		close(s);
	}
	REQUIRE(vd_connect("127.0.0.1", rig_port(l, port), RIG_MS, &r.a) == 0);
	REQUIRE(vd_accept(l, RIG_MS, &r.b) == 0);
	CHECK_EQ(vd_accept(l, 0, &(vd_conn *){NULL}), -ETIMEDOUT);
	vd_listener_close(l);
	CHECK_EQ(vd_flush(r.a), 0);
	rig_check_path(r.a);
	rig_close(&r);
}

NATIVE_TEST(all_addresses_are_of_both_families)
{
	static const char *const hosts[] = {"127.0.0.1", "::1"};
	int probe = socket(AF_INET6, SOCK_STREAM, 0);
	vd_listener *l;
	char port[8];

	REQUIRE(vd_listen(NULL, "0", &l) == 0);
	for (int i = 0; i < (probe < 0 ? 1 : 2); i++) {
		struct rig r = {NULL, NULL};

		REQUIRE(vd_connect(hosts[i], rig_port(l, port), RIG_MS, &r.a) == 0);
		REQUIRE(vd_accept(l, RIG_MS, &r.b) == 0);
		CHECK_EQ(vd_flush(r.a), 0);
		rig_check_path(r.a);
		rig_close(&r);
	}
	vd_listener_close(l);
	if (probe >= 0)
		close(probe);
}

/* Nothing comes there after the call, however much is on its way. */
struct sprayer {
	vd_remote *h;
	int r;
};

static void *spray(void *arg)
{
	struct sprayer *s = arg;
	static uint8_t src[30000];

	memset(src, 0xff, sizeof(src));
	do
		s->r = vd_put(s->h, 0, src, sizeof(src), 1, VD_NOTIFY);
	while (s->r == 0);
	return NULL;
}

NATIVE_TEST(nothing_comes_after_unexport)
{
	struct rig r = rig_open();
	static uint8_t box[30000];

	for (int i = 0; i < 100; i++) {
		struct sprayer s;
		pthread_t thread;
		vd_region *x;

		REQUIRE(vd_export(r.b, "box", box, sizeof(box), VD_WRITE, NULL, &x) == 0);
		REQUIRE(vd_import(r.a, "box", RIG_MS, &s.h) == 0);
		REQUIRE(pthread_create(&thread, NULL, spray, &s) == 0);
		for (int k = 0; k < i % 5; k++)
			REQUIRE(rig_event(r.b).where == x);
		CHECK_EQ(vd_unexport(x), 0);
		memset(box, 0, sizeof(box));
		pthread_join(thread, NULL);
		CHECK_EQ(s.r, -ESTALE);
		vd_unimport(s.h);
		CHECK_EQ(vd_flush(r.a), 0);
		for (size_t k = 0; k < sizeof(box); k++)
			REQUIRE(box[k] == 0);
		CHECK_EQ(vd_wait(r.b, &(struct vd_event){0}, 1, 0), -ETIMEDOUT);
	}
	rig_check_path(r.a);
	rig_close(&r);
}

#include <sys/resource.h>

NATIVE_TEST(no_descriptors_are_left)
{
	struct rlimit was, none;
	vd_listener *l;
	struct rig r = rig_open();
	vd_conn *c[101];
	void *at;
	int fds[4096], n = 0, made = 0;
	char port[8];

	REQUIRE(vd_listen("127.0.0.1", "0", &l) == 0);
	rig_port(l, port);
	REQUIRE(getrlimit(RLIMIT_NOFILE, &was) == 0);
	none = (struct rlimit){256, was.rlim_max};
	REQUIRE(setrlimit(RLIMIT_NOFILE, &none) == 0);
	for (; n < 4096 && (fds[n] = dup(1)) >= 0; n++)
		;
	/* The engine gives its own, which that use up, one by one as the other end answers. */
	for (int refused = 0; made < 100 && refused < 200; usleep(1000)) {
		int error = vd_connect("127.0.0.1", port, RIG_MS, &c[made]);

		REQUIRE(error == 0 || error == -EMFILE);
		refused = error ? refused + 1 : 0;
		made += !error;
	}
	CHECK(made < 100);
	CHECK_EQ(vd_fd(r.a), -EMFILE);
	CHECK_EQ(vd_alloc(1, &at), -EMFILE);
	CHECK_EQ(vd_flush(r.a), 0);
	while (n > 0)
		close(fds[--n]);
	REQUIRE(setrlimit(RLIMIT_NOFILE, &was) == 0);
	CHECK_EQ(vd_connect("127.0.0.1", port, RIG_MS, &c[made]), 0);
	for (int i = 0; i <= made; i++)
		vd_close(c[i]);
	rig_close(&r);
	vd_listener_close(l);
	FDS_SETTLED(); /* without the engine's */
}

/* ---- a peer that is stopped ---- */

#define STUCK (64u << 20)

static void stopped_peer(vd_conn *c)
{
	uint8_t *box = malloc(STUCK);
	struct vd_event ev;
	vd_region *x, *y;
	void *page;

	REQUIRE(vd_alloc(4096, &page) == 0);
	REQUIRE(vd_export(c, "page", page, 4096, VD_READ | VD_WRITE, NULL, &y) == 0);
	REQUIRE(vd_export(c, "box", box, STUCK, VD_WRITE, NULL, &x) == 0);
	REQUIRE(vd_wait(c, &ev, 1, -1) == 1 && ev.kind == VD_EVENT_NOTIFY);
	REQUIRE(rig_is(box, STUCK, 7));
	REQUIRE(vd_wait(c, &ev, 1, -1) == 1 && ev.kind == VD_EVENT_END);
	vd_close(c);
	free(box);
	CHECK_EQ(vd_free(page), 0);
}

struct put_call {
	vd_remote *box;
	uint8_t *src;
};

static void *put_all(void *arg)
{
	struct put_call *call = arg;

	rig_call_begins();
	CHECK_EQ(vd_put(call->box, 0, call->src, STUCK, 0, VD_NOTIFY), 0);
	return NULL;
}

/* An import has its time, also while another thread's put fills the connection, and the peer does not read. */
NATIVE_TEST(import_beside_a_put_that_is_stuck)
{
	struct rig_child child = rig_spawn(stopped_peer);
	struct put_call call = {.src = malloc(STUCK)};
	vd_remote *page = NULL;
	pthread_t thread;

	rig_fill(call.src, STUCK, 7);
	REQUIRE(vd_import(child.c, "box", RIG_MS, &call.box) == 0);
	kill(child.pid, SIGSTOP);
	REQUIRE(pthread_create(&thread, NULL, put_all, &call) == 0);
	rig_await_call();
	CHECK_EQ(vd_import(child.c, "no such", 100, &page), -ETIMEDOUT);
	CHECK_EQ(vd_import(child.c, "page", 100, &page), 0);
	REQUIRE(page != NULL);
	CHECK_STR(vd_remote_reason(page), "ended");
	kill(child.pid, SIGCONT);
	CHECK_EQ(vd_put(page, 4088, "1234567", 8, 0, 0), 0);
	pthread_join(thread, NULL);
	CHECK_EQ(vd_flush(child.c), 0);
	vd_close(child.c);
	rig_reap(&child, 0);
	free(call.src);
}

/* Where the kernel copies, it finds that out: the connection ends, and the program lives on. */
NATIVE_TEST(a_put_of_memory_that_is_not_there)
{
	char *gone = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	static char box[256];
	struct rig r;
	vd_region *x;
	vd_remote *h;

	if (rig_path() != VD_PATH_TCP)
		SKIP("a copy of the library's own faults as one of the program's");
	REQUIRE(gone != MAP_FAILED);
	r = rig_open();
	REQUIRE(vd_export(r.b, "box", box, sizeof(box), VD_WRITE, NULL, &x) == 0);
	REQUIRE(vd_import(r.a, "box", RIG_MS, &h) == 0);
	CHECK(vd_put(h, 0, gone, 100, 0, 0) < 0);
	vd_close(r.a);
	vd_close(r.b);
	munmap(gone, 4096);
}
