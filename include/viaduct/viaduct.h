/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Viaduct's native interface: a program exports memory, its peer writes into it and tells of that.
 *
 *	vd_export(c, "inbox", box, sizeof(box), VD_WRITE, NULL, &x);	   at one end
 *
 *	vd_import(c, "inbox", 1000, &r);				   at the other
 *	vd_put(r, 0, "hello", 6, 7, VD_NOTIFY);
 *
 *	vd_wait(c, &event, 1, -1);		   at the first: event.tag is 7, box holds "hello"
 *
 * The model is that of VMMC-2 (Dubnicki, Bilas, Chen, Damianakis and Li, 1997). A connection begins
 * on TCP. The library moves it onto rings in shared memory, or onto RDMA between hosts, as it does
 * for sockets; every call means the same on all three.
 *
 * Results: 0 or a count, or a negative error number of <errno.h>. What a call returns through a
 * pointer stands last, and is written on success only. All sizes and offsets are in bytes, all
 * times in milliseconds; a time of -1 waits for ever, and 0 does not wait.
 *
 * Threads: any threads may use one connection at the same time, but nothing may be used once the
 * call that ends it has begun (vd_close, vd_unexport, vd_unimport, vd_listener_close). No function
 * may be called in a signal handler. A thread must not be cancelled (pthread_cancel) in vd_connect,
 * vd_accept or vd_close; no other call is a point of cancellation.
 *
 * Fork: a child has none of its parent's connections; calls on them return -ECHILD. The child of
 * _Fork or of a bare system call must exec or exit.
 *
 * Errors that every call on a connection may return, besides those that are said there:
 *	-EPIPE		the peer has closed the connection
 *	-ECONNRESET	the peer has ended without closing it, or the network has failed
 *	-EPROTO		an end has sent what the protocol does not allow; both are told
 *	-ECHILD		the connection is that of the process which has forked this one
 *	-ENOMEM		there is no memory
 */
#ifndef VIADUCT_H
#define VIADUCT_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct vd_conn vd_conn;
typedef struct vd_listener vd_listener;
typedef struct vd_region vd_region;
typedef struct vd_remote vd_remote;
typedef struct vd_detour vd_detour;

/* ---- connections ---- */

/*
 * Connects to `service` (a port or a name of services(5)) at `host` (a name or an address), and
 * writes the connection to *c. It is the caller's, until vd_close. Waits for the kernel's connect
 * at most `timeout_ms`, after the name is resolved; not for the peer's vd_accept.
 * -EHOSTUNREACH: the name is unknown. -ETIMEDOUT, -ECONNREFUSED and so on: as connect(2). -EMFILE.
 */
int vd_connect(const char *host, const char *service, int timeout_ms, vd_conn **c);

/*
 * Listens at `service` on the address `host`; on all addresses where that is NULL. A service of "0"
 * is a free port, which vd_listener_fd and getsockname(2) tell. The listener is the caller's, until
 * vd_listener_close. Does not block, but to resolve a name. -EADDRINUSE and so on: as bind(2).
 */
int vd_listen(const char *host, const char *service, vd_listener **l);

/* Waits for a connection. It is the caller's, until vd_close. -ETIMEDOUT, -EMFILE. */
int vd_accept(vd_listener *l, int timeout_ms, vd_conn **c);

/* A descriptor that is readable when vd_accept would not wait. It stays the listener's: it is not
 * to be read, nor closed. */
int vd_listener_fd(vd_listener *l);

/* Stops to listen. What was accepted goes on. NULL is ignored. */
void vd_listener_close(vd_listener *l);

/* For vd_adopt: which end of the connection it is. */
#define VD_CONNECTED 1u
#define VD_ACCEPTED  2u

/*
 * Makes a native connection of a TCP socket that is connected. Both ends call it, after they have
 * read all that they have sent each other: the next byte is the library's. `end` is VD_CONNECTED
 * or VD_ACCEPTED. On success `fd` belongs to the connection, and the caller must not use it; on an
 * error it is still the caller's. Does not block.
 * -ENOTSOCK, -ENOTCONN, -EINVAL: it is no connected TCP socket, or `end` is neither.
 */
