/* SPDX-License-Identifier: Apache-2.0 */
/* Why a connection is on kernel TCP: one list, used by the log, the report and the tools.
 */
#ifndef VD_BASE_REASON_H
#define VD_BASE_REASON_H

#include <stdint.h>

/* X(number, NAME, "name", "sentence", "remedy"). Numbers are stable: never reuse one. */
#define VD_REASONS(X)                                                                    \
	X(0, NONE, "none", "the connection is on its direct path", "nothing to do")      \
	X(1, SHORT, "too-short", "the connection has not earned an upgrade yet",         \
	  "nothing to do; VIADUCT_UPGRADE_AFTER=0 pays only where connections last")     \
	X(2, PLAIN_PEER, "plain-peer", "the other end does not run under Viaduct",       \
	  "start the other end with `viaduct run`")                                      \
	X(3, REMOTE_PEER, "remote-peer",                                                 \
	  "the other end is not in this network namespace",                              \
	  "run both in one network namespace, or use RDMA: see `viaduct doctor HOST`")   \
	X(4, OFF, "off", "Viaduct is switched off",                                      \
	  "see where with `viaduct config`, and remove that")                            \
	X(5, RULE, "rule", "a rule keeps this connection on TCP",                        \
	  "change the rule; `viaduct config` lists them with their places")              \
	X(6, UID, "uid", "the other end belongs to a user who is not allowed",           \
	  "run both ends as one user, or let the kernel vouch for both")                 \
	X(7, NAMESPACE, "namespace",                                                     \
	  "the ends live in different user or pid namespaces",                           \
	  "run both ends in the same namespaces")                                        \
	X(8, VERSION, "version", "the other end runs an incompatible Viaduct",           \
	  "run the same version of Viaduct at both ends")                                \
	X(9, NAT, "nat", "the kernel rewrites this connection's addresses",              \
	  "have a root viaductd tell both (near-socket), or dial the server itself")     \
	X(10, IDENTITY, "identity",                                                      \
	  "the rendezvous did not lead to this connection's peer",                       \
	  "nothing to do: another connection used the same addresses")                   \
	X(11, HELLO, "bad-hello", "the other end sent a malformed offer",                \
	  "check what listens on the peer's rendezvous name")                            \
	X(12, FD_LIMIT, "fd-limit", "too few descriptors are left for the direct path",  \
	  "raise `ulimit -n`")                                                           \
	X(13, MEMORY, "memory", "no memory for the direct path",                         \
	  "raise the limits of memory and file size (ulimit -v, ulimit -f)")             \
	X(14, ROLE, "role-unknown", "the descriptor came from outside Viaduct",          \
	  "start the program that opened the connection with `viaduct run`")             \
	X(15, SHARED, "shared", "several processes hold the connection",                 \
	  "nothing to do: it is upgraded once one process holds it alone")               \
	X(16, STDIO, "stdio",                                                            \
	  "the connection is used by the C library itself, or as descriptor 0, 1 or 2",  \
	  "use a descriptor above 2, and streams of bytes")                              \
	X(17, OOB, "out-of-band", "the connection carries urgent data",                  \
	  "do not use MSG_OOB")                                                          \
	X(18, SPLICE, "splice", "the connection is spliced inside the kernel",           \
	  "use read and write, or sendfile")                                             \
	X(19, AIO, "aio", "the connection is used by asynchronous I/O", "use epoll")     \
	X(20, SIGIO, "sigio", "the connection delivers SIGIO", "use epoll")              \
	X(21, OPTION, "option", "a socket option needs the kernel's TCP",                \
	  "do without that option; the log names it")                                    \
	X(22, PROTOCOL, "protocol",                                                      \
	  "the socket is not plain TCP (MPTCP, kTLS, sockmap)", "use plain TCP")         \
	X(23, SELF, "self-connect",                                                      \
	  "the socket is connected to itself or opened from both ends", "nothing to do") \
	X(24, PASSED, "passed", "the descriptor was passed to another process",          \
	  "nothing to do")                                                               \
	X(25, EXEC, "exec", "the descriptor was kept over exec", "nothing to do")        \
	X(26, EPOLL, "epoll", "the epoll instance is another process's too",             \
	  "create the epoll instance in the process that waits on it")                   \
	X(27, PEER_ASKED, "peer-asked", "the other end went back to TCP",                \
	  "ask for the reason at the other end")                                         \
	X(28, BYPASS, "bypass", "somebody wrote to the connection past Viaduct",         \
	  "run every process that uses the connection under Viaduct")                    \
	X(29, CORRUPT, "corrupt", "the shared memory held impossible values",            \
	  "restart the other end")                                                       \
	X(30, IO_URING, "io_uring", "the process uses io_uring for more than files",     \
	  "use epoll")                                                                   \
	X(31, DEEPBIND, "deepbind",                                                      \
	  "the process loads libraries whose calls go past Viaduct",                     \
	  "load them without RTLD_DEEPBIND")                                             \
	X(32, KERNEL, "kernel",                                                          \
	  "this kernel lacks a feature that the direct path needs",                      \
	  "see the log for its name")                                                    \
	X(33, ENDED, "ended", "the connection ended before the two ends had met",        \
	  "nothing to do")                                                               \
	X(34, RAW, "raw-system-calls",                                                   \
	  "the program makes system calls past the C library, as those in Go do",        \
	  "nothing to do: its peers are on TCP with it")                                 \
	X(35, NO_DEVICE, "no-device", "no RDMA device has this connection's address",    \
	  "see `viaduct doctor` for the devices, and the log")                           \
	X(36, RELAY, "relay", "the viaductds do not bring the two ends together",        \
	  "test the way with `viaduct doctor HOST`; see the logs of viaductd")           \
	X(37, LINK, "link", "the link between the two hosts has failed",                 \
	  "see the log: the other process or host has ended, or the network")            \
	X(38, LOCKED, "locked-memory",                                                   \
	  "the limit of locked memory leaves no room for a link to the other host",      \
	  "raise it: `ulimit -l`, or LimitMEMLOCK= of the service")                      \
	X(39, SLOWER, "slower",                                                          \
	  "RDMA to the other host was measured to be slower than TCP",                   \
	  "measure it again: `viaduct doctor --measure HOST`")                           \
	X(40, PARTED, "parted",                                                          \
	  "memory and descriptors of the process are not shared by the same threads",    \
	  "do without unshare(CLONE_FILES), and give clone CLONE_VM with CLONE_FILES")   \
	X(41, SECCOMP, "seccomp", "the process has put on a filter of system calls",     \
	  "put it on before the program starts")                                         \
	X(42, FULL, "full", "there are as many as Viaduct takes at a time",              \
	  "spread the connections over more processes; docs/limits.md has the numbers")  \
	X(43, PRIVATE, "private-memory",                                                 \
	  "exported memory is the program's own, and cannot be mapped by the peer",      \
	  "export all of what one vd_alloc has given")                                   \
	X(44, RIGHTS, "rights", "the process has given up rights amid several threads",  \
	  "give them up before threads are started")                                     \
	X(45, PLACED, "placed",                                                          \
	  "the connection was put over a descriptor that other threads may use",         \
	  "give it a number that is free")

enum vd_reason {
#define X(num, NAME, name, text, remedy) VD_REASON_##NAME = (num),
	VD_REASONS(X)
#undef X
		VD_REASON_COUNT
};

/* All three return static strings, never NULL; an unknown number gives "unknown". */
const char *reason_name(uint32_t reason);
const char *reason_text(uint32_t reason);
const char *reason_remedy(uint32_t reason);

#endif
