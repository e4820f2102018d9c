/* SPDX-License-Identifier: Apache-2.0 */
/* What a call on a connection of TCP touches as it passes by lies on few pages. */
#ifndef VD_BASE_SECTIONS_H
#define VD_BASE_SECTIONS_H

/*
 * A system call may cost the processor what it knows of the program's pages (where the kernel has page
 * tables of its own, or is a guest without them), and each that a call needs then is looked up again,
 * 15 ns where one look-up waits for another. So the functions that every call on a TCP connection
 * runs through, also of connections that never leave TCP, lie together, and so do the variables that
 * these read.
 */
#define NEAR_CODE __attribute__((hot))
/* Of these, what each send and receive runs through: one page, with the first of them. */
#define NEAR_MOVE  __attribute__((section(".text.sorted.near")))
#define NEAR_FIRST NEAR_MOVE __attribute__((aligned(4096)))
#define NEAR_DATA  __attribute__((section("vd_near")))
/* Of a declaration: it is in this library, so that no table has to be asked where. */
#define NEAR_EXTERN extern __attribute__((visibility("hidden")))

/*
 * After a fork both processes pay for each page that they write to, and the child for each 64 KiB of
 * code that it runs first, 1 to 3 us: so what is written at a fork, or in most processes soon after,
 * lies together, behind what is near, and so does the code that runs in each child.
 */
#define FORK_DATA                                                                        \
	__attribute__((section(                                                          \
		"vd_fork"))) /* one is aligned: no line is shared with NEAR_DATA */
#define FORK_CODE __attribute__((section(".text.sorted.process")))

#endif
