/* SPDX-License-Identifier: Apache-2.0 */
/* Patterns and contenders in words, and the colour that each contender keeps. */
#include <string.h>

#include "tool/report/report.h"

struct name {
	const char *name, *words;
};

static const char *words_for(const struct name *names, size_t count, const char *name)
{
	for (size_t i = 0; i < count; i++)
		if (!strcmp(names[i].name, name))
			return names[i].words;
	return name;
}

#define WORDS_FOR(names, name) words_for(names, sizeof(names) / sizeof(names[0]), name)

const char *pattern_words(const char *pattern)
{
	static const struct name names[] = {
		{"rtt", "Round trip, blocking calls"},
		{"rtt-spin", "Round trip, spinning"},
		{"rtt-epoll", "Round trip, epoll"},
		{"rtt-poll", "Round trip, poll"},
		{"many", "Many connections, epoll"},
		{"think", "Request and reply, thinking busily"},
		{"think-sleep", "Request and reply, sleeping between"},
		{"stream", "One way"},
		{"bidir", "Both ways at once"},
		{"crr", "Connect, request, close"},
		{"session", "Connect, twelve requests, close"},
		{"session-30", "Connect, thirty requests, close"},
		{"session-100", "Connect, a hundred requests, close"},
		{"plain", "Plain peer, round trip"},
		{"plain-spin", "Plain peer, spinning"},
		{"plain-stream", "Plain peer, one way"},
		{"logp", "LogP"},
		{"copy", "Copies, the same buffers again"},
		{"copy-cold", "Copies, buffers that no cache holds"},
		{"setup", "Short connections, upgraded at once"},
		{"setup-spin", "Short connections, upgraded at once, spinning"},
	};
	return WORDS_FOR(names, pattern);
}

const char *contender_words(const char *over)
{
	static const struct name names[] = {
		{"tcp", "TCP"},
		{"viaduct", "Viaduct"},
		{"viaduct-nospin", "Viaduct, spin off"},
		{"tcp-spin", "TCP, spinning"},
		{"unix", "AF_UNIX"},
		{"floor", "raw ring"},
		{"via-client", "Viaduct at client"},
		{"via-server", "Viaduct at server"},
		{"ucx", "UCX"},
		{"fi", "libfabric"},
		{"ring", "ring, two copies"},
		{"vm-write", "process_vm_writev"},
		{"vm-read", "process_vm_readv"},
	};
	return WORDS_FOR(names, over);
}

const char *place_words(const char *place)
{
	static const struct name names[] = {
		{"two", "two CPUs"},
		{"one", "one CPU"},
		{"free", "any CPU"},
	};
	return WORDS_FOR(names, place);
}

unsigned contender_style(const char *over)
{
	static const char *const known[] = {"tcp",	  "viaduct", "unix",
					    "tcp-spin",	  "floor",   "via-client",
					    "via-server", "ucx",     "fi"};
	/* In no picture together with those whose style they share. */
	static const char *const copies[] = {"ring", "vm-write", "vm-read"};
	for (unsigned i = 0; i < sizeof(known) / sizeof(known[0]); i++)
		if (!strcmp(known[i], over))
			return i;
	for (unsigned i = 0; i < sizeof(copies) / sizeof(copies[0]); i++)
		if (!strcmp(copies[i], over))
			return i;
	return STYLES - 1;
}
