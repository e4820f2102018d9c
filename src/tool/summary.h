/* SPDX-License-Identifier: Apache-2.0 */
/* viaduct run --summary: what became of the program's connections, when it has ended. */
#ifndef VD_TOOL_SUMMARY_H
#define VD_TOOL_SUMMARY_H

enum { SUMMARY_GO_ON = -1 };

/*
 * Returns twice: SUMMARY_GO_ON in a child, which then becomes the program, with a file for its report; and
 * in this process, after the summary, with the program's exit status, or 128 and the signal that ended it.
 */
int summary_begin(const char *program);

#endif
