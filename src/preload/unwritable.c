/* SPDX-License-Identifier: Apache-2.0 */
/* select where the answer cannot be written: the kernel waits all the same, then says so. */
#include <stdlib.h>
#include <string.h>
#include <sys/select.h>

#include "base/sigsafe.h"
#include "preload/hook.h"
#include "readiness/ready.h"

/* A word is read and written as it is. */
static bool word_takes(unsigned long *word)
{
	unsigned long as_it_is;

	return crit_copy(&as_it_is, word, sizeof(as_it_is)) == 0 &&
	       crit_copy(word, &as_it_is, sizeof(as_it_is)) == 0;
}

static size_t set_words(int n)
{
	const size_t bits = 8 * sizeof(unsigned long);

	return n > 0 ? ((size_t)n + bits - 1) / bits : 0;
}

bool hook_set_takes(int n, fd_set *set)
{
	const size_t page = CRIT_PAGE_BYTES / sizeof(unsigned long);
	unsigned long *words = (unsigned long *)set;
	size_t count = set_words(n);

	if (!set || count == 0)
		return true;
	for (size_t i = 0; i < count; i += page)
		if (!word_takes(&words[i]))
			return false;
	return count == 1 || word_takes(&words[count - 1]);
}

int hook_select_anyway(int n, fd_set *r, fd_set *w, fd_set *e,
		       const struct timespec *timeout, const sigset_t *mask)
{
	fd_set *given[3] = {r, w, e}, *copy[3] = {NULL, NULL, NULL};
	size_t bytes = set_words(n) * sizeof(unsigned long);
	char *memory = malloc(3 * bytes);
	int result = -ENOMEM;

	for (size_t i = 0; memory && i < 3; i++)
		if (given[i] && crit_copy(memory + i * bytes, given[i], bytes) == 0)
			copy[i] = (fd_set *)(void *)(memory + i * bytes);
	if (memory)
		result = ready_select(n, copy[0], copy[1], copy[2], timeout, mask);
	/* As far as it can be told. */
	for (int i = 0; result >= 0 && i < 3; i++)
		if (copy[i] && crit_copy(given[i], copy[i], bytes) < 0)
			break;
	free(memory);
	return result >= 0 ? -EFAULT : result;
}
