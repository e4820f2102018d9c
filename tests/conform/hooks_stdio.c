/* SPDX-License-Identifier: Apache-2.0 */
/* Streams, splice and asynchronous I/O on a connection. */
#include <aio.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "conform/cases.h"

int __dprintf_chk(int fd, int flag, const char *fmt, ...);

static void say_line(FILE *f)
{
	char line[128];

	if (!fgets(line, sizeof line, f)) {
		say("no line");
		return;
	}
	line[strcspn(line, "\n")] = 0;
	say("line: %s", line);
}

static void answer_peer(int fd, void *arg)
{
	char buf[8];

	(void)arg;
	send_all(fd, "first\nsecond\nthird", 18);
	/* Says that it has seen the word on its stream. */
	recv_all(fd, buf, 2);
	send_all(fd, " part\n", 6);
	recv_all(fd, buf, 2);
}

/* Bytes that came before fdopen are the first that the stream reads. */
CASE(hooks_fdopen_unread, STAYS)
{
	pid_t pid;
	int fd = peer_start(answer_peer, NULL, &pid);
	FILE *in, *out;

	wait_inq(fd, 18);
	in = fdopen(fd, "r");
	out = fdopen(dup(fd), "w");
	NEED(in && out);
	say_line(in);
	say_line(in);
	fputs("ok", out);
	fflush(out);
	say_line(in);
	fputs("ok", out);
	say_result("fclose", fclose(out));
	say("eof: %d", fgetc(in) == EOF && feof(in));
	say_result("fclose", fclose(in));
	say_result("closed", fcntl(fd, F_GETFD));
	say("peer: %d", child_status(pid));
}

/* Both ends in one thread: nobody could answer if fdopen waited. */
CASE(hooks_fdopen_alone, STAYS)
{
	struct pair p = pair_warm_open();
	FILE *f;
	char buf[8];

	send_all(p.s, "before\n", 7);
	wait_inq(p.c, 7);
	f = fdopen(p.c, "r");
	NEED(f);
	send_all(p.s, "after\n", 6);
	say_line(f);
	say_line(f);
	send_all(p.c, "back", 4);
	recv_all(p.s, buf, 4);
	say("%.4s", buf);
	close(p.s);
	say("eof: %d", fgetc(f) == EOF && feof(f));
	fclose(f);
}

CASE(hooks_dprintf, DIRECT)
{
	struct pair p = pair_warm_open();
	char buf[64] = "", *large = malloc(100000);

	NEED(large);
	memset(large, 'x', 99999);
	large[99999] = 0;
	say_result("dprintf", dprintf(p.c, "%s %d;", "number", 42));
	say_result("__dprintf_chk", __dprintf_chk(p.c, 1, "%5.2f;", 1.5));
	recv_all(p.s, buf, 16);
	say("%s", buf);
	say_result("large", dprintf(p.c, "%s", large));
	for (size_t got = 0; got < 99999;) {
		ssize_t n = recv(p.s, large, 99999, 0);
		NEED(n > 0);
		got += (size_t)n;
	}
	say_result("empty", dprintf(p.c, "%s", ""));
	say_result("pipe", dprintf(STDOUT_FILENO, "%s\n", "to the output"));
	say_result("closed", dprintf(-1, "x"));
	free(large);
	pair_close(p);
}

static void splice_peer(int fd, void *arg)
{
	char buf[8];

	(void)arg;
	send_pattern(fd, 0, 30000);
	recv_all(fd, buf, 2);
	send_pattern(fd, 30000, 30000);
	recv_all(fd, buf, 5);
	say_as("peer");
	say("%.5s", buf);
}

CASE(hooks_splice, ANYWAY)
{
	pid_t pid;
	int fd = peer_start(splice_peer, NULL, &pid), pipe_fd[2], left = 60000;
	uint8_t buf[4096];
	uint64_t off = 0;

	NEED(pipe(pipe_fd) == 0);
	wait_inq(fd, 30000);
	while (left > 0) {
		ssize_t n = splice(fd, NULL, pipe_fd[1], NULL, 4096, 0);
		NEED(n > 0);
		for (ssize_t i = 0; i < n;) {
			ssize_t got = read(pipe_fd[0], buf, sizeof buf);
			NEED(got > 0);
			for (ssize_t k = 0; k < got; k++)
				NEED(buf[k] == pattern(off++));
			i += got;
		}
		left -= (int)n;
		if (off >= 30000 && off - (uint64_t)n < 30000)
			send_all(fd, "ok", 2);
	}
	say("read: %llu", (unsigned long long)off);
	nonblock(fd, true);
	say_result("nonblocking", splice(fd, NULL, pipe_fd[1], NULL, 10, 0));
	nonblock(fd, false);
	NEED(write(pipe_fd[1], "words", 5) == 5);
	say_result("out", splice(pipe_fd[0], NULL, fd, NULL, 5, 0));
	say("peer: %d", child_status(pid));
	close(fd);
	close(pipe_fd[0]);
	close(pipe_fd[1]);
}

