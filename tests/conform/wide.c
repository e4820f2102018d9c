/* SPDX-License-Identifier: Apache-2.0 */
/* Wide characters on a stream of a connection, by each name that the C library has. */
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <wctype.h>

#include "conform/cases.h"

/* <wchar.h> would give some of them to others. */
int fwide(FILE *f, int mode);
wint_t fgetwc(FILE *f);
wint_t getwc(FILE *f);
wint_t fgetwc_unlocked(FILE *f);
wint_t getwc_unlocked(FILE *f);
wint_t getwchar(void);
wint_t getwchar_unlocked(void);
wint_t fputwc(wchar_t c, FILE *f);
wint_t putwc(wchar_t c, FILE *f);
wint_t fputwc_unlocked(wchar_t c, FILE *f);
wint_t putwc_unlocked(wchar_t c, FILE *f);
wint_t putwchar(wchar_t c);
wint_t putwchar_unlocked(wchar_t c);
wint_t ungetwc(wint_t c, FILE *f);
wchar_t *fgetws(wchar_t *to, int n, FILE *f);
wchar_t *fgetws_unlocked(wchar_t *to, int n, FILE *f);
wchar_t *__fgetws_chk(wchar_t *to, size_t room, int n, FILE *f);
wchar_t *__fgetws_unlocked_chk(wchar_t *to, size_t room, int n, FILE *f);
int fputws(const wchar_t *s, FILE *f);
int fputws_unlocked(const wchar_t *s, FILE *f);
int fwprintf(FILE *f, const wchar_t *fmt, ...);
int __fwprintf_chk(FILE *f, int flag, const wchar_t *fmt, ...);
int vfwprintf(FILE *f, const wchar_t *fmt, va_list ap);
int __vfwprintf_chk(FILE *f, int flag, const wchar_t *fmt, va_list ap);
int wprintf(const wchar_t *fmt, ...);
int __wprintf_chk(int flag, const wchar_t *fmt, ...);
int vwprintf(const wchar_t *fmt, va_list ap);
int __vwprintf_chk(int flag, const wchar_t *fmt, va_list ap);
int fwscanf(FILE *f, const wchar_t *fmt, ...);
int vfwscanf(FILE *f, const wchar_t *fmt, va_list ap);
int wscanf(const wchar_t *fmt, ...);
int vwscanf(const wchar_t *fmt, va_list ap);
int __isoc99_fwscanf(FILE *f, const wchar_t *fmt, ...);
int __isoc99_vfwscanf(FILE *f, const wchar_t *fmt, va_list ap);
int __isoc99_wscanf(const wchar_t *fmt, ...);
int __isoc99_vwscanf(const wchar_t *fmt, va_list ap);

/* Each begins with a new stream: as the first to use wide characters there. */
struct use {
	const char *name;
	int (*run)(FILE *f);
};

/* ---- writing ---- */

#define LIST(name, params, last, call)                                                   \
	static int name params                                                           \
	{                                                                                \
		va_list ap;                                                              \
		int n;                                                                   \
		va_start(ap, last);                                                      \
		n = call;                                                                \
		va_end(ap);                                                              \
		return n;                                                                \
	}

LIST(list_out, (FILE * f, const wchar_t *fmt, ...), fmt, vfwprintf(f, fmt, ap))
LIST(list_out_checked, (FILE * f, const wchar_t *fmt, ...), fmt,
     __vfwprintf_chk(f, 1, fmt, ap))
LIST(list_std_out, (const wchar_t *fmt, ...), fmt, vwprintf(fmt, ap))
LIST(list_std_out_checked, (const wchar_t *fmt, ...), fmt, __vwprintf_chk(1, fmt, ap))
LIST(list_in, (FILE * f, const wchar_t *fmt, ...), fmt, vfwscanf(f, fmt, ap))
LIST(list_in_99, (FILE * f, const wchar_t *fmt, ...), fmt, __isoc99_vfwscanf(f, fmt, ap))
LIST(list_std_in, (const wchar_t *fmt, ...), fmt, vwscanf(fmt, ap))
LIST(list_std_in_99, (const wchar_t *fmt, ...), fmt, __isoc99_vwscanf(fmt, ap))

