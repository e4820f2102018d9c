/* SPDX-License-Identifier: Apache-2.0 */
/* Tables of epoll instances and of the sockets registered in them. */
#include "base/kernel.h"
#include "base/atomic.h"
#include "readiness/epoll.h"

#include <fcntl.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>
#include <x86intrin.h>

#include "base/fds.h"
#include "base/pages.h"
#include "base/real.h"
#include "base/sections.h"
#include "readiness/chunk.h"
#include "readiness/ready.h"

/* Few pointers to chunks lie where a child writes anyway; most need but the first, which is small. */
#define CHUNK_FDS 64
#define FD_CHUNKS 15
#define FDS_MOST  (CHUNK_FDS << (FD_CHUNKS - 1))

/* Tag: 28 random bits of this process, 12 that say how often the record was used before, 1 bit for the
 * doorbell, 23 bits of index. The last two are no record's. */
#define TAG_SHIFT  36
#define TURN_SHIFT 24
#define TURN_MASK  ((1u << (TAG_SHIFT - TURN_SHIFT)) - 1)
#define TAG_BELL   (1u << 23)
#define REG_CHUNK  16u
#define REG_CHUNKS 20
#define REG_LIMIT  (TAG_BELL - 2)
static_assert(REG_CHUNK << (REG_CHUNKS - 1) == TAG_BELL, "each record has a chunk");

typedef struct instance *_Atomic table_entry; /* of a descriptor */
static table_entry *_Atomic table[FD_CHUNKS] FORK_DATA;
static struct lock list_lock FORK_DATA;
static struct instance *all_instances FORK_DATA, *free_instances FORK_DATA;

static struct epoll_reg *_Atomic reg_chunks[REG_CHUNKS] FORK_DATA;
static struct epoll_reg *free_regs FORK_DATA;
static _Atomic uint32_t reg_count FORK_DATA;
static uint64_t tag_prefix;
static pid_t self FORK_DATA;

/* Depth of our own locks in this thread: sock_on_final may be called under one. */
static _Thread_local int held __attribute__((tls_model("initial-exec")));

void epoll_list_lock(void)
{
	held++;
	lock_take(&list_lock);
}

void epoll_list_unlock(void)
{
	lock_drop(&list_lock);
	held--;
}

void instance_lock(struct instance *in)
{
	held++;
	lock_take(&in->lock);
}

void instance_unlock(struct instance *in)
{
	lock_drop(&in->lock);
	held--;
}

uint32_t instance_sleep(struct instance *in)
{
	/* Sequentially consistent: either this thread then sees what another did to the
	 * instance, or the other sees a sleeper and wakes it. */
	return atomic_fetch_add(&in->sleepers, 1) >> 32;
}

bool instance_woke(struct instance *in, uint32_t generation)
{
	uint64_t word = atomic_load(&in->sleepers);

	while (word >> 32 == generation)
		if (atomic_compare_exchange_weak(&in->sleepers, &word, word - 1))
			return true;
	return false;
}

bool epoll_locked(void)
{
	return held != 0;
}

FORK_CODE void epoll_list_forked(void)
{
	self = kernel_getpid();
	held = 0;
	lock_drop_forked(&list_lock);
}

pid_t epoll_self(void)
{
	return self;
}

static __attribute__((noinline)) table_entry *entry_made(int fd, bool make)
{
	uint32_t at = (uint32_t)fd, n;
	table_entry *chunk;

	if (at >= FDS_MOST)
		return NULL;
	n = chunk_of(&at, CHUNK_FDS);
	/* Acquire: the chunk was zeroed before it was put here. */
	chunk = load_acquire(&table[n]);
	if (!chunk && make) {
		chunk = pages_for_good(chunk_size(n, CHUNK_FDS) * sizeof(*chunk));
		store_release(&table[n], chunk);
	}
	return chunk ? &chunk[at] : NULL;
}

