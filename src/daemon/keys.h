/* SPDX-License-Identifier: Apache-2.0 */
/* The shared keys by which daemons know each other. */
#ifndef VD_DAEMON_KEYS_H
#define VD_DAEMON_KEYS_H

#include <stddef.h>
#include <stdint.h>

#define KEYS_MAX	2 /* one in use, one on its way in or out */
#define KEYS_ID_BYTES	16
#define KEYS_KEY_BYTES	32
#define KEYS_LINE_BYTES 96

/* What a key is used for: each has a key of its own, made of the shared one. */
enum keys_use { KEYS_HELLO, KEYS_RESPONDER, KEYS_INITIATOR, KEYS_SESSION, KEYS_USES };

struct keys_key {
	char id[KEYS_ID_BYTES]; /* padded with zeroes; 16 characters have none */
	uint8_t part[KEYS_USES][KEYS_KEY_BYTES];
};

/* The first one is offered; each is accepted. */
struct keys {
	unsigned count;
	struct keys_key key[KEYS_MAX];
};

/*
 * Reads the file: lines `ID = 64 hexadecimal digits`. It must belong to root or to the
 * user of this process, and be readable by nobody else. 0, or -errno with a sentence.
 */
int keys_read(const char *path, struct keys *out, char *message, size_t size);
/* The same of text, whose lines are closed by zero bytes. */
int keys_parse(const char *text, size_t bytes, struct keys *out, char *message,
	       size_t size);
/* The key of an id as it travels, or NULL. */
const struct keys_key *keys_find(const struct keys *keys,
				 const uint8_t id[KEYS_ID_BYTES]);
/* A new line for the file; -EINVAL for an id that is none. */
int keys_new_line(const char *id, char line[KEYS_LINE_BYTES]);
void keys_forget(struct keys *keys);

#endif
