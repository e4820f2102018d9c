/* SPDX-License-Identifier: Apache-2.0 */
/* Which device, port and GID a connection's address leads to, and what of these a queue pair is
 * given: on a libibverbs of our own, which also has the devices that no test machine has. */
#include "unit/test.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>

#include "rdma/verbs_parts.h"

enum { GIDS = 3, PORTS = 2, DEVICES = 3, WINDOW_BYTES = 4096 };

struct fake_gid {
	const char *address; /* NULL: none is there */
	enum ibv_gid_type_sysfs { V1, V2, IB } kind;
	uint32_t interface;
};

static struct fake_device {
	struct ibv_device device;
	struct ibv_context open;
	struct {
		enum ibv_port_state state;
		uint8_t layer;
		uint16_t lid;
		struct fake_gid gid[GIDS];
	} port[PORTS];
	int ports, opened;
} devices[DEVICES];

static struct fake_device *of_context(struct ibv_context *c)
{
	for (int i = 0; i < DEVICES; i++)
		if (c == &devices[i].open)
			return &devices[i];
	return NULL;
}

static int device_count = DEVICES;
static struct ibv_device *listed[DEVICES + 1];

static struct ibv_device **get_device_list(int *count)
{
	for (int i = 0; i < device_count; i++)
		listed[i] = &devices[i].device;
	*count = device_count;
	return listed;
}

static void free_device_list(struct ibv_device **list)
{
	CHECK(list == listed);
}

static struct ibv_context *open_device(struct ibv_device *d)
{
	struct fake_device *f = (struct fake_device *)d;
	f->opened++;
	return &f->open;
}

static int close_device(struct ibv_context *c)
{
	of_context(c)->opened--;
	return 0;
}

static int query_device(struct ibv_context *c, struct ibv_device_attr *out)
{
	*out = (struct ibv_device_attr){.phys_port_cnt = (uint8_t)of_context(c)->ports};
	return 0;
}

static int query_port(struct ibv_context *c, uint8_t port,
		      struct _compat_ibv_port_attr *out)
{
	struct ibv_port_attr *attr = (struct ibv_port_attr *)out;
	attr->state = of_context(c)->port[port - 1].state;
	attr->link_layer = of_context(c)->port[port - 1].layer;
	attr->lid = of_context(c)->port[port - 1].lid;
	attr->gid_tbl_len = GIDS;
	attr->active_mtu = IBV_MTU_2048;
	attr->max_msg_sz = 1u << 30;
	return 0;
}

static void put_gid(const char *address, uint8_t raw[16])
{
	struct in_addr v4;
	memset(raw, 0, 16);
	if (inet_pton(AF_INET, address, &v4) == 1) {
		raw[10] = raw[11] = 0xff;
		memcpy(raw + 12, &v4, 4);
	} else {
		REQUIRE(inet_pton(AF_INET6, address, raw) == 1);
	}
}

static int query_gid(struct ibv_context *c, uint8_t port, int index, union ibv_gid *out)
{
	const struct fake_gid *g = &of_context(c)->port[port - 1].gid[index];
	if (!g->address)
		return -1;
	put_gid(g->address, out->raw);
	return 0;
}

static int query_gid_ex(struct ibv_context *c, uint32_t port, uint32_t index,
			struct ibv_gid_entry *out, uint32_t flags, size_t size)
{
	const struct fake_gid *g = &of_context(c)->port[port - 1].gid[index];
	CHECK_EQ(flags, 0);
	CHECK_EQ(size, sizeof(*out));
	if (!g->address)
		return ENODATA;
	put_gid(g->address, out->gid.raw);
	out->gid_type = g->kind == V1	? IBV_GID_TYPE_ROCE_V1
			: g->kind == V2 ? IBV_GID_TYPE_ROCE_V2
					: IBV_GID_TYPE_IB;
	out->ndev_ifindex = g->interface;
	return 0;
}

static struct ibv_pd a_domain;
static struct ibv_mr a_region = {.rkey = 77};
static struct ibv_qp a_pair = {.qp_num = 4711};
static struct ibv_qp_attr told[4];
static int told_mask[4], told_count;

static struct ibv_pd *alloc_pd(struct ibv_context *c)
{
	(void)c;
	return &a_domain;
}

static int dealloc_pd(struct ibv_pd *domain)
{
	return domain != &a_domain;
}

static struct ibv_mr *reg_mr(struct ibv_pd *domain, void *at, size_t bytes, int access)
{
	CHECK(domain == &a_domain && at);
	CHECK_EQ(bytes, WINDOW_BYTES);
	CHECK(access & IBV_ACCESS_REMOTE_WRITE);
	return &a_region;
}

static int dereg_mr(struct ibv_mr *region)
{
	return region != &a_region;
}

static struct ibv_qp *create_qp(struct ibv_pd *domain, struct ibv_qp_init_attr *attr)
{
	CHECK(domain == &a_domain);
	CHECK_EQ(attr->qp_type, IBV_QPT_RC);
	return &a_pair;
}