static inline table_entry *entry_of(int fd, bool make)
{
	table_entry *first = load_acquire(&table[0]);

	if ((unsigned)fd >= CHUNK_FDS || (!first && make))
		return entry_made(fd, make);
	return first ? &first[fd] : NULL;
}

static inline struct instance *recorded_at(int fd)
{
	table_entry *e = entry_of(fd, false);

	return e ? load_acquire(e) : NULL;
}

/* Calls under way go on with what they have. */
static bool stood_down NEAR_DATA;

NEAR_CODE struct instance *instance_at(int fd)
{
	return __builtin_expect(stood_down, 0) ? NULL : recorded_at(fd);
}

bool ready_stand_down(void)
{
	bool own = true;

	epoll_list_lock();
	for (struct instance *in = all_instances; in; in = in->next_all)
		own &= in->hidden || atomic_load(&in->converted) == 0;
	epoll_list_unlock();
	stood_down |= own;
	return own;
}

bool ready_left(int epfd, struct sock *s, struct epoll_event *ev, bool take)
{
	struct instance *in = recorded_at(epfd);

	for (struct epoll_reg *r = s->regs; in && r; r = r->next_of_sock) {
		if (r->in != in || r->parked || r->spent || !(r->events & LOOK_IN))
			continue;
		*ev = (struct epoll_event){r->events & LOOK_IN, r->data};
		r->spent |= take && (r->events & (EPOLLET | EPOLLONESHOT));
		return true;
	}
	return false;
}

int instance_fd(struct instance *in)
{
	if (in->epfd < 0 || recorded_at(in->epfd) == in)
		return in->epfd;
	/* That one was closed, and duplicates live: rare. */
	for (int fd = 0; fd < FDS_MOST; fd++) {
		if (!entry_of(fd, false))
			fd |= CHUNK_FDS - 1;
		else if (recorded_at(fd) == in)
			return in->epfd = fd;
	}
	return -1;
}

int instance_fd_now(struct instance *in, int fd)
{
	if (__builtin_expect(recorded_at(fd) == in, 1))
		return fd;
	epoll_list_lock();
	fd = instance_fd(in);
	epoll_list_unlock();
	return fd;
}

struct instance *instance_next(struct instance *in)
{
	return in ? in->next_all : all_instances;
}

static struct instance *instance_create(int fd)
{
	struct instance *in = free_instances;

	if (in) {
		free_instances = in->next_free;
	} else {
		in = pages_for_good(sizeof(*in));
		if (!in)
			return NULL;
		in->next_all = all_instances;
		all_instances = in;
	}
	store_relaxed(&in->owner, self);
	in->fds = 1;
	in->epfd = fd;
	in->side = -1;
	return in;
}

/* The last descriptor is closed. Threads that still sleep on it find the generation
 * changed and leave everything alone. */
static void instance_destroy(struct instance *in)
{
	instance_lock(in);
	in->epfd = -1; /* nobody looks for another number */
	while (in->regs) {
		struct epoll_reg *r = in->regs;

		/* The kernel drops its side with the instance, where nobody shares it. */
		reg_disarm(r);
		reg_destroy(r);
	}
	side_drop(in);
	atomic_store(&in->sleepers, ((atomic_load(&in->sleepers) >> 32) + 1) << 32);
	atomic_store(&in->ever_converted, false);
	in->nested = in->hidden = in->polled = false;
	store_relaxed(&in->watched, false);
	store_relaxed(&in->watcher, NULL);
	store_relaxed(&in->no_upgrade, false);
	in->blind = in->sideless = in->unheard = false;
	store_relaxed(&in->outer, false);
	in->forked = false;
	store_relaxed(&in->noted, false);
	atomic_store(&in->lingering, false);
	store_relaxed(&in->mixed, false);
	store_relaxed(&in->ask_now, false);
	store_relaxed(&in->kernel_turn, false);
	store_relaxed(&in->told, 0);
	store_relaxed(&in->waited_on, false);
	in->put_off = 0;
	in->calls = in->aged_at = 0;
	in->looked_at = in->began = in->queue_end = in->heard = 0;
	instance_unlock(in);
	in->next_free = free_instances;
	free_instances = in;
}