int vd_adopt(int fd, unsigned end, vd_conn **c);

/*
 * Ends the connection: the peer is told, after all that was put. Waits for the peer's library to
 * have read that, at most half a second. The program's exports and imports on the connection end
 * as by vd_unexport, which may take its second, and vd_unimport; their handles are not to be used
 * again. Threads that wait on the connection return, and so do puts, gets, flushes and calls of
 * messages that block; it waits for them. But it does not see a call that another thread makes at the
 * same moment: the program has to know that each thread is in a call that blocks, or makes none any more.
 * NULL is ignored.
 * Puts with VD_LEND that have not been sent by then, or with which a device has not done, are lost, and the
 * peer gets -ECONNRESET. A program that is not to lose them takes their VD_EVENT_DONE first, or calls vd_flush.
 */
void vd_close(vd_conn *c);

/*
 * A descriptor that is readable while vd_wait has an event to give: for epoll(7), poll(2) and the
 * loops that are built on them. It stays the connection's. Two calls return the same one. -EMFILE.
 */
int vd_fd(vd_conn *c);

/* The path that the connection takes at this moment. */
#define VD_PATH_TCP  0
#define VD_PATH_SHM  1 /* rings in memory that both ends map: one host */
#define VD_PATH_RDMA 2 /* the same between two hosts */
int vd_path(vd_conn *c);

/* Why it is not a better one: a name of viaduct-reasons(7), "none" where there is none. The string
 * is static. */
const char *vd_reason(vd_conn *c);

/* ---- export and import ---- */

#define VD_READ	 1u /* the peer may read: vd_get */
#define VD_WRITE 2u /* the peer may write: vd_put. With VD_READ, also vd_fetch_add and so on */

#define VD_NAME_MAX    63   /* bytes of a name, at most */
#define VD_EXPORTS_MAX 1024 /* exports of one end of a connection at a time */

/*
 * Lets the peer of `c` read or write `len` bytes at `addr`, by `rights`, under `name`. Nothing else
 * of this process's memory is open to it. The memory stays the program's, which may read and write
 * there as it likes; the same pages must stay mapped until vd_unexport has returned (no
 * MADV_DONTNEED, no other mapping there), since a device may write to them. `user` is given back in
 * each event. The export is the caller's, until vd_unexport or vd_close. Blocks while the peer does
 * not read what the connection holds.
 * -EINVAL: no rights, no bytes, or a name that is empty or too long. -EEXIST: the connection has an
 * export of this name. -ENOSPC: it has VD_EXPORTS_MAX.
 */
int vd_export(vd_conn *c, const char *name, void *addr, size_t len, unsigned rights, void *user,
	      vd_region **x);

/*
 * Ends an export. When it returns, nothing is written there any more, whatever the peer has sent or
 * does. Events of it that have not been taken are dropped. Its memory is the program's alone, and
 * the handle is gone. Returns 0 also where the connection has ended.
 * Where the peer may write to memory of vd_alloc, or its device uses the memory, it waits for the
 * peer's library, at most a second. If that does not answer, memory of vd_alloc that is mapped there
 * is exchanged for a copy at the same address. The program may write there meanwhile.
 * -ENOMEM: there was none for that; the handle is good for another try. -EBUSY: a redirection of it
 * has not been ended.
 */
int vd_unexport(vd_region *x);

/*
 * Finds what the peer exports as `name`: waits until it does, and until another thread that imports
 * the same has done so. The handle is the caller's, until vd_unimport or vd_close. -ETIMEDOUT.
 */
int vd_import(vd_conn *c, const char *name, int timeout_ms, vd_remote **r);

/* The size of what is imported, and its rights. No errors; does not block. */
size_t vd_remote_size(const vd_remote *r);
unsigned vd_remote_rights(const vd_remote *r);

/* Why what is imported is not mapped in this process: a name of viaduct-reasons(7), "none" where it
 * is. The string is static. */
