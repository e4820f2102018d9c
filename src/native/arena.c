/* SPDX-License-Identifier: Apache-2.0 */
/* Where messages lie: arenas, mirrors, and how an arena gets mapped at the peer. */
/*
 * On one host, between processes of one user, each end maps the other's arena. As soon as an end that
 * sends, or notifies of what it has put into memory that is mapped, sees such a path, it takes an arena of memory that can be lent, and says OFFER; the other end does
 * the same in its turn. The descriptor is brought as that of an export (map.c), for reading only: MAP,
 * MAPPED. The receiver has it mapped, and says so in RELEASED. Both arenas being mapped, messages up to
 * BESIDE_MOST bytes are told on the board behind the arena (board.h); with one alone they are frames without
 * a payload. If a step fails the mirror is used on. The receiver unmaps in vd_close, whatever has become of
 * the peer.
 */
#include <stdlib.h>
#include <sys/mman.h>

#include "base/reason.h"
#include "native/message.h"
#include "native/native.h"

uint8_t *arena_create(void)
{
	void *at = mmap(NULL, FRAME_ARENA, PROT_READ | PROT_WRITE,
			MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	return at == MAP_FAILED ? NULL : at;
}

static void arena_destroy(uint8_t *arena)
{
	if (arena)
		munmap(arena, FRAME_ARENA);
}

void message_init(vd_conn *c)
{
	c->inbox.listener = -1;
}

void message_finish(vd_conn *c)
{
	memory_unuse(c->outbox.memory);
	if (c->outbox.memory)
		vd_free(c->outbox.arena);
	else
		arena_destroy(c->outbox.arena);
	arena_destroy(c->inbox.mirror);
	if (c->inbox.map)
		munmap(c->inbox.map, BOARD_ALL);
	if (c->inbox.listener >= 0)
		door->close(c->inbox.listener);
	free(c->inbox.queue);
}

static bool can_share(vd_conn *c)
{
	uint32_t reason;

	return door->path(c->fd, &reason) == DOOR_SHM && door->is_own(c->fd);
}

/* Under mu, which it gives up meanwhile: an arena that can be lent, in the place of the one that there
 * is. The peer has what was sent before in its mirror. False: there is none, or the program writes to
 * the other one just now. */
static bool prepare(vd_conn *c, bool is_reserving)
{
	struct outbox *o = &c->outbox;
	uint8_t *spare;
	void *at;
	bool may;

	o->is_offered = true;
	pthread_mutex_unlock(&c->mu);
	if (vd_alloc(BOARD_ALL, &at) < 0)
		at = NULL;
	pthread_mutex_lock(&c->mu);
	may = at && (is_reserving || !o->is_busy);
	spare = may ? o->arena : at;
	if (may) {
		o->arena = at;
		o->memory = memory_use(at, BOARD_ALL);
		o->board = board_of(at);
		board_begin(o->board);
	} else {
		o->is_offered = !at;
	}
	pthread_mutex_unlock(&c->mu);
	if (may)
		arena_destroy(spare);
	else
		vd_free(spare);
	pthread_mutex_lock(&c->mu);
	return may;
}

int arena_offer(vd_conn *c)
{
	struct outbox *o = &c->outbox;
	struct frame f = {.type = FRAME_OFFER};
	int r = 0;

	if (o->is_offered || !can_share(c))
		return 0;
	if (prepare(c, true)) {
		pthread_mutex_unlock(&c->mu);
		r = send_frame(c, &f, NULL);
		pthread_mutex_lock(&c->mu);
	}
	return r;
}

void arena_want(vd_conn *c)
{
	struct outbox *o = &c->outbox;

	if (!o->is_offered && !o->is_busy && !c->error && can_share(c))
		c->owed.offer = prepare(c, false);
}

int arena_offered(vd_conn *c)
{
	struct inbox *i = &c->inbox;

	if (i->is_offered)
		return -EPROTO;
	i->is_offered = true;
	if (!can_share(c))
		return 0;
	i->listener = map_listen(i->name);
	c->owed.map = i->listener >= 0;
	/* The peer needs our board to tell messages on its own. */
	if (c->owed.map && !c->outbox.is_offered)
		c->owed.offer = prepare(c, false);
	return 0;
}

int arena_mapped(vd_conn *c, const struct frame *f)
{
	struct inbox *i = &c->inbox;

	if (i->listener < 0 || c->owed.map)
		return -EPROTO;
	if (f->tag == VD_REASON_NONE)
		i->map = map_take(i->listener, BOARD_ALL, VD_READ);
	if (i->map)
		i->board = board_of(i->map);
	door->unlisten(i->listener);
	i->listener = -1;
	c->owed.released |= i->map != NULL;
	return 0;
}

int arena_map(vd_conn *c, const uint8_t *random)
{
	struct outbox *o = &c->outbox;

	if (!o->memory || o->is_brought)
		return -EPROTO;
	o->is_brought = true;
	o->reason = map_bring(c, o->memory, false, random);
	c->owed.mapped = true;
	return 0;
}
