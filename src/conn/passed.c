/* SPDX-License-Identifier: Apache-2.0 */
/* The sender's side of connections that are passed on: see passed.h. */
#include <sys/stat.h>

#include "base/kernel.h"
#include "base/tcp.h"
#include "conn/conn.h"
#include "conn/passed.h"
#include "conn/table.h"

_Atomic bool passed_some NEAR_DATA;

/* Whoever has taken it back meanwhile is right. */
static void change(struct passed_entry *e, uint64_t from, uint64_t to)
{
	atomic_compare_exchange_strong(&e->word, &from, to);
}

static struct passed_entry *entry_of(uint64_t word)
{
	struct passed_entry *entries = slot_passed();

	for (uint32_t i = 0; i < PASSED_ENTRIES; i++)
		if (load_relaxed(&entries[i].word) == word)
			return &entries[i];
	return NULL;
}

/* This process has accepted it, has told nobody of it, and nobody else has it. */
static bool is_ours_alone(struct sock *s)
{
	struct slot *sl = s->slot;

	return load_relaxed(&sl->role) == TCP_ROLE_ACCEPTED &&
	       !load_relaxed(&s->is_copied) && phase_of(sl) == SLOT_EARNING &&
	       slot_is_alone(sl) && !table_is_private() &&
	       !(load_relaxed(&sl->ever) & EVER_RECEIVED);
}

void passed_begin(struct sock *s, int fd, int channel)
{
	struct passed_entry *e;
	uint64_t cookie;
	struct stat st;

	if (!is_ours_alone(s)) {
		if (passed_any() && tcp_cookie(fd, &cookie) == 0 &&
		    (e = entry_of(passed_word(cookie, PASSED_AWAY))))
			change(e, passed_word(cookie, PASSED_AWAY), 0);
		return;
	}
	if (kernel_fstat(channel, &st) != 0 || !S_ISSOCK(st.st_mode) ||
	    tcp_cookie(fd, &cookie) < 0)
		return;
	store_relaxed(&passed_some, true);
	e = slot_passed_next(); /* the oldest one is forgotten */
	atomic_store(&e->word, 0);
	atomic_store(&e->channel, st.st_ino);
	atomic_store(&e->word, passed_word(cookie, PASSED_AWAY));
}

void passed_copied(void)
{
	struct passed_entry *entries;

	if (!passed_any())
		return;
	/* Of all processes of the family: so one that is not this one's may be lost, which stays on TCP. */
	entries = slot_passed();
	store_relaxed(&passed_some, false);
	for (uint32_t i = 0; i < PASSED_ENTRIES; i++) {
		uint64_t word = atomic_load(&entries[i].word);

		if (word & PASSED_AWAY)
			change(&entries[i], word, 0);
	}
}

uint64_t passed_closing(struct sock *s, int fd, uint32_t *generation)
{
	uint64_t cookie;

	if (!s || load_relaxed(&s->slot->reason) != VD_REASON_PASSED)
		return 0;
	*generation = sock_generation(s);
	return tcp_cookie(fd, &cookie) == 0 && fd_sock(fd) == s ? cookie : 0;
}

void passed_closed(struct sock *s, uint64_t cookie, uint32_t generation)
{
	uint64_t away = passed_word(cookie, PASSED_AWAY);
	struct passed_entry *e;

	/* It has another number. */
	if (sock_generation(s) == generation &&
	    load_relaxed(&s->slot->used) == generation)
		return;
	e = entry_of(away);
	if (e)
		change(e, away, passed_word(cookie, PASSED_RELEASED));
}
