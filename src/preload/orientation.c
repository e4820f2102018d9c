/* SPDX-License-Identifier: Apache-2.0 */
/* Wide characters on a stream of a connection: libc's own object alone has them, so TCP it is. */
#include <errno.h>
#include <stdarg.h>
#include <wctype.h>

#include "preload/hook.h"
#include "preload/stream.h"

/*
 * <wchar.h> is left out: it gives some of these names to others (fwscanf to __isoc99_fwscanf), and all
 * are interposed.
 */

/* libc's function, found at the first call. errno may be what it is to print. */
#define LIBC(name)                                                                       \
	__extension__({                                                                  \
		static _Atomic(void *) known_;                                           \
		void *at_ = load_relaxed(&known_);                                       \
		if (!at_) {                                                              \
			int saved_ = errno;                                              \
			at_ = real_late(#name);                                          \
			store_relaxed(&known_, at_);                                     \
			errno = saved_;                                                  \
		}                                                                        \
		(__typeof__(&(name)))at_;                                                \
	})

/* A stream without memory for wide characters is one of bytes: libc then says that they fail. */
static void give_up(FILE *f)
{
	int saved = errno, flags = f->_flags & (STREAM_LINE_BUFFERED | STREAM_UNBUFFERED);
	struct sock *s = fd_sock(f->_fileno);
	ssize_t down = s ? HOOK_DEAF(hook_take_down(s, f->_fileno, VD_REASON_STDIO)) : 0;

	if (!stream_give_up(f)) {
		f->_mode = -1;
	} else if (s && !(f->_flags & STREAM_NO_READS)) {
		stream_prefill(f, s, down);
		f->_flags |= flags;
	}
	errno = saved;
}

/* Before a call that may be the first with wide characters. */
static void may_be_wide(FILE *f)
{
	if (f->_mode != 0 || !stream_is_ours(f))
		return;
	flockfile(f);
	if (f->_mode == 0 && stream_is_ours(f))
		give_up(f);
	funlockfile(f);
}

int fwide(FILE *f, int mode);
HOOK int fwide(FILE *f, int mode)
{
	if (mode > 0)
		may_be_wide(f);
	return LIBC(fwide)(f, mode);
}

/* perror leaves the orientation open, and so writes past a stream that has none yet, at once. */
HOOK void perror(const char *text)
{
	FILE *f = stderr;
	const char *colon = text && *text ? ": " : "";

	if (f->_mode != 0 || !stream_is_ours(f))
		REAL(perror)(text);
	else if (dprintf(f->_fileno, "%s%s%m\n", text ? text : "", colon) < 0)
		f->_flags |= _IO_ERR_SEEN;
}

#define WIDE(type, name, stream, params, args)                                           \
	HOOK type name params;                                                           \
	HOOK type name params                                                            \
	{                                                                                \
		may_be_wide(stream);                                                     \
		return LIBC(name) args;                                                  \
	}

/* The same for what takes any number of arguments, by libc's function that takes a list of them. */
#define WIDE_LIST(name, list, stream, last, params, args)                                \
	HOOK int name params;                                                            \
	HOOK int name params                                                             \
	{                                                                                \
		va_list ap;                                                              \
		int n;                                                                   \
		may_be_wide(stream);                                                     \
		va_start(ap, last);                                                      \
		n = LIBC(list) args;                                                     \
		va_end(ap);                                                              \
		return n;                                                                \
	}

WIDE(wint_t, fgetwc, f, (FILE * f), (f))
WIDE(wint_t, getwc, f, (FILE * f), (f))
WIDE(wint_t, fgetwc_unlocked, f, (FILE * f), (f))
WIDE(wint_t, getwc_unlocked, f, (FILE * f), (f))
WIDE(wint_t, getwchar, stdin, (void), ())
WIDE(wint_t, getwchar_unlocked, stdin, (void), ())
WIDE(wint_t, fputwc, f, (wchar_t c, FILE *f), (c, f))
WIDE(wint_t, putwc, f, (wchar_t c, FILE *f), (c, f))
WIDE(wint_t, fputwc_unlocked, f, (wchar_t c, FILE *f), (c, f))
WIDE(wint_t, putwc_unlocked, f, (wchar_t c, FILE *f), (c, f))
WIDE(wint_t, putwchar, stdout, (wchar_t c), (c))
WIDE(wint_t, putwchar_unlocked, stdout, (wchar_t c), (c))
WIDE(wint_t, ungetwc, f, (wint_t c, FILE *f), (c, f))
WIDE(wchar_t *, fgetws, f, (wchar_t * to, int n, FILE *f), (to, n, f))
WIDE(wchar_t *, fgetws_unlocked, f, (wchar_t * to, int n, FILE *f), (to, n, f))
WIDE(wchar_t *, __fgetws_chk, f, (wchar_t * to, size_t room, int n, FILE *f),
     (to, room, n, f))
WIDE(wchar_t *, __fgetws_unlocked_chk, f, (wchar_t * to, size_t room, int n, FILE *f),
     (to, room, n, f))
WIDE(int, fputws, f, (const wchar_t *s, FILE *f), (s, f))
WIDE(int, fputws_unlocked, f, (const wchar_t *s, FILE *f), (s, f))
WIDE(int, vfwprintf, f, (FILE * f, const wchar_t *fmt, va_list ap), (f, fmt, ap))
WIDE(int, vfwscanf, f, (FILE * f, const wchar_t *fmt, va_list ap), (f, fmt, ap))
WIDE(int, __isoc99_vfwscanf, f, (FILE * f, const wchar_t *fmt, va_list ap), (f, fmt, ap))
WIDE(int, __isoc23_vfwscanf, f, (FILE * f, const wchar_t *fmt, va_list ap), (f, fmt, ap))
WIDE(int, __vfwprintf_chk, f, (FILE * f, int flag, const wchar_t *fmt, va_list ap),
     (f, flag, fmt, ap))
WIDE(int, vwprintf, stdout, (const wchar_t *fmt, va_list ap), (fmt, ap))
WIDE(int, vwscanf, stdin, (const wchar_t *fmt, va_list ap), (fmt, ap))
WIDE(int, __isoc99_vwscanf, stdin, (const wchar_t *fmt, va_list ap), (fmt, ap))
WIDE(int, __isoc23_vwscanf, stdin, (const wchar_t *fmt, va_list ap), (fmt, ap))
WIDE(int, __vwprintf_chk, stdout, (int flag, const wchar_t *fmt, va_list ap),
     (flag, fmt, ap))
WIDE_LIST(fwprintf, vfwprintf, f, fmt, (FILE * f, const wchar_t *fmt, ...), (f, fmt, ap))
WIDE_LIST(fwscanf, vfwscanf, f, fmt, (FILE * f, const wchar_t *fmt, ...), (f, fmt, ap))
WIDE_LIST(__isoc99_fwscanf, __isoc99_vfwscanf, f, fmt,
	  (FILE * f, const wchar_t *fmt, ...), (f, fmt, ap))
WIDE_LIST(__isoc23_fwscanf, __isoc23_vfwscanf, f, fmt,
	  (FILE * f, const wchar_t *fmt, ...), (f, fmt, ap))
WIDE_LIST(__fwprintf_chk, __vfwprintf_chk, f, fmt,
	  (FILE * f, int flag, const wchar_t *fmt, ...), (f, flag, fmt, ap))
WIDE_LIST(wprintf, vwprintf, stdout, fmt, (const wchar_t *fmt, ...), (fmt, ap))
WIDE_LIST(wscanf, vwscanf, stdin, fmt, (const wchar_t *fmt, ...), (fmt, ap))
WIDE_LIST(__isoc99_wscanf, __isoc99_vwscanf, stdin, fmt, (const wchar_t *fmt, ...),
	  (fmt, ap))
WIDE_LIST(__isoc23_wscanf, __isoc23_vwscanf, stdin, fmt, (const wchar_t *fmt, ...),
	  (fmt, ap))
WIDE_LIST(__wprintf_chk, __vwprintf_chk, stdout, fmt, (int flag, const wchar_t *fmt, ...),
	  (flag, fmt, ap))
