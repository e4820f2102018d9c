/* SPDX-License-Identifier: Apache-2.0 */
/* viaduct stat --watch: looks again and again; on a terminal, in the place of the last. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

#include "tool/cli.h"
#include "tool/stat/stat.h"
#include "tool/terminal.h"

/* The alternate screen without a cursor, and back. */
#define ENTER "\033[?1049h\033[?25l"
#define LEAVE "\033[?25h\033[?1049l"
/* To the upper left corner; the rest of the line; the rest of the screen. */
#define HOME	   "\033[H"
#define CLEAR_LINE "\033[K"
#define CLEAR_REST "\033[J"

/* Below so many lines the keys have none. */
enum { PLAIN_WIDTH = 120, LINES_LEAST = 5 };

struct screen {
	bool active, has_keys, has_colours;
	struct termios before;
	char *text;
	size_t bytes;
};

/* Stored by the handler. */
static _Atomic int ended, stopped, resized;
/* Signals are let in only while we wait. */
static sigset_t waiting;

static void on_signal(int sig)
{
	if (sig == SIGWINCH)
		resized = 1;
	else if (sig == SIGTSTP)
		stopped = 1;
	else
		ended = sig;
}

static bool write_all(const char *text, size_t n)
{
	while (n > 0) {
		ssize_t r = write(STDOUT_FILENO, text, n);

		if (r < 0 && errno == EINTR)
			continue;
		if (r < 0)
			return false;
		text += r;
		n -= (size_t)r;
	}
	return true;
}

/* ---- the terminal ---- */

static void screen_enter(struct screen *s)
{
	struct termios raw;

	s->has_keys = tcgetattr(STDIN_FILENO, &s->before) == 0 &&
		      tcgetpgrp(STDIN_FILENO) == getpgrp();
	if (s->has_keys) {
		raw = s->before;
		raw.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
		raw.c_cc[VMIN] = 1;
		raw.c_cc[VTIME] = 0;
		tcsetattr(STDIN_FILENO, TCSANOW, &raw);
	}
	write_all(ENTER, strlen(ENTER));
	s->active = true;
}

static void screen_leave(struct screen *s)
{
	if (!s->active)
		return;
	write_all(LEAVE, strlen(LEAVE));
	if (s->has_keys)
		tcsetattr(STDIN_FILENO, TCSANOW, &s->before);
	s->active = false;
}

/* ^Z: the shell gets its terminal as it was. */
static void screen_stop(struct screen *s)
{
	bool active = s->active;

	stopped = 0;
	screen_leave(s);
	raise(SIGSTOP);
	if (active)
		screen_enter(s);
}

static void catch_signals(void)
{
	static const int signals[] = {SIGINT, SIGTERM, SIGHUP, SIGTSTP, SIGWINCH};
	struct sigaction action = {.sa_handler = on_signal};
	sigset_t ours;

	sigemptyset(&ours);
	for (size_t i = 0; i < sizeof(signals) / sizeof(signals[0]); i++) {
		sigaddset(&ours, signals[i]);
		sigaction(signals[i], &action, NULL);
	}
	sigprocmask(SIG_BLOCK, &ours, &waiting);
	for (size_t i = 0; i < sizeof(signals) / sizeof(signals[0]); i++)
		sigdelset(&waiting, signals[i]);
}

/* ---- one look ---- */

static void print_head(FILE *out, const struct stat_view *v, const struct stat_options *o)
{
	time_t now = (time_t)v->time;
	char text[32];
	struct tm tm;

	strftime(text, sizeof(text), "%Y-%m-%d %H:%M:%S", localtime_r(&now, &tm));
	fprintf(out, "viaduct stat  %s  every %g s  by %s\n", text, o->seconds,
		o->sort		 ? o->sort
		: o->by_messages ? "messages"
				 : "bytes");
}

/* One line of the text, cut at the width: codes take no room. Returns what is behind it. */
static const char *put_line(FILE *out, const char *text, int width)
{
	size_t n = 0, end = strcspn(text, "\n");
	bool has_codes = memchr(text, '\033', end);

	while (n < end && width > 0) {
		if (text[n] == '\033')
			n += strcspn(text + n, "m");
		else
			width--;
		n++;
	}
	fprintf(out, "%.*s%s" CLEAR_LINE, (int)n, text, has_codes ? STAT_PLAIN : "");
	return text + end + (text[end] == '\n');
}

/* In the last line of the screen. */
static void put_keys(FILE *out, int width, int lines)
{
	static const char keys[] =
		" q quit   b most bytes first   m most messages first ";

	fprintf(out, "\033[%d;1H\033[7m%.*s" STAT_PLAIN, lines, width - 1, keys);
}

