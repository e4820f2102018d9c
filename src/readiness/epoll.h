/* SPDX-License-Identifier: Apache-2.0 */
/* What Viaduct knows about the process's epoll instances and the sockets in them. */
#ifndef VD_READINESS_EPOLL_H
#define VD_READINESS_EPOLL_H

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/types.h>
#include <time.h>

#include "base/atomic.h"
#include "base/lock.h"
#include "conn/sock.h"
#include "readiness/look.h"

struct instance;

/* Events that are reported in the order in which they came; those beyond that follow in
 * any. */
#define EPOLL_ORDERED 64
/* Ticks between two of memory's places in the queue, for the kernel's that lie between. */
#define EPOLL_PLACES 128

/*
 * One socket in one instance. While it is not converted, the kernel's registration is
 * the user's own. A converted one has the TCP descriptor (all events) and the doorbell
 * in the kernel, both edge-triggered and with tags as data, and its events are made here.
 * Never freed: `index`, which the tags carry, stays that of this record.
 * Guarded by the instance's lock, but for what is marked.
 */
struct epoll_reg {
	struct instance *in; /* NULL while the record is free */
	struct sock *s;
	struct epoll_reg *next_of_sock; /* list at s->regs; guarded by the list lock */
	struct epoll_reg *next, **prev; /* list at in->regs */
	uint32_t index, turn; /* which record, and how often it was used before: tags */
	int fd;		      /* the kernel's key */
	int use_fd;	 /* a descriptor that refers to the socket now; -1 for none */
	uint32_t events; /* as the program gave them */
	epoll_data_t data;
	uint64_t edge_in, edge_out, moves; /* as of the last report */
	uint64_t edge_before;		   /* edge_in, as of the one before */
	uint64_t active;		   /* in->calls when something last happened */
	uint32_t hot_at;     /* place in the hot list, plus 1; 0 when cold */
	uint64_t told_at;    /* the scan with which it was last reported */
	uint64_t added;	     /* tick of the last ADD or MOD */
	uint64_t made;	     /* tick of the last ADD */
	uint64_t heard;	     /* place of an end by the kernel's word; 0: told, or none */
	uint64_t queued;     /* tick of the report that queued it again, or 0 */
	uint32_t armed;	     /* interest that sock_arm was given; 0 for none */
	uint32_t tcp_edge;   /* kernel events that came since the last report */
	uint32_t shuts;	     /* of the socket, as of the last report */
	uint32_t state_told; /* of the connection's state, as of then: epoll_report.c */
	bool converted;
	bool bell;    /* this record's tag is on the doorbells */
	bool fresh;   /* to be reported at the next look even without an edge */
	bool spent;   /* ONESHOT, and reported */
	bool given;   /* was spent, and is the kernel's for an exec */
	bool orphan;  /* fd was closed while duplicates live: the kernel's key is gone */
	bool rung;    /* the doorbell has gone since it was armed */
	bool parked;  /* deleted by the program, kept in the kernel for its next ADD */
	bool hushed;  /* and out of the kernel after all: reg_hush */
	int shared;   /* with `bell`: the bell of several connections, or -1 */
	bool refused; /* kept on TCP already */
	bool lingers; /* its last descriptor was closed while its poll waited, which holds it */
	uint64_t edges_shown; /* edges so far, as of the last look from outside */
	bool aside; /* its TCP descriptor is in the instance's side, not in itself */
	uint32_t generation; /* of the slot, to notice a socket closed past us */
};

/*
 * True when no other record of the socket can be in the same instance. Only the
 * instance's lock is needed: whoever adds or removes one there holds it as well.
 */
static inline bool reg_is_only(struct epoll_reg *r)
{
	/* Relaxed: those of other instances come and go meanwhile. */
	return __atomic_load_n(&r->s->regs, __ATOMIC_RELAXED) == r &&
	       !__atomic_load_n(&r->next_of_sock, __ATOMIC_RELAXED);
}

/* The descriptor was closed past Viaduct: the socket's memory is another's by now. */
static inline bool reg_is_stale(struct epoll_reg *r)
{
	return fd_sock(r->use_fd) != r->s ||
	       load_relaxed(&r->s->slot->generation) != r->generation;
}

