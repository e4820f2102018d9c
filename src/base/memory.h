/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that other processes can map: a file that is in no folder. */
#ifndef VD_BASE_MEMORY_H
#define VD_BASE_MEMORY_H

/* A memfd of size 0 that can be sealed and not executed. A descriptor, or -errno. */
int memory_file(const char *name);

#endif
