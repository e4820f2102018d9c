/* SPDX-License-Identifier: Apache-2.0 */
/* musl's header, with a name of glibc's. */
#ifndef VD_MUSL_STRING_H
#define VD_MUSL_STRING_H

#include_next <string.h>

/* musl's strerror takes no memory. */
#define strerrordesc_np strerror

#endif
