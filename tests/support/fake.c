/* SPDX-License-Identifier: Apache-2.0 */
/* The fake interconnect: queues of writes and completions, and what may happen to them. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

#include "base/kernel.h"
#include "support/fake_parts.h"

/* ---- what happens ---- */

static void complete(struct fake_link *l, struct fabric_done done)
{
	struct fake_context *c = context_of(l);

	if (c->is_dead)
		return;
	if (c->count == c->size) {
		c->world->counts.overrun++;
		return;
	}
	c->queue[(c->first + c->count++) % c->size] = done;
	if (c->is_armed) {
		uint64_t one = 1;

		c->is_armed = false;
		kernel_write(c->bell, &one, sizeof(one));
	}
}

static struct fake_link *peer_of(struct fake_link *l)
{
	struct fake_link *peer = context_of(l)->world->links;

	while (peer && peer->link.own.qpn != l->peer_qpn)
		peer = peer->next;
	if (!peer || peer->is_halted || peer->is_deaf ||
	    peer->peer_qpn != l->link.own.qpn || context_of(peer)->is_dead)
		return NULL;
	return peer;
}

static bool is_within(const struct fabric_work *w, uint64_t start, uint64_t bytes)
{
	uint64_t at = w->to - start;

	return w->bytes == 0 || (at <= bytes && w->bytes <= bytes - at);
}

static struct link *domain_of(struct link *l)
{
	return l->beside ? l->beside : l;
}

bool fake_allows(struct fake_link *peer, const struct fabric_work *w)
{
	const struct offer *o = context_of(peer)->world->offers;

	if (w->to_key == peer->link.own.key)
		return is_within(w, peer->link.own.window, peer->link.window_bytes);
	while (o && (o->key != w->to_key || o->domain != domain_of(&peer->link)))
		o = o->next;
	return o && (o->may & (w->is_read ? LINK_MAY_READ : LINK_MAY_WRITE)) &&
	       is_within(w, o->start, o->bytes);
}

/* Its own device can get at what is to be sent, or at where it is to be read to. */
static bool has_own(struct fake_link *l, const struct fabric_work *w)
{
	const struct offer *o = context_of(l)->world->offers;
	uint64_t at = (uintptr_t)w->from;

	if (w->is_inline || w->in_window || w->bytes == 0)
		return true;
	while (o && (o->own_key != w->key || o->domain != domain_of(&l->link)))
		o = o->next;
	return o && (!w->is_read || (o->may & LINK_MAY_SINK)) && at >= o->start &&
	       w->bytes <= o->bytes && at - o->start <= o->bytes - w->bytes;
}

/* As a device, which moves bytes when it likes: not a thread's doing for ThreadSanitizer. */
static void move(void *to, const void *from, size_t bytes)
{
#ifdef __SANITIZE_THREAD__
	asm volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(bytes) : : "memory");
#else
	memcpy(to, from, bytes);
#endif
}

/* A read is done at its turn alone. */
static void place(struct work *work)
{
	if (work->w.is_read)
		move((void *)(uintptr_t)work->w.from, (const void *)(uintptr_t)work->w.to,
		     work->w.bytes);
	else if (!work->is_placed && work->w.bytes)
		move((void *)(uintptr_t)work->w.to,
		     work->w.is_inline ? work->inline_bytes : work->w.from,
		     work->w.bytes);
	work->is_placed = true;
}

/* Some bytes arrive; perhaps before their turn. */
static void place_some(struct fake_link *l, struct fake_link *peer)
{
	struct fake_world *w = context_of(l)->world;
	uint32_t ahead = draw(w, LOOK_AHEAD), n = l->delivered + ahead;

	if (!peer || n >= l->count || work_at(l, n)->w.is_read ||
	    !fake_allows(peer, &work_at(l, n)->w) || !has_own(l, &work_at(l, n)->w))
		return;
	if (ahead && !work_at(l, n)->is_placed && !work_at(l, n - 1)->is_placed)
		w->counts.too_early++;
	place(work_at(l, n));
}

/* The oldest work is through. */
static void complete_first(struct fake_link *l, bool flushed, uint8_t error)
{
	struct work *work = work_at(l, 0);

	l->first = (l->first + 1) % l->size;
	l->count--;
	if (l->delivered)
		l->delivered--;
	if (work->w.is_signalled || flushed || error)
		complete(l, (struct fabric_done){.tag = work->w.tag,
						 .error = error,
						 .flushed = flushed});
}

