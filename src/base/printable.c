/* SPDX-License-Identifier: Apache-2.0 */
/* Text of other users and hosts: what could speak to a terminal is kept out of it. */
#include "base/printable.h"

#include <string.h>

int printable_decode(const char *text, uint32_t *out)
{
	const unsigned char *s = (const unsigned char *)text;
	uint32_t c = s[0];
	int n = c < 0x80   ? 1
		: c < 0xc2 ? 0
		: c < 0xe0 ? 2
		: c < 0xf0 ? 3
		: c < 0xf5 ? 4
			   : 0;

	*out = c;
	if (n < 2)
		return n;
	c &= 0x7fu >> n;
	for (int i = 1; i < n; i++) {
		if ((s[i] & 0xc0) != 0x80)
			return 0;
		c = c << 6 | (s[i] & 0x3f);
	}
	*out = c;
	if ((n == 3 && (c < 0x800 || (c >= 0xd800 && c < 0xe000))) ||
	    (n == 4 && (c < 0x10000 || c > 0x10ffff)))
		return 0;
	return n;
}

bool printable_is(uint32_t c)
{
	return c >= 0x20 && !(c >= 0x7f && c < 0xa0) && c != 0x061c && c != 0x200e &&
	       c != 0x200f && !(c >= 0x2028 && c <= 0x202e) &&
	       !(c >= 0x2066 && c <= 0x2069);
}

void printable(char *text)
{
	uint32_t c;

	while (*text) {
		int n = printable_decode(text, &c);

		if (n == 0 || !printable_is(c))
			memset(text, '?', (size_t)(n ? n : 1));
		text += n ? n : 1;
	}
}

void printable_put(FILE *out, const char *text, size_t size)
{
	uint32_t c;

	for (size_t at = 0; at < size && text[at];) {
		int n = printable_decode(text + at, &c);

		if (n == 0)
			fputs("\xef\xbf\xbd", out);
		else if (!printable_is(c) || at + (size_t)n > size)
			fputc('?', out);
		else
			fwrite(text + at, 1, (size_t)n, out);
		at += (size_t)(n ? n : 1);
	}
}