const char *vd_remote_reason(const vd_remote *r);

/* Gives the handle back. The peer's export stays. NULL is ignored. */
void vd_unimport(vd_remote *r);

/* ---- memory that both ends map ---- */

/*
 * Allocates `len` bytes, zeroed and aligned to pages. When all of them are exported, and the peer is
 * a process of the same user on this host, vd_import maps them: then vd_put and vd_get are copies,
 * and the atomics one instruction. Otherwise the memory is as good as any other. It can be lent to
 * one peer that may write, or to any number that only read, at a time; further peers use it by way
 * of the connection. The memory is the caller's, until vd_free. It holds a descriptor. A child of a
 * fork does not have it.
 * -EINVAL: no bytes. -EMFILE.
 */
int vd_alloc(size_t len, void **memory);

/* Gives back what vd_alloc gave. NULL is ignored. -EBUSY: it is exported. -EINVAL: it is none. */
int vd_free(void *memory);

/*
 * Tells that `len` bytes at `memory` are about to go: to be unmapped, or exchanged for others at the same
 * address (mmap, mremap, MADV_DONTNEED; free of what malloc may have mapped by itself). A device has
 * what vd_put sent from there and vd_get brought there registered still, since that is dear, and would
 * go on with the old pages. Memory of any size, and of any history, may be named; not what a call of
 * another thread uses just now. Memory of vd_alloc need not be. Does not block. No errors.
 */
int vd_forget(const void *memory, size_t len);

/* ---- data ---- */

#define VD_NOTIFY 1u /* of vd_put: an event at the peer, after the bytes */
#define VD_LEND	  2u /* of vd_put: the call does not wait until the source can be used again */

#define VD_LENT_MOST 1024 /* puts with VD_LEND of a connection at a time */

/*
 * Writes `len` bytes from `src` to the peer's memory, from `offset` on. `src` may be used again when
 * the call returns (before its memory goes: vd_forget); the bytes are then lost only with the connection. Puts to one export take effect
 * in the order of the calls. Those to two exports of the same memory have no order between them before
 * vd_flush. With VD_NOTIFY the peer's vd_wait gives an event with `tag`, when all bytes of this and of earlier
 * puts are in place; `len` may be 0 then.
 * Blocks while the connection is full, and with VD_NOTIFY while the peer has 1024 events that it
 * has not taken. It may block so from 513 on, since the peer tells of those that it takes by the half. The peer's program need not call anything for bytes to arrive.
 * -ERANGE: outside the export. -EACCES: not exported for that. -ESTALE: the peer has ended the
 * export; one that ends at the same moment takes no more bytes, and no error tells of that.
 * -EINVAL: unknown flags.
 * With VD_LEND it does not block, but for a device: the library sends the bytes as the connection has room, or
 * a device goes on with them. It waits until the device may begin: 16 puts of up to 8 MiB may be under way
 * there, no two of them to the same bytes of one export, and none before what goes another way has arrived. For
 * a longer one it waits until that is there. Where no device can begin, the bytes are sent as elsewhere: so it may be
 * where two connections with the same host have that much under way. The source is lent: it must stay as it is until
 * vd_wait has given VD_EVENT_DONE with the `tag` of this call, or vd_close has returned. There is one such event for
 * each call that has returned 0, and not always in the order of the calls; a peer that is stopped may delay it. Other
 * calls that send or ask wait until what was lent before has been sent. -EAGAIN: VD_LENT_MOST have not been done, or their events not taken;
 * or the peer has 1024 events.
 */
int vd_put(vd_remote *r, uint64_t offset, const void *src, size_t len, uint32_t tag,
	   unsigned flags);

/* Waits until all puts so far of this connection are in the peer's memory. Where there was none since
 * the last flush, it waits for an answer of the peer's library all the same. */
int vd_flush(vd_conn *c);

