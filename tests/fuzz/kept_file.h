/* SPDX-License-Identifier: Apache-2.0 */
/* The memory file that root's tools look at, opened and mapped once for many inputs. */
#ifndef VD_TESTS_FUZZ_KEPT_FILE_H
#define VD_TESTS_FUZZ_KEPT_FILE_H

/* From here to the end the tool's open, map and thread are those of an earlier look, since no input changes what
 * these do. With one input of FUZZ_SELDOM they are the kernel's. */
void kept_file_begin(void);
void kept_file_end(void);

#endif
