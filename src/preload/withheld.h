/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers that are kept from a child, by FD_CLOEXEC, which all threads share. */
#ifndef PRELOAD_WITHHELD_H
#define PRELOAD_WITHHELD_H

#include "preload/hook.h"

/*
 * A note says: the program has this number go along with an exec, whatever its FD_CLOEXEC. It is
 * made before we set that, and stays when we have cleared it, since a child that was made between
 * has both in a table of its own. Only the program's own FD_CLOEXEC ends it.
 */

/* Whether there is a note of it. */
bool withheld_is(struct sock *s, int fd);
/* From here to withheld_end the number is closed by an exec. False: there is no room to note it. */
bool withheld_begin(struct spawning *w, struct sock *s, int fd, uint32_t generation);
void withheld_end(const struct spawning *w);
/* It goes along after all. */
void withheld_pass(struct sock *s, int fd, uint32_t generation);
/* All do, with this image. */
void withheld_pass_all(void);
/* The program sets FD_CLOEXEC. */
void withheld_forget(struct sock *s, int fd);

#endif
