/* SPDX-License-Identifier: Apache-2.0 */
/* Points that tracers may attach to from outside (USDT): a nop each, where it is slow anyway. */
#ifndef VD_BASE_PROBE_H
#define VD_BASE_PROBE_H

/* docs/tracing.md has the list, with what each argument is. */
#ifdef VD_USDT
#include <sys/sdt.h>
#define PROBE1(name, a)		 DTRACE_PROBE1(viaduct, name, a)
#define PROBE3(name, a, b, c)	 DTRACE_PROBE3(viaduct, name, a, b, c)
#define PROBE4(name, a, b, c, d) DTRACE_PROBE4(viaduct, name, a, b, c, d)
#else
/* Looked at by the compiler, not evaluated. */
#define PROBE1(name, a)		 ((void)sizeof(a))
#define PROBE3(name, a, b, c)	 ((void)sizeof(a), (void)sizeof(b), (void)sizeof(c))
#define PROBE4(name, a, b, c, d) (PROBE3(name, a, b, c), (void)sizeof(d))
#endif

enum probe_way { PROBE_RECEIVE = 0, PROBE_SEND = 1 };
/* Who sleeps: a receive or send on one connection, or a call that waits for many descriptors. */
enum probe_sleeper { PROBE_CONNECTION = 0, PROBE_POLL = 1, PROBE_EPOLL = 2 };

#endif
