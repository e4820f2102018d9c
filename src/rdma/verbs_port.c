/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the RDMA device, port and GID that have the address of a connection. */
#include <errno.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

#include "base/kernel.h"
#include "base/low.h"
#include "rdma/verbs_lib.h"

struct wanted {
	uint8_t address[16]; /* IPv4 mapped */
	uint32_t scope;	     /* interface of a link-local one, else 0 */
	bool has_ipoib;
	union ibv_gid ipoib; /* of the port of the InfiniBand interface that has it */
};

static bool map(const struct sockaddr *from, struct wanted *w)
{
	memset(w, 0, sizeof(*w));
	if (from->sa_family == AF_INET) {
		const struct sockaddr_in *in = (const struct sockaddr_in *)from;

		w->address[10] = w->address[11] = 0xff;
		memcpy(w->address + 12, &in->sin_addr, 4);
		return true;
	}
	if (from->sa_family == AF_INET6) {
		const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)from;

		memcpy(w->address, &in6->sin6_addr, 16);
		w->scope = in6->sin6_scope_id;
		return true;
	}
	return false;
}

/* An InfiniBand interface's hardware address is a queue pair (4 bytes) and the port's GID. */
static bool ipoib_gid(const char *interface, union ibv_gid *out)
{
	char path[64], text[80];
	const char *at = text;
	unsigned byte;

	snprintf(path, sizeof(path), "/sys/class/net/%s/address", interface);
	if (!low_read_text(path, text, sizeof(text)))
		return false;
	for (int i = 0; i < 20; i++, at += 3) {
		if (sscanf(at, "%2x", &byte) != 1 || (at[2] != ':' && i < 19))
			return false;
		if (i >= 4)
			out->raw[i - 4] = (uint8_t)byte;
	}
	return true;
}

static void find_ipoib(struct wanted *w)
{
	struct ifaddrs *all, *i;
	struct wanted other;

	if (getifaddrs(&all) < 0)
		return;
	for (i = all; i && !w->has_ipoib; i = i->ifa_next)
		if (i->ifa_addr && map(i->ifa_addr, &other) &&
		    memcmp(other.address, w->address, sizeof(w->address)) == 0 &&
		    (!w->scope || other.scope == w->scope))
			w->has_ipoib = ipoib_gid(i->ifa_name, &w->ipoib);
	freeifaddrs(all);
}

/* As the header's inline function, whose symbol is not linked. */
static int query_port(const struct verbs_lib *lib, struct ibv_context *device,
		      uint8_t port, struct ibv_port_attr *attr)
{
	struct verbs_context *v = verbs_get_ctx_op(device, query_port);

	memset(attr, 0, sizeof(*attr));
	if (v)
		return v->query_port(device, port, attr, sizeof(*attr));
	return (lib->ibv_query_port)(device, port, (struct _compat_ibv_port_attr *)attr);
}

static bool find_roce(const struct verbs_lib *lib, const struct wanted *w,
		      struct verbs_port *p)
{
	for (int i = 0; i < p->attr.gid_tbl_len; i++) {
		struct ibv_gid_entry e;

		if (lib->_ibv_query_gid_ex(p->device, p->port, (uint32_t)i, &e, 0,
					   sizeof(e)) ||
		    e.gid_type != IBV_GID_TYPE_ROCE_V2 ||
		    memcmp(e.gid.raw, w->address, sizeof(w->address)) != 0 ||
		    (w->scope && e.ndev_ifindex != w->scope))
			continue;
		p->gid_index = i;
		p->gid = e.gid;
		return true;
	}
	return false;
}

static bool find_infiniband(const struct verbs_lib *lib, const struct wanted *w,
			    struct verbs_port *p)
{
	for (int i = 0; w->has_ipoib && i < p->attr.gid_tbl_len; i++) {
		if (lib->ibv_query_gid(p->device, p->port, i, &p->gid) ||
		    memcmp(p->gid.raw, w->ipoib.raw, sizeof(p->gid.raw)) != 0)
			continue;
		p->gid_index = i;
		return true;
	}
	return false;
}

static bool find_on_device(const struct verbs_lib *lib, const struct wanted *w,
			   struct verbs_port *p)
{
	if (lib->ibv_query_device(p->device, &p->limits))
		return false;
	for (p->port = 1; p->port <= p->limits.phys_port_cnt; p->port++) {
		if (query_port(lib, p->device, p->port, &p->attr) ||
		    p->attr.state != IBV_PORT_ACTIVE)
			continue;
		p->is_infiniband = p->attr.link_layer == IBV_LINK_LAYER_INFINIBAND;
		if (p->is_infiniband ? find_infiniband(lib, w, p) : find_roce(lib, w, p))
			return true;
	}
	return false;
}

int verbs_port_find(const struct verbs_lib *lib, const struct sockaddr *local,
		    struct verbs_port *out, const char **why)
{
	struct ibv_device **list;
	struct wanted w;
	bool found = false;
	int count;

	*why = "the address is neither of IPv4 nor of IPv6";
	if (!map(local, &w))
		return -EAFNOSUPPORT;
	find_ipoib(&w);
	list = lib->ibv_get_device_list(&count);
	*why = "there is no RDMA device";
	if (!list || count == 0) {
		if (list)
			lib->ibv_free_device_list(list);
		return -ENODEV;
	}
	*why = "no RDMA device has this address";
	for (int i = 0; i < count && !found; i++) {
		memset(out, 0, sizeof(*out));
		out->device = lib->ibv_open_device(list[i]);
		if (!out->device)
			continue;
		found = find_on_device(lib, &w, out);
		if (!found)
			lib->ibv_close_device(out->device);
	}
	lib->ibv_free_device_list(list);
	return found ? 0 : -ENODEV;
}