/*
 * One epoll instance. Memory is re-used for other instances, never freed, so that a
 * thread may look at it without counting itself; the generation tells the difference.
 */
struct batch;

struct instance {
	struct lock lock;
	/* Threads inside the kernel's epoll_wait; above it the generation, see
	 * instance_sleep. */
	_Atomic uint64_t sleepers;
	_Atomic uint32_t converted; /* registrations whose events are made here */
	_Atomic bool ever_converted;
	uint32_t fds; /* descriptors of this process; guarded by the list lock */
	int epfd;     /* one of them */
	/* Written under the lock; who has none finds what was there before or after. */
	_Atomic pid_t owner;
	bool nested; /* is, or has been, watched from outside */
	bool blind;  /* and by some who do not ask us first: its sockets stay on TCP */
	/* The one instance that has it; itself where there are more. And whether that asks for its events. */
	struct instance *_Atomic watcher;
	_Atomic bool watched;
	_Atomic bool
		outer; /* holds, or has held, other instances; relaxed, and set before it does */
	bool sideless; /* gets no side, and so its sockets stay on TCP where it is watched */
	bool unheard; /* a parent's, who has not given back what he was asked for */
	/* Children have got it, and the number of the first such fork, which is there before; written under its lock. */
	_Atomic bool forked;
	_Atomic bool noted; /* that this process waits on it: instance_note_waiter */
	_Atomic uint32_t waits_seen;
	uint32_t first_fork;
	int side; /* -1, or what holds its tags: see epoll_nest.c */
	/* User data collides with our tags, or others have it. Written under the lock. */
	_Atomic bool no_upgrade;
	bool hidden;		/* Viaduct's own: see pollset.h */
	bool polled;		/* by a call that is under way; with `hidden` */
	_Atomic bool waited_on; /* by a call that has come by here; relaxed */
	uint32_t put_off; /* upgrades so far, since none has: see epoll_may_attach */
	uint64_t put_off_since;	  /* ms */
	_Atomic bool lingering;	  /* some of its registrations linger */
	_Atomic uint32_t reverts; /* registrations given back to the kernel so far */
	/* When to ask the kernel. Relaxed, and outside the lock: a race asks once more or
	 * once less. */
	_Atomic bool ask_now; /* the kernel has something that was ours a moment ago */
	_Atomic bool mixed;   /* more than one connection, or something else, in it */
	_Atomic bool kernel_turn;   /* room is short, and the kernel goes first */
	_Atomic uint32_t since_ask; /* calls since the kernel was last asked */
	_Atomic uint64_t asked_at;  /* tick at which it was */
	uint64_t calls; /* age of the instance in calls; a sleep counts for several */
	uint64_t aged_at;
	struct epoll_reg *regs;
	uint32_t nregs, parked; /* the second: that the kernel still has */
	struct epoll_reg **hot;
	uint32_t nhot, hot_room, turn;
	uint64_t scans; /* first looks at the hot list, so far: each begins a report */
	uint64_t looked_at, began; /* ticks of the last two of these, with `mixed` */
	uint64_t queue_end;	   /* the last place of what was queued again */
	uint64_t heard;		   /* the last place of an end by the kernel's word */
	/* Those of the last report that were the kernel's: data and place in the queue.
	 * Relaxed, and outside the lock: a race misplaces an event. */
	_Atomic uint32_t told;
	_Atomic uint64_t told_data[EPOLL_ORDERED], told_place[EPOLL_ORDERED];
	struct instance *next_free, *next_all;
};

/* ---- records (epoll_table.c, epoll_hot.c) ---- */

/* NULL when fd is not an instance made through ready_epoll_create. */
struct instance *instance_at(int fd);
/* A descriptor of the instance, or -1. */
int instance_fd(struct instance *in);
/* No lock is held. fd while it is the instance's, else another one that is, or -1. */
int instance_fd_now(struct instance *in, int fd);
/* Under the list lock: the next of all, also of those that are free; the first after NULL. */
struct instance *instance_next(struct instance *in);
/* Once, before anything else here. */
void epoll_table_init(void);
/* The lock around s->regs, the table of instances and the records; taken before any
 * instance's. */