/* What fits, with the rest of the screen cleared behind it. */
static bool show_on_screen(const struct screen *s, const char *text, int width, int lines)
{
	FILE *out = NULL;
	char *shown = NULL;
	size_t bytes = 0;
	bool well, has_keys = s->has_keys && lines > LINES_LEAST;

	out = open_memstream(&shown, &bytes);
	if (!out)
		return false;
	fputs(HOME, out);
	for (int i = 0; i < lines - has_keys && *text; i++) {
		fputs(i ? "\r\n" : "", out);
		text = put_line(out, text, width);
	}
	fputs(CLEAR_REST, out);
	if (has_keys)
		put_keys(out, width, lines);
	well = fclose(out) == 0 && write_all(shown, bytes);
	free(shown);
	return well;
}

static int print_look(FILE *out, struct stat_view *v, const struct stat_options *o,
		      const struct screen *s, int width, int lines)
{
	/* The head, the table's, an empty one, the number of lines, the keys; then the reasons. */
	size_t room = lines > 7 ? (size_t)lines - 7 : 1;
	struct stat_page page = {s->active ? width
				 : o->wide ? 0
				 : width   ? width
					   : PLAIN_WIDTH,
				 s->active ? room : 0, s->active,
				 s->active && s->has_colours};
	int r;

	if (o->format == STAT_JSON) {
		stat_json(out, v, true);
		return 0;
	}
	fputs(s->active ? STAT_BOLD : "", out);
	print_head(out, v, o);
	r = stat_print(out, v, o, &page);
	if (v->shown)
		fputc('\n', out);
	stat_notes(out, v, o);
	if (!s->active)
		fputc('\n', out);
	return r;
}

/* False: it cannot be written, and that was said. */
static bool show(struct stat_view *v, const struct stat_options *o,
		 const struct screen *s)
{
	int lines = 0, width = terminal_size(stdout, &lines);
	char *text = NULL;
	size_t bytes = 0;
	FILE *out = open_memstream(&text, &bytes);
	bool well;

	if (!out)
		return false;
	well = print_look(out, v, o, s, width, lines) == 0;
	well &= fclose(out) == 0;
	if (well)
		well = s->active ? show_on_screen(s, text, width, lines)
				 : write_all(text, bytes);
	free(text);
	return well;
}

/* ---- the wait between two looks ---- */

static double seconds_now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* True: look at once. */
static bool read_key(struct screen *s, struct stat_options *o)
{
	char key;

	if (read(STDIN_FILENO, &key, 1) != 1) {
		s->has_keys = false; /* and is not asked again */
		return false;
	}
	if (key == 'q' || key == 'Q')
		ended = SIGINT;
	if (key == 'b' || key == 'm') {
		o->by_messages = key == 'm';
		o->sort = NULL;
	}
	return true;
}

/* Hears keys and signals once at least: where a look takes longer than from one to the next, too. */
static void wait_until(double due, struct screen *s, struct stat_options *o)
{
	bool late = false;

	while (!ended && !resized) {
		struct pollfd key = {.fd = STDIN_FILENO, .events = POLLIN};
		double left = due - seconds_now();
		struct timespec t = {0};
		int r;

		if (stopped)
			screen_stop(s);
		if (late)
			return;
		late = left <= 0;
		if (!late) {
			t.tv_sec = (time_t)left;
			t.tv_nsec = (long)((left - (double)t.tv_sec) * 1e9);
		}
		r = ppoll(&key, s->active && s->has_keys ? 1 : 0, &t, &waiting);
		if (r > 0 && read_key(s, o))
			return;
	}
}

static int watch(struct stat_options *o, struct screen *s, struct stat_past *past,
		 char *message, size_t size)
{
	for (unsigned long i = 0; !ended && (o->count == 0 || i < o->count); i++) {
		double due = seconds_now() + o->seconds;
		struct stat_view v;
		bool well;
		int r = stat_look(&v, o, message, size);

		if (r < 0)
			return r;
		resized = 0;
		stat_compare(&v, past, o);
		well = show(&v, o, s);
		stat_forget(&v);
		if (!well) {
			snprintf(message, size, "the list cannot be written");
			return -EIO;
		}
		if (o->count == 0 || i + 1 < o->count)
			wait_until(due, s, o);
	}
	return 0;
}

int stat_watch(const struct stat_options *options)
{
	struct stat_options o = *options;
	struct stat_past past = {0};
	struct screen s = {0};
	char message[256];
	int r;

	catch_signals();
	s.has_colours = terminal_has_colours(stdout);
	if (terminal_has_screen(stdout) && o.format == STAT_TABLE)
		screen_enter(&s);
	r = watch(&o, &s, &past, message, sizeof(message));
	screen_leave(&s);
	free(past.items);
	free(past.calls);
	if (r < 0)
		warn_line("viaduct stat: %s", message);
	/* A signal that ends others ends us; q and ^C are the way out. */
	if (ended && ended != SIGINT) {
		signal(ended, SIG_DFL);
		sigprocmask(SIG_SETMASK, &waiting, NULL);
		raise(ended);
	}
	return r < 0;
}
