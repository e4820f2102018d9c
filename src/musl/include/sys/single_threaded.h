/* SPDX-License-Identifier: Apache-2.0 */
/* musl does not tell whether there are other threads: there may always be some. */
#ifndef VD_MUSL_SYS_SINGLE_THREADED_H
#define VD_MUSL_SYS_SINGLE_THREADED_H

static const char __libc_single_threaded = 0;

#endif
