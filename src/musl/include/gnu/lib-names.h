/* SPDX-License-Identifier: Apache-2.0 */
/* The name under which musl's loader knows the C library. */
#define LIBC_SO "libc.so"
