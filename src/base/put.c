/* SPDX-License-Identifier: Apache-2.0 */
/* Short texts made without the C library's formats, which take 2 KB of a stack that may have 4. */
#include "base/put.h"

char *put_text(char *to, const char *text)
{
	while ((*to = *text++))
		to++;
	return to;
}

char *put_number(char *to, int number)
{
	char digits[10];
	unsigned n = number < 0 ? -(unsigned)number : (unsigned)number;
	int count = 0;

	if (number < 0)
		*to++ = '-';
	do
		digits[count++] = (char)('0' + n % 10);
	while (n /= 10);
	while (count > 0)
		*to++ = digits[--count];
	*to = '\0';
	return to;
}
