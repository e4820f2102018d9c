/* SPDX-License-Identifier: Apache-2.0 */
/* The transcript: one line for each thing seen, the same wherever the same was seen. */
#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "differential.h"

static int output = STDOUT_FILENO;
static const char *speaker = "";
static unsigned op_number;
static const char *op_name = "";

void tell_to(int fd)
{
	output = fd;
}

void tell_who(const char *who)
{
	speaker = who;
}

void tell_begin(unsigned number, const char *op)
{
	op_number = number;
	op_name = op;
}

void tell(const char *fmt, ...)
{
	char line[2048];
	va_list ap;
	int n = snprintf(line, sizeof line, "%u%s %s ", op_number, speaker, op_name);
	va_start(ap, fmt);
	n += vsnprintf(line + n, sizeof line - (size_t)n - 2, fmt, ap);
	va_end(ap);
	if (n > (int)sizeof line - 2)
		n = (int)sizeof line - 2;
	line[n++] = '\n';
	long r;
	do
		r = raw_call(1 /* write */, output, (long)line, n, 0, 0);
	while (r == -EINTR);
	if (r != n)
		_exit(3);
}

void broken(const char *what, const char *file, int line)
{
	int err = errno;
	tell("BROKEN %s (%s:%d, %s)", what, file, line, strerrorname_np(err));
	_exit(4);
}

/* Strings for the arguments of one tell(). */
static char *scratch(void)
{
	static char ring[8][256];
	static unsigned next;
	return ring[next++ % 8];
}

const char *result(ssize_t value)
{
	char *s = scratch();
	const char *name = value >= 0 ? NULL : strerrorname_np(errno);
	if (value >= 0)
		snprintf(s, 256, "%zd", value);
	else
		snprintf(s, 256, "%zd %s", value, name ? name : "unknown");
	return s;
}

struct bit {
	unsigned value;
	const char *name;
};

static const char *names(unsigned value, const struct bit *bits)
{
	char *s = scratch();
	size_t n = 0;
	s[0] = '\0';
	for (; bits->name; bits++) {
		if (!(value & bits->value))
			continue;
		value &= ~bits->value;
		n += (size_t)snprintf(s + n, 256 - n, "%s%s", n ? "|" : "", bits->name);
	}
	if (value || n == 0)
		snprintf(s + n, 256 - n, "%s%#x", n ? "|" : "", value);
	return s;
}

const char *events_of_poll(unsigned events)
{
	static const struct bit bits[] = {
		{POLLIN, "IN"},		{POLLPRI, "PRI"},	{POLLOUT, "OUT"},
		{POLLERR, "ERR"},	{POLLHUP, "HUP"},	{POLLNVAL, "NVAL"},
		{POLLRDNORM, "RDNORM"}, {POLLRDBAND, "RDBAND"}, {POLLWRNORM, "WRNORM"},
		{POLLWRBAND, "WRBAND"}, {POLLRDHUP, "RDHUP"},	{0, NULL}};
	return names(events, bits);
}

const char *events_of_epoll(uint32_t events)
{
	static const struct bit bits[] = {{EPOLLIN, "IN"},
					  {EPOLLPRI, "PRI"},
					  {EPOLLOUT, "OUT"},
					  {EPOLLERR, "ERR"},
					  {EPOLLHUP, "HUP"},
					  {EPOLLRDNORM, "RDNORM"},
					  {EPOLLRDBAND, "RDBAND"},
					  {EPOLLWRNORM, "WRNORM"},
					  {EPOLLWRBAND, "WRBAND"},
					  {EPOLLRDHUP, "RDHUP"},
					  {EPOLLET, "ET"},
					  {EPOLLONESHOT, "ONESHOT"},
					  {EPOLLEXCLUSIVE, "EXCLUSIVE"},
					  {EPOLLWAKEUP, "WAKEUP"},
					  {0, NULL}};
	return names(events, bits);
}

const char *flags_of_message(int flags)
{
	static const struct bit bits[] = {{MSG_OOB, "OOB"},
					  {MSG_PEEK, "PEEK"},
					  {MSG_TRUNC, "TRUNC"},
					  {MSG_DONTWAIT, "DONTWAIT"},
					  {MSG_EOR, "EOR"},
					  {MSG_WAITALL, "WAITALL"},
					  {MSG_NOSIGNAL, "NOSIGNAL"},
					  {MSG_MORE, "MORE"},
					  {MSG_ERRQUEUE, "ERRQUEUE"},
					  {MSG_CTRUNC, "CTRUNC"},
					  {MSG_CMSG_CLOEXEC, "CLOEXEC"},
					  {MSG_WAITFORONE, "WAITFORONE"},
					  {0, NULL}};
	return names((unsigned)flags, bits);
}

uint32_t checksum(const void *bytes, size_t len)
{
	const uint8_t *p = bytes;
	uint32_t sum = len ? 2166136261u : 0;
	for (size_t i = 0; i < len; i++)
		sum = (sum ^ p[i]) * 16777619u;
	return sum;
}
