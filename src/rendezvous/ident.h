/* SPDX-License-Identifier: Apache-2.0 */
/* Who may share memory with us: the process at the other end of the TCP connection, by
 * the kernel's word. */
#ifndef VD_RENDEZVOUS_IDENT_H
#define VD_RENDEZVOUS_IDENT_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#include "base/endpoint.h"
#include "rendezvous/diag.h"

/* Who is at the other end of a connected AF_UNIX socket. 0 or -errno. */
int ident_peer(int unix_fd, struct ucred *out);

/*
 * Compares the process at the other end of unix_fd with the owner of the TCP socket at
 * the other end of the connection: role is ours. On 1 *peer is that socket. 0: it has no
 * owner yet (not accepted). Else -enum vd_reason.
 */
int ident_check(int unix_fd, enum tcp_role role, uint64_t netns,
		const struct name_tuple *t, struct diag_socket *peer);

#define IDENT_AS_IT_IS ((uid_t)-1)
/* The other end will compare the owner of the TCP socket with this process. *as: the user that it is to state, since it
 * acts as another one now, as servers do for their clients; or IDENT_AS_IT_IS. False: it is not that user any more. */
bool ident_vouches(int fd, uid_t *as);
/* True when whoever is at the other end of unix_fd has our real, effective and saved user id. */
bool ident_is_own_user(int unix_fd);

/*
 * True when it may stop this process by a signal anyway: then what it sends need not be safe to close. One in
 * another pid namespace may not.
 */
bool ident_may_stop_us(int unix_fd);

/* True when we take the word of whoever is at the other end of unix_fd for what the kernel has told
 * it: it is our user in our namespaces, who could stop and change us, or root of our user namespace with
 * the right to rewrite addresses. One that hides its namespaces is neither. */
bool ident_is_believed(int unix_fd);

/* The address that the client has dialled. 1, 0: the kernel does not track the connection, or -errno. */
int ident_dialled(int fd, const struct name_tuple *t, struct name_end *out);
/* Acceptor: 1 when the client dialled the very address that we see as our own, else
 * -enum vd_reason. */
int ident_check_dialled(int fd, const struct name_tuple *t);

#endif
