/* SPDX-License-Identifier: Apache-2.0 */
/* Where in a program's file its instructions begin, and which of them can be jumped to. */
#ifndef VD_BASE_STATIC_SWEEP_H
#define VD_BASE_STATIC_SWEEP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SWEEP_SPANS_MOST = 64 };

/* A section with code. The bit maps have a bit for each byte. */
struct sweep_span {
	const uint8_t *bytes;
	uint64_t addr;
	size_t len;
	uint8_t *starts;   /* an instruction begins there */
	uint8_t *branched; /* a branch of the program's names it, or it is the entry */
	uint8_t *taken;	   /* for sites, by who looks for them */
	uint8_t *targets;  /* something may lead there: all of `branched`, and more */
};

struct sweep {
	struct sweep_span spans[SWEEP_SPANS_MOST]; /* by address */
	unsigned count;
	uint64_t bytes; /* from the begin of the first to the end of the last */
	bool is_pie;
	const char *lacks; /* a sentence why not, when it fails */
	uint64_t lacks_at;
	uint8_t *maps;
	size_t maps_bytes;
	const uint8_t *file;
	size_t size;
	uint64_t reads; /* of tables: bounded */
};

static inline bool sweep_bit(const uint8_t *map, size_t at)
{
	return map[at / 8] >> at % 8 & 1;
}

static inline void sweep_set(uint8_t *map, size_t at)
{
	map[at / 8] |= (uint8_t)(1 << at % 8);
}

/* Looks through a program's file in memory. 0, or -ENOEXEC with `lacks` set, or another -errno. */
int sweep_run(struct sweep *s, const uint8_t *file, size_t size);
void sweep_finish(struct sweep *s);

#endif
