/* SPDX-License-Identifier: Apache-2.0 */
/* Short texts made without the C library's formats, which take 2 KB of a stack that may have 4. */
#ifndef VD_BASE_PUT_H
#define VD_BASE_PUT_H

/* Both write the text and a 0, and return where that stands. There must be room. */
char *put_text(char *to, const char *text);
/* With a sign where it is negative; 11 characters at most. */
char *put_number(char *to, int number);

#endif
