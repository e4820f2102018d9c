/* SPDX-License-Identifier: Apache-2.0 */
/* viaductd: all that it holds, in tables of fixed size, and who calls whom. */
#ifndef VD_DAEMON_DAEMON_H
#define VD_DAEMON_DAEMON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/log.h"
#include "daemon/bucket.h"
#include "daemon/keys.h"
#include "daemon/owner.h"
#include "daemon/session.h"
#include "daemon/settings.h"
#include "daemon/share.h"
#include "daemon/wire.h"
#include "daemon_client/local.h"

enum {
	RELAY_CLIENTS = 4096,
	RELAY_CLIENTS_UID = 1024, /* of one user */
	RELAY_PUBLICATIONS = 8192,
	RELAY_PUBLICATIONS_UID = 4096,
	RELAY_PENDING = 1024,	 /* questions of our processes that wait for an answer */
	RELAY_PENDING_UID = 512, /* of one user */
	RELAY_PENDING_CLIENT = 64, /* of one process */
	RELAY_ASKED = 1024,	   /* questions of other hosts to our processes */
	RELAY_ASKED_LINK = 512,	   /* over one link */
	RELAY_ASKED_UID = 256,	   /* to one user */
	RELAY_ASKED_CLIENT = 64,   /* to one process, and these fit into its socket */
	RELAY_NEAR = 2048,	   /* processes' questions for a peer on this host */
	RELAY_NEAR_UID = 1024,	   /* of one user */
	RELAY_NEAR_CHILDREN =
		128, /* that look at what processes have sent: near_helper.c */
	RELAY_NEAR_CHILDREN_UID = 8, /* for one user */
	RELAY_NEAR_HUNG_UID = 2,     /* of those, ended and not gone yet: no more then */
	RELAY_NEAR_ORDERS = 64,	     /* to one child that it has not carried out */
	RELAY_NEAR_UNREAD =
		2048, /* MET that processes have not read, two descriptors each */
	RELAY_NEAR_UNREAD_UID = 256, /* of one user */
	RELAY_NEAR_UNREAD_CLIENT = 64,
	RELAY_TRANSLATING =
		64,	       /* questions about rewritten addresses, one of a process */
	RELAY_NEAR_TRIES = 64, /* looks for another peer, in one tick */
	RELAY_CLOSER_SOCKETS = 256, /* that wait to be closed: closer.c */
	RELAY_CLOSER_CHILDREN = 16, /* that let go of them, and have not ended yet */
	RELAY_PROBES = 2,	    /* a second: of one user, and of one host */
	RELAY_LINKS = 256,	    /* in each direction */
	RELAY_STRANGERS = 32,	    /* of those, who have not proved anything yet */
	RELAY_STRANGERS_HOST = 4,   /* from one address */
	RELAY_LISTENERS = SETTINGS_LISTEN_MAX + 2,
	RELAY_LINK_IN = 2 * SESSION_FRAME_MAX,
	RELAY_LINK_OUT = 32 << 10,
};

enum {
	RELAY_TICK_MS = 100,
	RELAY_SHAKE_MS = 3000,	    /* to connect and to prove the key */
	RELAY_ANSWER_MS = 2000,	    /* for a process to answer */
	RELAY_NEAR_FULL_MS = 10000, /* before a process asks again that found no place */
	RELAY_CHILD_MS =
		3000, /* for what needs microseconds, where there is a processor */
	RELAY_CHILD_IDLE_MS = 2000,
	RELAY_CLOSER_MS = 1000,	 /* from one child to the next, while there is room */
	RELAY_NEAR_MS = 1000,	 /* for the datagrams that prove a way between two ends */
	RELAY_ASK_MS = 5000,	 /* for all of a question */
	RELAY_IDLE_MS = 60000,	 /* a link that nobody uses is closed */
	RELAY_LIFE_MS = 3600000, /* and one this old, so that keys do not grow old */
	RELAY_RETRY_MS = 1000,	 /* after the first failure; then twice as long, up to */
	RELAY_RETRY_MAX_MS = 60000,
};

