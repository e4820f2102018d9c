/* SPDX-License-Identifier: Apache-2.0 */
/* Writes and reads the questions and answers of two daemons. */
#include <errno.h>
#include <string.h>

#include "daemon/wire.h"

enum { WIRE_QUESTION = 1, WIRE_ANSWER = 2 };

size_t wire_put_question(uint8_t *to, const struct wire_question *q)
{
	to[0] = WIRE_QUESTION;
	to[1] = 0;
	wire_put16(to + 2, (unsigned)q->hello_bytes);
	wire_put32(to + 4, q->id);
	wire_put32(to + 8, q->uid);
	memcpy(to + 12, &q->asker, sizeof(q->asker));
	memcpy(to + 30, &q->holder, sizeof(q->holder));
	if (q->hello_bytes)
		memcpy(to + WIRE_QUESTION_BYTES, q->hello, q->hello_bytes);
	return WIRE_QUESTION_BYTES + q->hello_bytes;
}

int wire_get_question(const uint8_t *from, size_t bytes, struct wire_question *q)
{
	if (bytes < WIRE_QUESTION_BYTES || from[0] != WIRE_QUESTION || from[1] != 0)
		return -EPROTO;
	q->hello_bytes = wire_get16(from + 2);
	if (q->hello_bytes > LOCAL_HELLO_MAX ||
	    q->hello_bytes != bytes - WIRE_QUESTION_BYTES)
		return -EPROTO;
	q->id = wire_get32(from + 4);
	q->uid = wire_get32(from + 8);
	memcpy(&q->asker, from + 12, sizeof(q->asker));
	memcpy(&q->holder, from + 30, sizeof(q->holder));
	q->hello = from + WIRE_QUESTION_BYTES;
	return 0;
}

size_t wire_put_answer(uint8_t *to, const struct wire_answer *a)
{
	to[0] = WIRE_ANSWER;
	to[1] = a->status;
	wire_put16(to + 2, (unsigned)a->hello_bytes);
	wire_put32(to + 4, a->id);
	wire_put32(to + 8, a->uid);
	if (a->hello_bytes)
		memcpy(to + WIRE_ANSWER_BYTES, a->hello, a->hello_bytes);
	return WIRE_ANSWER_BYTES + a->hello_bytes;
}

int wire_get_answer(const uint8_t *from, size_t bytes, struct wire_answer *a)
{
	if (bytes < WIRE_ANSWER_BYTES || from[0] != WIRE_ANSWER)
		return -EPROTO;
	a->status = from[1];
	a->hello_bytes = wire_get16(from + 2);
	if (!local_status_travels(a->status) || a->hello_bytes > LOCAL_HELLO_MAX ||
	    a->hello_bytes != bytes - WIRE_ANSWER_BYTES ||
	    (a->status != LOCAL_OK && a->hello_bytes != 0))
		return -EPROTO;
	a->id = wire_get32(from + 4);
	a->uid = wire_get32(from + 8);
	a->hello = from + WIRE_ANSWER_BYTES;
	return 0;
}