static void flush_receive(struct fake_link *l)
{
	if (!l->receives)
		return;
	l->receives--;
	complete(l, (struct fabric_done){.tag = l->receive_tag, .flushed = true});
}

static void break_link(struct fake_link *l, uint8_t error)
{
	while (l->delivered)
		complete_first(l, false, 0);
	/* Both queues fail, and the cause need not be heard of first. */
	if (draw(context_of(l)->world, 2))
		flush_receive(l);
	complete_first(l, false, error);
	l->is_halted = true;
}

/* The bytes are there: an immediate is told. */
void fake_receive(struct fake_link *l, const struct fabric_work *w)
{
	if (!w->with_immediate)
		return;
	l->receives--;
	complete(l, (struct fabric_done){.tag = l->receive_tag,
					 .with_immediate = true,
					 .immediate = w->immediate,
					 .bytes = w->bytes});
}

/* The next in order is executed at the other end. */
static void deliver(struct fake_link *l, struct fake_link *peer)
{
	struct fake_context *c = context_of(l);
	struct work *work = work_at(l, l->delivered);

	if (l->delivered == l->count)
		return;
	if (l->break_in && --l->break_in == 0) {
		break_link(l, l->break_error);
		return;
	}
	if (!peer) {
		if (++l->tries >= TRIES && !c->world->is_mute)
			break_link(l, LINK_PEER_DEAD);
		return;
	}
	if (!fake_allows(peer, &work->w)) {
		/* Both ends fail, and only one is told why. */
		peer->is_halted = true;
		break_link(l, LINK_PEER_REFUSED);
		return;
	}
	if (!has_own(l, &work->w)) {
		c->world->counts.unregistered++;
		break_link(l, LINK_LOCAL_FAULT);
		return;
	}
	if (work->w.with_immediate && !peer->receives) {
		c->world->counts.dry++;
		break_link(l, LINK_PEER_WRONG);
		return;
	}
	place(work);
	l->delivered++;
	l->tries = 0;
	fake_receive(peer, &work->w);
}

static void step_halted(struct fake_link *l)
{
	if (l->count && draw(context_of(l)->world, 2))
		complete_first(l, true, 0);
	else
		flush_receive(l);
}

/* The peer's device says that the oldest work has arrived. */
static void answer_first(struct fake_link *l)
{
	if (!l->delivered)
		return;
	if (!l->is_deaf) {
		complete_first(l, false, 0);
	} else if (++l->tries >= TRIES && !context_of(l)->world->is_mute) {
		l->delivered = 0;
		break_link(l, LINK_PEER_DEAD);
	}
}

void fake_step(struct fake_world *w)
{
	struct fake_link *l = w->links, *peer;
	uint32_t n;

	if (w->strays && draw(w, 4) == 0)
		fake_step_stray(w);
	if (!l)
		return;
	for (n = draw(w, w->links_count); n; n--)
		l = l->next;
	if (l->is_halted) {
		step_halted(l);
		return;
	}
	if (!l->peer_qpn || !l->count)
		return;
	if (context_of(l)->is_dead) {
		if (!context_of(l)->still)
			return;
		context_of(l)->still--;
	}
	peer = peer_of(l);
	switch (draw(w, 4)) {
	case 0:
		place_some(l, peer);
		break;
	case 1:
	case 2:
		deliver(l, peer);
		break;
	default:
		answer_first(l);
	}
}

/* ---- the operations ---- */

static int injected(struct fake_context *c)
{
	if (!c->inject_in || --c->inject_in)
		return 0;
	c->injected = true;
	return -ENOMEM;
}

