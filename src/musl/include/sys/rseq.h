/* SPDX-License-Identifier: Apache-2.0 */
/* musl registers no restartable sequences: the processor's number is asked for otherwise. */
#ifndef VD_MUSL_SYS_RSEQ_H
#define VD_MUSL_SYS_RSEQ_H

#include <stddef.h>
#include <linux/rseq.h>

static const unsigned __rseq_size = 0;
static const ptrdiff_t __rseq_offset = 0;

#endif
