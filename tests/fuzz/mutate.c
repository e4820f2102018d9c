/* SPDX-License-Identifier: Apache-2.0 */
/* Where libFuzzer is not: good inputs, changed at random from a seed.
 *   fuzz-NAME [SEED [COUNT]]  so many changed inputs; with an s behind it, for so many seconds
 *   fuzz-NAME FILE...         the inputs in these files
 *   fuzz-NAME seeds FOLDER    writes the good inputs there, for libFuzzer
 * An input that ends the process is kept in a file, and the command that repeats it is printed. */
#include <ctype.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "fuzz/fuzz.h"

#define SEEDS_MAX 64

static uint8_t seeds[SEEDS_MAX][FUZZ_MAX];
static size_t seed_bytes[SEEDS_MAX];
static unsigned seed_count;
static uint64_t state;

/* The input in hand. The parent sees it, too, however the child ends. */
static struct {
	size_t size;
	unsigned long runs;
	bool is_new; /* no file has it yet */
	uint8_t data[FUZZ_MAX];
} * now;

/* Without a sanitizer nobody calls these. A mistake ends the process by a signal. */
const char *__asan_default_options(void);
const char *__asan_default_options(void)
{
	return "abort_on_error=1:detect_stack_use_after_return=0";
}

const char *__ubsan_default_options(void);
const char *__ubsan_default_options(void)
{
	return "halt_on_error=1:abort_on_error=1:print_stacktrace=1";
}

static uint32_t next(uint32_t below)
{
	state = state * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)(((state >> 32) * below) >> 32);
}

/* A number, as programs have them in memory: at a place that fits its size, mostly. */
static void put_number(uint8_t *data, size_t size, size_t at)
{
	static const uint64_t edges[] = {0,
					 1,
					 2,
					 7,
					 0x7f,
					 0xff,
					 0x100,
					 0xffff,
					 0x10000,
					 0x7fffffff,
					 0x80000000,
					 0xffffffff,
					 UINT64_MAX,
					 INT64_MAX,
					 (uint64_t)INT64_MAX + 1,
					 UINT64_MAX - 4095};
	unsigned bytes = 1u << next(4);
	uint64_t value = 0;

	if (next(4))
		at &= ~(size_t)(bytes - 1);
	if (bytes > size - at)
		return;
	memcpy(&value, data + at, bytes);
	if (next(2))
		value += (uint64_t)next(9) - 4;
	else
		value = edges[next(sizeof(edges) / sizeof(edges[0]))] + next(3) - 1;
	memcpy(data + at, &value, bytes);
}

/* A part of another good input, here. */
static size_t splice(uint8_t *data, size_t size, size_t at)
{
	unsigned from = next(seed_count);
	size_t begin = next((uint32_t)seed_bytes[from]), n = seed_bytes[from] - begin;

	n = 1 + next((uint32_t)n);
	n = n < FUZZ_MAX - at ? n : FUZZ_MAX - at;
	memcpy(data + at, seeds[from] + begin, n);
	return at + n > size ? at + n : size;
}

static size_t change(uint8_t *data, size_t size)
{
	static const uint8_t edges[] = {0, 1, 0x7f, 0x80, 0xff, ' ', '=', '/', '\n', '-'};
	size_t at = next((uint32_t)size + 1), n = 1 + next(16);

	if (at == size && size < FUZZ_MAX) {
		data[size] = (uint8_t)next(256);
		return size + 1;
	}
	if (at >= size)
		return size;
	switch (next(8)) {
	case 0:
		data[at] ^= (uint8_t)(1u << next(8));
		break;
	case 1:
		data[at] = edges[next(sizeof(edges))];
		break;
	case 2: /* cut out */
		n = n < size - at ? n : size - at;
		memmove(data + at, data + at + n, size - at - n);
		return size - n;
	case 3: /* repeat */
		n = n < size - at ? n : size - at;
		n = n < FUZZ_MAX - size ? n : FUZZ_MAX - size;
		memmove(data + at + n, data + at, size - at);
		return size + n;
	case 4:
		return splice(data, size, at);
	case 5: /* end */
		return next(4) ? size : at;
	default:
		put_number(data, size, at);
	}
	return size;
}

