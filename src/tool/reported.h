/* SPDX-License-Identifier: Apache-2.0 */
/* What the reports of processes say, as VIADUCT_REPORT has them written, added up. */
#ifndef VD_TOOL_REPORTED_H
#define VD_TOOL_REPORTED_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/reason.h"

struct reported {
	uint64_t connections, upgraded, direct_bytes, tcp_bytes;
	uint64_t reasons[VD_REASON_COUNT];
};

/* Each process has left a line. */
void reported_add(struct reported *sum, const char *path);
/* The share of bytes past TCP, of 100. */
double reported_direct(const struct reported *r);
/* Behind what is in text, a sentence without a full stop: what went direct, what did not, and why. */
void reported_paths(const struct reported *r, const char *before, char *text,
		    size_t size);
/* A line for each reason: with its sentence, and with what helps. */
void reported_reasons(FILE *out, const struct reported *r);

#endif