/* Names one use of a slot: it is not another's who has the slot later. */
struct relay_ref {
	uint32_t index, turn;
};

struct relay_client {
	int fd; /* -1: free */
	uint32_t turn;
	struct owner owner;
	unsigned pending; /* its questions that wait */
	unsigned asked;	  /* questions that it has not answered, in time or not */
	int first;	  /* of its publications, or -1 */
	bool near;	  /* it has come by the socket for namespaces: near_client.c */
	bool rights;	  /* it can send descriptors along */
	bool ended;	  /* and is gone, but for what it has not read */
	bool waits;	  /* it is not read before the next tick */
	unsigned unread;  /* MET since it had read all of them */
	bool translates; /* it has asked how its addresses are rewritten: not read until answered */
	uint32_t translates_id; /* its number for that */
};

enum near_state { NEAR_FREE, NEAR_WAITS, NEAR_PROVES };
enum { NEAR_PLACE_FDS = 2, NEAR_SECRET_BYTES = 32 };

/* What a process has shown of its end: near_place.c. */
struct near_place {
	int diag, probe; /* descriptors of its own, which it may have kept, too */
	uint64_t netns;	 /* SO_NETNS_COOKIE */
	uint64_t
		owner; /* inode of the user namespace that the network namespace belongs to */
	uint64_t cookie; /* of its TCP socket */
	uint16_t port;	 /* of `probe`, network order */
};

/* One of our processes looks for its peer in another network namespace of this host. */
struct relay_near {
	enum near_state state;
	uint32_t turn;
	struct relay_ref client;
	uint32_t id; /* the process's */
	bool accepted;
	struct name_end local, peer;
	struct near_place place;
	/* The last that it was tried with in vain, and until when not with that one again. */
	struct relay_ref last;
	unsigned failures;
	uint64_t not_before_ms;
	/* PROVES: */
	uint32_t partner, round;
	bool watched; /* the probe */
	bool steps;   /* that was ordered, and is not done yet: near_helper.h */
	bool again;   /* something has come since */
	bool heard;   /* what the partner has sent has come */
	bool asked;   /* whether the connection is still there, after that */
	bool holds;   /* it is */
	uint8_t secret[NEAR_SECRET_BYTES];
	uint64_t deadline_ms;
};

struct relay_publication {
	bool used;
	uint32_t client; /* index: gone with it */
	uint64_t cookie; /* of its TCP socket */
	struct name_end local, peer;
	int next_of_client, previous_of_client, next_of_hash; /* or -1 */
	uint16_t hello_bytes;
	uint8_t hello[LOCAL_HELLO_MAX];
};

/* One of our processes asks. */
struct relay_pending {
	bool used, sent;
	bool is_probe; /* about no connection: any answer will do */
	uint32_t turn;
	struct relay_ref client, link;
	uint32_t id; /* the process's */
	uint64_t deadline_ms;
	struct name_end local, peer;
	uint16_t hello_bytes;
	uint8_t hello[LOCAL_HELLO_MAX];
};

/* Another host asks one of our processes. */
struct relay_asked {
	bool used;
	uint32_t turn;
	struct relay_ref client, link;
	uint32_t id; /* the other daemon's */
	uint64_t deadline_ms;
	struct name_end local, peer; /* of the publication */
};

enum relay_link_state {
	LINK_FREE,
	LINK_CONNECTING,
	LINK_SHAKING,
	LINK_READY,
	LINK_FAILED
};

