/* SPDX-License-Identifier: Apache-2.0 */
/* What another host's doctor says to ours: requests, and answers. src/tool/doctor/far_child.c.
 * A count of right bytes is never above those that came, and nothing is waited for that cannot come.
 * Not reached: FAR_LOOK, which needs a connection of TCP and a parent. */
#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

#include "fuzz/fuzz.h"
#include "tool/doctor/far.h"

enum { ANSWERS = 1, ORDERS = 3 };

static const enum far_do orders[] = {FAR_DO_ECHO, FAR_DO_TAKE, FAR_DO_GIVE, FAR_DO_LOOK};

/* In the place of the command's, which come with all that looks at devices. */
void way_address(const struct name_end *end, struct sockaddr_storage *out,
		 socklen_t *bytes)
{
	(void)end;
	(void)out;
	*bytes = 0; /* it connects to nobody here */
}

double median_of(double *values, size_t n)
{
	FUZZ_CHECK(n > 0);
	return values[n / 2];
}

static struct far_request request(enum far_kind kind, uint32_t bytes)
{
	return (struct far_request){.magic = {'V', 'D', 'd', 'o', 'c', 't', 'o', 'r'},
				    .version = FAR_VERSION,
				    .kind = (uint8_t)kind,
				    .bytes = bytes};
}

/* The first byte: what this host does. Behind it, all that the other one sends. */
size_t fuzz_seed(unsigned n, uint8_t out[FUZZ_MAX])
{
	static const struct {
		enum far_kind kind;
		uint32_t bytes, follow;
	} asked[] = {{FAR_ECHO, 64, 64}, {FAR_TAKE, 4000, 4000}, {FAR_GIVE, 1 << 20, 0}};
	struct far_view view = {.has_device = 1, .device = "rxe0"};
	size_t at = 1;

	memset(out, 0, FUZZ_MAX);
	if (n >= 2 + sizeof(orders) / sizeof(orders[0]))
		return 0;
	out[0] = (uint8_t)n;
	if (n < 2) {
		for (size_t i = 0; i < sizeof(asked) / sizeof(asked[0]); i++) {
			struct far_request q = request(asked[i].kind, asked[i].bytes);

			memcpy(out + at, &q, sizeof(q));
			at += sizeof(q) + asked[i].follow;
		}
		out[0] = 0;
		return n == 0 ? at : at - sizeof(struct far_request);
	}
	out[0] = (uint8_t)(ANSWERS + (n - 2) * 2);
	memcpy(out + at, &view, sizeof(view));
	return n == 5 ? at + sizeof(view) : 1 + 8 * FAR_ECHO_BYTES;
}

static void ask(int fd, enum far_do what)
{
	const struct far_order o = {.what = what};
	struct far_result out = {0};
	int r = far_carry_out(&fd, &o, &out);

	FUZZ_CHECK(r == 0 || r == -EPIPE || r == -EBADMSG || r == -ECONNRESET);
	close(fd);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	int pair[2];

	if (size == 0)
		return 0;
	FUZZ_CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0);
	FUZZ_CHECK(size == 1 || send(pair[0], data + 1, size - 1, MSG_NOSIGNAL) ==
					(ssize_t)(size - 1));
	close(pair[0]); /* so that nobody waits to send */
	if (data[0] & ANSWERS)
		ask(pair[1], orders[data[0] / 2 % (ORDERS + 1)]);
	else
		far_serve(pair[1]);
	return 0;
}
