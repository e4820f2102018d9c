/* SPDX-License-Identifier: Apache-2.0 */
/* The files that any program under Viaduct reads: settings with their rules, and what was measured
 * of other hosts.
 * Not reached: which files there are and whose (one file, always our own), more than 64 KiB, the
 * environment, and how a setting is written out again (value_print). */
#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fuzz/fuzz.h"
#include "remote/crossover.h"
#include "remote/learnt.h"
#include "settings/conffile.c"
#include "settings/view.h"
#include "tool/kept.h"

static const char *const texts[] = {
	"# a comment\nviaduct = on\nupgrade-after = 0\nspin = 50us\nring-max = 256K\n"
	"redirect = 64K\nio-uring = leave\nlog = debug:/tmp/x.%p\nreport = /tmp/r\n",
	"profile = latency\n[program=redis-*]\nprofile = off\nallow port=6379\n"
	"[program=*]\nrules = deny addr=10.0.0.0/8; allow accept port=1-2\n",
	"deny connect uid=5 addr=::1/128\nallow program=x* addr=fe80::/10 port=80\n"
	"deny\n",
	"10.0.0.2 65536 2026-01-31\nfd00::1 off 2026-01-31 slower\n",
	"  \t # \r\n[program=]\nALLOW\nrule =\nSpin = 0 # end\nlog = off",
};

size_t fuzz_seed(unsigned n, uint8_t out[FUZZ_MAX])
{
	if (n >= sizeof(texts) / sizeof(texts[0]))
		return 0;
	memcpy(out, texts[n], strlen(texts[n]));
	return strlen(texts[n]);
}

static void complain(struct view *v, enum view_effect effect, const char *file,
		     const char *place, const char *message)
{
	FUZZ_CHECK(*place && *message && (effect != VIEW_DOUBT || v->doubt));
	(void)file;
}

/* Mostly as it is once it has been read. */
static void put_text(struct conffile *f, const uint8_t *data, size_t size)
{
	memcpy(f->text, data, size);
	f->state = memchr(data, '\0', size) ? CONFFILE_BAD : CONFFILE_READ;
	f->size = f->state == CONFFILE_READ ? size : 0;
	f->why[0] = 'z';
	split(f);
}

static void read_file(struct conffile *f, const uint8_t *data, size_t size)
{
	static int fd = -1;
	static unsigned turn;

	if (!fuzz_is_turn(&turn)) {
		put_text(f, data, size);
		return;
	}
	if (fd < 0)
		fd = memfd_create("fuzz", MFD_CLOEXEC);
	FUZZ_CHECK(fd >= 0 && ftruncate(fd, 0) == 0 &&
		   pwrite(fd, data, size, 0) == (ssize_t)size);
	snprintf(f->path, sizeof(f->path), "/proc/self/fd/%d", fd);
	conffile_read(f, CONFFILE_CHECKED);
}

#define DAY_S ((time_t)86400)

/* A line that is understood is written and read alike. */
static void crossovers(const struct conffile *f)
{
	const char *line;
	size_t at = 0;

	while ((line = conffile_next(f, &at))) {
		char text[CROSSOVER_TEXT], again[CROSSOVER_TEXT];
		struct crossover c, d;

		FUZZ_CHECK(strlen(line) < f->size && !strchr(line, '\n'));
		if (crossover_parse(line, &c) < 0)
			continue;
		FUZZ_CHECK(crossover_parse(crossover_text(&c, text), &d) == 0);
		FUZZ_CHECK(strcmp(text, crossover_text(&d, again)) == 0);
		FUZZ_CHECK(c.least == d.least && c.is_slower == d.is_slower &&
			   memcmp(c.addr, d.addr, sizeof(c.addr)) == 0);
		/* Whatever the date is, a line is good for so many days at most. */
		FUZZ_CHECK(kept_is_old(&c, 0) ||
			   kept_is_old(&c, (KEPT_DAYS + 2) * DAY_S));
	}
	FUZZ_CHECK(at == f->size);
}

static void learnt(const struct conffile *f)
{
	const char *line;
	size_t at = 0;

	while ((line = conffile_next(f, &at))) {
		char text[LEARNT_TEXT], again[LEARNT_TEXT];
		struct learnt l, m;

		if (learnt_parse(line, &l) < 0)
			continue;
		FUZZ_CHECK(learnt_parse(learnt_text(&l, text), &m) == 0);
		FUZZ_CHECK(strcmp(text, learnt_text(&m, again)) == 0);
		FUZZ_CHECK(l.pays == m.pays && l.fails == m.fails &&
			   (l.pays == 0 || l.fails < l.pays) &&
			   memcmp(l.addr, m.addr, sizeof(l.addr)) == 0 &&
			   !strcmp(l.device, m.device));
		FUZZ_CHECK(learnt_is_old(l.date, 0) ||
			   learnt_is_old(l.date, LEARNT_DAYS + 1));
	}
}

static void settings(struct view *v)
{
	static const struct sockaddr_in peer = {.sin_family = AF_INET,
						.sin_port = 0x5000};

	view_resolve(v);
	FUZZ_CHECK(v->rules.count <= RULES_MAX && v->config.area_limit <= 2);
	for (unsigned i = 0; i < v->rules.count; i++) {
		const struct rule *r = &v->rules.rule[i];

		FUZZ_CHECK(r->prefix_bits <= 128 && r->port_low <= r->port_high &&
			   r->uid_low <= r->uid_high);
	}
	rules_keep_program(&v->rules, v->exe ? v->exe : "x", "x");
	rules_allow(&v->rules, CONFIG_CONNECT, (const struct sockaddr *)&peer);
	rules_deny_all(&v->rules);
}

/* All zeros, but for the texts, which are long. */
static void begin(struct view *v)
{
	memset(v, 0, offsetof(struct view, files));
	memset((uint8_t *)v + offsetof(struct view, config), 0,
	       sizeof(*v) - offsetof(struct view, config));
	for (int i = 0; i < VIEW_FILES; i++) {
		v->files[i].size = 0;
		v->files[i].state = CONFFILE_ABSENT;
		v->files[i].why[0] = '\0';
	}
	v->complain = complain;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct view v;
	struct conffile *f = &v.files[0];

	begin(&v);
	read_file(f, data, size);
	FUZZ_CHECK(f->size <= sizeof(f->text));
	FUZZ_CHECK(f->state == CONFFILE_READ || (f->size == 0 && *f->why));
	if (f->state != CONFFILE_READ)
		return 0;
	crossovers(f);
	learnt(f);
	settings(&v);
	/* As the programs that the seeds name, and everything, as `config --check` does. */
	v.exe = v.argv0 = "redis-server";
	settings(&v);
	v.strict = true;
	settings(&v);
	return 0;
}