void epoll_list_lock(void);
/*
 * Without the lock: whether the socket stands in an instance. Who changes its phase looks afterwards;
 * who makes a record looks at the phase afterwards. One of them sees the other.
 */
static inline bool reg_is_any(const struct sock *s)
{
	return __atomic_load_n(&s->regs, __ATOMIC_SEQ_CST);
}
void epoll_list_unlock(void);
void instance_lock(struct instance *in);
void instance_unlock(struct instance *in);
/*
 * One more thread is about to sleep: from now on nothing may rely on its looking. Returns
 * what instance_woke must be given; that returns false when the instance has been closed
 * meanwhile, so that it must not be touched.
 */
uint32_t instance_sleep(struct instance *in);
bool instance_woke(struct instance *in, uint32_t generation);
static inline uint32_t instance_sleepers(struct instance *in)
{
	/* Sequentially consistent: the other half of instance_sleep. */
	return (uint32_t)atomic_load(&in->sleepers);
}
/* True in a thread that holds one of these locks. */
bool epoll_locked(void);
pid_t epoll_self(void);
/* In a forked child: the list's lock is free. */
void epoll_list_forked(void);
/* Under the list lock: the number is not the instance's any more. */
void instance_forget(int fd);
/* The image after an exec has a number of it. */
bool instance_survives_exec(const struct instance *in);

/* Somebody gets it who is none of the processes that the table of the family counts. */
void instance_goes_on(struct instance *in);
/* There is more in it than one connection; under its lock. */
void instance_mixed(struct instance *in);
/* Under the list lock, before the kernel closes fd, which is the socket's. */
void epoll_sock_closing(struct sock *s, int fd);
/* Under the list lock, after the kernel has made fd a duplicate of one of the socket's. */
void epoll_sock_duplicated(struct sock *s, int fd);
/* Under both locks. NULL when there is no memory. */
struct epoll_reg *reg_create(struct instance *in, struct sock *s, int fd,
			     const struct epoll_event *ev);
void reg_destroy(struct epoll_reg *r);
/* Under the list lock. */
struct epoll_reg *reg_find(struct instance *in, struct sock *s, int fd);
/* Makes the record hot; under the instance's lock, like all that follow. */
void reg_heat(struct epoll_reg *r);
void reg_chill(struct epoll_reg *r);
void reg_arm(struct epoll_reg *r);
void reg_disarm(struct epoll_reg *r);
/* Forgets a stale record, as far as the instance's lock allows. */
void reg_abandon(struct epoll_reg *r);

/* The record that a tag names, or NULL when the data is not a tag of ours. It may have become another's
 * since: tag_heard looks. */
struct epoll_reg *tag_reg(uint64_t data, bool *bell);
uint64_t tag_of(const struct epoll_reg *r, bool bell);
bool tag_collides(uint64_t data);
/* Of bells that are no single record's. */
uint64_t tag_of_shared(void);
/* Of an instance's side in itself. */
uint64_t tag_of_side(void);

/* ---- epoll_ctl (epoll_ctl.c) ---- */

/* Both locks are held. Registers an attached socket in a hidden instance, or returns -errno. */
int reg_enter(struct instance *in, int epfd, struct sock *s, int fd,
	      struct epoll_event *ev);
/* Both locks are held. What DEL does: parks it where that is possible, else it is gone, or
 * -errno. */
int reg_leave(struct epoll_reg *r, int epfd);
/* Under the instance's lock: what ADD and MOD do to a converted registration. */
void reg_renew(struct epoll_reg *r, const struct epoll_event *ev);

/* ---- conversion (epoll_convert.c) ---- */

/* What a converted registration asks of the TCP descriptor at most. */
#define EPOLL_TCP_EVENTS (EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLPRI | EPOLLET)
/* What bytes wake for. */
#define EPOLL_KEY_IN (EPOLLIN | EPOLLRDNORM | EPOLLPRI | EPOLLRDBAND)

