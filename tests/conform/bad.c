/* SPDX-License-Identifier: Apache-2.0 */
/* Conformance: how the sweeps over bad memory make it, and what they tell. */
#include "conform/bad.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#define PAGE 4096

const char *const bad_names[BAD_COUNT] = {"null",     "low", "high", "none",
					  "readable", "cut", "fits"};

/* Two pages each, of which the second has no access. */
static char *page_of(int place)
{
	static char *pages[BAD_PLACES];
	if (!pages[place]) {
		pages[place] = mmap(NULL, 2 * PAGE, PROT_NONE,
				    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		NEED(pages[place] != MAP_FAILED);
	}
	return pages[place];
}

void *bad_place(enum bad kind, const void *object, size_t len)
{
	static int next;
	char *page = page_of(next = (next + 1) % BAD_PLACES);
	char *at = kind == CUT ? page + PAGE - len / 2 : page + PAGE - len;
	if (kind == NOTHING)
		return NULL;
	if (kind == LOW)
		return (void *)1;
	if (kind == HIGH)
		return (void *)0xdead000000000000;
	NEED(mprotect(page, PAGE, PROT_READ | PROT_WRITE) == 0);
	memcpy(at, object, kind == CUT ? len / 2 : len);
	if (kind != CUT && kind != FITS)
		NEED(mprotect(page, PAGE, kind == READABLE ? PROT_READ : PROT_NONE) == 0);
	return at;
}

unsigned bad_word(enum bad kind, const void *at)
{
	unsigned word;
	if (kind != READABLE && kind != FITS)
		return 0;
	memcpy(&word, at, sizeof word);
	return word;
}

static struct pair open_unix(void)
{
	int fds[2];
	NEED(socketpair(AF_UNIX, SOCK_STREAM, 0, fds) == 0);
	send_pattern(fds[0], 0, 10);
	return (struct pair){fds[0], fds[1]};
}

static struct pair open_pipe(void)
{
	int fds[2];
	NEED(pipe(fds) == 0);
	NEED(write(fds[1], "0123456789", 10) == 10);
	return (struct pair){fds[1], fds[0]};
}

const struct bad_state bad_states[] = {
	{"empty", "empty", NULL},
	{"10 bytes", "10 bytes", NULL},
	{"10 bytes, end", "10 bytes, end", NULL},
	{"10 bytes, closed", "10 bytes, closed", NULL},
	{"reset", "reset", NULL},
	{"closed with unread", "closed with unread", NULL},
	{"full", "full", NULL},
	{"unconnected", "unconnected", NULL},
	{"listening", "listening", NULL},
	{"local", NULL, open_unix},
	{"pipe", NULL, open_pipe},
};
const size_t bad_states_count = COUNT_OF(bad_states);

static struct pair state_enter(const struct bad_state *state)
{
	for (size_t i = 0; state->grid && i < grid_states_count; i++)
		if (strcmp(grid_states[i].name, state->grid) == 0)
			return state_open(&grid_states[i], WARM);
	NEED(state->open);
	return state->open();
}

/* Counts, and adds up with their places. */
static const char *drained(int fd, char *out)
{
	static uint8_t buf[65536];
	size_t got = 0;
	unsigned sum = 0;
	ssize_t n;
	while ((n = read(fd, buf, sizeof buf)) > 0)
		for (ssize_t i = 0; i < n; i++)
			sum += (unsigned)++got * buf[i];
	/* So much only where it was full: as it happens. */
	if (got >= 10000)
		sprintf(out, "many %s", n < 0 ? errno_name(errno) : "end");
	else
		sprintf(out, "%zu (%x) %s", got, sum, n < 0 ? errno_name(errno) : "end");
	return out;
}

void bad_after(struct pair p, const char *what)
{
	struct pollfd pf = {p.s, POLLIN | POLLOUT | POLLPRI | POLLRDHUP, 0};
	char before[96], mine[64], other[64] = "-";
	int error = -1;
	socklen_t len = sizeof error;
	NEED(poll(&pf, 1, 0) >= 0);
	strcpy(before, poll_names(pf.revents));
	bool is_socket = getsockopt(p.s, SOL_SOCKET, SO_ERROR, &error, &len) == 0;
	nonblock(p.s, true);
	drained(p.s, mine);
	if (p.c >= 0) {
		bool sent = write(p.s, "after it", 8) == 8;
		/* It has all come: what is in memory is there at once. */
		if (sent)
			wait_events(p.c, POLLIN);
		nonblock(p.c, true);
		drained(p.c, other);
	}
	say("%s; %s, error %s, left %s, other %s", what, before,
	    is_socket ? errno_name(error) : "none", mine, other);
}

static void visit(const struct bad_call *call, enum bad kind,
		  const struct bad_state *state)
{
	char what[400], extra[128] = "";
	struct pair p = state_enter(state);
	nonblock(p.s, true);
	errno = 0;
	ssize_t n = call->run(p, kind, extra);
	snprintf(what, sizeof what, "%s, %s, %s: %zd %s%s", state->name, call->name,
		 bad_names[kind], n, n < 0 ? errno_name(errno) : "", extra);
	if (getenv("BAD_LOUD"))
		say("%s", what);
	bad_after(p, what);
	if (p.c >= 0)
		close(p.c);
	state_close((struct pair){-1, state->grid ? p.s : -1});
	if (!state->grid)
		close(p.s);
}

void bad_sweep(const struct bad_call *calls, size_t count)
{
	alarm(GRID_SECONDS);
	signal(SIGPIPE, SIG_IGN);
	for (size_t s = 0; s < bad_states_count; s++)
		for (size_t c = 0; c < count; c++)
			for (int kind = 0; kind < BAD_COUNT; kind++)
				if (!calls[c].leaves ||
				    strcmp(bad_states[s].name, "full") != 0)
					visit(&calls[c], (enum bad)kind, &bad_states[s]);
}
