/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the file of shared keys, and makes new ones. */
#include <assert.h>
#include <errno.h>
#include <sodium.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/keys.h"
#include "settings/conffile.h"

static const char keys_context[crypto_kdf_CONTEXTBYTES + 1] = "viarelay";

static_assert(KEYS_KEY_BYTES == crypto_kdf_KEYBYTES, "the shared key");

static int keys_fail(char *message, size_t size, const char *text)
{
	snprintf(message, size, "%s", text);
	return -EINVAL;
}

static size_t keys_id_length(const char *text)
{
	return strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
			    "0123456789._-");
}

static int keys_line(const char *line, struct keys *keys, char *message, size_t size)
{
	struct keys_key *key = &keys->key[keys->count];
	uint8_t shared[KEYS_KEY_BYTES], id[KEYS_ID_BYTES] = {0};
	size_t n = keys_id_length(line), bytes = 0;
	const char *hex = line + n, *end = NULL;

	hex += strspn(hex, " \t");
	if (n == 0 || n > KEYS_ID_BYTES || *hex != '=')
		return keys_fail(
			message, size,
			"a line is ID = KEY, with 1 to 16 letters, digits, dots, "
			"- or _ as the ID: `viaductd --new-key ID` prints one");
	hex += 1 + strspn(hex + 1, " \t");
	memcpy(id, line, n);
	if (keys->count == KEYS_MAX)
		return keys_fail(message, size, "more than two keys");
	if (keys_find(keys, id))
		return keys_fail(message, size, "two keys have the same ID");
	if (strlen(hex) != sizeof(shared) * 2 ||
	    sodium_hex2bin(shared, sizeof(shared), hex, strlen(hex), NULL, &bytes,
			   &end) != 0 ||
	    bytes != sizeof(shared) || *end) {
		sodium_memzero(shared, sizeof(shared));
		return keys_fail(message, size, "a key has 64 hexadecimal digits");
	}
	memcpy(key->id, id, sizeof(id));
	for (unsigned use = 0; use < KEYS_USES; use++)
		crypto_kdf_derive_from_key(key->part[use], KEYS_KEY_BYTES, use + 1,
					   keys_context, shared);
	keys->count++;
	sodium_memzero(shared, sizeof(shared));
	return 0;
}

int keys_parse(const char *text, size_t bytes, struct keys *out, char *message,
	       size_t size)
{
	unsigned line = 0;
	char why[160];

	out->count = 0;
	for (size_t at = 0; at < bytes; at += strlen(text + at) + 1) {
		line++;
		if (!text[at] || keys_line(text + at, out, why, sizeof(why)) == 0)
			continue;
		keys_forget(out);
		snprintf(message, size, "line %u: %s", line, why);
		return -EINVAL;
	}
	if (out->count == 0)
		return keys_fail(
			message, size,
			"there is no key in it: `viaductd --new-key ID` prints one");
	return 0;
}

/* systemd gives a credential to a service by an ACL, which shows as root's group. */
static bool keys_private(const struct stat *st)
{
	return (st->st_mode & (S_IRWXO | S_IWGRP | S_IXGRP)) == 0 &&
	       (!(st->st_mode & S_IRGRP) || st->st_gid == 0);
}

int keys_read(const char *path, struct keys *out, char *message, size_t size)
{
	static struct conffile file;
	struct stat st;
	int r = -EINVAL;

	if (strlen(path) >= sizeof(file.path) || *path != '/')
		return keys_fail(message, size, "an absolute name is needed");
	strcpy(file.path, path);
	conffile_read(&file, CONFFILE_NAMED);
	/* The mode is looked at after the reading: what was readable was so before. */
	if (file.state != CONFFILE_READ)
		snprintf(message, size, "%s", file.why);
	else if (stat(path, &st) < 0 || !keys_private(&st))
		keys_fail(message, size,
			  "other users may read it: `chmod 600`, and make a new key");
	else
		r = keys_parse(file.text, file.size, out, message, size);
	sodium_memzero(&file, sizeof(file));
	return r;
}

const struct keys_key *keys_find(const struct keys *keys, const uint8_t id[KEYS_ID_BYTES])
{
	for (unsigned i = 0; i < keys->count; i++)
		if (!memcmp(keys->key[i].id, id, KEYS_ID_BYTES))
			return &keys->key[i];
	return NULL;
}

int keys_new_line(const char *id, char line[KEYS_LINE_BYTES])
{
	uint8_t shared[KEYS_KEY_BYTES];
	char hex[KEYS_KEY_BYTES * 2 + 1];
	size_t n = keys_id_length(id);

	if (n == 0 || n > KEYS_ID_BYTES || id[n])
		return -EINVAL;
	crypto_kdf_keygen(shared);
	sodium_bin2hex(hex, sizeof(hex), shared, sizeof(shared));
	snprintf(line, KEYS_LINE_BYTES, "%s = %s", id, hex);
	sodium_memzero(shared, sizeof(shared));
	sodium_memzero(hex, sizeof(hex));
	return 0;
}

void keys_forget(struct keys *keys)
{
	sodium_memzero(keys, sizeof(*keys));
}
