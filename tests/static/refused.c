/* SPDX-License-Identifier: Apache-2.0 */
/* A program that is not carried, for it sets FS by itself: counts the bytes of a descriptor. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	char bytes[512];
	ssize_t n;
	long sum = 0;

	if (argc > 2) /* never */
		__asm__ __volatile__("wrfsbase %0" : : "r"(0ul));
	while ((n = read(atoi(argv[1]), bytes, sizeof(bytes))) > 0)
		sum += n;
	printf("%ld bytes, then %ld\n", sum, (long)n);
	return 0;
}
