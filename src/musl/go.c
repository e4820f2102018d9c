/* SPDX-License-Identifier: Apache-2.0 */
/* A program in Go that is linked with musl is not followed. */
#include "preload/go.h"

const char *go_join(uint64_t load_address)
{
	(void)load_address;
	return "it is linked with musl";
}
