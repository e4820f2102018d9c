/* SPDX-License-Identifier: Apache-2.0 */
/* The file of a sendfile that sleeps. */
#ifndef VD_CONN_FILE_H
#define VD_CONN_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct sock;
struct source;

/* Of a sendfile: src->file and src->offset change once it sleeps. */
struct file_use {
	struct file_use *next;
	struct sock *s;
	struct source *src;
	size_t count;	   /* src->left at the call's begin */
	off64_t begin, at; /* of the file's own position, where src->offset is this one */
	int own;	   /* a duplicate, once the number was closed; or -1 */
	bool is_lost;	   /* there was none to be had */
};

/* Around the sleeps of the call; in a critical section. */
void file_keep(struct file_use *u);
void file_drop(struct file_use *u);
/* Before any numbers are closed or replaced: one of them may be such a file's. */
void file_closing(unsigned first, unsigned last);
void file_forked_child(void);

#endif
