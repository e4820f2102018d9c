/* SPDX-License-Identifier: Apache-2.0 */
/* Streams of connections: libc's buffers, and our reads and writes. */
#ifndef VD_PRELOAD_STREAM_H
#define VD_PRELOAD_STREAM_H

#include <stdbool.h>
#include <stdio.h>

#include "base/atomic.h"

/* Flags of libc's in `_flags`. */
enum {
	STREAM_USER_BUFFER = 0x1, /* fclose does not free the buffer */
	STREAM_UNBUFFERED = 0x2,
	STREAM_NO_READS = 0x4,
	STREAM_IN_BACKUP = 0x100,
	STREAM_LINE_BUFFERED = 0x200,
};

/* As libc lays out what fopencookie returns. Each new stream is compared with that. */
struct stream {
	FILE file;
	const void *jumps;
	void *cookie;
	cookie_io_functions_t calls; /* libc encodes them */
};

/* How all streams of ours begin; `jumps` is NULL until there is one. */
struct stream_mark {
	_Atomic(const void *) jumps;
	cookie_read_function_t *_Atomic read;
};
extern struct stream_mark stream_mark;

/* Reads and writes of f are ours. */
static inline bool stream_is_ours(FILE *f)
{
	const struct stream *s = (const struct stream *)f;

	/* Behind `jumps` there is something in a program's own kind of stream only. */
	return s->jumps == load_acquire(&stream_mark.jumps) &&
	       s->calls.read == load_relaxed(&stream_mark.read);
}

/* As fdopen. NULL: this cannot be one of ours. */
FILE *stream_open(int fd, const char *mode);
/* Makes f libc's own, which reads and writes past us. Its buffers are to be empty. False: there is no
 * memory. */
bool stream_give_up(FILE *f);
struct sock;
/* What libc cannot read any more, because it lies in the ring, becomes the first that f reads. `down`: what
 * hook_take_down has said. */
void stream_prefill(FILE *f, struct sock *s, ssize_t down);
/* What is to be freed after fclose, or NULL. */
void *stream_memory(FILE *f);

#endif