static int op_open(struct link *link)
{
	struct fake_link *l = (struct fake_link *)link;
	struct fake_context *c = context_of(l);
	struct fake_world *w = c->world;
	int r = injected(c);

	if (r < 0)
		return r;
	l->size = c->context.limits.sends + LINK_SEND_RESERVE;
	l->works = calloc(l->size, sizeof(struct work));
	if (!l->works)
		return -ENOMEM;
	link->own = (struct link_address){
		.fabric = FABRIC_FAKE,
		.mtu = 1,
		.qpn = 2 + w->last_qpn++,
		.psn = draw(w, 1 << 24),
		.window = (uintptr_t)link->window,
		.window_bytes = link->window_bytes,
		.key = 1 + draw(w, 1 << 30),
		.nonce = 1 + ((uint64_t)draw(w, 1 << 30) << 32 | w->last_qpn),
	};
	link->inline_max = INLINE_MAX;
	link->write_max = WRITE_MAX;
	l->next = w->links;
	w->links = l;
	w->links_count++;
	return 0;
}

static int op_connect(struct link *link, const struct link_address *peer)
{
	struct fake_link *l = (struct fake_link *)link;
	int r = injected(context_of(l));

	if (r == 0)
		l->peer_qpn = peer->qpn;
	return r;
}

static void op_halt(struct link *link)
{
	((struct fake_link *)link)->is_halted = true;
}

static void op_close(struct link *link)
{
	struct fake_link *l = (struct fake_link *)link;
	struct fake_link **at = &context_of(l)->world->links;

	if (context_of(l)->world->lingers && !context_of(l)->is_dead)
		fake_leave_strays(l);
	while (*at != l)
		at = &(*at)->next;
	*at = l->next;
	context_of(l)->world->links_count--;
	free(l->works);
}

static int op_post(struct link *link, const struct fabric_work *w)
{
	struct fake_link *l = (struct fake_link *)link;
	int r = injected(context_of(l));
	struct work *work;

	if (r < 0)
		return r;
	if (l->count == l->size)
		return -ENOMEM;
	work = work_at(l, l->count++);
	work->w = *w;
	work->is_placed = false;
	if (w->is_inline && w->bytes)
		memcpy(work->inline_bytes, w->from, w->bytes);
	return 0;
}

static int op_receive(struct link *link, uint32_t count, uint64_t tag)
{
	struct fake_link *l = (struct fake_link *)link;
	int r = injected(context_of(l));

	if (r < 0)
		return r;
	if (l->receives + count > link->context->limits.credits + LINK_RESERVE)
		return -ENOMEM;
	l->receives += count;
	l->receive_tag = tag;
	return 0;
}

static int op_add(struct link *link, void *start, size_t bytes, uint32_t access,
		  struct link_memory *out)
{
	struct fake_context *c = context_of((struct fake_link *)link);
	int r = injected(c);
	struct offer *o;

	out->handle = NULL;
	if (r == 0 && c->limit && c->registered + bytes > c->limit)
		r = -ENOMEM;
	if (r < 0)
		return r;
	o = malloc(sizeof(*o));
	if (!o)
		return -ENOMEM;
	out->handle = o;
	out->peer_key = 1 + draw(c->world, 1 << 30);
	out->key = ++c->world->last_key;
	c->registered += bytes;
	*o = (struct offer){.next = c->world->offers,
			    .domain = domain_of(link),
			    .start = (uintptr_t)start,
			    .bytes = bytes,
			    .context = c,
			    .key = out->peer_key,
			    .own_key = out->key,
			    .may = access};
	c->world->offers = o;
	return 0;
}

static void op_drop(struct link *link, struct link_memory *m)
{
	struct offer **at = &context_of((struct fake_link *)link)->world->offers;

	if (!m->handle)
		return;
	while (*at != m->handle)
		at = &(*at)->next;
	*at = (*at)->next;
	((struct offer *)m->handle)->context->registered -= m->bytes;
	free(m->handle);
}

static int op_poll(struct link_context *context, struct fabric_done *out, int max)
{
	struct fake_context *c = (struct fake_context *)context;
	int n = injected(c);

	if (n < 0)
		return n;
	for (uint32_t steps = draw(c->world, STEPS_MAX); steps; steps--)
		fake_step(c->world);
	for (; n < max && c->count && !c->is_absent; n++) {
		out[n] = c->queue[c->first];
		c->first = (c->first + 1) % c->size;
		c->count--;
	}
	return n;
}

static int op_arm(struct link_context *context)
{
	struct fake_context *c = (struct fake_context *)context;
	int r = injected(c);

	if (r == 0)
		c->is_armed = true;
	return r;
}