void instance_forget(int fd)
{
	table_entry *e = entry_of(fd, false);
	struct instance *in = e ? load_relaxed(e) : NULL;

	if (!in)
		return;
	store_release(e, NULL);
	if (--in->fds == 0)
		instance_destroy(in);
}

int ready_epoll_create(int kernel_fd)
{
	struct instance *in;
	table_entry *e;

	if (kernel_fd < 0)
		return kernel_fd;
	epoll_list_lock();
	instance_forget(kernel_fd);
	e = entry_of(kernel_fd, true);
	in = e ? instance_create(kernel_fd) : NULL;
	if (in)
		store_release(e, in);
	epoll_list_unlock();
	return kernel_fd;
}

void ready_duplicated(int oldfd, int newfd)
{
	struct instance *in = instance_at(oldfd);
	struct sock *s = fd_sock(newfd);
	table_entry *e;

	if (s && reg_is_any(s)) {
		epoll_list_lock();
		epoll_sock_duplicated(s, newfd);
		epoll_list_unlock();
	}
	if (!in && !instance_at(newfd))
		return;
	epoll_list_lock();
	in = instance_at(oldfd);
	if (in != instance_at(newfd)) {
		instance_forget(newfd);
		e = in ? entry_of(newfd, true) : NULL;
		if (e) {
			in->fds++;
			store_release(e, in);
		}
	}
	epoll_list_unlock();
}

NEAR_CODE void ready_closing(int fd)
{
	struct sock *s = fd_sock(fd);

	/* A plain read: who closes while another thread adds gets either order. */
	if (instance_at(fd)) {
		epoll_list_lock();
		instance_forget(fd);
		epoll_list_unlock();
	} else if (s && reg_is_any(s)) {
		epoll_list_lock();
		epoll_sock_closing(s, fd);
		epoll_list_unlock();
	}
}

static struct epoll_reg *reg_alloc(void)
{
	struct epoll_reg *r = free_regs, *chunk;
	uint32_t n = load_relaxed(&reg_count);
	uint32_t at = n, i = chunk_of(&at, REG_CHUNK);

	if (r) {
		free_regs = r->next;
		return r;
	}
	if (n >= REG_LIMIT)
		return NULL;
	chunk = load_relaxed(&reg_chunks[i]);
	if (!chunk) {
		chunk = pages_for_good(chunk_size(i, REG_CHUNK) * sizeof(*chunk));
		if (!chunk)
			return NULL;
		store_release(&reg_chunks[i], chunk);
	}
	chunk[at].index = n;
	/* Release: who finds a tag below the count also finds its chunk. */
	store_release(&reg_count, n + 1);
	return &chunk[at];
}

/* Room in the hot list for all records, so that no wait ever allocates. */
static bool hot_reserve(struct instance *in)
{
	struct epoll_reg **hot;
	uint32_t room = in->hot_room ? in->hot_room * 2 : 16;

	if (in->nregs < in->hot_room)
		return true;
	/* What it had before is lost, which is less. */
	hot = pages_for_good(room * sizeof(struct epoll_reg *));
	if (!hot)
		return false;
	if (in->nhot)
		memcpy(hot, in->hot, in->nhot * sizeof(struct epoll_reg *));
	in->hot = hot;
	in->hot_room = room;
	return true;
}

void instance_mixed(struct instance *in)
{
	if (in->hidden) /* a poll has no order */
		return;
	store_relaxed(&in->mixed, true);
	for (struct epoll_reg *r = in->regs; r; r = r->next)
		if (r->converted)
			sock_want_times(r->s);
}

