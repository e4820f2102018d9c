/* SPDX-License-Identifier: Apache-2.0 */
/* Streams of connections: libc's buffers, errors, locks and ends, mixed with calls on the descriptor. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdio_ext.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "conform/cases.h"

size_t __fread_chk(void *to, size_t room, size_t size, size_t count, FILE *f);
size_t __fread_unlocked_chk(void *to, size_t room, size_t size, size_t count, FILE *f);

/* What has been read from the descriptor, and not from the stream. */
#ifdef __GLIBC__
#define held(f) ((f)->_IO_read_end - (f)->_IO_read_ptr)
#else
#define held(f) ((ptrdiff_t)__freadahead(f))
#endif

/* Both ends in this process; the stream is on p.c. */
static FILE *stream_on(struct pair *p, const char *mode)
{
	FILE *f;

	*p = pair_warm_open();
	f = fdopen(p->c, mode);
	NEED(f);
	return f;
}

/* What has come at the other end so far, which is to be so many bytes. */
static void say_come(const char *what, struct pair p, int count)
{
	char buf[64] = "";
	int more = 0;

	if (count > 0) {
		wait_inq(p.s, count);
		recv_all(p.s, buf, (size_t)count);
	}
	say_result("more", recv(p.s, &more, 1, MSG_DONTWAIT));
	say("%s: %s", what, buf);
}

static void say_state(const char *what, FILE *f)
{
	say("%s: eof %d error %d", what, feof(f) != 0, ferror(f) != 0);
}

CASE(stdio_reads, STAYS)
{
	struct pair p;
	FILE *f = stream_on(&p, "r");
	char line[64] = "", *text = NULL;
	size_t room = 0;
	int number = 0, c;

	say("fileno %d %d", fileno(f) == p.c, fileno_unlocked(f) == p.c);
	say("can read %d write %d", __freadable(f) != 0, __fwritable(f) != 0);
	send_all(p.s, "one\ntwo 22\nthree\nfour", 21);
	say("fgets: %s", fgets(line, sizeof line, f) ? line : "none");
	say("fscanf: %d", fscanf(f, "%60s %d", line, &number));
	say("%s %d", line, number);
	c = getc(f);
	say("getc: %d", c);
	say("ungetc: %d", ungetc('-', f));
	say("getline: %zd", getline(&text, &room, f));
	say("%s", text);
	say("unread in the buffer: %td", held(f));
	close(p.s);
	say("fread: %zu", fread(line, 1, 10, f));
	say("%.4s", line);
	say_state("at the end", f);
	say("sticky: %d", getc(f));
	clearerr(f);
	say_state("cleared", f);
	say("again: %d", getc(f));
	say_state("again", f);
	free(text);
	say_result("fclose", fclose(f));
	say_result("closed", fcntl(p.c, F_GETFD));
}

CASE(stdio_reads_ahead, STAYS)
{
	static char large[20000];
	struct pair p;
	FILE *f = stream_on(&p, "r");
	int count = 0;

	send_pattern(p.s, 0, 20000);
	wait_inq(p.c, 20000);
	say("getc: %d", getc(f) == pattern(0));
	/* What one buffer takes has been read. */
	wait_inq(p.c, 20000 - 4096);
	say("room %zu", __fbufsize(f));
	say("fread: %zu", fread(large, 1, 10000, f));
	for (int i = 0; i < 10000; i++)
		count += (uint8_t)large[i] == pattern((uint64_t)i + 1);
	say("right: %d", count);
	say("unread: %td", held(f));
	say("ungetc: %d", ungetc('x', f) == 'x');
	say("fread of three: %zu", fread(large, 3, 3000, f));
	say("first: %c then %d", large[0], (uint8_t)large[1] == pattern(10001));
	say("__fread_chk: %zu", __fread_chk(large, sizeof large, 1, 500, f));
	say("%d", (uint8_t)large[0] == pattern(19000));
	say("__fread_unlocked_chk: %zu",
	    __fread_unlocked_chk(large, sizeof large, 100, 2, f));
	say("fread_unlocked: %zu", (fread_unlocked)(large, 1, 100, f));
	say("%d", (uint8_t)large[0] == pattern(19700));
	say("nothing: %zu %zu", fread(large, 0, 10, f), fread(large, 10, 0, f));
	shutdown(p.s, SHUT_WR);
	say("at the end: %zu", fread(large, 100, 100, f));
	say_state("at the end", f);
	fclose(f);
	close(p.s);
}

