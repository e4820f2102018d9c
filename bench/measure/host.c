/* SPDX-License-Identifier: Apache-2.0 */
/* The other host of a measurement, as the one that measures asks it. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "measure/host.h"
#include "tool/cli.h"

enum { CONNECT_MS = 10000 };

static bool has_device(void)
{
	DIR *d = opendir("/sys/class/infiniband");
	const struct dirent *e;
	bool found = false;

	while (d && (e = readdir(d)))
		found = found || e->d_name[0] != '.';
	if (d)
		closedir(d);
	return found;
}

const char *host_rsockets(void)
{
	static const char *const paths[] = {
		"/usr/lib/x86_64-linux-gnu/rsocket/librspreload.so",
		"/usr/lib64/rsocket/librspreload.so",
		"/usr/lib/rsocket/librspreload.so",
	};

	for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++)
		if (access(paths[i], R_OK) == 0)
			return has_device() ? paths[i] : NULL;
	return NULL;
}

/* Waits for the connection, CONNECT_MS at most. 0 or -errno. */
static int connect_in_time(int fd, const struct addrinfo *to)
{
	struct pollfd p = {.fd = fd, .events = POLLOUT};
	int error = 0;
	socklen_t len = sizeof(error);

	if (connect(fd, to->ai_addr, to->ai_addrlen) == 0)
		return 0;
	if (errno != EINPROGRESS)
		return -errno;
	if (poll(&p, 1, CONNECT_MS) <= 0)
		return -ETIMEDOUT;
	if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len) < 0)
		return -errno;
	return -error;
}

static int connect_to(const char *host, unsigned port, int flags, int *fd,
		      const char **why)
{
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = flags}, *found;
	char service[8];
	int r;

	snprintf(service, sizeof(service), "%u", port);
	r = getaddrinfo(host, service, &hints, &found);
	if (r) {
		*why = gai_strerror(r);
		return -EHOSTUNREACH;
	}
	r = -EHOSTUNREACH;
	for (const struct addrinfo *a = found; a && r < 0; a = a->ai_next) {
		*fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
		r = *fd < 0 ? -errno : connect_in_time(*fd, a);
		if (r < 0 && *fd >= 0)
			close(*fd);
	}
	if (r == 0)
		fcntl(*fd, F_SETFL, 0); /* it blocks from now on */
	freeaddrinfo(found);
	*why = strerror(-r);
	return r;
}

int host_say(int fd, const char *text)
{
	size_t len = strlen(text);
	ssize_t n = send(fd, text, len, MSG_NOSIGNAL);

	return n == (ssize_t)len ? 0 : n < 0 ? -errno : -EPIPE;
}

/* One answer, to its end. */
static int hear_all(int fd, char *text, size_t size)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};
	size_t len = 0;
	ssize_t n = 1;

	while (n > 0 && len < size - 1) {
		if (poll(&p, 1, CONNECT_MS) <= 0)
			return -ETIMEDOUT;
		n = recv(fd, text + len, size - 1 - len, 0);
		len += n > 0 ? (size_t)n : 0;
	}
	text[len] = 0;
	return n < 0 ? -errno : 0;
}

static int take_address(struct host *h, int fd)
{
	struct sockaddr_storage peer;
	socklen_t len = sizeof(peer);

	if (getpeername(fd, (struct sockaddr *)&peer, &len) < 0 ||
	    getnameinfo((struct sockaddr *)&peer, len, h->address, sizeof(h->address),
			NULL, 0, NI_NUMERICHOST))
		return -EHOSTUNREACH;
	return 0;
}

int host_find(struct host *h)
{
	const char *why = NULL;
	char text[128];
	int fd, rsockets = 0, verbs = 0, r = connect_to(h->name, h->port, 0, &fd, &why);

	if (r < 0) {
		warn_line("viaduct bench: %s does not answer on port %u: %s; `viaduct "
			  "bench "
			  "--answer` has to run there",
			  h->name, h->port, why);
		return r;
	}
	r = take_address(h, fd);
	if (r == 0)
		r = host_say(fd, HOST_HELLO);
	if (r == 0)
		r = hear_all(fd, text, sizeof(text));
	if (r == 0 && sscanf(text, "host 1 %d %d", &rsockets, &verbs) < 1)
		r = -EPROTO;
	h->has_verbs = r == 0 && verbs && bench_raw_found(fd);
	close(fd);
	if (r < 0)
		warn_line("viaduct bench: port %u of %s is not that of a `viaduct bench "
			  "--answer` of this version: %s",
			  h->port, h->name, strerror(-r));
	h->has_rsockets = r == 0 && rsockets && host_rsockets();
	return r;
}

int host_start(const struct host *h, struct ends *of)
{
	const struct bench_row *row = of->row;
	const struct bench_contender *who = of->who;
	const char *congestion = of->set->congestion;
	const char *why = NULL;
	char job[256];
	int fd, r;

	snprintf(job, sizeof(job), HOST_JOB_FORMAT,
		 who->rsockets	   ? "rsockets"
		 : who->verbs	   ? "verbs"
		 : who->via_server ? "viaduct"
				   : "tcp",
		 who->spin ? "rtt-spin" : row->pattern->name, row->size_bytes, row->conns,
		 row->active, row->think_us, row->rate, !row->matrix,
		 (uintmax_t)of->set->time_ns, *congestion ? congestion : "-");
	r = connect_to(h->address, h->port, AI_NUMERICHOST, &fd, &why);
	if (r < 0)
		return r;
	r = host_say(fd, job);
	if (r < 0) {
		close(fd);
		return r;
	}
	of->server.pid = -1;
	of->server.fd = fd;
	return 0;
}
