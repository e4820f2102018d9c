/* SPDX-License-Identifier: Apache-2.0 */
/* A statically linked program, into which nothing can be preloaded. */
#include <stdio.h>

int main(void)
{
	puts("static");
	return 7;
}