static int modify_qp(struct ibv_qp *pair, struct ibv_qp_attr *attr, int mask)
{
	CHECK(pair == &a_pair);
	REQUIRE(told_count < 4);
	told_mask[told_count] = mask;
	told[told_count++] = *attr;
	return 0;
}

static int destroy_qp(struct ibv_qp *pair)
{
	return pair != &a_pair;
}

static const struct verbs_lib lib = {
	.ibv_get_device_list = get_device_list,
	.ibv_free_device_list = free_device_list,
	.ibv_open_device = open_device,
	.ibv_close_device = close_device,
	.ibv_query_device = query_device,
	.ibv_query_port = query_port,
	.ibv_query_gid = query_gid,
	._ibv_query_gid_ex = query_gid_ex,
	.ibv_alloc_pd = alloc_pd,
	.ibv_dealloc_pd = dealloc_pd,
	.ibv_reg_mr = reg_mr,
	.ibv_dereg_mr = dereg_mr,
	.ibv_create_qp = create_qp,
	.ibv_modify_qp = modify_qp,
	.ibv_destroy_qp = destroy_qp,
};

static struct sockaddr *address_of(const char *text, uint32_t scope)
{
	static struct sockaddr_in6 v6;
	static struct sockaddr_in v4;
	v4 = (struct sockaddr_in){.sin_family = AF_INET};
	if (inet_pton(AF_INET, text, &v4.sin_addr) == 1)
		return (struct sockaddr *)&v4;
	v6 = (struct sockaddr_in6){.sin6_family = AF_INET6, .sin6_scope_id = scope};
	REQUIRE(inet_pton(AF_INET6, text, &v6.sin6_addr) == 1);
	return (struct sockaddr *)&v6;
}

static int find(const char *address, uint32_t scope, struct verbs_port *p)
{
	const char *why;
	int r = verbs_port_find(&lib, address_of(address, scope), p, &why);
	int opened = 0;
	for (int i = 0; i < DEVICES; i++)
		opened += devices[i].opened;
	CHECK_EQ(opened, r == 0); /* and no other one */
	return r;
}

static void leave(struct verbs_port *p)
{
	close_device(p->device);
}

static void roce(struct fake_device *d, int port, int index, const char *address,
		 int kind, uint32_t interface)
{
	d->port[port - 1].state = IBV_PORT_ACTIVE;
	d->port[port - 1].layer = IBV_LINK_LAYER_ETHERNET;
	d->port[port - 1].gid[index] = (struct fake_gid){address, kind, interface};
	if (d->ports < port)
		d->ports = port;
}

TEST(the_address_names_the_device)
{
	struct verbs_port p;
	roce(&devices[0], 1, 1, "10.0.0.1", V2, 2);
	roce(&devices[1], 1, 0, "10.0.0.2", V1,
	     3); /* packets of its own: no way for addresses */
	roce(&devices[1], 2, 2, "10.0.0.2", V2, 3);
	roce(&devices[2], 1, 0, "fe80::1", V2, 7);
	roce(&devices[2], 2, 1, "fe80::1", V2, 8);
	REQUIRE(find("10.0.0.1", 0, &p) == 0);
	CHECK(p.device == &devices[0].open && p.port == 1 && p.gid_index == 1);
	leave(&p);
	REQUIRE(find("10.0.0.2", 0, &p) == 0);
	CHECK(p.device == &devices[1].open && p.port == 2 && p.gid_index == 2);
	CHECK(!p.is_infiniband);
	leave(&p);
	/* One link-local address may be there on each interface. */
	REQUIRE(find("fe80::1", 8, &p) == 0);
	CHECK(p.device == &devices[2].open && p.port == 2 && p.gid_index == 1);
	leave(&p);
	CHECK_EQ(find("fe80::1", 9, &p), -ENODEV);
	CHECK_EQ(find("10.0.0.3", 0, &p), -ENODEV);
	devices[0].port[0].state = IBV_PORT_DOWN;
	CHECK_EQ(find("10.0.0.1", 0, &p), -ENODEV);
	device_count = 0;
	CHECK_EQ(find("10.0.0.2", 0, &p), -ENODEV);
	device_count = DEVICES;
}

static void write_text(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CREAT, 0644);
	REQUIRE(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text));
	close(fd);
}

/* The loopback interface becomes one of InfiniBand, by what sysfs says of it. False: not allowed. */
static bool on_infiniband(const char *hardware)
{
	char map[32];
	snprintf(map, sizeof(map), "0 %u 1", geteuid());
	if (unshare(CLONE_NEWNS) != 0) {
		if (unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0)
			return false;
		write_text("/proc/self/uid_map", map);
	}
	if (mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
	    mount("none", "/sys/class/net", "tmpfs", 0, NULL) != 0)
		return false;
	if (mkdir("/sys/class/net/lo", 0755) != 0) /* the group has no number there */
		return false;
	write_text("/sys/class/net/lo/address", hardware);
	return true;
}

