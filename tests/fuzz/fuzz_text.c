/* SPDX-License-Identifier: Apache-2.0 */
/* The texts that viaductd reads: its settings and its keys. */
#include <sodium.h>
#include <string.h>

#include "daemon/keys.h"
#include "daemon/settings.h"
#include "fuzz/fuzz.h"

static const char *const texts[] = {
	"socket = /run/x\nport = 7430\nlisten = 10.0.0.1\nlisten = ::1\nlog = info:/x\n",
	"peer = 10.0.0.2 for 192.168.0.0/16\nrate-uid = 5\nallow uid=1-2 addr=fd00::/8\n"
	"deny\n",
	"allow program=redis-* port=1-2; deny addr=10.0.0.0/8\npeer = fd00::1 for ::/0\n",
	"one = 0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef\n"
	"two = 2222222222222222222222222222222222222222222222222222222222222222\n",
};

size_t fuzz_seed(unsigned n, uint8_t out[FUZZ_MAX])
{
	size_t size;

	if (n >= sizeof(texts) / sizeof(texts[0]))
		return 0;
	size = strlen(texts[n]);
	memcpy(out, texts[n], size);
	return size;
}

static unsigned complaints;

static void complain(const char *place, const char *text)
{
	FUZZ_CHECK(*place && *text);
	complaints++;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const struct name_end a = {.addr = {[10] = 0xff, 0xff, 10, 9, 0, 1},
					  .port = 7};
	static const struct settings_party party = {.uid = 1, .program = "x"};
	static struct settings s;
	static struct keys keys;
	uint8_t daemon[16];
	char why[256], *text = malloc(size + 1);

	FUZZ_CHECK(text && sodium_init() >= 0);
	/* As conffile_read leaves it: lines closed by zero bytes. */
	for (size_t i = 0; i < size; i++)
		text[i] = data[i] == '\n' ? '\0' : (char)data[i];
	text[size] = '\0';
	complaints = 0;
	FUZZ_CHECK(settings_parse("f", text, size + 1, &s, complain) == complaints);
	FUZZ_CHECK(s.listens <= SETTINGS_LISTEN_MAX && s.peers <= SETTINGS_PEER_MAX);
	if (complaints == 0) {
		settings_allow(&s, &party, &a, &a);
		settings_may_meet(&s, a.addr);
		settings_may_ask(&s, &party, a.addr);
		settings_speaks_for(&s, a.addr, &a);
		settings_daemon_of(&s, a.addr, daemon);
	}
	if (keys_parse(text, size + 1, &keys, why, sizeof(why)) == 0)
		FUZZ_CHECK(keys.count >= 1 && keys.count <= KEYS_MAX);
	else
		FUZZ_CHECK(keys.count == 0);
	free(text);
	return 0;
}
