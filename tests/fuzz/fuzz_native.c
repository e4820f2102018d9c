/* SPDX-License-Identifier: Apache-2.0 */
/* The frames of a peer that speaks them itself: src/native over TCP, where nothing is mapped.
 * Nothing changes but what may be written, messages lie where they belong, and the end is told.
 * Not reached: memory that is brought for a mapping (test_native_rogue.c), keys of a device. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "fuzz/fuzz.h"
#include "native/frame.h"
#include "viaduct/viaduct.h"

enum { BOX = 64, GUARD = 64, WAIT_MS = 60000, FIRST = 1 << FRAME_ID_SHIFT };

/* The victim's exports, each between guards. */
enum { BOTH, WRITTEN, READ, EXPORTS };
static const struct {
	const char *name;
	unsigned rights;
} exports[EXPORTS] = {
	{"both", VD_READ | VD_WRITE}, {"written", VD_WRITE}, {"read", VD_READ}};
static uint8_t boxes[EXPORTS][GUARD + BOX + GUARD] __attribute__((aligned(64)));

/* ---- good inputs: what is sent, as it is ---- */

static size_t put(uint8_t *out, size_t at, struct frame f, const void *payload)
{
	memcpy(out + at, &f, sizeof(f));
	if (payload)
		memcpy(out + at + sizeof(f), payload, f.len);
	return at + sizeof(f) + f.len;
}

static size_t hello(uint8_t *out)
{
	return put(out, 0,
		   (struct frame){.type = FRAME_HELLO,
				  .id = FRAME_PROTOCOL,
				  .offset = FRAME_MAGIC},
		   NULL);
}

static size_t seed_of_puts(uint8_t *out)
{
	size_t n = hello(out);

	n = put(out, n,
		(struct frame){
			.type = FRAME_PUT, .flags = FRAME_MORE, .id = FIRST, .len = 8},
		"01234567");
	n = put(out, n,
		(struct frame){.type = FRAME_PUT,
			       .flags = FRAME_NOTE,
			       .id = FIRST,
			       .offset = 8,
			       .len = 4,
			       .tag = 7},
		"0123");
	n = put(out, n,
		(struct frame){
			.type = FRAME_PUT, .id = FIRST + 1, .offset = 60, .len = 4},
		"0123");
	n = put(out, n,
		(struct frame){.type = FRAME_ADD, .id = FIRST, .len = 8, .token = 0},
		"\1\0\0\0\0\0\0");
	n = put(out, n,
		(struct frame){.type = FRAME_SWAP, .id = FIRST, .len = 16, .token = 1},
		"0123456701234567");
	n = put(out, n,
		(struct frame){.type = FRAME_GET, .id = FIRST + 2, .tag = 64, .token = 2},
		NULL);
	n = put(out, n, (struct frame){.type = FRAME_FLUSH, .token = 1}, NULL);
	return put(out, n, (struct frame){.type = FRAME_BYE}, NULL);
}

static size_t seed_of_messages(uint8_t *out)
{
	size_t n = hello(out);

	n = put(out, n, (struct frame){.type = FRAME_MESSAGE, .tag = 4, .len = 4},
		"0123");
	n = put(out, n,
		(struct frame){.type = FRAME_MESSAGE, .id = 1, .tag = 40, .len = 40},
		"0123456789012345678901234567890123456789");
	n = put(out, n, (struct frame){.type = FRAME_RELEASED}, NULL);
	n = put(out, n, (struct frame){.type = FRAME_WAITS}, NULL);
	n = put(out, n, (struct frame){.type = FRAME_OFFER}, NULL);
	return put(out, n, (struct frame){.type = FRAME_LOOK}, NULL);
}

static size_t export_m(uint8_t *out, size_t n)
{
	return put(out, n,
		   (struct frame){.type = FRAME_EXPORT,
				  .id = FIRST,
				  .offset = 4096,
				  .tag = VD_READ | VD_WRITE,
				  .len = 1},
		   "m");
}

static size_t seed_of_imports(uint8_t *out)
{
	size_t n = export_m(out, hello(out));

	n = put(out, n, (struct frame){.type = FRAME_REACH, .id = FIRST}, NULL);
	n = put(out, n, (struct frame){.type = FRAME_TAKEN}, NULL);
	return put(out, n, (struct frame){.type = FRAME_UNEXPORT, .id = FIRST}, NULL);
}

