/* SPDX-License-Identifier: Apache-2.0 */
/* The image of a statically linked program in this process. */
#ifndef VD_START_IMAGE_H
#define VD_START_IMAGE_H

#include <stdbool.h>
#include <stdint.h>

/* *load is what is added to the addresses in its file. False: nothing is mapped. */
bool image_map(const char *path, uint64_t *load);
void image_unmap(void);
/* Jumps to its first instruction, with these arguments, which are where the kernel has put them, and
 * what lies behind them. */
__attribute__((noreturn)) void image_begin(const char *path, int argc, char **argv);

#endif