static int op_answer(struct link_context *context, bool brief)
{
	uint64_t count;

	return kernel_read(((struct fake_context *)context)->bell, &count,
			   sizeof(count)) > 0 &&
	       brief;
}

static void op_abandon(struct link_context *context)
{
	struct fake_context *c = (struct fake_context *)context;

	kernel_close(c->bell);
	kernel_close(context->fd);
}

static void op_finish(struct link_context *context)
{
	op_abandon(context);
	free(((struct fake_context *)context)->queue);
}

static const struct fabric_ops fake_ops = {
	.name = "fake",
	.link_bytes = sizeof(struct fake_link),
	.open = op_open,
	.connect = op_connect,
	.halt = op_halt,
	.close = op_close,
	.post = op_post,
	.receive = op_receive,
	.add = op_add,
	.drop = op_drop,
	.poll = op_poll,
	.arm = op_arm,
	.answer = op_answer,
	.finish = op_finish,
	.abandon = op_abandon,
};

/* ---- for tests ---- */

struct fake_world *fake_world_create(uint64_t seed)
{
	struct fake_world *w = calloc(1, sizeof(*w));

	if (w)
		w->random = seed * 2 + 1;
	return w;
}

void fake_world_destroy(struct fake_world *w)
{
	while (w->strays)
		fake_step_stray(w);
	free(w);
}

int fake_open(struct fake_world *w, const struct link_limits *limits,
	      struct link_context **out)
{
	struct fake_context *c = calloc(1, sizeof(*c));
	struct epoll_event e = {.events = EPOLLIN};
	struct link_limits *own;

	if (!c)
		return -ENOMEM;
	own = &c->context.limits;
	*own = *limits;
	c->world = w;
	c->context.ops = &fake_ops;
	if (link_limits_check(own) < 0) {
		free(c);
		return -EINVAL;
	}
	c->size = own->links *
		  (own->sends + LINK_SEND_RESERVE + own->credits + LINK_RESERVE);
	c->queue = calloc(c->size, sizeof(c->queue[0]));
	c->context.fd = (int)kernel_call4(SYS_epoll_create1, EPOLL_CLOEXEC, 0, 0, 0);
	c->bell = (int)kernel_call4(SYS_eventfd2, 0, EFD_CLOEXEC | EFD_NONBLOCK, 0, 0);
	if (!c->queue || c->context.fd < 0 || c->bell < 0 ||
	    kernel_call4(SYS_epoll_ctl, c->context.fd, EPOLL_CTL_ADD, c->bell, (long)&e) <
		    0 ||
	    link_context_init(&c->context) < 0) {
		op_finish(&c->context);
		free(c);
		return -ENOMEM;
	}
	*out = &c->context;
	return 0;
}

bool fake_is_still(const struct fake_world *w)
{
	for (const struct fake_link *l = w->links; l; l = l->next)
		if (l->count || (l->is_halted && l->receives) || context_of(l)->count)
			return false;
	return !w->strays;
}

const struct fake_counts *fake_counts(const struct fake_world *w)
{
	return &w->counts;
}

void fake_mute(struct fake_world *w)
{
	w->is_mute = true;
}

void fake_linger(struct fake_world *w, bool lingers)
{
	w->lingers = lingers;
}

void fake_die(struct link_context *c)
{
	struct fake_context *context = (struct fake_context *)c;

	context->is_dead = true;
	context->still = draw(context->world, 16);
}

void fake_leave(struct link_context *c, bool absent)
{
	((struct fake_context *)c)->is_absent = absent;
}

void fake_inject(struct link_context *c, uint32_t nth)
{
	((struct fake_context *)c)->inject_in = nth;
}

void fake_limit(struct link_context *c, uint64_t bytes)
{
	((struct fake_context *)c)->limit = bytes;
}

uint64_t fake_registered(const struct link_context *c)
{
	return ((const struct fake_context *)c)->registered;
}

bool fake_injected(const struct link_context *c)
{
	return ((const struct fake_context *)c)->injected;
}

void fake_break(struct link *l, uint32_t nth, enum link_error error)
{
	((struct fake_link *)l)->break_in = nth;
	((struct fake_link *)l)->break_error = (uint8_t)error;
}

void fake_deafen(struct link *l)
{
	((struct fake_link *)l)->is_deaf = true;
}
