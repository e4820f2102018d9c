/* SPDX-License-Identifier: Apache-2.0 */
/* The hello of a link, as it comes from another host: rdma/hello.c. */
#include <errno.h>

#include "fuzz/fuzz.h"
#include "rdma/hello.h"
#include "rdma/link.h"

static const struct link_address addresses[] = {
	{.fabric = FABRIC_ROCE2,
	 .mtu = 3,
	 .qpn = 0x123456,
	 .psn = 0xfedcba,
	 .gid = {[10] = 0xff, [11] = 0xff, [12] = 10, [15] = 7},
	 .window = 0x7f0011223344,
	 .window_bytes = 1 << 20,
	 .key = 0xdeadbeef,
	 .credits = 256,
	 .nonce = 0x1122334455667788,
	 .echo = 0x99aabbccddeeff00},
	{.fabric = FABRIC_INFINIBAND,
	 .mtu = 5,
	 .lid = 17,
	 .qpn = 2,
	 .gid = {[0] = 0xfe, [1] = 0x80, [15] = 1},
	 .window = 4096,
	 .window_bytes = 4096,
	 .credits = LINK_CREDITS_MIN,
	 .nonce = 1},
	{.fabric = FABRIC_FAKE,
	 .mtu = 1,
	 .qpn = 9,
	 .window_bytes = UINT64_C(1) << 47,
	 .credits = LINK_CREDITS_MAX,
	 .nonce = UINT64_MAX},
};

size_t fuzz_seed(unsigned n, uint8_t out[FUZZ_MAX])
{
	if (n >= sizeof(addresses) / sizeof(addresses[0]))
		return 0;
	link_hello_put(out, &addresses[n]);
	return LINK_HELLO_BYTES;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const struct link_address before = {.nonce = 42};
	struct link_address a = before;
	uint8_t again[LINK_HELLO_BYTES];
	const char *why = NULL;
	int r = link_hello_get(data, size, &a, &why);

	FUZZ_CHECK(r == 0 || r == -EPROTO || r == -EPROTONOSUPPORT);
	FUZZ_CHECK((r == 0) == (why == NULL));
	if (r < 0) {
		FUZZ_CHECK(memcmp(&a, &before, sizeof(a)) == 0);
		return 0;
	}
	/* Taken: each byte of it has a meaning, and is in its range. */
	FUZZ_CHECK(size == LINK_HELLO_BYTES);
	link_hello_put(again, &a);
	FUZZ_CHECK(memcmp(again, data, size) == 0);
	FUZZ_CHECK(a.window_bytes > 0 && a.window + a.window_bytes >= a.window);
	FUZZ_CHECK(a.credits >= LINK_CREDITS_MIN && a.credits <= LINK_CREDITS_MAX);
	FUZZ_CHECK(a.nonce != 0 && a.mtu >= 1 && a.mtu <= 5);
	return 0;
}