/* A TCP connection with another daemon. Who has made it asks over it; the other answers. */
struct relay_link {
	enum relay_link_state state;
	bool outgoing;
	int fd;
	uint32_t turn;
	struct name_end self, other; /* the ports too, once connected */
	bool bound;		     /* self was chosen by us */
	struct session session;
	uint64_t deadline_ms, born_ms, used_ms;
	/* FAILED: when to try again, and what to answer until then. */
	uint64_t retry_ms;
	uint8_t failures, status;
	uint8_t cause;	  /* enum local_cause: of its last end, or of this one */
	int error;	  /* its errno, or 0 */
	unsigned waiting; /* questions in flight over it */
	size_t in_bytes, out_bytes;
	bool wants_write;
	uint8_t in[RELAY_LINK_IN], out[RELAY_LINK_OUT];
};

struct relay_listener {
	int fd;
	bool local, near, rights, paused;
};

struct relay {
	int epoll;
	uint64_t now_ms;
	bool stop;
	struct settings settings;
	struct keys keys;
	struct buckets by_uid, by_peer, by_stranger, by_log;
	struct buckets probes_by_uid, probes_by_host;
	uint64_t unlogged;
	unsigned clients, strangers, listeners, links, published, pending_now, asked_now;
	unsigned near_now, helpers, near_waiting, near_ended, translating, unclosed,
		closers;
	struct relay_listener listener[RELAY_LISTENERS];
	struct relay_client client[RELAY_CLIENTS];
	int free_publication, fresh_publication;
	int hash[RELAY_PUBLICATIONS];
	struct relay_publication publication[RELAY_PUBLICATIONS];
	struct relay_pending pending[RELAY_PENDING];
	struct relay_asked asked[RELAY_ASKED];
	struct relay_near near[RELAY_NEAR];
	/* The first half is outgoing. */
	struct relay_link link[2 * RELAY_LINKS];
};

/* ---- loop.c: waits, and calls the others ---- */
enum relay_kind {
	RELAY_LISTENER,
	RELAY_CLIENT,
	RELAY_LINK,
	RELAY_SIGNAL,
	RELAY_NEAR_PROBE,
	RELAY_NEAR_HELPER,
	RELAY_TRANSLATOR
};
int loop_init(struct relay *r);
/* After a fork, since in a child epoll waits for the signals of its parent. */
int loop_watch_signals(struct relay *r);
int loop_run(struct relay *r);
uint64_t loop_clock_ms(void);
void loop_unwatch(struct relay *r, int fd);
/* 0 or -errno. Writing is waited for beside reading where asked. */
int loop_watch(struct relay *r, int fd, enum relay_kind kind, uint32_t index,
	       uint32_t turn, bool write, bool is_new);

/* ---- listen.c: sockets that others connect to ---- */
int listen_open(struct relay *r, char *message, size_t size);
void listen_ready(struct relay *r, unsigned index);
void listen_tick(struct relay *r);
/* It is this process that listens, of those that have the sockets: for a daemon that finds them in use. */
void listen_own(struct relay *r);
/* In a child: it may stay for long, and the next daemon needs the names. */
void listen_leave(struct relay *r);
void listen_close(struct relay *r);

/* ---- closer.c: sockets by which descriptors may have come, which may take long to close ---- */
void closer_take(struct relay *r, int fd);
void closer_tick(struct relay *r);
/* From now on whatever waits is interrupted every ms. */
void closer_guard(bool on);

/* ---- client.c: the processes of this host ---- */
/* A new connection: fd is theirs. */
void client_admit(struct relay *r, int fd, const struct relay_listener *by);
/* Closes a socket of a process, or of one that was to be. */
void client_close(struct relay *r, int fd, bool rights);
/* What it says next, which stays where it lies; and whether descriptors come along. As of recv. */
ssize_t client_peek(const struct relay_client *c, struct local_message *m, bool *shows);
void client_ready(struct relay *r, struct relay_ref ref);
struct relay_client *client_of(struct relay *r, struct relay_ref ref);
/* All take the process to be gone when it does not read, and end it. */
void client_done(struct relay *r, struct relay_ref ref, uint32_t id,
		 enum local_status status, uint32_t wait_ms,
		 const struct wire_answer *answer);
