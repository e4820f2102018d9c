/* SPDX-License-Identifier: Apache-2.0 */
/* A command that looks at hostile processes keeps no more of root's rights than it needs. */
#ifndef VD_TOOL_RIGHTS_H
#define VD_TOOL_RIGHTS_H

enum rights {
	/* Look into processes of others. */
	RIGHTS_LOOK = 1,
	/* Also enter network namespaces, and ask these for all that they know of sockets. */
	RIGHTS_NAMESPACES = 2,
	/* Also open files for writing as root can. */
	RIGHTS_FILES = 4,
};

/* Gives up all capabilities but those, for good, and those that an exec would bring. To be called
 * before there are threads. */
void rights_keep(unsigned rights);

#endif
