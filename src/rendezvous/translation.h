/* SPDX-License-Identifier: Apache-2.0 */
/* What the other end takes for the addresses of our connection, where the kernel rewrites them. */
#ifndef VD_RENDEZVOUS_TRANSLATION_H
#define VD_RENDEZVOUS_TRANSLATION_H

#include <stdbool.h>

#include "rendezvous/endpoint_pair.h"
#include "rendezvous/rendezvous.h"

/* Fills dialled, accepted and view of a party that party_init has made. */
void translation_find(struct party *p);
/*
 * Where that was in vain for lack of a right: what viaductd tells, which is filled in. `ask`: it is asked where it was
 * not; else only what it has said counts.
 */
enum meet_word translation_ask(struct party *p, bool ask);
/* Some connection of this process has been asked about, and this one may have been. */
bool translation_is_asked(void);
/* The two ends take different addresses for theirs. */
bool translation_is_there(const struct party *p);

#endif