/* Answers to what nobody has asked, each of which is a lie. */
static size_t seed_of_answers(unsigned which, uint8_t *out)
{
	static const char bytes[64] = "\4";
	static const struct frame answers[] = {
		{.type = FRAME_MAPPED, .id = FIRST, .tag = 3},
		{.type = FRAME_KEY, .id = FIRST, .token = 1, .len = 24},
		{.type = FRAME_PLACED, .id = FIRST, .tag = 1, .len = 8},
		{.type = FRAME_ANSWER, .len = 8},
		{.type = FRAME_MAP, .id = FIRST, .len = 16},
	};

	if (which >= sizeof(answers) / sizeof(answers[0]))
		return 0;
	return put(out, export_m(out, hello(out)), answers[which], bytes);
}

size_t fuzz_seed(unsigned n, uint8_t out[FUZZ_MAX])
{
	switch (n) {
	case 0:
		return seed_of_puts(out);
	case 1:
		return seed_of_messages(out);
	case 2:
		return seed_of_imports(out);
	default:
		return seed_of_answers(n - 3, out);
	}
}

/* ---- the two ends ---- */

static vd_conn *open_pair(int *liar)
{
	static const struct linger at_once = {.l_onoff = 1};
	static vd_listener *from;
	static struct sockaddr_in at;
	socklen_t len = sizeof(at);
	vd_conn *c;

	if (!from) {
		FUZZ_CHECK(vd_listen("127.0.0.1", "0", &from) == 0);
		FUZZ_CHECK(getsockname(vd_listener_fd(from), (struct sockaddr *)&at,
				       &len) == 0);
	}
	*liar = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	/* No port is used up. */
	setsockopt(*liar, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
	FUZZ_CHECK(connect(*liar, (struct sockaddr *)&at, sizeof(at)) == 0);
	FUZZ_CHECK(vd_accept(from, WAIT_MS, &c) == 0);
	return c;
}

static void export_all(vd_conn *c)
{
	vd_region *x;

	memset(boxes, 7, sizeof(boxes));
	for (int i = 0; i < EXPORTS; i++)
		FUZZ_CHECK(vd_export(c, exports[i].name, boxes[i] + GUARD, BOX,
				     exports[i].rights, &boxes[i], &x) == 0);
}

static void check_boxes(void)
{
	for (int i = 0; i < EXPORTS; i++)
		for (int k = 0; k < GUARD + BOX + GUARD; k++)
			FUZZ_CHECK(boxes[i][k] == 7 ||
				   (i != READ && k >= GUARD && k < GUARD + BOX));
}

/* All that the victim does beside. */
static void use(vd_conn *c)
{
	const uint8_t *p;
	const void *message;
	vd_remote *m;
	size_t len;
	unsigned sum = 0;

	if (vd_peek(c, &message, &len, 0) == 0) {
		FUZZ_CHECK(len > 0 && len <= VD_MESSAGE_MAX);
		p = message;
		for (size_t i = 0; i < len; i++)
			sum += p[i];
		FUZZ_CHECK(sum <= 255 * len && vd_release(c) == 0);
	}
	if (vd_import(c, "m", 0, &m) == 0) {
		vd_put(m, 0, "hello", 6, 7, VD_NOTIFY);
		vd_unimport(m);
	}
}

static void check_event(const struct vd_event *ev)
{
	if (ev->kind == VD_EVENT_NOTIFY) {
		FUZZ_CHECK(ev->user == &boxes[BOTH] || ev->user == &boxes[WRITTEN]);
		FUZZ_CHECK(ev->offset <= BOX && ev->len <= BOX - ev->offset);
	} else if (ev->kind == VD_EVENT_MESSAGE) {
		FUZZ_CHECK(ev->len > 0 && ev->len <= VD_MESSAGE_MAX);
	} else {
		FUZZ_CHECK(ev->kind == VD_EVENT_END);
		FUZZ_CHECK(ev->result == 0 || ev->result == -EPROTO ||
			   ev->result == -ECONNRESET);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct vd_event ev = {0};
	int liar;
	vd_conn *c = open_pair(&liar);

	export_all(c);
	FUZZ_CHECK(size == 0 || send(liar, data, size, MSG_NOSIGNAL) == (ssize_t)size);
	shutdown(liar, SHUT_WR);
	do {
		use(c);
		FUZZ_CHECK(vd_wait(c, &ev, 1, WAIT_MS) == 1);
		check_event(&ev);
	} while (ev.kind != VD_EVENT_END);
	use(c);
	check_boxes();
	close(liar);
	vd_close(c);
	check_boxes();
	return 0;
}
