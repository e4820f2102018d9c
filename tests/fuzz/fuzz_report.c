/* SPDX-License-Identifier: Apache-2.0 */
/* The report of a process: conn/report.c writes it, and jansson reads what was meant, whatever
 * the program is called and has counted.
 * Not reached: waits for a file that others lock or nobody reads, a torn last line, and the log. */
#include <jansson.h>
#include <sys/mman.h>
#include <unistd.h>

#include "conn/report.c"
#include "fuzz/fuzz.h"
#include "settings/config.h"

/* An input is a name, a zero, and counts: one byte says which, eight how many. */
static const char *const programs[] = {"redis-server", "a\"b\\c\n\xc3\xa9\x01\x7f",
				       "</script>"};

size_t fuzz_seed(unsigned n, uint8_t out[FUZZ_MAX])
{
	if (n >= sizeof(programs) / sizeof(programs[0]))
		return 0;
	strcpy((char *)out, programs[n]);
	return strlen(programs[n]) + 1 + 9 * n;
}

static int file = -1;
static char file_path[40];

static void file_put(const uint8_t *data, size_t size)
{
	if (file < 0)
		file = memfd_create("fuzz", MFD_CLOEXEC);
	snprintf(file_path, sizeof(file_path), "/proc/self/fd/%d", file);
	FUZZ_CHECK(file >= 0 && ftruncate(file, 0) == 0 &&
		   pwrite(file, data, size, 0) == (ssize_t)size);
}

static void count(struct fuzz_bytes *b)
{
	_Atomic uint64_t *word = (_Atomic uint64_t *)report_here;

	memset(report_here, 0, sizeof(*report_here));
	while (b->left > 0)
		word[fuzz_number(b, 1) % (sizeof(*report_here) / 8)] = fuzz_number(b, 8);
}

/* As JSON has it: each byte a letter of Latin 1. */
static void check_name(const char *text, const char *program)
{
	for (; *program; program++) {
		unsigned char c = (unsigned char)*program;

		if (c < 0x80)
			FUZZ_CHECK((unsigned char)*text++ == c);
		else {
			FUZZ_CHECK((unsigned char)*text++ == (0xc0 | c >> 6));
			FUZZ_CHECK((unsigned char)*text++ == (0x80 | (c & 0x3f)));
		}
	}
	FUZZ_CHECK(*text == 0);
}

/* As the file has it then. Returns its length. */
static ssize_t write_file(struct config *config, const char *program, char *line,
			  size_t most)
{
	file_put(NULL, 0);
	config->program = program;
	config->report = file_path;
	report_reopen();
	report_write_now();
	return pread(file, line, most, 0);
}

/* Mostly without a file. */
static ssize_t write_line_alone(const char *program, char *line)
{
	struct text t = {malloc(REPORT_BYTES), 0, REPORT_BYTES};
	struct report_open all;

	FUZZ_CHECK(t.out);
	collect(&all);
	report_format(&t, program, &all);
	memcpy(line, t.out, t.at);
	free(t.out);
	return (ssize_t)t.at;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static unsigned turn;
	struct config *config = (struct config *)config_get();
	size_t name = strnlen((const char *)data, size);
	struct fuzz_bytes b = {data, name}, counts = {data + name, size - name};
	char program[256] = "", line[8192];
	json_t *json;
	ssize_t n;

	fuzz_take(&b, program, sizeof(program) - 1);
	fuzz_number(&counts, 1);
	count(&counts);
	n = fuzz_is_turn(&turn) ? write_file(config, program, line, sizeof(line))
				: write_line_alone(program, line);
	FUZZ_CHECK(n > 0 && n < (ssize_t)sizeof(line) && line[n - 1] == '\n');
	FUZZ_CHECK(memchr(line, '\n', (size_t)n) == line + n - 1);
	json = json_loadb(line, (size_t)n, JSON_REJECT_DUPLICATES, NULL);
	/* jansson has no numbers from 2^63 on; nothing is ever counted that far. */
	if (json) {
		check_name(json_string_value(json_object_get(json, "program")), program);
		json_decref(json);
	} else {
		uint64_t *word = (uint64_t *)report_here;
		bool large = false;

		for (size_t i = 0; i < sizeof(*report_here) / 8; i++)
			large = large || word[i] > INT64_MAX;
		FUZZ_CHECK(large);
	}
	return 0;
}