/*
 * Reads `len` bytes of the peer's memory into `dst`. They are at least as new as all puts of this
 * connection before the call. Where somebody writes there meanwhile, they may be old in parts and
 * new in parts. Blocks until they are here. Before the memory of `dst` goes: vd_forget.
 * -ERANGE, -EACCES, -ESTALE: as vd_put. After an error `dst` may hold a part.
 */
int vd_get(vd_remote *r, uint64_t offset, void *dst, size_t len);

/*
 * Adds to 8 bytes of the peer's memory, or replaces them by `value` where they are `expected`, in
 * one step for all peers of the export, and for the owner's own atomic operations. *old is what was
 * there before (NULL: not wanted). `offset` leads to an address that is a multiple of 8. Needs both
 * rights. Blocks until it is done. -ERANGE, -EACCES, -ESTALE: as vd_put. -EINVAL: not aligned.
 */
int vd_fetch_add(vd_remote *r, uint64_t offset, uint64_t add, uint64_t *old);
int vd_compare_swap(vd_remote *r, uint64_t offset, uint64_t expected, uint64_t value,
		    uint64_t *old);

/* ---- redirection ---- */

#define VD_REDIRECT_NONE    0
#define VD_REDIRECT_PARTIAL 1
#define VD_REDIRECT_FULL    2
struct vd_redirected {
	int32_t kind;	   /* VD_REDIRECT_ */
	uint32_t reserved; /* 0 */
	uint64_t offset;   /* PARTIAL, FULL: which part of `addr` was received there */
	uint64_t len;
};

/*
 * Bytes that the peer puts to `len` bytes of an export, from `offset` on, are received to `addr`
 * instead, from now on until vd_redirect_end: so a program that knows where they belong saves a copy.
 * The memory at `addr` is the library's until then. What has come before stays in the export. The
 * event of a put is the same. The export must be for writing alone. Nothing is redirected in memory
 * of vd_alloc, where all calls do the same, and the copy is made at the end. Does not block.
 * -ERANGE: outside the export. -EINVAL: no bytes, or the peer may read the export. -EBUSY: another
 * redirection of these bytes stands.
 */
int vd_redirect(vd_region *x, uint64_t offset, void *addr, size_t len, vd_detour **d);

/*
 * Ends a redirection, at any moment: what the peer puts from now on lands in the export. Afterwards
 * the memory at `addr` is the program's, and holds what was put to the range so far: the part that
 * *done tells was received there (NULL: not wanted), the rest is copied from the export by this
 * call. Of the first part the export holds older bytes. A redirection receives one piece, which grows
 * upwards: FULL is to be had for puts in ascending order. The handle is gone. No errors but -ECHILD.
 */
int vd_redirect_end(vd_detour *d, struct vd_redirected *done);

/* ---- messages ---- */

#define VD_MESSAGE_MAX 1048576u /* bytes of a message, at most */

/*
 * Gives memory for one message of at most `len` bytes to the peer; it holds whatever it held before.
 * The program writes there as it likes, until vd_commit. One reservation stands at a time on a
 * connection. Blocks while there is no room: the peer may have 1024 messages, or VD_MESSAGE_MAX bytes
 * of them, that it has not released.
 * -EINVAL: `len` is 0. -EMSGSIZE: it is more than VD_MESSAGE_MAX. -EBUSY: another reservation stands.
 */
int vd_reserve(vd_conn *c, size_t len, void **memory);

/*
 * Sends the first `len` bytes of what was reserved as a message: it arrives whole, once, and in the
 * order of the calls, after all that was put before. With 0 nothing is sent. The reservation has
 * ended, and its memory is not to be written to any more; the message is lost only with the connection.
 * Only one thread may commit a reservation. Blocks while the connection is full.
 * -EINVAL: nothing is reserved, or less than `len`: then the reservation stands.
 */
int vd_commit(vd_conn *c, size_t len);

/*
 * Gives the next message of the peer, in place, and waits for it. It stays until vd_release or
 * vd_close. One message is held at a time on a connection. What the peer had sent before the connection
 * has ended can be had; then it returns what every call does.
 * On one host, the peer being a process of the same user, a short one lies in memory of that process,
 * mapped here for reading. A peer that goes past its library can change it still: where that matters, copy
 * what is to be checked, and check the copy.
 * -ETIMEDOUT: there is none. -EBUSY: one is held, or another thread waits for one.
 */