/* `about` is the link that was to be asked over, or NULL. */
void client_probed(struct relay *r, struct relay_ref ref, uint32_t id,
		   enum local_status status, uint32_t wait_ms,
		   const struct relay_link *about);
bool client_asked(struct relay *r, struct relay_ref ref, uint32_t id,
		  const struct relay_publication *p, const struct wire_question *q);
/* Something may be said about that: it is denied. */
void client_denied(struct relay *r, const struct relay_client *c,
		   const struct local_message *m, enum local_status status);
struct settings_party client_party(const struct relay_client *c);
/* It does not keep to the protocol: it hears why, and is ended. */
void client_refuse(struct relay *r, struct relay_ref ref, const struct local_message *m,
		   size_t bytes, enum local_status status);
void client_end(struct relay *r, uint32_t index);

/* ---- publish.c: who has published which connection ---- */
void publish_init(struct relay *r);
enum local_status publish_add(struct relay *r, uint32_t client,
			      const struct local_message *m, size_t hello_bytes,
			      uint64_t cookie);
struct relay_publication *publish_find(struct relay *r, const struct name_end *local,
				       const struct name_end *peer);
void publish_remove(struct relay *r, struct relay_publication *p);
void publish_remove_all(struct relay *r, uint32_t client);

/* ---- pending.c: questions of our processes ---- */
/* An ASK or a PROBE, which is answered in any case. */
void pending_add(struct relay *r, struct relay_ref client, const struct local_message *m,
		 size_t hello_bytes);
/* The link is up; an answer has come over it; it is no more. */
void pending_link_up(struct relay *r, struct relay_link *l);
void pending_answer(struct relay *r, struct relay_link *l, const struct wire_answer *a);
void pending_link_down(struct relay *r, struct relay_ref link, enum local_status status,
		       uint32_t wait_ms);
void pending_client_gone(struct relay *r, uint32_t client);
void pending_tick(struct relay *r);

/* ---- asked.c: questions of other hosts ---- */
void asked_question(struct relay *r, struct relay_link *l, const struct wire_question *q);
/* False: the process was not asked that. */
bool asked_answer(struct relay *r, struct relay_ref client, const struct local_message *m,
		  size_t hello_bytes);
void asked_client_gone(struct relay *r, uint32_t client);
void asked_link_gone(struct relay *r, struct relay_ref link);
void asked_tick(struct relay *r);

/* ---- near_client.c: the processes that come by the socket for namespaces ---- */
void near_client_ready(struct relay *r, struct relay_ref ref);
/* The child has taken a MEET, or has not: near_helper.h. Owns the place's descriptors. */
void near_taken(struct relay *r, struct relay_ref client, int result,
		const struct local_message *m, enum local_status status,
		struct near_place *place);
/* One more way can be told to it. */
bool near_client_reads(struct relay *r, struct relay_ref ref);
/* fds go with it. */
void near_client_met(struct relay *r, struct relay_ref ref, uint32_t id, uint32_t uid,
		     const struct local_met *met, const int fds[NEAR_MET_FDS]);
/* It ends. True: its descriptor stays, for what it has not read. */
bool near_client_end(struct relay *r, struct relay_ref ref);
void near_client_tick(struct relay *r);
/* How the addresses of its connection are rewritten, or why that is not said. */
struct translate_report;
void near_client_translated(struct relay *r, const struct translate_report *report);

/* ---- translate.c: how the kernel rewrites the addresses of a process's own connection ---- */
/* Once, before anybody comes; then the right to enter namespaces is given up. 0 or -errno. */
int translate_open(struct relay *r);
bool translate_has_room(const struct relay *r);
/* LOCAL_OK: near_client_translated will be called; else why not. */
enum local_status translate_ask(struct relay *r, struct relay_ref client,
				const struct local_message *m);
