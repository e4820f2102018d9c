/* SPDX-License-Identifier: Apache-2.0 */
/* How much of a table one user may fill, and those together of whom one person has many. */
#ifndef VD_DAEMON_SHARE_H
#define VD_DAEMON_SHARE_H

#include <stdbool.h>
#include <stdint.h>

/*
 * From here on user ids may be subordinate ones, of which one user has 65,536 to give to
 * containers (newuidmap(1)). All of these together get three quarters of each table, so the
 * users of the host itself always find a place.
 */
#define SHARE_SUB_UID 100000u

struct share {
	uint32_t uid; /* who asks */
	unsigned same, subordinate;
};

static inline void share_count(struct share *s, uint32_t uid)
{
	s->same += uid == s->uid;
	s->subordinate += uid >= SHARE_SUB_UID;
}

/* After all of the table's entries have been counted. */
static inline bool share_is_left(const struct share *s, unsigned most, unsigned places)
{
	return s->same < most &&
	       (s->uid < SHARE_SUB_UID || s->subordinate < places / 4 * 3);
}

#endif
