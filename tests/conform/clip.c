/* SPDX-License-Identifier: Apache-2.0 */
/* Conformance: select with more descriptors than its sets have room for. */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "conform/cases.h"

#define PAGE_BYTES 4096
#define MANY	   20000
#define GUARD	   0xa5a5a5a5a5a5a5a5u
#define WORD_BITS  64

enum way { SELECT, PSELECT, SYS_CALL, SYS_PCALL, WAYS };

static const char *const way_names[] = {"select", "pselect", "syscall select",
					"syscall pselect6"};

/* What is set at the descriptor, in words that lie before a page that is not there. */
struct sets {
	uint64_t *in, *out;
	size_t words;
};

static uint64_t *words_at_the_end(size_t words)
{
	char *page = mmap(NULL, 2 * PAGE_BYTES, PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	NEED(page != MAP_FAILED && munmap(page + PAGE_BYTES, PAGE_BYTES) == 0);
	return (uint64_t *)(void *)(page + PAGE_BYTES) - words;
}

static struct sets sets_make(size_t words)
{
	return (struct sets){words_at_the_end(words), words_at_the_end(words), words};
}

static void sets_fill(struct sets *s, int fd)
{
	memset(s->in, 0, s->words * sizeof(*s->in));
	memset(s->out, 0, s->words * sizeof(*s->out));
	s->in[fd / WORD_BITS] |= 1ull << (fd % WORD_BITS);
	s->out[fd / WORD_BITS] |= 1ull << (fd % WORD_BITS);
}

static int ask(enum way way, struct sets *s)
{
	fd_set *in = (void *)s->in, *out = (void *)s->out;
	struct timeval no_time = {0, 0};
	struct timespec at_once = {0, 0};

	if (way == SELECT)
		return select(MANY, in, out, NULL, &no_time);
	if (way == PSELECT)
		return pselect(MANY, in, out, NULL, &at_once, NULL);
	if (way == SYS_CALL)
		return (int)syscall(SYS_select, MANY, in, out, NULL, &no_time);
	return (int)syscall(SYS_pselect6, MANY, in, out, NULL, &at_once, NULL);
}

static void show(enum way way, struct sets *s, int fd)
{
	sets_fill(s, fd);
	say_result(way_names[way], ask(way, s));
	say("in %d out %d", (int)(s->in[fd / WORD_BITS] >> (fd % WORD_BITS) & 1),
	    (int)(s->out[fd / WORD_BITS] >> (fd % WORD_BITS) & 1));
}

static void show_all(struct sets *s, int fd)
{
	for (int way = 0; way < WAYS; way++)
		show(way, s, fd);
}

CASE(clip_before_no_memory, DIRECT)
{
	struct sets s = sets_make(FD_SETSIZE / WORD_BITS);
	struct pair p = pair_warm_open();
	int pipes[2];

	NEED(pipe(pipes) == 0);
	show_all(&s, p.s);
	send_all(p.c, "x", 1);
	wait_inq(p.s, 1);
	show_all(&s, p.s);
	show_all(&s, pipes[1]);
	show_all(&s, pipes[0]);
	pair_close(p);
}

/* The program's own words behind the sets: they are nobody's, and stay. */
static void show_guarded(struct sets *s, int fd, size_t from)
{
	for (int way = 0; way < WAYS; way++) {
		bool whole = true;

		sets_fill(s, fd);
		for (size_t i = from; i < s->words; i++)
			s->in[i] = s->out[i] = GUARD;
		say_result(way_names[way], ask(way, s));
		for (size_t i = from; i < s->words; i++)
			whole = whole && s->in[i] == GUARD && s->out[i] == GUARD;
		say("%s", whole ? "whole" : "written to");
	}
}

CASE(clip_before_other_words, DIRECT)
{
	struct sets s = sets_make(PAGE_BYTES / sizeof(uint64_t));
	struct pair p = pair_warm_open();
	int pipes[2];

	NEED(pipe(pipes) == 0);
	show_guarded(&s, p.s, FD_SETSIZE / WORD_BITS);
	show_guarded(&s, pipes[0], FD_SETSIZE / WORD_BITS);
	pair_close(p);
}

/* A child's table is no longer than its descriptors are high. */
CASE(clip_in_a_child, DIRECT)
{
	enum { HIGH = 1500 };
	struct sets s = sets_make(PAGE_BYTES / sizeof(uint64_t));
	struct pair p = pair_warm_open();
	int pipes[2];
	pid_t pid;

	NEED(pipe(pipes) == 0);
	if (dup2(pipes[0], HIGH) != HIGH)
		skip("needs more descriptors");
	NEED(close(HIGH) == 0);
	pid = fork();
	NEED(pid >= 0);
	if (pid == 0) {
		say_as("child");
		show_guarded(&s, pipes[0], FD_SETSIZE / WORD_BITS);
		_exit(0);
	}
	show(SELECT, &s, HIGH);
	say("status %d", child_status(pid));
	pair_close(p);
}

/* Past every interposed name, as a library may make one. */
static void dup_unseen(int from, int to)
{
	long result;

	__asm__ volatile("syscall"
			 : "=a"(result)
			 : "a"(SYS_dup2), "D"(from), "S"(to)
			 : "rcx", "r11", "memory");
	NEED(result == to);
}

CASE(clip_not_before_the_highest, DIRECT)
{
	enum { HIGH = 1500, HIGHER = 3000, NEXT_POWER = 2048, LAST_POWER = 4096 };
	struct sets s = sets_make(PAGE_BYTES / sizeof(uint64_t));
	struct pair p = pair_warm_open();
	struct rlimit limit;
	int pipes[2];

	NEED(pipe(pipes) == 0 && getrlimit(RLIMIT_NOFILE, &limit) == 0);
	if (limit.rlim_cur < LAST_POWER)
		skip("needs more descriptors");
	NEED(dup2(p.s, HIGH) == HIGH);
	show_guarded(&s, HIGH, NEXT_POWER / WORD_BITS);
	show_guarded(&s, HIGH + 1, NEXT_POWER / WORD_BITS);
	dup_unseen(pipes[1], HIGHER);
	show_guarded(&s, HIGHER, LAST_POWER / WORD_BITS);
	show_guarded(&s, HIGHER + 1, LAST_POWER / WORD_BITS);
	show_guarded(&s, HIGH, LAST_POWER / WORD_BITS);
	pair_close(p);
}
