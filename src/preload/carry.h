/* SPDX-License-Identifier: Apache-2.0 */
/* What one exec gives to the next image beside the descriptors, and how that learns of it. */
#ifndef VD_PRELOAD_CARRY_H
#define VD_PRELOAD_CARRY_H

#include <stdbool.h>
#include <stdint.h>

struct sock;
struct program;

#define CARRY_MOST 64

/* By one number; where there are several of a socket, they follow each other. */
struct carried {
	struct sock *s;
	int fd, memfd;
	uint64_t cookie;
};

/* One call of the exec family; on the stack of the caller, which may be a short one. */
struct leaving {
	/* What will be executed: `path` as execveat takes it; search: as execvp. */
	int dir;
	const char *path;
	bool search;
	char *const *envp;
	/* Whether bytes can be carried into it: asked when first needed. */
	bool is_judged, fits;
	int token;	 /* what is lent goes along with it; 0: there is none */
	int error;	 /* it will not be executed, with this -errno */
	char *memory;	 /* no heap: a child of fork may call exec */
	size_t settings; /* for so many there is room, and two pointers more */
	uint32_t count;
	struct carried *item; /* in that memory */
};

/* Once, from the constructor: takes up what the last image has left. */
void carry_init(void);
/* The library's own file, as the loader was told of it; NULL: not by its whole name. */
const char *carry_own_path(void);
/* What will be executed is preloaded as well, and all its calls come by us. error: why it will not be. */
bool carry_is_followed(const struct leaving *of, int *error);
/* Whether that is in a list as LD_PRELOAD has it. */
bool carry_is_listed(const char *list);
/* The unread bytes of s go along. False: they cannot. */
bool carry_along(struct leaving *l, struct sock *s, int fd);
bool carry_has(const struct leaving *l, const struct sock *s);
/* The environment for the new image. */
char *const *carry_environment(struct leaving *l);
/* exec has returned. */
void carry_failed(struct leaving *l);

#endif
