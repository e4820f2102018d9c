/* SPDX-License-Identifier: Apache-2.0 */
/* Streams of connections as musl has them: its buffers, its wide characters, and what happens at its exit. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <locale.h>
#include <stdio.h>
#include <stdio_ext.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <wchar.h>

#include "conform/cases.h"

static FILE *stream_on(struct pair *p, const char *mode)
{
	FILE *f;

	*p = pair_warm_open();
	f = fdopen(p->c, mode);
	NEED(f);
	return f;
}

CASE(streams_read_ahead, STAYS)
{
	static char large[20000];
	struct pair p;
	FILE *f = stream_on(&p, "r");
	int wrong = 0;

	send_pattern(p.s, 0, 20000);
	wait_inq(p.c, 20000);
	say("getc: %d", getc(f) == pattern(0));
	wait_inq(p.c, 20000 - 1024);
	say("fread: %zu", fread(large, 1, 10000, f));
	for (int i = 0; i < 10000; i++)
		wrong += (uint8_t)large[i] != pattern((uint64_t)i + 1);
	say("wrong: %d", wrong);
	say("held %zu of %zu", __freadahead(f), __fbufsize(f));
	say("ungetc: %d", ungetc('x', f) == 'x');
	say("fread of three: %zu", fread(large, 3, 3000, f));
	say("first: %d", large[0]);
	for (int i = 1; i < 9000; i++)
		wrong += (uint8_t)large[i] != pattern((uint64_t)i + 10000);
	say("wrong: %d", wrong);
	shutdown(p.s, SHUT_WR);
	say("rest: %zu", fread(large, 1, sizeof large, f));
	say("eof %d error %d", feof(f) != 0, ferror(f) != 0);
	say_result("fclose", fclose(f));
	close(p.s);
}

/* The library has looked for names in vain. */
CASE(starts_without_an_error, DIRECT)
{
	struct pair p = pair_warm_open();

	say("dlerror: %d", dlerror() != NULL);
	say("dlsym: %d", dlsym(RTLD_DEFAULT, "no_such_name") != NULL);
	say("dlerror: %d", dlerror() != NULL);
	pair_close(p);
}

CASE(streams_unbuffered, STAYS)
{
	struct pair p;
	FILE *f = stream_on(&p, "r+");
	char buf[64] = "";

	say("setvbuf: %d", setvbuf(f, NULL, _IONBF, 0));
	send_all(p.s, "abcdef", 6);
	say("%c%c", getc(f), getc(f));
	say("fread: %zu %.2s", fread(buf, 1, 2, f), buf);
	wait_inq(p.c, 2);
	fputs("at once", f);
	wait_inq(p.s, 7);
	fclose(f);
	recv_all(p.s, buf, 7);
	say("%s", buf);
	close(p.s);
}

CASE(streams_large_writes, STAYS)
{
	static char large[100000];
	struct pair p;
	FILE *f = stream_on(&p, "w");

	for (size_t i = 0; i < sizeof large; i++)
		large[i] = (char)pattern(i);
	for (size_t at = 0; at < sizeof large; at += 10)
		NEED(fwrite(large + at, 1, 10, f) == 10);
	say("fwrite: %zu", fwrite(large, 1, sizeof large, f));
	say("held: %zu", __fpending(f));
	say("fflush: %d", fflush(f));
	recv_pattern(p.s, 0, sizeof large);
	recv_pattern(p.s, 0, sizeof large);
	fclose(f);
	close(p.s);
}

CASE(streams_wide, STAYS)
{
	struct pair p;
	FILE *f;
	wchar_t line[32] = L"";
	char buf[32] = "";

	setlocale(LC_ALL, "C.UTF-8");
	f = stream_on(&p, "r+");
	say("fwide: %d", fwide(f, 1) > 0);
	say("fputws: %d", fputws(L"gr\u00fc\u00dfe\n", f) >= 0);
	say("fwprintf: %d", fwprintf(f, L"%d %ls\n", 12, L"\u20ac"));
	say("fflush: %d", fflush(f));
	recv_all(p.s, buf, 15);
	say("%s", buf);
	send_all(p.s, buf, 15);
	say("fgetws: %d", fgetws(line, 32, f) != NULL);
	say("%ls", line);
	say("fgetwc: %d", (int)fgetwc(f));
	fclose(f);
	close(p.s);
}

/* The peer gets what the buffer holds before it sees the end. */
static void leaves_it(int fd, void *arg)
{
	FILE *f = fdopen(fd, "w");

	(void)arg;
	NEED(f);
	for (uint64_t i = 0; i < 500; i++)
		fputc(pattern(i), f);
	exit(0);
}

CASE(streams_at_exit, DIRECT)
{
	pid_t peer;
	int fd = peer_start(leaves_it, NULL, &peer), error;

	say("came: %d", (int)recv_to_end(fd, &error));
	say("error: %d", error);
	say("status: %d", child_status(peer));
}

CASE(streams_reopened, DIRECT)
{
	struct pair p;
	FILE *f = stream_on(&p, "r+");
	char c;

	nonblock(p.c, true);
	fputs("one", f);
	fflush(f);
	/* musl sets the flags anew, without O_NONBLOCK. */
	say("freopen of none: %d", freopen(NULL, "r+", f) == f);
	say("flags: %d", (fcntl(p.c, F_GETFL) & O_NONBLOCK) != 0);
	send_all(p.s, "x", 1);
	say("getc: %d", getc(f));
	fseek(f, 0, SEEK_CUR);
	fputs("two", f);
	say("freopen of a file: %d", freopen("/dev/null", "r", f) == f);
	say("getc: %d", getc(f));
	fclose(f);
	say("come: %d", (int)recv(p.s, (char[6]){0}, 6, MSG_WAITALL));
	say_result("end", recv(p.s, &c, 1, 0));
	close(p.s);
}
