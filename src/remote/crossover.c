/* SPDX-License-Identifier: Apache-2.0 */
/* What was measured of other hosts: the files that say it. */
#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "remote/crossover.h"
#include "base/log.h"
#include "settings/conffile.h"
#include "settings/config.h"

const char crossover_system[] = "/var/lib/viaduct/redirect";

static struct {
	struct crossover hosts[CROSSOVERS_MAX];
	size_t count;
} files[2]; /* the user's, root's */
static const char slower[] = "slower";
static pthread_once_t once = PTHREAD_ONCE_INIT;

bool crossover_user(char *path, size_t size)
{
	const char *state = secure_getenv("XDG_STATE_HOME"),
		   *home = secure_getenv("HOME");
	int n = 0;

	state = state && *state == '/' ? state : NULL;
	if (state || (home && *home == '/'))
		n = snprintf(path, size, "%s%s/viaduct/redirect", state ? state : home,
			     state ? "" : "/.local/state");
	if (n > 0 && (size_t)n < size)
		return true;
	*path = '\0';
	return false;
}

/* Of the digits of a date: the calendar has such a day. */
static bool is_day(const char *text)
{
	static const int most[] = {31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
	int year = atoi(text), month = atoi(text + 5), day = atoi(text + 8);
	bool leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);

	return month >= 1 && month <= 12 && day >= 1 && day <= most[month - 1] &&
	       (month != 2 || day <= 28 + leap);
}

static bool is_date(const char *text)
{
	static const char form[] = "0000-00-00";

	for (size_t i = 0; i < sizeof(form) - 1; i++)
		if (form[i] == '0' ? !isdigit((unsigned char)text[i])
				   : text[i] != form[i])
			return false;
	return !text[sizeof(form) - 1] && is_day(text);
}

static bool take_address(const char *text, uint8_t addr[16])
{
	memset(addr, 0, 10);
	memset(addr + 10, 0xff, 2);
	return inet_pton(AF_INET, text, addr + 12) == 1 ||
	       inet_pton(AF_INET6, text, addr) == 1;
}

static bool take_size(const char *text, uint32_t *least)
{
	char *end;
	unsigned long value;

	*least = 0;
	if (!strcmp(text, "off"))
		return true;
	errno = 0;
	value = strtoul(text, &end, 10);
	*least = (uint32_t)value;
	return isdigit((unsigned char)*text) && !*end && !errno && value >= 1 &&
	       value <= CROSSOVER_LEAST_MAX;
}

int crossover_parse(const char *line, struct crossover *out)
{
	char address[INET6_ADDRSTRLEN], size[12], date[12], word[sizeof(slower) + 1],
		more;
	int n = sscanf(line, "%45s %11s %11s %7s %c", address, size, date, word, &more);

	out->is_slower = n == 4;
	if ((n != 3 && n != 4) || !take_address(address, out->addr) ||
	    !take_size(size, &out->least) || !is_date(date) ||
	    (out->is_slower && strcmp(word, slower) != 0))
		return -EINVAL;
	memcpy(out->date, date, sizeof(out->date));
	return 0;
}

char *crossover_text(const struct crossover *c, char text[CROSSOVER_TEXT])
{
	bool v4 = IN6_IS_ADDR_V4MAPPED((const struct in6_addr *)c->addr);
	char address[INET6_ADDRSTRLEN], size[12] = "off";

	inet_ntop(v4 ? AF_INET : AF_INET6, v4 ? c->addr + 12 : c->addr, address,
		  sizeof(address));
	if (c->least)
		snprintf(size, sizeof(size), "%u", c->least);
	snprintf(text, CROSSOVER_TEXT, "%s %s %s%s%s", address, size, c->date,
		 c->is_slower ? " " : "", c->is_slower ? slower : "");
	return text;
}

static void read_file(struct conffile *f, enum conffile_level level, size_t which)
{
	struct crossover c;
	const char *line;
	size_t at = 0;

	conffile_read(f, level);
	if (f->state != CONFFILE_READ) {
		if (f->state == CONFFILE_FOREIGN) /* the HOME of who started it */
			log_debug("%s: %s", f->path, f->why);
		else if (f->state != CONFFILE_ABSENT)
			log_error("%s: %s", f->path, f->why);
		return;
	}
	for (unsigned n = 1; (line = conffile_next(f, &at)); n++) {
		if (!*line)
			continue;
		if (crossover_parse(line, &c) < 0)
			log_error("%s:%u: an address, a number of bytes or off, and a "
				  "date are wanted: `viaduct doctor --measure HOST` "
				  "writes them; the line is skipped",
				  f->path, n);
		else if (files[which].count < CROSSOVERS_MAX)
			files[which].hosts[files[which].count++] = c;
	}
}

static void read_files(void)
{
	static struct conffile f;

	if (crossover_user(f.path, sizeof(f.path)))
		read_file(&f, CONFFILE_USER, 0);
	snprintf(f.path, sizeof(f.path), "%s", crossover_system);
	read_file(&f, CONFFILE_SYSTEM, 1);
}

bool crossover_find(const uint8_t addr[16], struct crossover *out)
{
	pthread_once(&once, read_files);
	for (size_t which = 0; which < 2; which++)
		for (size_t i = 0; i < files[which].count; i++) {
			*out = files[which].hosts[i];
			if (memcmp(out->addr, addr, sizeof(out->addr)) == 0)
				return true;
		}
	return false;
}

uint32_t crossover_least(const uint8_t addr[16])
{
	uint32_t least = config_get()->redirect;
	struct crossover measured;

	if (least == CONFIG_MEASURED)
		least = crossover_find(addr, &measured) ? measured.least : 0;
	return least;
}

bool crossover_is_open(const uint8_t addr[16])
{
	struct crossover measured;

	return config_get()->redirect == CONFIG_MEASURED &&
	       !crossover_find(addr, &measured);
}

bool crossover_keeps_tcp(const uint8_t addr[16])
{
	struct crossover measured;

	return config_get()->redirect == CONFIG_MEASURED &&
	       crossover_find(addr, &measured) && measured.is_slower;
}

bool crossover_keeps_any(void)
{
	bool any = false;

	pthread_once(&once, read_files);
	for (size_t which = 0; which < 2; which++)
		for (size_t i = 0; i < files[which].count; i++)
			any = any || files[which].hosts[i].is_slower;
	return any && config_get()->redirect == CONFIG_MEASURED;
}
