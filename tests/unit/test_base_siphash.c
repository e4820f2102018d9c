/* SPDX-License-Identifier: Apache-2.0 */
/* SipHash against the reference code's results: key 00 01 .. 0f, of the messages 00 01 02 ... */
#include "base/siphash.h"
#include "unit/test.h"

struct vector {
	size_t bytes;
	const char *result;
};

static const struct vector vectors[] = {
	{0, "a3817f04ba25a8e66df67214c7550293"}, {1, "da87c1d86b99af44347659119b22fc45"},
	{2, "8177228da4a45dc7fca38bdef60affe4"}, {3, "9c70b60c5267a94e5f33b6b02985ed51"},
	{8, "3b62a9ba6258f5610f83e264f31497b4"}, {15, "5493e99933b0a8117e08ec0f97cfc3d9"},
};

TEST(the_reference_vectors)
{
	uint8_t key[SIPHASH_BYTES], data[16], out[SIPHASH_BYTES];
	char text[2 * SIPHASH_BYTES + 1];

	for (size_t i = 0; i < sizeof(key); i++)
		key[i] = data[i] = (uint8_t)i;
	for (size_t i = 0; i < sizeof(vectors) / sizeof(vectors[0]); i++) {
		siphash(key, data, vectors[i].bytes, out);
		for (int j = 0; j < SIPHASH_BYTES; j++)
			snprintf(text + 2 * j, 3, "%02x", out[j]);
		CHECK_STR(text, vectors[i].result);
	}
}
