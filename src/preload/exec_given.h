/* SPDX-License-Identifier: Apache-2.0 */
/* Strings that an exec is given, in memory that may not be there. */
#ifndef VD_PRELOAD_EXEC_GIVEN_H
#define VD_PRELOAD_EXEC_GIVEN_H

#include <stdbool.h>

/* It can be read up to its end. Also where Viaduct is not active. */
bool exec_string_is_good(const char *at);
/* So can a vector of them. No vector at all is an empty one, and the process's own environment is good. */
bool exec_strings_are_good(char *const *at);

#endif
