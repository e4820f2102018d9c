/* SPDX-License-Identifier: Apache-2.0 */
/* viaductd.conf: what the daemon listens on, whom it believes, and its rules. */
#ifndef VD_DAEMON_SETTINGS_H
#define VD_DAEMON_SETTINGS_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/un.h>

#include "base/endpoint.h"
#include "settings/rules.h"

#define SETTINGS_LISTEN_MAX 8
#define SETTINGS_PEER_MAX   256
#define SETTINGS_PORT	    7430

/* A host whose daemon speaks for addresses besides its own. */
struct settings_peer {
	struct in6_addr daemon, net; /* IPv4 as ::ffff:a.b.c.d */
	unsigned prefix_bits;	     /* of the 128 */
};

struct settings {
	char socket[sizeof(((struct sockaddr_un *)0)->sun_path)];
	/* For processes of other network namespaces; empty: none. */
	char near[sizeof(((struct sockaddr_un *)0)->sun_path)];
	char key_file[PATH_MAX];
	char log[PATH_MAX + 16];
	uint16_t port;
	unsigned listens, peers;
	struct in6_addr listen[SETTINGS_LISTEN_MAX];
	struct settings_peer peer[SETTINGS_PEER_MAX];
	uint32_t rate_uid, rate_peer; /* a second */
	struct rules rules;
};

/* Who asks for a connection, as far as rules care. */
struct settings_party {
	uint32_t uid;
	const char *
		program; /* what the kernel has of its name; NULL where that cannot be read */
};

typedef void settings_complain(const char *place, const char *text);

/*
 * Reads the file at path, which must be root's or the user's own, and written by nobody
 * else. Returns how much is wrong in it; each thing goes to complain, and what is wrong is
 * left out. An absent file means what the defaults say, unless must_exist.
 */
unsigned settings_read(const char *path, bool must_exist, struct settings *out,
		       settings_complain *complain);
/* The same of text, whose lines are closed by zero bytes. */
unsigned settings_parse(const char *path, const char *text, size_t bytes,
			struct settings *out, settings_complain *complain);

/*
 * First match. addr= is the other host's address, port= either end's port. A program
 * that is not known fits no rule that allows, and each that denies.
 */
bool settings_allow(const struct settings *s, const struct settings_party *party,
		    const struct name_end *local, const struct name_end *peer);
/* Whether some connection of theirs with that host may be allowed. */
bool settings_may_ask(const struct settings *s, const struct settings_party *party,
		      const uint8_t addr[16]);
/* Whether some connection with the host may be allowed, or it is a configured peer. */
bool settings_may_meet(const struct settings *s, const uint8_t addr[16]);
/* Whether a daemon at that address may speak for that end. */
bool settings_speaks_for(const struct settings *s, const uint8_t daemon[16],
			 const struct name_end *end);
/* The daemon that speaks for addr; true where it is another address. */
bool settings_daemon_of(const struct settings *s, const uint8_t addr[16],
			uint8_t daemon[16]);

#endif
