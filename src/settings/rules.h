/* SPDX-License-Identifier: Apache-2.0 */
/* The language of the rules: which connections may leave kernel TCP. */
#ifndef VD_SETTINGS_RULES_H
#define VD_SETTINGS_RULES_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#include "settings/config.h"

#define RULES_MAX	   256 /* of all places together */
#define RULE_PROGRAM_BYTES 64

struct rule {
	bool allow;
	bool any_role;
	enum config_role role;
	bool any_addr;
	uint16_t port_low, port_high; /* 0 to 65535 when no port is named */
	unsigned prefix_bits;	      /* of the 128; an IPv4 rule has 96 and more */
	struct in6_addr addr;	      /* IPv4 as ::ffff:a.b.c.d */
	bool any_uid;
	uint32_t uid_low, uid_high;
	char program[RULE_PROGRAM_BYTES]; /* glob; empty when no program is named */
	/* For people: its words in the text that was parsed, and the text's place. */
	const char *text;
	int length;
	const char *file; /* NULL: the environment */
	unsigned line;
};

struct rules {
	unsigned count;
	struct rule rule[RULES_MAX];
};

/* 0; or -EINVAL, or -ENOSPC when there are too many, with a sentence in message. The rules are unspecified after an error. They
 * point into text. */
int rules_parse(const char *text, struct rules *rules, char *message, size_t size);
/* Adds the rules of one line of a file; as above, but none is added after an error. */
int rules_add(const char *text, struct rules *rules, char *message, size_t size);
/* Whether the pattern fits the base name of the program's file or of its argv[0]. */
bool rules_fit_program(const char *glob, const char *exe, const char *argv0);
/* Drops the rules that name a program whose base name is neither of the two. */
void rules_keep_program(struct rules *rules, const char *exe, const char *argv0);
/* Whether the first rule denies every connection. */
bool rules_deny_all(const struct rules *rules);
/* First match of what is left, for the user who runs the process now; true when there is
 * none. */
bool rules_allow(const struct rules *rules, enum config_role role,
		 const struct sockaddr *server);

#endif
