/* SPDX-License-Identifier: Apache-2.0 */
/* What this process did, counted, and written at its end: to the log, and as a line of JSON. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

#include "base/appended.h"
#include "base/atomic.h"
#include "base/kernel.h"
#include "base/lock.h"
#include "base/log.h"
#include "base/quiet.h"
#include "base/real.h"
#include "base/scratch.h"
#include "base/sections.h"
#include "conn/report.h"
#include "settings/config.h"

/* 34 reasons of at most 16 + 25 bytes, 26 counts of 45, and the name: with room to spare. */
#define REPORT_BYTES 4096
#define LOCK_TRIES   100
#define LOCK_NAP_NS  1000000

static struct report report_own;
struct report *report_here FORK_DATA = &report_own;
static _Atomic bool report_written FORK_DATA;

struct text {
	char *out;
	size_t at, size;
};

static void text_add(struct text *t, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

static void text_add(struct text *t, const char *format, ...)
{
	va_list args;
	int n;

	va_start(args, format);
	n = vsnprintf(t->out + t->at, t->size - t->at, format, args);
	va_end(args);
	if (n > 0)
		t->at += (size_t)n < t->size - t->at ? (size_t)n : t->size - t->at - 1;
}

/* Bytes above 127 need not be UTF-8, so each is written as a code point of its own. */
static void text_add_escaped(struct text *t, const char *s)
{
	for (; *s; s++) {
		unsigned char c = (unsigned char)*s;
		if (c == '"' || c == '\\')
			text_add(t, "\\%c", c);
		else if (c < 0x20 || c >= 0x7f)
			text_add(t, "\\u%04x", c);
		else
			text_add(t, "%c", c);
	}
}

NEAR_CODE void report_share(bool sends, uint64_t n)
{
	/* Relaxed: a count orders nothing. */
	fetch_add_relaxed(&report_now.shares[lock_self() % REPORT_SHARES].bytes[sends],
			  n);
}

static uint64_t report_get(_Atomic uint64_t *counter)
{
	/* Relaxed: a count orders nothing. */
	return load_relaxed(counter);
}

void (*report_collect)(struct report_open *open);

/* Of closed connections and of open ones. */
static void collect(struct report_open *all)
{
	for (uint32_t i = 0; i < NATIVE_COUNTS; i++)
		all->native[i] = report_get(&report_now.native[i]);
	for (uint32_t i = 0; i < VD_REASON_COUNT; i++)
		all->reasons[i] = report_get(&report_now.reasons[i]);
	if (report_collect)
		report_collect(all);
}

/* null where there was nothing. */
static void add_native(struct text *t, const uint64_t *native)
{
	uint64_t any = 0;

	for (uint32_t i = 0; i < NATIVE_COUNTS; i++)
		any |= native[i];
	text_add(t, ",\"native\":%s", any ? "" : "null");
	for (uint32_t i = 0; any && i < NATIVE_COUNTS; i++)
		text_add(t, "%s\"%s\":%" PRIu64 "%s", i ? "," : "{",
			 native_count_names[i], native[i],
			 i == NATIVE_COUNTS - 1 ? "}" : "");
}

static void report_format(struct text *t, const char *program,
			  const struct report_open *all)
{
	const char *comma = "";

	text_add(t, "{\"pid\":%d,\"program\":\"", (int)kernel_getpid());
	text_add_escaped(t, program);
	text_add(t, "\"");
#define COUNT(field)                                                                     \
	text_add(t, ",\"" #field "\":%" PRIu64, report_get(&report_now.field))
	COUNT(connections);
	COUNT(upgraded);
	COUNT(downgraded);
	COUNT(tx_direct_bytes);
	COUNT(rx_direct_bytes);
	COUNT(tx_rdma_bytes);
	COUNT(rx_rdma_bytes);
	text_add(t, ",\"tx_tcp_bytes\":%" PRIu64 ",\"rx_tcp_bytes\":%" PRIu64,
		 report_tcp_bytes(report_here, true),
		 report_tcp_bytes(report_here, false));
	COUNT(doorbells);
	COUNT(sleeps);
	COUNT(redirects);
	COUNT(zero_copies);
	COUNT(pinned_bytes);
#undef COUNT
	add_native(t, all->native);
	text_add(t, ",\"reasons\":{");
	for (uint32_t i = 0; i < VD_REASON_COUNT; i++) {
		if (!all->reasons[i])
			continue;
		text_add(t, "%s\"%s\":%" PRIu64, comma, reason_name(i), all->reasons[i]);
		comma = ",";
	}
	text_add(t, "}}\n");
}

/* A process that was killed as it wrote has left a part of a line: it is to stay alone. */
static bool is_torn(const char *path, int written)
{
	struct stat st, there;
	char last = '\n';
	int fd = -1;

	if (kernel_fstat(written, &st) == 0 && S_ISREG(st.st_mode))
		fd = kernel_open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0);
	if (fd < 0)
		return false;
	if (kernel_fstat(fd, &there) == 0 && there.st_ino == st.st_ino &&
	    there.st_dev == st.st_dev && st.st_size > 0)
		kernel_call4(SYS_pread64, fd, (long)&last, 1, st.st_size - 1);
	kernel_close(fd);
	return last != '\n';
}

static void take_a_nap(void)
{
	const struct timespec nap = {.tv_nsec = LOCK_NAP_NS};

	kernel_call4(SYS_nanosleep, (long)&nap, 0, 0, 0);
}

/* Who writes at this moment is waited for, but not for ever: others may lock the file, too. */
static void lock_file(int fd)
{
	for (int i = 0; i < LOCK_TRIES; i++) {
		if (kernel_call4(SYS_flock, fd, LOCK_EX | LOCK_NB, 0, 0) != -EWOULDBLOCK)
			return;
		take_a_nap();
	}
}

/* A pipe that is full gets as long to be read, and no longer. */
static ssize_t write_all(int fd, const char *line, size_t n)
{
	ssize_t r = quiet_write(fd, line, n);

	for (int i = 0; r == -EAGAIN && i < LOCK_TRIES; i++) {
		take_a_nap();
		r = quiet_write(fd, line, n);
	}
	return r;
}

static void write_line(const struct config *config, const struct report_open *all,
		       char *line)
{
	struct text t = {line, 0, REPORT_BYTES};
	ssize_t n;
	int fd;

	fd = appended_open(config->report, kernel_geteuid() == 0 ? 0600 : 0666, true);
	if (fd < 0) {
		errno = -fd;
		log_error("VIADUCT_REPORT=%s: cannot be opened: %m; the report of this "
			  "process is lost",
			  config->report);
		return;
	}
	lock_file(fd);
	if (is_torn(config->report, fd))
		text_add(&t, "\n");
	report_format(&t, config->program, all);
	n = write_all(fd, line, t.at);
	errno = n < 0 ? (int)-n : ENOSPC;
	if (n != (ssize_t)t.at)
		log_error("VIADUCT_REPORT=%s: cannot be written: %m; the report of this "
			  "process is lost",
			  config->report);
	/* Another thread's child may have the descriptor, too. */
	kernel_call4(SYS_flock, fd, LOCK_UN, 0, 0);
	kernel_close(fd);
}

/* What became of the connections. */
static void log_end(const uint64_t *reasons, char *line)
{
	struct text t = {line, 0, REPORT_BYTES};
	uint64_t seen = report_get(&report_now.connections);
	uint64_t back = report_get(&report_now.downgraded);
	const char *before = "; on TCP: ";

	if (seen)
		text_add(&t, "%" PRIu64 " TCP connection%s, %" PRIu64 " upgraded", seen,
			 seen == 1 ? "" : "s", report_get(&report_now.upgraded));
	else
		text_add(&t, "no TCP connection");
	if (back)
		text_add(&t, ", %" PRIu64 " gone back", back);
	for (uint32_t i = 0; i < VD_REASON_COUNT; i++) {
		if (!reasons[i])
			continue;
		text_add(&t, "%s%s %" PRIu64, before, reason_name(i), reasons[i]);
		before = ", ";
	}
	log_info("ended: %s", line);
}

static bool is_logged(const struct config *config)
{
	return log_level_now >= LOG_INFO && !config->off;
}

static void write_both(const struct config *config, bool logs, char *line)
{
	struct report_open all;
	int saved = errno;

	collect(&all);
	if (logs)
		log_end(all.reasons, line);
	if (config->report)
		write_line(config, &all, line);
	errno = saved;
}

/* Not inline: who writes none need not come by here. */
static __attribute__((noinline)) void write_end(const struct config *config, bool logs)
{
	char *line = scratch_take(REPORT_BYTES); /* the stack may be short */

	if (!line)
		return;
	write_both(config, logs, line);
	scratch_give(line, REPORT_BYTES);
}

static bool stopped;

void report_stop(void)
{
	stopped = true;
}

static FORK_CODE bool is_due(const struct config *config, bool logs)
{
	return (config->report || logs) && !stopped &&
	       !exchange_relaxed(&report_written, true);
}

FORK_CODE void report_write(void)
{
	const struct config *config = config_get();
	bool logs = is_logged(config);

	if (is_due(config, logs))
		write_end(config, logs);
}

void report_write_dying(void)
{
	static char line[REPORT_BYTES]; /* one thread gets past is_due */
	const struct config *config = config_get();
	bool logs = is_logged(config);

	if (is_due(config, logs))
		write_both(config, logs, line);
}

void report_write_now(void)
{
	const struct config *config = config_get();

	if (is_due(config, false))
		write_end(config, false);
}

FORK_CODE void report_reopen(void)
{
	store_relaxed(&report_written, false);
}

FORK_CODE void report_forked(void)
{
	/* The child has one thread, and nothing else can count meanwhile. */
	if (report_here == &report_own)
		memset(&report_own, 0, sizeof(report_own));
	report_here = &report_own;
	report_reopen();
}

FORK_CODE void report_count_in(struct report *there)
{
	report_here = there;
}
