/* SPDX-License-Identifier: Apache-2.0 */
/* What the parts of the program of rare cases share. */
#ifndef VD_TESTS_STATIC_EDGES_H
#define VD_TESTS_STATIC_EDGES_H

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#define CHECK(x)                                                                         \
	do {                                                                             \
		if (!(x)) {                                                              \
			printf("%s:%d: %s (errno %d)\n", __func__, __LINE__, #x, errno); \
			exit(9);                                                         \
		}                                                                        \
	} while (0)

struct edge_case {
	const char *name; /* NULL at the end */
	void (*run)(void);
};
extern const struct edge_case edges_process[], edges_begin[], edges_quick[],
	edges_stack[];

/* A connection, both ends of it, which has been used. */
struct ends {
	int client, server;
};
extern struct ends ends_of;
void make_pair(void);

/* Sets a handler. */
void set(int sig, void (*handler)(int), int flags);
/* SIGALRM, once. */
void fire(long us);

#endif