static void infiniband(struct fake_device *d)
{
	memset(d, 0, sizeof(*d));
	d->ports = 2;
	for (int i = 0; i < 2; i++) {
		d->port[i].state = IBV_PORT_ACTIVE;
		d->port[i].layer = IBV_LINK_LAYER_INFINIBAND;
		d->port[i].lid = (uint16_t)(11 + i);
	}
	d->port[0].gid[0] = (struct fake_gid){"fe80::2:c903:1:1", IB, 0};
	d->port[1].gid[0] = (struct fake_gid){"fe80::2:c903:1:2", IB, 0};
	d->port[1].gid[1] = (struct fake_gid){"2001:db8::2:c903:1:2", IB, 0};
}

/* The attributes with which the pair is made ready to receive. */
static const struct ibv_qp_attr *path_to(struct link *l, const struct link_address *peer)
{
	told_count = 0;
	REQUIRE(verbs_link_connect(l, peer) == 0);
	REQUIRE(told_count == 2);
	CHECK(told_mask[0] & IBV_QP_AV);
	CHECK_EQ(told[0].qp_state, IBV_QPS_RTR);
	CHECK_EQ(told[1].qp_state, IBV_QPS_RTS);
	return &told[0];
}

static uint8_t window[WINDOW_BYTES];
static struct verbs_process process;
static struct verbs_link v;

/* A process and its link as they are before either knows a device; and no device. */
static void begin(void)
{
	process = (struct verbs_process){.context.limits = {.credits = 16, .sends = 16},
					 .lib = &lib};
	v = (struct verbs_link){.link = {.context = &process.context,
					 .window = window,
					 .window_bytes = sizeof(window)}};
	memset(devices, 0, sizeof(devices));
}

TEST(infiniband_goes_by_lids)
{
	struct link_address peer = {.fabric = FABRIC_INFINIBAND,
				    .mtu = IBV_MTU_1024,
				    .lid = 42,
				    .qpn = 99,
				    .psn = 5};
	const struct ibv_qp_attr *got;
	/* Four bytes of a queue pair, then the port's GID. */
	if (!on_infiniband(
		    "80:00:02:08:fe:80:00:00:00:00:00:00:00:02:c9:03:00:01:00:02\n"))
		SKIP("no mount namespace of its own");
	begin();
	roce(&devices[0], 1, 0, "127.0.0.1", V1, 1);
	infiniband(&devices[1]);
	REQUIRE(find("127.0.0.1", 0, &process.port) == 0);
	CHECK(process.port.device == &devices[1].open && process.port.port == 2);
	CHECK(process.port.is_infiniband && process.port.gid_index == 0);

	REQUIRE(verbs_link_open(&v.link) == 0);
	CHECK_EQ(v.link.own.fabric, FABRIC_INFINIBAND);
	CHECK_EQ(v.link.own.lid, 12);
	CHECK_EQ(v.link.own.mtu, IBV_MTU_2048);
	CHECK_EQ(v.link.own.key, 77);
	/* In the same subnet: by its LID, without the global header. */
	REQUIRE(inet_pton(AF_INET6, "fe80::2:c903:9:9", peer.gid) == 1);
	got = path_to(&v.link, &peer);
	CHECK_EQ(got->ah_attr.dlid, 42);
	CHECK_EQ(got->ah_attr.is_global, 0);
	CHECK_EQ(got->ah_attr.port_num, 2);
	CHECK_EQ(got->path_mtu, IBV_MTU_1024);
	CHECK_EQ(got->dest_qp_num, 99);
	CHECK_EQ(got->rq_psn, 5);
	/* In another one nobody here knows the router. */
	REQUIRE(inet_pton(AF_INET6, "fec0::2:c903:9:9", peer.gid) == 1);
	told_count = 0;
	CHECK_EQ(verbs_link_connect(&v.link, &peer), -ENETUNREACH);
	CHECK_EQ(told_count, 0);
	verbs_link_close(&v.link);
	leave(&process.port);
	/* An address that is no interface's of InfiniBand. */
	CHECK_EQ(find("10.9.9.9", 0, &process.port), -ENODEV);
}

/* RoCE has no LIDs, whatever a peer says, and always the global header. */
TEST(roce_goes_by_gids)
{
	struct link_address peer = {
		.fabric = FABRIC_ROCE2, .mtu = IBV_MTU_4096, .qpn = 99};
	const struct ibv_qp_attr *got;
	begin();
	roce(&devices[0], 1, 2, "10.0.0.1", V2, 2);
	devices[0].port[0].lid = 3;
	REQUIRE(find("10.0.0.1", 0, &process.port) == 0);
	REQUIRE(verbs_link_open(&v.link) == 0);
	CHECK_EQ(v.link.own.fabric, FABRIC_ROCE2);
	CHECK_EQ(v.link.own.lid, 0);
	put_gid("10.0.0.2", peer.gid);
	got = path_to(&v.link, &peer);
	CHECK_EQ(got->ah_attr.is_global, 1);
	CHECK_EQ(got->ah_attr.dlid, 0);
	CHECK_EQ(got->ah_attr.grh.sgid_index, 2);
	CHECK(got->ah_attr.grh.hop_limit > 1);
	CHECK_EQ(got->path_mtu, IBV_MTU_2048);
	verbs_link_close(&v.link);
	leave(&process.port);
}
