/* SPDX-License-Identifier: Apache-2.0 */
/* A socket that listens at a free port of the loopback, and the file that names the port. */
#include "support/listen.h"

#include <arpa/inet.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

enum { BACKLOG = 64 };

int listen_at(const struct sockaddr_in *place)
{
	int fd = socket(AF_INET, SOCK_STREAM, 0), on = 1;

	/* The service before may have closed its connections first. */
	if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) ||
	    bind(fd, (const struct sockaddr *)place, sizeof(*place)) ||
	    listen(fd, BACKLOG))
		exit(2);
	return fd;
}

int listen_anywhere(unsigned short *port)
{
	struct sockaddr_in addr = {.sin_family = AF_INET,
				   .sin_addr = {htonl(INADDR_LOOPBACK)}};
	socklen_t len = sizeof(addr);
	int fd = listen_at(&addr);

	if (getsockname(fd, (struct sockaddr *)&addr, &len))
		exit(2);
	*port = ntohs(addr.sin_port);
	return fd;
}

void listen_tell(const char *file, unsigned short port)
{
	char temporary[4096];
	FILE *out;

	snprintf(temporary, sizeof(temporary), "%s.new", file);
	out = fopen(temporary, "w");
	if (!out || fprintf(out, "%d\n", port) < 0 || fclose(out) ||
	    rename(temporary, file))
		exit(2);
}

int listen_told(const char *file)
{
	unsigned short port;
	int fd = listen_anywhere(&port);

	listen_tell(file, port);
	return fd;
}

bool listen_parse(const char *place, struct sockaddr_in *out)
{
	char address[INET_ADDRSTRLEN] = "";
	const char *colon = strrchr(place, ':');

	if (!colon || colon - place >= (ptrdiff_t)sizeof(address))
		return false;
	memcpy(address, place, (size_t)(colon - place));
	*out = (struct sockaddr_in){.sin_family = AF_INET,
				    .sin_port = htons((uint16_t)atoi(colon + 1))};
	return inet_pton(AF_INET, address, &out->sin_addr) == 1;
}
