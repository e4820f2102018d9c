/* SPDX-License-Identifier: Apache-2.0 */
/* What of a foreign text may be shown on a terminal. */
#include "base/printable.h"

#include <string.h>

#include "unit/test.h"

static const char *shown(const char *text)
{
	static char out[256];

	strcpy(out, text);
	printable(out);
	return out;
}

TEST(letters_stay)
{
	static const char *const texts[] = {"", "plain ~text", "gr\xc3\xbc\xc3\x9f",
					    "\xe2\x82\xac", "\xf0\x9f\x90\x8a"};

	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
		CHECK(!strcmp(shown(texts[i]), texts[i]));
}

TEST(what_speaks_to_a_terminal_goes)
{
	CHECK(!strcmp(shown("\x1b]0;x\x07\r\n\x7f."), "?]0;x????."));
	/* CSI as one byte, and as a character. */
	CHECK(!strcmp(shown("\x9b"
			    "2J"),
		      "?2J"));
	CHECK(!strcmp(shown("\xc2\x9b"
			    "2J"),
		      "??2J"));
	/* Right to left from here on; the next line. */
	CHECK(!strcmp(shown("a\xe2\x80\xae"
			    "b"),
		      "a???b"));
	CHECK(!strcmp(shown("a\xe2\x80\xa8"
			    "b"),
		      "a???b"));
}

TEST(no_utf8_goes)
{
	CHECK(!strcmp(shown("\xc3"), "?"));
	CHECK(!strcmp(shown("\xc0\xaf"), "??"));
	CHECK(!strcmp(shown("\xed\xa0\x80"), "???"));
	CHECK(!strcmp(shown("\xe2\x82"), "??"));
}

TEST(a_part_of_a_text)
{
	char text[64] = "";
	FILE *out = fmemopen(text, sizeof(text), "w");

	printable_put(out,
		      "ab\x1b\xc3\xbc"
		      "d",
		      5);
	printable_put(out, "\xc3\xbc", 1);
	printable_put(out, "\x9b", 2);
	fclose(out);
	CHECK(!strcmp(text, "ab?\xc3\xbc?\xef\xbf\xbd"));
}
