/* SPDX-License-Identifier: Apache-2.0 */
/* Strings that an exec is given are looked at before they are read. */
#include "preload/exec_given.h"

#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include "base/kernel.h"
#include "base/sigsafe.h"
#include "preload/hook.h"

#define NO_PAGE 1

static uintptr_t page_of(const void *at)
{
	return (uintptr_t)at & -(uintptr_t)CRIT_PAGE_BYTES;
}

/*
 * Where we are not active no handler survives a fault, and the kernel is asked: it reads the signals of a mask, and
 * then finds that nothing is to be done with them. A filter that lets programs be executed lets it pass as a rule.
 */
static bool can_read(const void *at)
{
	long mask = (long)((uintptr_t)at & -sizeof(uint64_t));

	if (hook_active)
		return crit_readable(at, 1);
	return kernel_call4(SYS_rt_sigprocmask, -1, mask, 0, sizeof(uint64_t)) != -EFAULT;
}

/* Asked once for each page of those that follow each other. */
static bool is_good_at(const void *at, uintptr_t *good)
{
	if (page_of(at) != *good && !can_read(at))
		return false;
	*good = page_of(at);
	return true;
}

static bool string_is_good(const char *at, uintptr_t *good)
{
	for (;;) {
		size_t left = CRIT_PAGE_BYTES - (uintptr_t)at % CRIT_PAGE_BYTES;

		if (!is_good_at(at, good))
			return false;
		if (memchr(at, '\0', left))
			return true;
		at += left;
	}
}

bool exec_string_is_good(const char *at)
{
	uintptr_t good = NO_PAGE;

	return string_is_good(at, &good);
}

/* It may lie across the end of a page. */
static bool read_pointer(const char **to, const void *at, uintptr_t *good)
{
	const char *last = (const char *)at + sizeof(*to) - 1;

	if (!is_good_at(at, good) || !is_good_at(last, good))
		return false;
	memcpy(to, at, sizeof(*to));
	return true;
}

bool exec_strings_are_good(char *const *at)
{
	uintptr_t good = NO_PAGE, good_string = NO_PAGE;
	const char *string;

	if (at == environ && !hook_active)
		return true;
	for (; at; at++) {
		if (!read_pointer(&string, at, &good))
			return false;
		if (!string)
			return true;
		if (!string_is_good(string, &good_string))
			return false;
	}
	return true;
}