CASE(stdio_reads_unbuffered, STAYS)
{
	char buf[64] = "";
	struct pair p;
	FILE *f = stream_on(&p, "rb");

	say_result("setvbuf", setvbuf(f, NULL, _IONBF, 0));
	send_all(p.s, "0123456789abcdef", 16);
	wait_inq(p.c, 16);
	say("getc: %c", getc(f));
	wait_inq(p.c, 15);
	say("fread: %zu", fread(buf, 1, 5, f));
	wait_inq(p.c, 10);
	recv_all(p.c, buf + 5, 4);
	say("%s", buf);
	say("room %zu", __fbufsize(f));
	fclose(f);
	close(p.s);
}

CASE(stdio_writes, STAYS)
{
	static char large[10001];
	struct pair p;
	FILE *f = stream_on(&p, "w");

	say("fprintf: %d", fprintf(f, "%s %d;", "number", 42));
	say("fputs: %d", fputs("more;", f) >= 0);
	say("putc: %c", putc('!', f));
	say("pending %zu", __fpending(f));
	say_come("before the flush", p, 0);
	say_result("fflush", fflush(f));
	say_come("flushed", p, 16);
	memset(large, 'x', sizeof large);
	say("fwrite: %zu", fwrite(large, 1, sizeof large, f));
	say("pending %zu of %zu", __fpending(f), __fbufsize(f));
	wait_inq(p.s, (int)(sizeof large - __fpending(f)));
	say_result("fflush of all", fflush(NULL));
	wait_inq(p.s, sizeof large);
	recv_all(p.s, large, sizeof large);
	say_result("line buffered", setvbuf(f, NULL, _IOLBF, 0));
	say("is so: %d", __flbf(f) != 0);
	fputs("a line\nand", f);
	say("pending %zu", __fpending(f));
	say_come("the line", p, 10 - (int)__fpending(f));
	fflush(f);
	say_come("the rest", p, 3);
	say_result("unbuffered", setvbuf(f, NULL, _IONBF, 0));
	fputs("at once", f);
	say_come("unbuffered", p, 7);
	fprintf(f, "%d %s", 7, "pieces");
	say_come("in pieces", p, 8);
	say_result("own buffer", setvbuf(f, large, _IOFBF, 16));
	fputs("0123456789abcdefghij", f);
	say("pending %zu", __fpending(f));
	fputs("last", f);
	say_result("fclose", fclose(f));
	say_come("at last", p, 24);
	say_result("closed", fcntl(p.c, F_GETFD));
	say_result("the end", recv(p.s, large, 1, 0));
	close(p.s);
}

CASE(stdio_updates, STAYS)
{
	char line[64] = "";
	struct pair p;
	FILE *f = stream_on(&p, "r+");

	fputs("question\n", f);
	say("writing %d reading %d", __fwriting(f) != 0, __freading(f) != 0);
	say_result("fflush", fflush(f));
	say_come("asked", p, 9);
	send_all(p.s, "answer\nrest\n", 12);
	say("fgets: %s", fgets(line, sizeof line, f) ? line : "none");
	/* With bytes in the buffer a socket cannot go back. */
	errno = 0;
	say("fputs: %d", fputs("again\n", f) >= 0);
	say_result("fflush", fflush(f));
	say_state("then", f);
	clearerr(f);
	say("fgets: %s", fgets(line, sizeof line, f) ? line : "none");
	say("fprintf: %d", fprintf(f, "third"));
	say_result("fseek", fseek(f, 0, SEEK_CUR));
	errno = 0;
	say_result("ftell", ftell(f));
	errno = 0;
	say_result("to the end", fseek(f, 0, SEEK_END));
	rewind(f);
	say("errno %s", errno_name(errno));
	fclose(f);
	close(p.s);
}

CASE(stdio_mixed, STAYS)
{
	char buf[64] = "";
	struct pair p;
	FILE *f = stream_on(&p, "r+"), *g;
	int copy = dup(p.c);

	fputs("one ", f);
	send_all(p.c, "zero ", 5);
	fflush(f);
	send_all(p.c, "two ", 4);
	say_come("in order", p, 13);
	g = fdopen(copy, "w");
	NEED(g);
	fputs("by the copy", g);
	say_result("fclose", fclose(g));
	say_come("copy", p, 11);
	say_result("the first", fcntl(p.c, F_GETFD));
	send_all(p.s, "line\nstraight", 13);
	setvbuf(f, NULL, _IONBF, 0);
	say("fgets: %s", fgets(buf, sizeof buf, f) ? buf : "none");
	recv_all(p.c, buf, 8);
	say("%.8s", buf);
	say_result("dprintf", dprintf(fileno(f), "to it"));
	say_come("dprintf", p, 5);
	fclose(f);
	close(p.s);
}

