/* SPDX-License-Identifier: Apache-2.0 */
/* Checks of the way to another host: its name, the route there, the RDMA device on it. */
#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tool/doctor/way.h"
#include "rdma/verbs.h"

enum {
	ADDRESSES = 8,
	/* As src/remote makes them, and a little more memory than a link of it pins. */
	LINKS = 64,
	CREDITS = 128,
	SENDS = 192,
	PINNED_MIB = 5,
};

struct way way = {.port = WAY_PORT};

static struct name_end addresses[ADDRESSES];
static int address_count;

bool way_for(struct finding *f)
{
	f->left_out = !way.has_route;
	return way.has_route;
}

const char *way_text(const struct name_end *end, char text[INET6_ADDRSTRLEN])
{
	bool v4 = name_is_v4(end);

	return inet_ntop(v4 ? AF_INET : AF_INET6, end->addr + (v4 ? 12 : 0), text,
			 INET6_ADDRSTRLEN);
}

void way_address(const struct name_end *end, struct sockaddr_storage *out,
		 socklen_t *bytes)
{
	memset(out, 0, sizeof(*out));
	if (name_is_v4(end)) {
		struct sockaddr_in *in = (struct sockaddr_in *)out;

		in->sin_family = AF_INET;
		in->sin_port = end->port;
		memcpy(&in->sin_addr, end->addr + 12, 4);
		*bytes = sizeof(*in);
	} else {
		struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)out;

		in6->sin6_family = AF_INET6;
		in6->sin6_port = end->port;
		memcpy(&in6->sin6_addr, end->addr, 16);
		*bytes = sizeof(*in6);
	}
}

static bool end_of(const struct sockaddr *from, struct name_end *out)
{
	memset(out, 0, sizeof(*out));
	if (from->sa_family == AF_INET) {
		out->addr[10] = out->addr[11] = 0xff;
		memcpy(out->addr + 12, &((const struct sockaddr_in *)from)->sin_addr, 4);
	} else if (from->sa_family == AF_INET6) {
		memcpy(out->addr, &((const struct sockaddr_in6 *)from)->sin6_addr, 16);
	}
	return from->sa_family == AF_INET || from->sa_family == AF_INET6;
}

/* ---- its name ---- */

static bool is_known(const struct name_end *end)
{
	for (int i = 0; i < address_count; i++)
		if (name_end_equal(&addresses[i], end))
			return true;
	return false;
}

void check_name(struct finding *f)
{
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *all = NULL;
	char text[INET6_ADDRSTRLEN];
	int r = getaddrinfo(way.host, NULL, &hints, &all);

	address_count = 0;
	for (struct addrinfo *i = r ? NULL : all; i && address_count < ADDRESSES;
	     i = i->ai_next)
		if (end_of(i->ai_addr, &addresses[address_count]) &&
		    !is_known(&addresses[address_count]))
			address_count++;
	if (r == 0)
		freeaddrinfo(all);
	if (address_count > 0) {
		way_text(&addresses[0], text);
		found_word(f, text);
		if (address_count > 1)
			found(f, "%s has %d addresses: %s first", way.host, address_count,
			      text);
		else if (strcmp(way.host, text) != 0)
			found(f, "%s is %s", way.host, text);
		else
			found(f, "%s is an address", text);
		return;
	}
	found(f, "%s has no address: %s", way.host,
	      r == EAI_SYSTEM ? strerror(errno) : gai_strerror(r));
	found_trouble(f, FINDING_PROBLEM, "No program here finds the host by this name.",
		      "Correct the name, make it known (/etc/hosts, DNS), or give the "
		      "address.");
}

/* ---- the route ---- */

