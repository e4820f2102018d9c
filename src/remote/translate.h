/* SPDX-License-Identifier: Apache-2.0 */
/* Asks viaductd how the kernel rewrites the addresses of a connection, where it does not tell us. */
#ifndef VD_REMOTE_TRANSLATE_H
#define VD_REMOTE_TRANSLATE_H

#include "rendezvous/rendezvous.h"

/* As meet_tell. Does not wait, sets no errno, and is no point of cancellation. */
enum meet_word translate_tell(int fd, const struct name_tuple *own, enum tcp_role role,
			      uint64_t netns, bool ask, struct meet_told *out);
/* In a forked child, which has no line: under the lock, or before there are threads. */
void translate_forked(void);

#endif