void translate_ready(struct relay *r);
void translate_tick(struct relay *r);

/* ---- near.c: processes of this host whose peers are in another network namespace ---- */
/* A MEET that is allowed: LOCAL_OK, and place is the table's; to be tried once that was said. */
enum local_status near_add(struct relay *r, struct relay_ref client,
			   const struct local_message *m, const struct near_place *place,
			   struct relay_ref *out);
void near_try(struct relay *r, struct relay_ref ref);
void near_withdraw(struct relay *r, uint32_t client, const struct name_end *local,
		   const struct name_end *peer);
void near_remove_all(struct relay *r, uint32_t client);
/* Something has come by a probe. */
void near_ready(struct relay *r, struct relay_ref ref);
/* What a child has found out. */
void near_stepped(struct relay *r, struct relay_ref ref, uint32_t round, bool heard);
void near_held(struct relay *r, struct relay_ref ref, uint32_t round, bool holds);
void near_tick(struct relay *r);

/* ---- near_place.c, in a child: what a process shows of its end ---- */
/*
 * LOCAL_OK where the kernel says that the descriptors are of one network namespace, and that the
 * connection is in it and belongs to the user.
 */
enum local_status near_place_take(uint32_t uid, const struct local_message *m,
				  const int fds[NEAR_FDS], struct near_place *out);
/* It is still true, of the same connection. */
bool near_place_holds(uint32_t uid, const struct name_end *local,
		      const struct name_end *peer, int diag, uint64_t cookie);
/* Not in a child alone: both are of kinds that are never long in closing. */
void near_place_close(struct near_place *place);

/* ---- near_helper.c: the children that may hang ---- */
struct near_order;
enum near_room {
	NEAR_ROOM,
	NEAR_ROOM_LATER, /* the next tick may find some */
	NEAR_NO_ROOM,	 /* too many children of this user hang */
};
enum near_room near_helper_room(struct relay *r, struct relay_ref client);
/* With a descriptor, or -1. False: not now. */
bool near_helper_order(struct relay *r, struct relay_ref client,
		       const struct near_order *order, int fd);
void near_helper_ready(struct relay *r, struct relay_ref ref);
void near_helper_client_gone(struct relay *r, struct relay_ref client);
void near_helper_tick(struct relay *r);

/* ---- link.c, link_io.c: the connections with other daemons ---- */
/* A new connection: fd is theirs. */
void link_admit(struct relay *r, int fd);
void link_ready(struct relay *r, struct relay_ref ref, bool writable);
/* The link on which to ask: LOCAL_OK, or why not, and for how long. `at_once`: a failure that
 * is remembered does not count. *out is set whenever there is a link to speak of. */
enum local_status link_for(struct relay *r, const struct name_end *local,
			   const struct name_end *peer, bool at_once,
			   struct relay_link **out, uint32_t *wait_ms);
struct relay_link *link_of(struct relay *r, struct relay_ref ref);
struct relay_ref link_ref(const struct relay *r, const struct relay_link *l);
/* Seals and sends one message. False: the link is no more. */
bool link_send(struct relay *r, struct relay_link *l, const uint8_t *plain, size_t bytes);
bool link_flush(struct relay *r, struct relay_link *l);
/* An outgoing one is remembered as failed, with that status; LOCAL_OK: nothing is wrong. */
void link_end(struct relay *r, struct relay_link *l, enum local_status status);
/* The same, of one that is UNREACHABLE or has not our KEY, with its cause. */
void link_lose(struct relay *r, struct relay_link *l, enum local_cause cause, int error);
/* What has come over it. False: it is no more. */
bool link_take(struct relay *r, struct relay_link *l);
void link_tick(struct relay *r);

/* ---- notice.c ---- */
/* For what others can cause as often as they like: some lines a second, and a count. */
void notice(struct relay *r, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
void notice_tick(struct relay *r);

#endif
