/* SPDX-License-Identifier: Apache-2.0 */
/* The settings of this process, read once from files and the environment. */
#ifndef VD_SETTINGS_CONFIG_H
#define VD_SETTINGS_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#define CONFIG_MEASURED UINT32_MAX

enum config_registration {
	CONFIG_REGISTER_KEEP,
	CONFIG_REGISTER_CHECK,
	CONFIG_REGISTER_ONCE
};

enum config_role { CONFIG_CONNECT, CONFIG_ACCEPT };

struct config {
	bool off;		/* VIADUCT=off */
	uint32_t upgrade_after; /* VIADUCT_UPGRADE_AFTER: operations; 0 at the first */
	bool upgrade_fixed; /* a number was given: see is_little_saved in conn/upgrade_policy.c */
	uint32_t spin_ns;    /* VIADUCT_SPIN: longest spin in nanoseconds (set in us) */
	bool spin_fixed;     /* a time was given: do not adapt */
	uint32_t area_limit; /* VIADUCT_RING_MAX: highest ring area in use, 0 to 2 */
	/* VIADUCT_REDIRECT: receives of so many bytes; 0 never, CONFIG_MEASURED as was measured */
	uint32_t redirect;
	bool io_uring_left; /* VIADUCT_IO_URING=leave: a ring by syscall() is let through */
	bool static_followed; /* VIADUCT_STATIC=follow: those of statically linked C programs do */
	bool go_followed; /* VIADUCT_GO=follow: system calls of Go programs come to us */
	/* VIADUCT_REGISTRATION: of memory that puts and gets use; an enum config_registration */
	uint32_t registration;
	const char *report;  /* VIADUCT_REPORT: absolute file name, or NULL */
	const char *program; /* base name of argv[0], as it was at the start */
};

/* Reads files and the environment at the first call; never fails: bad values are logged
 * and skipped. */
const struct config *config_get(void);
/* No file has settings for some programs alone, so that another program has the same. */
bool config_is_common(void);
/*
 * First matching rule for this process; true when none matches. False for every
 * connection when rules, or a file that may have some, cannot be understood: a doubt means
 * TCP.
 */
bool config_allows(enum config_role role, const struct sockaddr *local,
		   const struct sockaddr *peer);
/*
 * True when a ring of io_uring that the program asks for by syscall() is to be refused, so that
 * its connections can leave TCP. False where none could anyway.
 */
bool config_refuses_rings(void);
/*
 * Returns 0 when text is a good value for VIADUCT_RULES; else -errno, with a sentence in
 * message that names the rule and the place in it.
 */
int config_check_rules(const char *text, char *message, size_t size);

#endif
