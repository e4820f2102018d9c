/* SPDX-License-Identifier: Apache-2.0 */
/* Where libFuzzer is not: good inputs, changed at random from a seed. mutate [SEED [COUNT]];
 * mutate seeds FOLDER: writes the good inputs there, for libFuzzer. */
#include <string.h>

#include "fuzz/fuzz.h"

#define SEEDS_MAX 64

static uint8_t seeds[SEEDS_MAX][FUZZ_MAX];
static size_t seed_bytes[SEEDS_MAX];
static uint64_t state;

static uint32_t next(uint32_t below)
{
	state = state * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)(((state >> 32) * below) >> 32);
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
	switch (next(5)) {
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
	default: /* end */
		return at;
	}
	return size;
}

static void run(unsigned seed_count)
{
	static uint8_t data[FUZZ_MAX];
	unsigned from = next(seed_count), changes = next(6);
	size_t size = seed_bytes[from];
	uint8_t *exact;

	memcpy(data, seeds[from], size);
	while (changes--)
		size = change(data, size);
	/* Of just that size, so that a sanitizer sees each byte too far. */
	exact = malloc(size ? size : 1);
	FUZZ_CHECK(exact);
	memcpy(exact, data, size);
	LLVMFuzzerTestOneInput(exact, size);
	free(exact);
}

static int write_seeds(const char *folder, unsigned count)
{
	for (unsigned i = 0; i < count; i++) {
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

int main(int argc, char **argv)
{
	unsigned count = 0;
	unsigned long runs = argc > 2 ? strtoul(argv[2], NULL, 10) : 100000;

	state = argc > 1 ? strtoul(argv[1], NULL, 10) : 1;
	while (count < SEEDS_MAX &&
	       (seed_bytes[count] = fuzz_seed(count, seeds[count])) > 0)
		count++;
	FUZZ_CHECK(count > 0);
	if (argc == 3 && !strcmp(argv[1], "seeds"))
		return write_seeds(argv[2], count);
	for (unsigned i = 0; i < count; i++)
		LLVMFuzzerTestOneInput(seeds[i], seed_bytes[i]);
	for (unsigned long i = 0; i < runs; i++)
		run(count);
	printf("%u good inputs, %lu changed ones\n", count, runs);
	return 0;
}
