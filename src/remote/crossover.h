/* SPDX-License-Identifier: Apache-2.0 */
/* What `viaduct doctor` has measured of other hosts: whether RDMA is slower than TCP, and from which
 * size on bytes are better redirected. Files with a line for each host. */
#ifndef VD_REMOTE_CROSSOVER_H
#define VD_REMOTE_CROSSOVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Root's, for all users; a user's own line comes before it. */
extern const char crossover_system[];
/* The user's; false, and "", when neither XDG_STATE_HOME nor HOME leads to one. */
bool crossover_user(char *path, size_t size);

/* ADDRESS SIZE DATE, where SIZE is bytes or `off`; and `slower`, if it is. */
struct crossover {
	uint8_t addr[16]; /* IPv4 as ::ffff:a.b.c.d */
	uint32_t least;	  /* bytes; 0: off */
	char date[11];	  /* YYYY-MM-DD */
	bool is_slower;	  /* than TCP */
};
/* No transfer is larger than the ring that its bytes come from; sizes beyond it mean never. */
enum { CROSSOVER_TEXT = 80, CROSSOVER_LEAST_MAX = 1 << 30 };

/* A line as conffile_next gives it. 0, or -EINVAL. */
int crossover_parse(const char *line, struct crossover *out);
/* Without the end of line. Returns text. */
char *crossover_text(const struct crossover *c, char text[CROSSOVER_TEXT]);
/*
 * Reads both files at the first call, and says what they hold for that host; false: nothing. What
 * cannot be understood is logged, and passed over. At most CROSSOVERS_MAX hosts of each.
 */
enum { CROSSOVERS_MAX = 256 };
bool crossover_find(const uint8_t addr[16], struct crossover *out);
/* What the settings say for that host, or else the files: bytes, or 0 for never. */
uint32_t crossover_least(const uint8_t addr[16]);
/* Neither the settings nor the files say anything of that host: learn.c may. */
bool crossover_is_open(const uint8_t addr[16]);
/* Connections with that host stay on TCP: the settings leave it to the files, and these say so. */
bool crossover_keeps_tcp(const uint8_t addr[16]);
/* The same of any host. */
bool crossover_keeps_any(void);

#endif
