/* SPDX-License-Identifier: Apache-2.0 */
/* A small process that publishes its connection, or asks for the other end:
 * meet publish|ask SOCKET DESCRIPTOR. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon_client/caller.h"

static int daemon_fd;

static void fail(const char *what, int error)
{
	fprintf(stderr, "%s: %s\n", what, strerror(-error));
	exit(1);
}

static int hear(struct local_message *m, enum local_type type)
{
	struct pollfd p = {daemon_fd, POLLIN, 0};
	int n;

	while ((n = caller_hear(daemon_fd, m)) == -EAGAIN)
		if (poll(&p, 1, 30000) != 1)
			fail("poll", -ETIMEDOUT);
	if (n < 0)
		fail("hear", n);
	if (m->type != type || m->status != LOCAL_OK)
		fail(local_status_text(m->status), -EPROTO);
	return n;
}

static void say(enum local_type type, uint32_t id, const struct name_tuple *t,
		const char *hello)
{
	int r = caller_say(daemon_fd, type, id, t ? &t->client : NULL,
			   t ? &t->server : NULL, LOCAL_OK, hello, strlen(hello));

	if (r < 0)
		fail("say", r);
}

int main(int argc, char **argv)
{
	struct local_message m;
	struct name_tuple t;
	int n;

	if (argc != 4)
		return 2;
	daemon_fd = caller_open(argv[2]);
	if (daemon_fd < 0)
		fail(argv[2], daemon_fd);
	/* Own end first, whoever has connected. */
	n = name_of_connection(atoi(argv[3]), TCP_ROLE_CONNECTED, &t);
	if (n < 0)
		fail("connection", n);
	if (!strcmp(argv[1], "publish")) {
		say(LOCAL_PUBLISH, 1, &t, "published");
		hear(&m, LOCAL_DONE);
		puts("published");
		fflush(stdout);
		n = hear(&m, LOCAL_ASKED);
		printf("asked: %.*s\n", n, (const char *)m.hello);
		say(LOCAL_ANSWER, m.id, NULL, "I am the holder");
	} else {
		say(LOCAL_ASK, 2, &t, "I am the asker");
		n = hear(&m, LOCAL_DONE);
		printf("answer: %.*s\n", n, (const char *)m.hello);
	}
	return 0;
}
