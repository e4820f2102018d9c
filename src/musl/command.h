/* SPDX-License-Identifier: Apache-2.0 */
/* What stdio tells the calls that start a shell. */
#ifndef VD_MUSL_COMMAND_H
#define VD_MUSL_COMMAND_H

#include <stdio.h>

/* f is about to be closed by fclose: it is none of popen's any more. */
void command_closing(FILE *f);

#endif
