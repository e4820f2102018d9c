/* SPDX-License-Identifier: Apache-2.0 */
/* The sets of select end where they would end without Viaduct. */
#include <fcntl.h>
#include <sys/select.h>

#include "base/fds.h"
#include "base/kernel.h"
#include "base/sigsafe.h"
#include "preload/hook.h"

/*
 * Whatever number a program passes, select reads and writes its sets only as far as the kernel's
 * table of descriptors goes: with getdtablesize() and a usual fd_set that is no further than the
 * fd_set. Our own high numbers make the table longer, and the kernel would go past the program's
 * memory. So the number is cut to the length that the table would have. Descriptors may have come
 * past us (fopen, exec), so those that the sets name behind that length are looked at first.
 */

#define WORD_BITS (8 * (int)sizeof(unsigned long))
#define WORDS	  ((int)(CRIT_SHORT_BYTES / sizeof(unsigned long)))

static void look_at(unsigned long word, int base)
{
	for (; word; word &= word - 1) {
		int fd = base + __builtin_ctzl(word);

		if (fd >= fds_table_length() && !fds_is_ours(fd) &&
		    kernel_call4(SYS_fcntl, fd, F_GETFD, 0, 0) >= 0)
			(void)fds_got(fd);
	}
}

/* As far as it can be read: the memory may be no part of a set. */
static void look_behind(const fd_set *set, int n)
{
	int at = fds_table_length() / WORD_BITS, some = WORDS;
	int end = n / WORD_BITS + (n % WORD_BITS != 0);
	unsigned long words[WORDS];

	while (set && at < end && some > 0) {
		const char *from = (const char *)set + (size_t)at * sizeof(*words);

		if (some > end - at)
			some = end - at;
		if (crit_copy(words, from, (size_t)some * sizeof(*words)) != 0) {
			some /= 2;
			continue;
		}
		for (int i = 0; i < some; i++)
			look_at(words[i], (at + i) * WORD_BITS);
		at += some;
	}
}

int hook_select_clip(int n, const fd_set *r, const fd_set *w, const fd_set *e)
{
	if (n <= fds_table_length() || !hook_active)
		return n;
	look_behind(r, n);
	look_behind(w, n);
	look_behind(e, n);
	return n < fds_table_length() ? n : fds_table_length();
}