static void run(void)
{
	/* Of just that size, so that a sanitizer sees each byte too far. */
	uint8_t *exact = malloc(now->size ? now->size : 1);

	FUZZ_CHECK(exact);
	memcpy(exact, now->data, now->size);
	LLVMFuzzerTestOneInput(exact, now->size);
	free(exact);
	now->runs++;
}

static void run_seed(unsigned from, unsigned changes)
{
	memcpy(now->data, seeds[from], seed_bytes[from]);
	now->size = seed_bytes[from];
	while (changes--)
		now->size = change(now->data, now->size);
	run();
}

static int write_seeds(const char *folder)
{
	for (unsigned i = 0; i < seed_count; i++) {
		char path[4096];
		FILE *f;

		snprintf(path, sizeof(path), "%s/seed-%u", folder, i);
		f = fopen(path, "w");
		if (!f || fwrite(seeds[i], 1, seed_bytes[i], f) != seed_bytes[i] ||
		    fclose(f)) {
			perror(path);
			return 1;
		}
	}
	return 0;
}

static int run_files(char **paths)
{
	now->is_new = false;
	for (; *paths; paths++) {
		FILE *f = fopen(*paths, "r");

		if (!f) {
			perror(*paths);
			return 1;
		}
		now->size = fread(now->data, 1, FUZZ_MAX, f);
		fclose(f);
		run();
	}
	return 0;
}

static int run_changed(const char *count)
{
	char *unit = NULL;
	unsigned long many = strtoul(count, &unit, 10);
	time_t end = *unit == 's' ? time(NULL) + (time_t)many : 0;

	now->is_new = true;
	for (unsigned i = 0; i < seed_count; i++)
		run_seed(i, 0);
	for (unsigned long i = 0; end ? time(NULL) < end : i < many; i++)
		run_seed(next(seed_count), 1 + next(6));
	printf("%u good inputs, %lu in all\n", seed_count, now->runs);
	return 0;
}

static int work(int argc, char **argv)
{
	bool is_number = argc < 2 || isdigit((unsigned char)*argv[1]);

	while (seed_count < SEEDS_MAX &&
	       (seed_bytes[seed_count] = fuzz_seed(seed_count, seeds[seed_count])) > 0)
		seed_count++;
	FUZZ_CHECK(seed_count > 0);
	if (argc == 3 && !strcmp(argv[1], "seeds"))
		return write_seeds(argv[2]);
	if (!is_number)
		return run_files(argv + 1);
	state = argc > 1 ? strtoul(argv[1], NULL, 10) : 1;
	return run_changed(argc > 2 ? argv[2] : "100000");
}

/* The child has ended badly. */
static void keep(const char *program)
{
	const char *slash = strrchr(program, '/');
	char path[256];
	FILE *f;

	fprintf(stderr, "%s: ended after %lu inputs\n", program, now->runs);
	if (!now->is_new)
		return;
	snprintf(path, sizeof(path), "%s-%d.input", slash ? slash + 1 : program,
		 (int)getpid());
	f = fopen(path, "w");
	if (!f || fwrite(now->data, 1, now->size, f) != now->size || fclose(f))
		perror(path);
	else
		fprintf(stderr, "repeat it: %s %s\n", program, path);
}

int main(int argc, char **argv)
{
	int status = 1;
	pid_t child;

	now = mmap(NULL, sizeof(*now), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
		   -1, 0);
	FUZZ_CHECK(now != MAP_FAILED);
	child = fork();
	FUZZ_CHECK(child >= 0);
	if (child == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		exit(work(argc, argv));
	}
	/* Whoever ends a test that hangs ends both: the child first, whose input is to be kept. */
	signal(SIGTERM, SIG_IGN);
	signal(SIGINT, SIG_IGN);
	FUZZ_CHECK(waitpid(child, &status, 0) == child);
	if (status == 0)
		return 0;
	keep(argv[0]);
	return 1;
}