/*
 * Under both locks. reg_convert hands the registration over from the kernel; tagged: the
 * TCP descriptor was added with its tag already. On failure the kernel's registration is
 * the program's own again.
 */
int reg_convert(struct epoll_reg *r, bool tagged);
/* Both locks are held. The kernel's half of ADD, with the tag where that is asked for. */
int reg_register(struct epoll_reg *r, int epfd, struct epoll_event *ev, bool tagged);
/* Under the instance's lock: gives it back to the kernel. */
void reg_revert(struct epoll_reg *r);
/* A parked one has woken the instance. */
void reg_hush(struct epoll_reg *r);
/* The bell of several connections has: false where all of those are parked, and now hushed. */
bool instance_has_ears(struct instance *in);
/* Of one whose number is closed, and which lives on by fd. */
void reg_revert_orphan(struct epoll_reg *r, int fd);
/* Nobody who knows our tags has it from now on; or for now, if an exec does not fail: then it is taken again. */
void reg_give_spent(struct epoll_reg *r, bool for_now);
void reg_take_spent(struct epoll_reg *r);
/* What its tag has; and after a MOD, before which it had asked for other events. */
uint32_t reg_tag_events(const struct epoll_reg *r);
void reg_renew_tag(struct epoll_reg *r, uint32_t before);
/* Takes the kernel's side of a converted registration away. */
int reg_withdraw(struct epoll_reg *r);
/* Under its lock: true when sockets in the instance have to stay on TCP; and when it is a living parent's, too. */
bool instance_refuses(struct instance *in);
/* The same without it, in a wait. */
bool instance_refuses_waiter(struct instance *in);
/* The same with the reason, or none. */
enum vd_reason instance_reason(struct instance *in);
/* Somebody has waited on it by a call that came by here: what memory has will be heard. */
static inline bool instance_is_heeded(const struct instance *in)
{
	return load_relaxed(&in->waited_on) || in->hidden;
}
/* Under its lock: the child of a parent that has gone becomes its owner here. */
bool instance_is_foreign(struct instance *in);
bool instance_is_shared(struct instance *in);
/* The same, where a child has begun to wait since this was asked. */
bool instance_comes_shared(struct instance *in);
/* This process waits on it, which may have got it by a fork. */
void instance_note_waiter(struct instance *in);
/* Under the instance's lock: it is still to be seen whether anybody waits. */
bool instance_puts_off(struct instance *in);
/* One of its instances is waited on by calls that come by here: then the others are believed as well. Under the list lock. */
bool reg_is_heeded(struct sock *s);
/* Tags of ours, or of a parent's, in the kernel's instance. */
static inline bool instance_may_have_tags(struct instance *in)
{
	return atomic_load(&in->ever_converted) || in->owner != epoll_self();
}
/* Takes the doorbells out of the instance, or of its side. */
void bells_drop(struct epoll_reg *r);
/* Registers those that the record has for all of the socket's, in epfd. */
int bells_enter(struct epoll_reg *r, int epfd);
/* Makes sure that some sleeper, if there is one, looks at the record. */
void reg_poke(struct epoll_reg *r);
bool epoll_may_attach(struct sock *s);
/* EPOLLONESHOT, registered in the kernel, has been told there. Under the instance's lock; asks for a list. */
bool reg_is_spent_there(struct epoll_reg *r);
void epoll_on_attach(struct sock *s);
void epoll_on_final(struct sock *s);
bool epoll_on_release(struct sock *s);

/* ---- reports (epoll_report.c) ---- */