static void send_file(const char *what, int out, int in, off_t *offset, size_t count)
{
	char buf[64] = "";
	say_result(what, sendfile(out, in, offset, count));
	ssize_t n = recv(in, buf, sizeof buf - 1, MSG_DONTWAIT | MSG_PEEK);
	say_result(buf, n);
}

/* Out of a connection, which is possible into a pipe alone. */
CASE(hooks_sendfile_to_a_pipe, DIRECT)
{
	struct pair p = pair_warm_open();
	int pipes[2], file = memfd_create("file", 0), by_number = -1;
	char buf[64] = "";
	off_t at = 0;
	NEED(pipe(pipes) == 0 && file >= 0);
	send_all(p.c, "0123456789abcdef", 16);
	wait_inq(p.s, 16);
	send_file("into a pipe", pipes[1], p.s, NULL, 4);
	send_file("of an offset", pipes[1], p.s, &at, 4);
	send_file("into a file", file, p.s, NULL, 4);
	send_file("into a connection", p.c, p.s, NULL, 4);
	send_file("into the reading end", pipes[0], p.s, NULL, 4);
	send_file("of nothing", pipes[1], p.s, NULL, 0);
	by_number = (int)syscall(SYS_sendfile, pipes[1], p.s, NULL, 3);
	say("by syscall(): %d", by_number);
	/* From here on also by TCP. */
	send_all(p.c, "ghijklm", 7);
	wait_inq(p.s, 16);
	send_file("with more", pipes[1], p.s, NULL, 5);
	say_result("pipe", read(pipes[0], buf, sizeof buf - 1));
	say("%s", buf);
	nonblock(pipes[1], true);
	while (write(pipes[1], buf, 1) == 1)
		;
	send_file("into a full one", pipes[1], p.s, NULL, 5);
	NEED(close(pipes[0]) == 0);
	signal(SIGPIPE, SIG_IGN);
	send_file("into one that nobody reads", pipes[1], p.s, NULL, 5);
	pair_close(p);
}

static void aio_peer(int fd, void *arg)
{
	char buf[8];

	(void)arg;
	recv_all(fd, buf, 4);
	send_all(fd, "back", 4);
	recv_all(fd, buf, 1);
}

CASE(hooks_aio, ANYWAY)
{
	pid_t pid;
	int fd = peer_start(aio_peer, NULL, &pid);
	char buf[8] = "";
	struct aiocb out = {.aio_fildes = fd, .aio_buf = (char *)"word", .aio_nbytes = 4};
	struct aiocb in = {.aio_fildes = fd, .aio_buf = buf, .aio_nbytes = 4};
	const struct aiocb *list[1] = {&out};

	out.aio_sigevent.sigev_notify = in.aio_sigevent.sigev_notify = SIGEV_NONE;
	say_result("aio_write", aio_write(&out));
	while (aio_error(&out) == EINPROGRESS)
		aio_suspend(list, 1, NULL);
	say_result("wrote", aio_return(&out));
	say_result("aio_read", aio_read(&in));
	list[0] = &in;
	while (aio_error(&in) == EINPROGRESS)
		aio_suspend(list, 1, NULL);
	say_result("read", aio_return(&in));
	say("%s", buf);
	send_all(fd, "x", 1);
	say("peer: %d", child_status(pid));
	close(fd);
}

/* From a buffer of less than 128 bytes libc's own object reads no more than is asked for. */
CASE(stdio_reads_pushed_back, STAYS)
{
	struct pair p = pair_warm_open();
	char buffer[100], into[1000];
	FILE *f = fdopen(p.c, "r");
	int left = 0;

	NEED(f && setvbuf(f, buffer, _IOFBF, sizeof buffer) == 0);
	send_pattern(p.s, 0, 1000);
	wait_inq(p.c, 1000);
	for (int i = 0; i < 3; i++) {
		size_t n;

		say("getc: %d", getc(f));
		say("ungetc: %d", ungetc('x', f));
		if (i < 2)
			say("getc: %d", getc(f));
		n = fread(into, 1, 250, f);
		say("fread: %zu, %d first, %d last", n, into[0], into[n - 1]);
		NEED(ioctl(p.c, FIONREAD, &left) == 0);
		say("left: %d", left);
	}
	fclose(f);
	close(p.s);
}

/* A word is read as by fread: a buffer that is smaller does not read ahead. */
CASE(stdio_reads_words, STAYS)
{
	struct pair p = pair_warm_open();
	char buffer[3];
	FILE *f = fdopen(p.c, "r");
	int left = 0;

	NEED(f && setvbuf(f, buffer, _IOFBF, sizeof buffer) == 0);
	send_pattern(p.s, 0, 1002);
	wait_inq(p.c, 1002);
	for (int i = 0; i < 3; i++) {
		say("getw: %d", getw(f));
		NEED(ioctl(p.c, FIONREAD, &left) == 0);
		say("left: %d", left);
	}
	close(p.s);
	while (!feof(f))
		getw(f);
	say("behind the end: eof %d error %d", feof(f) != 0, ferror(f) != 0);
	fclose(f);
}