struct epoll_reg *reg_create(struct instance *in, struct sock *s, int fd,
			     const struct epoll_event *ev)
{
	struct epoll_reg *r = hot_reserve(in) ? reg_alloc() : NULL;
	uint32_t index, turn;
	uint64_t now;

	if (!r)
		return NULL;
	now = __rdtsc();
	index = r->index;
	turn = (r->turn + 1) & TURN_MASK;
	*r = (struct epoll_reg){.in = in,
				.s = s,
				.index = index,
				.turn = turn,
				.fd = fd,
				.use_fd = fd,
				.events = ev->events,
				.data = ev->data,
				.added = now,
				.made = now,
				.generation = atomic_load(&s->slot->generation)};
	r->next_of_sock = s->regs;
	__atomic_store_n(&s->regs, r, __ATOMIC_SEQ_CST);
	r->next = in->regs;
	r->prev = &in->regs;
	if (r->next)
		r->next->prev = &r->next;
	in->regs = r;
	if (++in->nregs == 2)
		instance_mixed(in);
	return r;
}

void reg_destroy(struct epoll_reg *r)
{
	struct instance *in = r->in;
	struct epoll_reg **at = &r->s->regs;

	reg_chill(r);
	/* Not there when the socket's memory has been re-used meanwhile. */
	while (*at && *at != r)
		at = &(*at)->next_of_sock;
	if (*at)
		__atomic_store_n(at, r->next_of_sock, __ATOMIC_RELAXED);
	*r->prev = r->next;
	if (r->next)
		r->next->prev = r->prev;
	in->nregs--;
	in->parked -= r->parked && !r->hushed;
	if (r->converted)
		atomic_fetch_sub(&in->converted, 1);
	r->converted = false;
	r->in = NULL;
	r->next = free_regs;
	free_regs = r;
}

struct epoll_reg *reg_find(struct instance *in, struct sock *s, int fd)
{
	struct epoll_reg *r = s->regs;

	while (r && (r->in != in || r->fd != fd))
		r = r->next_of_sock;
	return r;
}

uint64_t tag_of(const struct epoll_reg *r, bool bell)
{
	return tag_prefix << TAG_SHIFT | (uint64_t)r->turn << TURN_SHIFT |
	       (bell ? TAG_BELL : 0) | r->index;
}

uint64_t tag_of_shared(void)
{
	return tag_prefix << TAG_SHIFT | (TAG_BELL - 1);
}

uint64_t tag_of_side(void)
{
	return tag_prefix << TAG_SHIFT | (TAG_BELL - 2);
}

bool tag_collides(uint64_t data)
{
	return data >> TAG_SHIFT == tag_prefix;
}

struct epoll_reg *tag_reg(uint64_t data, bool *bell)
{
	uint32_t index = data & (TAG_BELL - 1);
	struct epoll_reg *chunk;

	if (!tag_collides(data) || index >= load_acquire(&reg_count))
		return NULL;
	*bell = data & TAG_BELL;
	chunk = load_acquire(&reg_chunks[chunk_of(&index, REG_CHUNK)]);
	return &chunk[index];
}

void epoll_table_init(void)
{
	self = kernel_getpid();
	if (kernel_getrandom(&tag_prefix, sizeof(tag_prefix), GRND_NONBLOCK) !=
	    (ssize_t)sizeof(tag_prefix))
		tag_prefix = (uint64_t)self * 0x9e3779b97f4a7c15u;
	/* The top bit set: no pointer and no small number looks like this. */
	tag_prefix = tag_prefix >> TAG_SHIFT | 1ull << (63 - TAG_SHIFT);
}

bool instance_survives_exec(const struct instance *in)
{
	for (int fd = 0; fd < FDS_MOST; fd++) {
		if (!entry_of(fd, false))
			fd |= CHUNK_FDS - 1;
		else if (recorded_at(fd) == in &&
			 !(REAL(fcntl64)(fd, F_GETFD) & FD_CLOEXEC))
			return true;
	}
	return false;
}
