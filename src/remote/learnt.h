/* SPDX-License-Identifier: Apache-2.0 */
/* What connections have found out by themselves of other hosts, for which nobody has run `viaduct doctor`: from
 * which size on receives are better redirected. Files with a line for each host and device. */
#ifndef VD_REMOTE_LEARNT_H
#define VD_REMOTE_LEARNT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Root's, for all users; a user's own line comes before it. */
extern const char learnt_system[];
/* The user's; false, and "", when neither XDG_STATE_HOME nor HOME leads to one. */
bool learnt_user(char *path, size_t size);

/* ADDRESS SIZE DATE FAILS DEVICE, where SIZE is bytes or `off`. */
enum { LEARNT_DEVICE = 64, LEARNT_TEXT = 160, LEARNT_DAYS = 30, LEARNT_MAX = 256 };
struct learnt {
	uint8_t addr[16]; /* IPv4 as ::ffff:a.b.c.d */
	uint32_t pays;	  /* from so many bytes on; 0: not as far as is known */
	uint32_t fails;	  /* of so many it does not, less than `pays`; 0: not known */
	char date[11];	  /* YYYY-MM-DD */
	char device[LEARNT_DEVICE]; /* of this host: the name of an RDMA device */
};

/* A line as conffile_next gives it. 0, or -EINVAL. */
int learnt_parse(const char *line, struct learnt *out);
/* Without the end of line. Returns text. */
char *learnt_text(const struct learnt *l, char text[LEARNT_TEXT]);
/* That day is more than LEARNT_DAYS before today (days since 1970), or after it. */
bool learnt_is_old(const char date[11], int64_t today);
int64_t learnt_today(void);
void learnt_date(int64_t day, char date[11]);

/* The files, at the first call. */
void learnt_read(void);
/* What they held of that host with that device (NULL: any), unless it is old. After learnt_read. */
bool learnt_find(const uint8_t addr[16], const char *device, struct learnt *out);
/*
 * Puts the line in the place of that host's with that device, in root's file or the user's own. Waits for the disk
 * alone: -EAGAIN, where another process writes at this moment. One thread at a time. 0 or -errno, and then the
 * file is as it was.
 */
int learnt_save(const struct learnt *l);

#endif
