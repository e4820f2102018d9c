/* SPDX-License-Identifier: Apache-2.0 */
/* Strings of JSON. */
#include "cli/json.h"

#include <stdint.h>

/* Bytes of the UTF-8 character at s; 0 when there is none, or one that RFC 3629 excludes. */
static int utf8_length(const unsigned char *s)
{
	uint32_t c = s[0];
	int n = c < 0x80   ? 1
		: c < 0xc2 ? 0
		: c < 0xe0 ? 2
		: c < 0xf0 ? 3
		: c < 0xf5 ? 4
			   : 0;

	if (n < 2)
		return n;
	c &= 0x7fu >> n;
	for (int i = 1; i < n; i++) {
		if ((s[i] & 0xc0) != 0x80)
			return 0;
		c = c << 6 | (s[i] & 0x3f);
	}
	if ((n == 3 && (c < 0x800 || (c >= 0xd800 && c < 0xe000))) ||
	    (n == 4 && (c < 0x10000 || c > 0x10ffff)))
		return 0;
	return n;
}

/* A path may hold any byte: what is not UTF-8 becomes the replacement character. */
void write_json_string(FILE *out, const char *text)
{
	const unsigned char *s = (const unsigned char *)text;

	fputc('"', out);
	while (*s) {
		int n = utf8_length(s);

		if (n == 0)
			fprintf(out, "\\ufffd");
		else if (*s < 0x20 || *s == '"' || *s == '\\')
			fprintf(out, "\\u%04x", *s);
		else
			fwrite(s, 1, (size_t)n, out);
		s += n ? n : 1;
	}
	fputc('"', out);
}
