/* SPDX-License-Identifier: Apache-2.0 */
/* A descriptor that the kernel makes has the lowest free number, which is the program's. */
#include "base/low.h"

struct lock low_lock FORK_DATA;
_Thread_local bool low_is_forking __attribute__((tls_model("initial-exec")));
