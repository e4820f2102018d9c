/* SPDX-License-Identifier: Apache-2.0 */
/* What two daemons say to each other inside their frames, byte by byte: docs/relay.md. */
#ifndef VD_DAEMON_WIRE_H
#define VD_DAEMON_WIRE_H

#include <stddef.h>
#include <stdint.h>

#include "daemon_client/local.h"

#define WIRE_QUESTION_BYTES 48
#define WIRE_ANSWER_BYTES   12
#define WIRE_PLAIN_MAX	    (WIRE_QUESTION_BYTES + LOCAL_HELLO_MAX)

struct wire_question {
	uint32_t id;
	uint32_t uid;		       /* of the asking process, as its host says */
	struct name_end asker, holder; /* of the connection: the asker's end is first */
	const uint8_t *hello;
	size_t hello_bytes;
};

struct wire_answer {
	uint32_t id;
	uint32_t uid; /* of the holder; 0 without one */
	uint8_t status;
	const uint8_t *hello;
	size_t hello_bytes;
};

/* Both return the bytes written, at most WIRE_PLAIN_MAX. */
size_t wire_put_question(uint8_t *to, const struct wire_question *q);
size_t wire_put_answer(uint8_t *to, const struct wire_answer *a);
/* 0, or -EPROTO. The hello is that in the buffer. */
int wire_get_question(const uint8_t *from, size_t bytes, struct wire_question *q);
int wire_get_answer(const uint8_t *from, size_t bytes, struct wire_answer *a);

/* Big endian. */
static inline void wire_put16(uint8_t *to, unsigned v)
{
	to[0] = (uint8_t)(v >> 8);
	to[1] = (uint8_t)v;
}

static inline void wire_put32(uint8_t *to, uint32_t v)
{
	wire_put16(to, v >> 16);
	wire_put16(to + 2, v & 0xffff);
}

static inline unsigned wire_get16(const uint8_t *from)
{
	return (unsigned)from[0] << 8 | from[1];
}

static inline uint32_t wire_get32(const uint8_t *from)
{
	return (uint32_t)wire_get16(from) << 16 | wire_get16(from + 2);
}

#endif
