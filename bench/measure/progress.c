/* SPDX-License-Identifier: Apache-2.0 */
/* How far a run of `viaduct bench` is: shown while it runs, ended early by ^C, and what failed. */
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include "measure/progress.h"
#include "tool/floor.h"
#include "tool/terminal.h"

static _Atomic int interrupted;

static void on_signal(int sig)
{
	atomic_store(&interrupted, sig);
}

void progress_catch(void)
{
	static const int ends[] = {SIGINT, SIGTERM, SIGHUP};
	struct sigaction was,
		act = {.sa_handler = on_signal, .sa_flags = (int)SA_RESETHAND};

	for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++)
		if (sigaction(ends[i], NULL, &was) == 0 && was.sa_handler == SIG_DFL)
			sigaction(ends[i], &act, NULL);
}

int progress_interrupted(void)
{
	return atomic_load(&interrupted);
}

void progress_die(void)
{
	int sig = progress_interrupted();

	if (!sig)
		return;
	fflush(NULL);
	signal(sig, SIG_DFL);
	raise(sig);
}

void progress_begin(struct progress *p)
{
	p->is_shown = isatty(STDERR_FILENO);
	p->started_ns = floor_now_ns();
}

/* What is left takes as long as what is done did, for each. */
static const char *time_left(char text[32], const struct progress *p)
{
	double spent = (double)(floor_now_ns() - p->started_ns) / 1e9;
	unsigned left = p->total > p->done ? p->total - p->done : 0;
	double s = p->done ? spent / p->done * left : 0;

	if (!p->done)
		snprintf(text, 32, "time left unknown");
	else if (s < 90)
		snprintf(text, 32, "%.0f s left", s);
	else
		snprintf(text, 32, "%.0f min left", s / 60);
	return text;
}

void progress_show(const struct progress *p, const struct bench_row *row, unsigned pair,
		   const char *who)
{
	char size[16], name[48], left[32], line[256];
	int width = terminal_width(stderr);

	if (!p->is_shown)
		return;
	snprintf(line, sizeof(line), "%u of %u, %s: %s %s, pair %u of %u, %s",
		 p->done + 1, p->total, time_left(left, p), bench_format_name(name, row),
		 bench_format_size(size, row->size_bytes), pair + 1, row->pairs, who);
	/* A line that wraps would not be cleared. */
	fprintf(stderr, "\r\033[K%.*s", width > 1 ? width - 1 : TERMINAL_WIDTH - 1, line);
	fflush(stderr);
}

void progress_hide(const struct progress *p)
{
	if (p->is_shown)
		fprintf(stderr, "\r\033[K");
}

void progress_note(struct progress *p, const struct bench_row *row, unsigned pair,
		   unsigned who)
{
	const struct bench_sample *s = &row->samples[who][pair];
	char size[16], name[48];

	p->done++;
	if (!s->error[0])
		return;
	if (p->failures < PROGRESS_FAILURES)
		snprintf(p->failure[p->failures], PROGRESS_FAILURE_LETTERS,
			 "%s %s, %s, pair %u: %s", bench_format_name(name, row),
			 bench_format_size(size, row->size_bytes), row->who[who]->name,
			 pair + 1, s->error);
	p->failures++;
}

void progress_failures(const struct progress *p)
{
	if (!p->failures)
		return;
	fprintf(stderr, "viaduct bench: %u measurement%s failed:\n", p->failures,
		p->failures == 1 ? "" : "s");
	for (unsigned i = 0; i < p->failures && i < PROGRESS_FAILURES; i++)
		fprintf(stderr, "  %s\n", p->failure[i]);
	if (p->failures > PROGRESS_FAILURES)
		fprintf(stderr, "  and %u more\n", p->failures - PROGRESS_FAILURES);
}