int vd_peek(vd_conn *c, const void **message, size_t *len, int timeout_ms);

/*
 * Gives the message back that vd_peek gave. An answer is best committed after that, so that one frame
 * tells both. Does not block. -EINVAL: none is held.
 */
int vd_release(vd_conn *c);

/* ---- events ---- */

#define VD_EVENT_NOTIFY 1u /* a put with VD_NOTIFY is in place */
#define VD_EVENT_END	2u /* the connection has ended; given once, and as the last */
/* A message has come. There is none of a message that vd_peek has given before. */
#define VD_EVENT_MESSAGE 3u
#define VD_EVENT_DONE	 4u /* a put with VD_LEND does not need its source any more */

struct vd_event {
	uint32_t kind;
	uint32_t tag;	   /* NOTIFY: the sender's. DONE: of the put */
	vd_region *where;  /* NOTIFY: where it was put */
	void *user;	   /* NOTIFY: of vd_export */
	uint64_t offset;   /* NOTIFY, DONE: what was put */
	uint64_t len;	   /* NOTIFY, DONE, MESSAGE */
	int32_t result;	   /* END: 0 the peer has closed it; else -ECONNRESET, -EPROTO, -ENOMEM. DONE: 0
			    * it was sent; else the connection's error */
	uint32_t reserved; /* 0 */
};

/*
 * Takes up to `n` events of the connection, in their order, and waits for the first one. Returns
 * how many. A signal handler that runs meanwhile does not end the wait: a program that wants that
 * waits for vd_fd by ppoll(2). An event is given to one thread. One whose export has a handler is not
 * returned: the handler is called, in its turn, and the wait goes on. After VD_EVENT_END has been
 * taken it returns what every call does then. -ETIMEDOUT: there is none. -EINVAL: `n` is not positive.
 */
int vd_wait(vd_conn *c, struct vd_event *events, int n, int timeout_ms);

/*
 * The same for `count` connections at once. Passed over are those that are NULL, and those whose
 * VD_EVENT_END has been taken. Takes events of one of them; *which is its place in `conns`. They have
 * turns. The caller sleeps on all of them itself, so no wake-up of another thread is needed, as it is
 * for vd_fd. It looks at each: a program with hundreds of connections puts their vd_fd into an
 * epoll(7) instance. After it has called handlers it returns, with 0 if it has no event besides: a
 * handler may have called vd_close of any of them, and those are not to be in `conns` any more.
 * -ETIMEDOUT: there is none. -EINVAL: `count` or `n` is not positive. -EPIPE: none is left that could
 * have one. -EMFILE.
 */
int vd_wait_any(vd_conn *const *conns, int count, struct vd_event *events, int n, int timeout_ms,
		int *which);

/*
 * Has vd_wait call handler(event, arg) for each notification of this export that has not been taken,
 * in the place of returning it. NULL: none any more. The handler runs in whichever thread is in
 * vd_wait, and in several at once where several are. No lock is held: it may call all functions,
 * vd_wait and vd_unexport of its own export too. vd_close of its own connection takes effect when
 * the outermost vd_wait of the thread returns, which then gives -EPIPE. A handler has to return: not
 * by longjmp or an exception, nor may it end its thread, which is not cancelled meanwhile. A child
 * that it forks gets -ECHILD from that vd_wait.
 * When this call returns, and when vd_unexport or vd_close does, the handler that was there before
 * runs in no other thread, and will not: what its `arg` leads to may be freed. So they wait for one
 * that runs; but this call does not in a handler of the connection, and two handlers must not end
 * each other's exports. No errors but -ECHILD.
 */
typedef void (*vd_handler)(const struct vd_event *event, void *arg);
int vd_on_notify(vd_region *x, vd_handler handler, void *arg);

#ifdef __cplusplus
}
#endif

#endif
