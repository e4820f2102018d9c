/* SPDX-License-Identifier: Apache-2.0 */
/* Text of other users and hosts: what could speak to a terminal is kept out of it. */
#ifndef VD_BASE_PRINTABLE_H
#define VD_BASE_PRINTABLE_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* Bytes of the UTF-8 character at s, and which it is; 0 when there is none, or one that RFC 3629
 * excludes. */
int printable_decode(const char *s, uint32_t *c);
/* Neither a control character, of which U+0080 to U+009F are some, nor one that ends a line or
 * turns the direction of the text. */
bool printable_is(uint32_t c);
/* Replaces by '?' in place what is not printable, or no UTF-8 byte by byte. */
void printable(char *text);
/* Prints at most size bytes of a text so, with the replacement character for what is no UTF-8. */
void printable_put(FILE *out, const char *text, size_t size);

#endif