/* The events to report now, or 0; `take` counts them as reported. */
uint32_t reg_report(struct epoll_reg *r, bool take);
/* What one call of epoll_wait reports from memory. */
struct batch {
	struct epoll_event *ev;
	bool ordered;	/* there can be an order: the instance is mixed */
	bool late;	/* something came, or may have come, when the scan had begun */
	uint64_t began; /* tick at which it had not */
	int n, max;
	uint64_t scan; /* in->scans as of its begin */
	int again;     /* those at the front that were queued again */
	uint64_t base; /* place that its first has from now on */
	union {
		struct {
			uint64_t place[EPOLL_ORDERED]; /* rising */
			struct epoll_reg *reg[EPOLL_ORDERED];
		};
		/* Between two reports: what the kernel tells. */
		struct epoll_event raw[EPOLL_ORDERED];
	};
};
/* A report begins, with nothing in it. */
void instance_scan_begin(struct instance *in, struct batch *b);
/* Begins a report of the hot records, as far as there is room. */
void instance_scan(struct instance *in, struct batch *b);
/* Whether to one of them bytes came after the first tick, and not after the second. */
bool instance_came(struct instance *in, uint64_t first, uint64_t second);
/* Adds those that are not in the report yet, but what came after this tick. */
void instance_scan_until(struct instance *in, struct batch *b, uint64_t tick);
/* Takes our tags out of the kernel's n events: out, which may be the same array, gets those
 * that are the program's. Returns how many. */
int instance_translate(struct instance *in, const struct epoll_event *ev, int n,
		       struct epoll_event *out);
/* ---- places in the queue (epoll_order.c) ---- */

/*
 * The place of an event in the kernel's queue, as a tick of the processors' clock. Programs
 * depend on that order unawares: a client that sends to one connection and then to another
 * expects a server of one thread to serve them so. A registration is queued by what comes,
 * or by ADD and MOD when that is there already. A level-triggered one is queued again by
 * each report, until a look finds nothing.
 */
uint64_t order_place(struct epoll_reg *r, uint32_t bits);
/* Whether it goes before number i of the batch, with `at` as its place. */
bool order_before(const struct batch *b, int i, const struct epoll_reg *r, uint64_t at);
/* The kernel tells ends in their order. One of a peer that was killed, which says no time, goes behind
 * those that were told before it. */
void order_end_heard(struct epoll_reg *r);

/* Adds events to n others. What the kernel repeats, as it does while a level holds, is one. */
int order_fold(struct epoll_event *ev, int n, const struct epoll_event *raw, int more);
/* The same within n events: a step for each two. */
int order_fold_all(struct epoll_event *ev, int n);
/* Place of the first of the events that are reported now. */
uint64_t order_base(void);
/* Remembers the kernel's n events, which come before those of memory. */
void order_told(struct instance *in, const struct epoll_event *ev, int n);
/* The place of a registration that the kernel has had in its queue since the last report, as
 * far as is known, or 0. */
uint64_t order_queued(struct epoll_reg *r);
/*
 * Puts the kernel's n events among the batch's, which stand at ev. What was queued again by the
 * last report keeps its place, whose ever it is; then come the kernel's other events, and then
 * those of memory. The kernel's are remembered, EPOLL_ORDERED of them.
 */
void order_merge(struct instance *in, const struct batch *b, struct epoll_event *ev,
		 const struct epoll_event *raw, int n);

/* Under the instance's lock: what a kernel event with a tag of ours says. */
void tag_heard(struct instance *in, const struct epoll_event *ev);

/* ---- instances that are watched from outside (epoll_nest.c) ---- */

/* Instances with a side. Relaxed: who makes one does so before he looks, or sleeps. */
extern _Atomic uint32_t epoll_sides;
/* An instance is, or was, watched from outside: only then can one have a side. */
extern _Atomic bool epoll_watched;
static inline bool epoll_any_side(void)
{
	return __builtin_expect(load_relaxed(&epoll_sides) != 0, 0);
}
/* Both locks are held. Converted registrations of an instance that is watched have a side. */
void side_make(struct instance *in);
/* Both locks are held. It goes; where registrations are left, they are as without one. */
void side_drop(struct instance *in);
/* Every instance does without, for ever: false when none had one. No lock may be held. */
bool epoll_sides_drop(void);
/* That was not the obstacle. */
void epoll_sides_again(void);
/* Under the instance's lock: what the kernel says of those aside. */
void side_hear(struct instance *in);
/* Under the instance's lock, where somebody sleeps outside: the side is readable where memory has something to report. */
void side_show(struct instance *in);
/* Under the instance's lock: it is readable in the kernel when it would report something, and
 * only then. */
