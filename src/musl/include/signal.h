/* SPDX-License-Identifier: Apache-2.0 */
/* musl's header, with a flag that means nothing to the kernel. */
#ifndef VD_MUSL_SIGNAL_H
#define VD_MUSL_SIGNAL_H

#include_next <signal.h>

#ifndef SA_INTERRUPT
#define SA_INTERRUPT 0x20000000
#endif

#endif
