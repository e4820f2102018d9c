/* SPDX-License-Identifier: Apache-2.0 */
/* The settings of this process, read once from the environment. */
#ifndef VD_BASE_CONFIG_H
#define VD_BASE_CONFIG_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

enum config_role { CONFIG_CONNECT, CONFIG_ACCEPT };

struct config {
	bool off;		/* VIADUCT=off */
	uint32_t upgrade_after; /* VIADUCT_UPGRADE_AFTER: operations; 0 at the first */
	uint32_t spin_ns;    /* VIADUCT_SPIN: longest spin in nanoseconds (set in us) */
	bool spin_fixed;     /* VIADUCT_SPIN was given: do not adapt */
	uint32_t area_limit; /* VIADUCT_RING_MAX: highest ring area in use, 0 to 2 */
	const char *report;  /* VIADUCT_REPORT: file, or NULL */
};

/* Reads the environment at the first call; never fails: bad values are logged and
 * skipped. */
const struct config *config_get(void);
/* First matching rule of VIADUCT_RULES for this process; true when none matches. */
bool config_allows(enum config_role role, const struct sockaddr *local,
		   const struct sockaddr *peer);

#endif