void side_settle(struct instance *in);
/* The same for all of them. No lock may be held. Returns how long a sleep outside may last, in ns. */
uint64_t epoll_settle(void);
/* Calls of poll and select that may sleep on instances. */
extern _Atomic uint32_t epoll_outside;
/* As deep as the kernel lets instances hold each other. */
#define EPOLL_DEPTH 5
/* Under its lock: `by` holds it, and asks for its events or not. It itself: somebody else does. */
void instance_watch(struct instance *in, struct instance *by, bool asks);
/* Under its lock: what comes is to ring. */
bool instance_is_awaited(struct instance *in);

/* ---- who begins to watch (epoll_watch.c) ---- */

/* fd, an instance, is watched by another epoll, poll or select. No lock may be held. */
void epoll_nested(int fd);
/* The same, before the kernel looks: it is readable there where it would report something. */
void epoll_look_into(int fd);
/* The same, by somebody who does not come by here. */
void epoll_nested_past(int fd);
/* Keeps all its sockets on TCP. No lock may be held. */
void instance_refuse_all(struct instance *in);
/* Of all instances that do without a side. No lock may be held. */
void epoll_refuse_sideless(void);
/* The kernel takes no more registrations: some of ours are given back. False: there are none.
 * No lock is held. */
bool epoll_give_watches(void);
void instance_give_spent(struct instance *in, bool for_now);
void instance_take_spent(struct instance *in);
/* No registration stays aside. Under the instance's lock, and of all instances under the list's. The third: before a
 * fork, whose child may use them as well. */
void instance_return_all(struct instance *in);
void epoll_return_all(void);
void epoll_return_all_forking(void);

/* ---- sleep (epoll_sleep.c) ---- */

/* Before a sleep: all hot records are armed. */
void instance_arm(struct instance *in);
/* A thread leaves with a result: what it does not take along must wake the sleepers. */
void instance_attend(struct instance *in);
/* After a sleep, when nobody sleeps any more. */
void instance_disarm(struct instance *in);
/* Records that nothing has happened to for long leave the hot list. */
void instance_age(struct instance *in);

/*
 * No lock is held. What the kernel's call says of epfd, whose record is `in`, or NULL; where it
 * holds instances with a side, these are settled first.
 */
int epoll_kernel_wait(struct instance *in, int epfd, struct epoll_event *ev, int max,
		      const struct timespec *t, const sigset_t *mask);

/* ---- where a call's events go (epoll_room.c) ---- */

/* As the kernel asks first: whether the array lies where a program's memory can be at all. */
bool epoll_is_user(const struct epoll_event *ev, int max);
/* How many of its first `most`, and of `max`, there is memory for. */
int epoll_room(struct epoll_event *ev, int max, uint32_t most);
/* No lock is held. There was none: what has this data is told once more. */
void epoll_untell(struct instance *in, int epfd, const char *listing, uint64_t data);
/* The kernel's registrations before it was, as text, or NULL. */
struct listing {
	char *text;
	size_t room;
};
struct listing epoll_listing(int epfd);
/* One of these. Moves *at, which is the text at first, behind the next. False: there is no more. */
struct listed {
	int fd;
	uint32_t events;
	uint64_t data;
};
bool listing_next(const char **at, struct listed *l);
bool epoll_is_readable(int fd);
/* The instance has become an outer one while a call slept, and all are settled: of the n that it tells, those are taken out that
 * an inner one tells with nothing in it. Returns how many are left. */
int epoll_drop_vain(struct instance *in, int epfd, struct epoll_event *ev, int n);
void listing_drop(void *listing);

/* ---- a sleep (epoll_sleep.c, epoll_wait.c); no lock is held ---- */

void instance_crowd(struct instance *in, struct look_crowd *c);
/* Under the instance's lock: how long a sleep may last at most. */
uint64_t instance_nap_ns(struct instance *in);
/* The instance's lock is held: a thread sleeps no more. */
void instance_awake(struct instance *in);
/* After a sleep, with what instance_sleep returned. False when it was closed meanwhile. */
bool instance_up(struct instance *in, uint32_t generation);
/* The call is over: what lingers in it is closed now. */
void instance_let_close(struct instance *in);

#endif
