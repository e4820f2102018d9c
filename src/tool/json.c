/* SPDX-License-Identifier: Apache-2.0 */
/* Strings of JSON. */
#include "tool/json.h"

#include <stdint.h>

#include "base/printable.h"

/* A path may hold any byte: what is not UTF-8 becomes the replacement character. What is no
 * letter is written as a number, lest the output speak to a terminal. */
void write_json_string(FILE *out, const char *text)
{
	fputc('"', out);
	while (*text) {
		uint32_t c;
		int n = printable_decode(text, &c);

		if (n == 0)
			fprintf(out, "\\ufffd");
		else if (!printable_is(c) || c == '"' || c == '\\')
			fprintf(out, "\\u%04x", c);
		else
			fwrite(text, 1, (size_t)n, out);
		text += n ? n : 1;
	}
	fputc('"', out);
}