/* The number of a stream becomes another connection's, and then a pipe's. */
CASE(stdio_on_another, STAYS)
{
	struct pair p, q = pair_warm_open();
	struct signal_pipe other = signal_pipe();
	FILE *f = stream_on(&p, "w");
	char buf[8] = "";

	fputs("first", f);
	fflush(f);
	say_result("dup2", dup2(q.c, p.c) == p.c);
	say_come("first", (struct pair){p.c, p.s}, 5);
	fputs("second", f);
	fflush(f);
	say_come("second", q, 6);
	fputs("third", f);
	dup2(other.fd[1], p.c);
	fflush(f);
	NEED(read(other.fd[0], buf, 5) == 5);
	say("%s", buf);
	fclose(f);
	pair_close(q);
	close(p.s);
}

CASE(stdio_would_block, STAYS)
{
	static char large[1 << 20];
	char buf[16] = "";
	struct pair p;
	FILE *f = stream_on(&p, "r+");
	size_t all = 0, n;

	nonblock(p.c, true);
	errno = 0;
	say("fgets: %d %s", fgets(buf, sizeof buf, f) != NULL, errno_name(errno));
	say_state("nothing there", f);
	send_all(p.s, "half", 4);
	wait_inq(p.c, 4);
	clearerr(f);
	say("fgets: %d", fgets(buf, sizeof buf, f) != NULL);
	say("%s", buf);
	say_state("half", f);
	clearerr(f);
	do {
		errno = 0;
		n = fwrite(large, 1, sizeof large, f);
		all += n;
	} while (n == sizeof large && all < 100 * sizeof large);
	say("full: %s", errno_name(errno));
	say_state("full", f);
	say_result("fflush", fflush(f));
	errno = 0;
	say_result("fclose", fclose(f));
	say_result("closed", fcntl(p.c, F_GETFD));
	close(p.s);
}

CASE(stdio_broken, DIRECT)
{
	char buf[16];
	struct pair p;
	FILE *f = stream_on(&p, "r+");

	signal(SIGPIPE, SIG_IGN);
	send_all(p.s, "unread", 6);
	wait_inq(p.c, 6);
	shutdown(p.c, SHUT_WR);
	fputs("too late", f);
	say_result("fflush", fflush(f));
	say_state("shut", f);
	say_result("fclose", fclose(f));
	close(p.s);

	f = stream_on(&p, "r");
	send_all(p.c, "unread", 6);
	wait_inq(p.s, 6);
	close(p.s);
	wait_events(p.c, POLLHUP);
	errno = 0;
	say("fgets: %d %s", fgets(buf, sizeof buf, f) != NULL, errno_name(errno));
	say_state("reset", f);
	clearerr(f);
	say("then: %d", getc(f));
	say_state("then", f);
	fclose(f);
}

static void ignore(int signal)
{
	(void)signal;
}

static void reader(void *arg)
{
	FILE *f = arg;

	errno = 0;
	say("getc: %d %s", getc(f), errno_name(errno));
	say_state("interrupted", f);
}

CASE(stdio_interrupted, STAYS)
{
	const struct sigaction act = {.sa_handler = ignore};
	struct pair p;
	struct worker w;
	FILE *f = stream_on(&p, "r");

	sigaction(SIGUSR1, &act, NULL);
	worker_start(&w, reader, f);
	wait_asleep(getpid(), w.tid);
	pthread_kill(w.thread, SIGUSR1);
	worker_join(&w);
	clearerr(f);
	send_all(p.s, "x", 1);
	say("getc: %c", getc(f));
	fclose(f);
	close(p.s);
}

static void canceled(void *arg)
{
	char buf[8192];

	fread(buf, 1, sizeof buf, arg);
}

/* Its lock is free again. */
CASE(stdio_canceled, STAYS)
{
	struct pair p;
	struct worker w;
	FILE *f = stream_on(&p, "r");

	worker_start(&w, canceled, f);
	wait_asleep(getpid(), w.tid);
	pthread_cancel(w.thread);
	worker_join(&w);
	say("ftrylockfile: %d", ftrylockfile(f));
	funlockfile(f);
	fclose(f);
	close(p.s);
}

static void print_lines(void *arg)
{
	FILE *f = arg;

	for (int i = 0; i < 500; i++) {
		flockfile(f);
		fputs("a line ", f);
		fprintf(f, "of %s\n", "two pieces");
		funlockfile(f);
	}
}

CASE(stdio_threads, STAYS)
{
	struct pair p;
	struct worker w[3];
	FILE *f = stream_on(&p, "w"), *in;
	char line[64];
	int good = 0;

	in = fdopen(p.s, "r");
	NEED(in);
	for (int i = 0; i < 3; i++)
		worker_start(&w[i], print_lines, f);
	for (int i = 0; i < 3; i++)
		worker_join(&w[i]);
	fclose(f);
	while (fgets(line, sizeof line, in))
		good += strcmp(line, "a line of two pieces\n") == 0;
	say("lines: %d", good);
	say_state("all", in);
	fclose(in);
}