#define OUT(name, call)                                                                  \
	static int out_##name(FILE *f)                                                   \
	{                                                                                \
		(void)f;                                                                 \
		return (int)(call);                                                      \
	}

OUT(fputwc, fputwc(L'w', f))
OUT(putwc, putwc(L'w', f))
OUT(fputwc_unlocked, fputwc_unlocked(L'w', f))
OUT(putwc_unlocked, putwc_unlocked(L'w', f))
OUT(putwchar, putwchar(L'w'))
OUT(putwchar_unlocked, putwchar_unlocked(L'w'))
OUT(fputws, fputws(L"words", f) >= 0)
OUT(fputws_unlocked, fputws_unlocked(L"words", f) >= 0)
OUT(fwprintf, fwprintf(f, L"%d %ls", 1, L"f"))
OUT(fwprintf_chk, __fwprintf_chk(f, 1, L"%d %ls", 2, L"f"))
OUT(vfwprintf, list_out(f, L"%d", 3))
OUT(vfwprintf_chk, list_out_checked(f, L"%d", 4))
OUT(wprintf, wprintf(L"%d %ls", 5, L"f"))
OUT(wprintf_chk, __wprintf_chk(1, L"%d %ls", 6, L"f"))
OUT(vwprintf, list_std_out(L"%d", 7))
OUT(vwprintf_chk, list_std_out_checked(L"%d", 8))

#define USE(kind, name)                                                                  \
	{                                                                                \
#name, kind##_##name                                                     \
	}

static const struct use outs[] = {
	USE(out, fputwc),	  USE(out, putwc),	     USE(out, fputwc_unlocked),
	USE(out, putwc_unlocked), USE(out, putwchar),	     USE(out, putwchar_unlocked),
	USE(out, fputws),	  USE(out, fputws_unlocked), USE(out, fwprintf),
	USE(out, fwprintf_chk),	  USE(out, vfwprintf),	     USE(out, vfwprintf_chk),
	USE(out, wprintf),	  USE(out, wprintf_chk),     USE(out, vwprintf),
	USE(out, vwprintf_chk),
};

CASE(wide_writes, ANYWAY)
{
	FILE *was = stdout;

	for (size_t i = 0; i < sizeof outs / sizeof *outs; i++) {
		struct pair p = pair_warm_open();
		char buf[64] = "";
		FILE *f = fdopen(p.c, "w");
		int n;

		NEED(f);
		send_all(p.c, "before ", 7);
		stdout = f;
		n = outs[i].run(f);
		stdout = was;
		say("%s: %d, is wide: %d", outs[i].name, n, fwide(f, 0) > 0);
		say("bytes: %d", fputs("narrow", f) >= 0);
		say_result("fclose", fclose(f));
		say_result("closed", fcntl(p.c, F_GETFD));
		n = 0;
		while (recv(p.s, buf + n, 1, 0) == 1)
			n++;
		say("%s", buf);
		close(p.s);
	}
}

/* ---- reading ---- */

static wchar_t got[32];

#define IN(name, call)                                                                   \
	static int in_##name(FILE *f)                                                    \
	{                                                                                \
		(void)f;                                                                 \
		return (int)(call);                                                      \
	}

IN(fgetwc, got[0] = (wchar_t)fgetwc(f))
IN(getwc, got[0] = (wchar_t)getwc(f))
IN(fgetwc_unlocked, got[0] = (wchar_t)fgetwc_unlocked(f))
IN(getwc_unlocked, got[0] = (wchar_t)getwc_unlocked(f))
IN(getwchar, got[0] = (wchar_t)getwchar())
IN(getwchar_unlocked, got[0] = (wchar_t)getwchar_unlocked())
IN(ungetwc, ungetwc(L'u', f) + fgetwc(f))
IN(fgetws, fgetws(got, 32, f) == got)
IN(fgetws_unlocked, fgetws_unlocked(got, 32, f) == got)
IN(fgetws_chk, __fgetws_chk(got, 32, 32, f) == got)
IN(fgetws_unlocked_chk, __fgetws_unlocked_chk(got, 32, 32, f) == got)
IN(fwscanf, fwscanf(f, L"%30ls", got))
IN(vfwscanf, list_in(f, L"%30ls", got))
IN(wscanf, wscanf(L"%30ls", got))
IN(vwscanf, list_std_in(L"%30ls", got))
IN(fwscanf_99, __isoc99_fwscanf(f, L"%30ls", got))
IN(vfwscanf_99, list_in_99(f, L"%30ls", got))
IN(wscanf_99, __isoc99_wscanf(L"%30ls", got))
IN(vwscanf_99, list_std_in_99(L"%30ls", got))
IN(fwide, fwide(f, 1) > 0)