/* The address from which a connection would be made. 0 or -errno. Nothing is sent. */
static int route_to(const struct name_end *peer, struct name_end *local)
{
	struct sockaddr_storage to, from;
	socklen_t to_len, from_len = sizeof(from);
	struct name_end end = *peer;
	int fd, r = 0;

	end.port = htons(9); /* any will do */
	way_address(&end, &to, &to_len);
	fd = socket(to.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	if (connect(fd, (struct sockaddr *)&to, to_len) != 0 ||
	    getsockname(fd, (struct sockaddr *)&from, &from_len) != 0)
		r = -errno;
	close(fd);
	if (r == 0 && !end_of((struct sockaddr *)&from, local))
		r = -EAFNOSUPPORT;
	return r;
}

static void find_interface(const struct name_end *local, char name[IF_NAMESIZE])
{
	struct ifaddrs *all, *i;
	struct name_end end;

	*name = 0;
	if (getifaddrs(&all) != 0)
		return;
	for (i = all; i && !*name; i = i->ifa_next)
		if (i->ifa_addr && end_of(i->ifa_addr, &end) &&
		    name_end_equal(&end, local))
			snprintf(name, IF_NAMESIZE, "%s", i->ifa_name);
	freeifaddrs(all);
}

/* False: it was told why no connection between hosts can go this way. */
static bool is_between_hosts(struct finding *f)
{
	if (!strcmp(way.local_text, way.peer_text) || !strcmp(way.interface, "lo")) {
		found(f, "%s is this host itself", way.peer_text);
		found_trouble(f, FINDING_NOTE,
			      "Connections within a host need no way between hosts.",
			      "See `viaduct doctor`, without a host.");
		return false;
	}
	if (local_addresses_fit(&way.local, &way.peer))
		return true;
	found(f, "from %s to %s", way.local_text, way.peer_text);
	found_trouble(f, FINDING_PROBLEM,
		      "Between such addresses, link-local ones and their like, "
		      "connections stay on TCP.",
		      "Give the hosts other addresses, and use those.");
	return false;
}

void check_route(struct finding *f)
{
	int r = -ENODATA;

	f->left_out = address_count == 0;
	/* As programs do: the first that there is a route to. */
	for (int i = 0; i < address_count && r < 0; i++) {
		way.peer = addresses[i];
		r = route_to(&way.peer, &way.local);
	}
	if (f->left_out)
		return;
	if (r < 0)
		way.peer = addresses[0];
	way_text(&way.peer, way.peer_text);
	if (r < 0) {
		found(f, "no route to %s: %s", way.peer_text, strerror(-r));
		found_trouble(f, FINDING_PROBLEM, "Nothing here can reach the host.",
			      "Look at `ip route get %s` and `ip addr`.", way.peer_text);
		return;
	}
	way_text(&way.local, way.local_text);
	find_interface(&way.local, way.interface);
	found_word(f, way.local_text);
	if (!is_between_hosts(f))
		return;
	way.has_route = true;
	found(f, "from %s%s%s to %s", way.local_text, *way.interface ? " on " : "",
	      way.interface, way.peer_text);
}

/* ---- the device ---- */

static const char *link_fault(struct link_context *c, int *error)
{
	size_t bytes = (size_t)PINNED_MIB << 20;
	void *window = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
			    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	struct link *l;

	*error = errno;
	if (window == MAP_FAILED)
		return "there is no memory for a link";
	*error = -link_create(c, window, bytes, &l);
	if (*error == 0)
		link_destroy(l);
	munmap(window, bytes);
	return *error ? "the device gives no queue pair, or no memory can be pinned for "
			"it"
		      : NULL;
}

const char *device_fault(const struct name_end *local, char *text, size_t size,
			 int *error)
{
	struct link_limits limits = {.links = LINKS, .credits = CREDITS, .sends = SENDS};
	struct sockaddr_storage address;
	struct link_context *c;
	const char *why = NULL;
	socklen_t bytes;

	way_address(local, &address, &bytes);
	*error = -link_verbs_open((struct sockaddr *)&address, &limits, &c, &why);
	if (*error)
		return why;
	link_verbs_name(c, text, size);
	why = link_fault(c, error);
	link_context_destroy(c);
	return why;
}

void check_device(struct finding *f)
{
	static const char meaning[] = "Connections with this host stay on TCP.";
	char name[128];
	const char *why;
	int error;

	if (!way_for(f))
		return;
	why = device_fault(&way.local, name, sizeof(name), &error);
	way.has_device = !why;
	if (!why) {
		found_word(f, name);
		found(f, "%s has the address %s, and a link can be made", name,
		      way.local_text);
		return;
	}
	found(f, "%s: %s (%s)", way.local_text, why, strerror(error));
	found_word(f, strerror(error));
	if (error == ENODEV)
		found_trouble(f, FINDING_PROBLEM, meaning,
			      "Look at `rdma link`, and install ibverbs-providers; an "
			      "Ethernet device becomes one by software: `rdma link add "
			      "rxe0 type rxe netdev %s`.",
			      *way.interface ? way.interface : "DEVICE");
	else
		found_trouble(f, FINDING_PROBLEM, meaning,
			      "Raise the limit of locked memory, `ulimit -l` or "
			      "LimitMEMLOCK=, and of descriptors, `ulimit -n`; let the "
			      "user open /dev/infiniband.");
}

static const struct check checks[] = {
	{"name", check_name},
	{"route", check_route},
	{"device", check_device},
	{"daemon", check_relay_daemon},
	{"relay", check_relay},
	{"answer", check_answer},
	{"connection", check_connection},
	{"latency", check_latency},
	{"sending", check_sending},
	{"receiving", check_receiving},
	{"device-there", check_device_there},
	{"relay-back", check_relay_back},
	{"against-tcp", check_against_tcp},
	{"redirect", check_redirect},
};
const struct check_group doctor_way = {"way", "The way to the other host", checks,
				       sizeof(checks) / sizeof(checks[0])};