static void say_all(int fd, void *arg)
{
	char buf[256] = "";
	size_t got = 0;
	ssize_t n;

	(void)arg;
	while ((n = recv(fd, buf + got, sizeof buf - 1 - got, 0)) > 0)
		got += (size_t)n;
	say_as("peer");
	say_result("end", n);
	say("all: %s", buf);
}

/* What is in the buffer at a fork is there twice. */
CASE(stdio_forks, DIRECT)
{
	pid_t peer, child;
	FILE *f = fdopen(peer_start(say_all, NULL, &peer), "w");

	NEED(f);
	fputs("twice ", f);
	child = fork();
	if (child == 0)
		exit(0);
	say("child: %d", child_status(child));
	fputs("mine", f);
	say_result("fclose", fclose(f));
	say("peer: %d", child_status(peer));
}

/* exit writes what is left, _exit and exec do not. */
static void ends(int how)
{
	pid_t peer, child;
	int fd = peer_start(say_all, NULL, &peer);

	child = fork();
	if (child == 0) {
		FILE *f = fdopen(fd, "w");

		NEED(f);
		fputs("flushed ", f);
		fflush(f);
		fputs("left", f);
		if (how == 0)
			exit(0);
		if (how == 1)
			execl("/bin/true", "true", NULL);
		_exit(0);
	}
	close(fd);
	say("child: %d", child_status(child));
	say("peer: %d", child_status(peer));
}

CASE(stdio_exit, DIRECT)
{
	ends(0);
}

CASE(stdio_exec, DIRECT)
{
	ends(1);
}

CASE(stdio_kill, DIRECT)
{
	ends(2);
}

static void left_at_exit(void)
{
	static struct pair p;
	FILE *f = stream_on(&p, "w");

	setvbuf(f, NULL, _IOFBF, 1 << 16);
	fputs("left to the end", f);
	/* The other end is this process's: nothing reads it, and nothing waits. */
}

/* The end of a program that has both. */
CASE(stdio_left, STAYS)
{
	left_at_exit();
	say("left");
}

CASE(stdio_modes, DIRECT)
{
	static const char *const modes[] = {
		"r",  "rb", "r+", "rb+",   "r+b",    "w",      "w+", "a", "a+", "wx",
		"re", "rc", "rm", "rcem+", "rbbbb+", "r,ccs=", "q",  "",  "+r"};

	for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
		struct pair p = pair_warm_open();
		FILE *f;

		errno = 0;
		f = fdopen(p.c, modes[i]);
		if (!f) {
			say("%s: %s", modes[i], errno_name(errno));
			pair_close(p);
			continue;
		}
		say("%s: reads %d writes %d appends %d", modes[i], __freadable(f) != 0,
		    __fwritable(f) != 0, (fcntl(p.c, F_GETFL) & O_APPEND) != 0);
		errno = 0;
		say("putc %d", putc('x', f));
		if (!__freadable(f))
			say("getc %d", getc(f));
		say_state("then", f);
		fclose(f);
		close(p.s);
	}
}

/* A stream that takes the place of another's number. */
CASE(stdio_closes, DIRECT)
{
	struct pair p;
	FILE *f = stream_on(&p, "w");
	int again;

	fputs("x", f);
	close(p.c);
	errno = 0;
	say_result("fclose", fclose(f));
	again = dup(p.s);
	say("the same number: %d", again == p.c);
	close(again);
	close(p.s);
}

#ifdef __GLIBC__ /* there a program may put its own stream in the place of stderr */
CASE(stdio_perror, STAYS)
{
	FILE *was = stderr;
	struct pair p;
	FILE *f = stream_on(&p, "w");

	stderr = f;
	errno = ENOENT;
	perror("open");
	stderr = was;
	say("pending %zu", __fpending(f));
	fclose(f);
	say_come("perror", p, 32);
	close(p.s);
}

/* Nothing of ours that they may need is looked for in between. */
CASE(stdio_dlerror, STAYS)
{
	FILE *was = stderr;
	struct pair p;
	FILE *f;

	NEED(!dlopen("/nowhere/library.so", RTLD_NOW));
	f = stream_on(&p, "w");
	stderr = fopen("/dev/null", "w");
	NEED(stderr);
	perror("dlopen");
	fclose(stderr);
	stderr = was;
	say("told: %d", dlerror() != NULL);
	fclose(f);
	close(p.s);
}
#endif