static const struct use ins[] = {
	USE(in, fgetwc),
	USE(in, getwc),
	USE(in, fgetwc_unlocked),
	USE(in, getwc_unlocked),
	USE(in, getwchar),
	USE(in, getwchar_unlocked),
	USE(in, ungetwc),
	USE(in, fgetws),
	USE(in, fgetws_unlocked),
	USE(in, fgetws_chk),
	USE(in, fgetws_unlocked_chk),
	USE(in, fwscanf),
	USE(in, vfwscanf),
	USE(in, wscanf),
	USE(in, vwscanf),
	USE(in, fwscanf_99),
	USE(in, vfwscanf_99),
	USE(in, wscanf_99),
	USE(in, vwscanf_99),
	USE(in, fwide),
};

/* What has come before is read as well. */
CASE(wide_reads, ANYWAY)
{
	FILE *was = stdin;

	for (size_t i = 0; i < sizeof ins / sizeof *ins; i++) {
		struct pair p = pair_warm_open();
		FILE *f = fdopen(p.c, "r");
		int n;

		NEED(f);
		send_all(p.s, "words\nto read", 13);
		wait_inq(p.c, 13);
		memset(got, 0, sizeof got);
		stdin = f;
		n = ins[i].run(f);
		stdin = was;
		say("%s: %d, is wide: %d", ins[i].name, n, fwide(f, 0) > 0);
		say("%ls", got);
		send_all(p.s, " and after", 10);
		close(p.s);
		for (n = 0; fgetwc(f) != WEOF; n++)
			;
		say("%d to the end, eof %d, error %d", n, feof(f) != 0, ferror(f) != 0);
		fclose(f);
	}
}

CASE(wide_or_not, DIRECT)
{
	struct pair p = pair_warm_open();
	FILE *f = fdopen(p.c, "r+");

	NEED(f);
	say("open: %d", fwide(f, 0));
	say("bytes: %d", fwide(f, -1));
	say("and so it stays: %d", fwide(f, 1));
	errno = 0;
	say("fputwc: %d", fputwc(L'w', f) == WEOF);
	fputs("bytes", f);
	say_result("fflush", fflush(f));
	wait_inq(p.s, 5);
	fclose(f);
	close(p.s);
}

/* A stream that has another file by then begins anew. */
CASE(wide_after_reopening, ANYWAY)
{
	struct pair p = pair_warm_open();
	FILE *f = fdopen(p.c, "w");

	NEED(f);
	fputs("bytes", f);
	f = freopen("/dev/null", "w", f);
	NEED(f);
	say("fputwc: %d", fputwc(L'w', f) == L'w');
	say("is wide: %d", fwide(f, 0) > 0);
	say_result("fclose", fclose(f));
	wait_inq(p.s, 5);
	close(p.s);
}

/* Its number is closed by then, or another file's. */
CASE(reopening_of_another, DIRECT)
{
	for (int is_closed = 0; is_closed < 2; is_closed++) {
		struct pair p = pair_warm_open();
		struct signal_pipe other = signal_pipe();
		FILE *f = fdopen(p.c, "r+");

		NEED(f);
		fputs("bytes", f);
		say_result("fflush", fflush(f));
		if (is_closed)
			close(p.c);
		else
			dup2(other.fd[0], p.c);
		f = freopen("/dev/zero", "r", f);
		NEED(f);
		say("the same number: %d", fileno(f) == p.c);
		say("getc: %d", getc(f));
		say_result("fclose", fclose(f));
		wait_inq(p.s, 5);
		close(p.s);
		close(other.fd[0]);
		close(other.fd[1]);
	}
}
