/* SPDX-License-Identifier: Apache-2.0 */
/* Redirects what TCP sockets of one cgroup send to each other past TCP, by eBPF's sockmap.
 *
 * usage: sockmap CGROUP
 *
 * Makes the cgroup, attaches, says "ready"; answers each line of its input with the number
 * of bytes redirected so far; at the end of its input detaches, and removes the cgroup with
 * whoever is still in it. What is attached hangs on descriptors of this process, so that
 * nothing stays however it ends.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/bpf.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define MAX_SOCKETS 65536
#define REMOVE_MS   5000

/* The four numbers of a connection, as its owner sees it; ports in host order. */
struct key {
	uint32_t local_ip, remote_ip, local_port, remote_port;
};

#define KEY_AT(member) ((int)offsetof(struct key, member) - (int)sizeof(struct key))
#define ZERO_AT	       (-(int)sizeof(struct key) - 4)
#define OPS(member)    ((int)offsetof(struct bpf_sock_ops, member))
#define MSG(member)    ((int)offsetof(struct sk_msg_md, member))
#define INSN(c, d, s, o, i)                                                              \
	{                                                                                \
		.code = (c), .dst_reg = (d), .src_reg = (s), .off = (int16_t)(o),        \
		.imm = (i)                                                               \
	}
#define MOVE(d, s)	  INSN(BPF_ALU64 | BPF_MOV | BPF_X, d, s, 0, 0)
#define SET(d, value)	  INSN(BPF_ALU64 | BPF_MOV | BPF_K, d, 0, 0, value)
#define ADD(d, value)	  INSN(BPF_ALU64 | BPF_ADD | BPF_K, d, 0, 0, value)
#define LOAD(d, s, at)	  INSN(BPF_LDX | BPF_MEM | BPF_W, d, s, at, 0)
#define STORE(d, at, s)	  INSN(BPF_STX | BPF_MEM | BPF_W, d, s, at, 0)
#define STORE_ZERO(d, at) INSN(BPF_ST | BPF_MEM | BPF_W, d, 0, at, 0)
#define TO_HOST(d)	  INSN(BPF_ALU | BPF_END | BPF_TO_BE, d, 0, 0, 32)
#define IF_EQUAL(d, v, n) INSN(BPF_JMP | BPF_JEQ | BPF_K, d, 0, n, v)
#define IF_OTHER(d, v, n) INSN(BPF_JMP | BPF_JNE | BPF_K, d, 0, n, v)
#define CALL(helper)	  INSN(BPF_JMP | BPF_CALL, 0, 0, 0, helper)
#define ATOMIC_ADD(d, s)  INSN(BPF_STX | BPF_ATOMIC | BPF_DW, d, s, 0, BPF_ADD)
#define EXIT()		  INSN(BPF_JMP | BPF_EXIT, 0, 0, 0, 0)
#define MAP(d, fd)                                                                       \
	INSN(BPF_LD | BPF_DW | BPF_IMM, d, BPF_PSEUDO_MAP_FD, 0, fd), INSN(0, 0, 0, 0, 0)

static const char *made; /* the cgroup, once it is there */

static void fail(const char *what)
{
	fprintf(stderr, "sockmap: cannot %s: %s\n", what, strerror(errno));
	if (made)
		rmdir(made);
	exit(1);
}

static int bpf(int command, union bpf_attr *attr)
{
	return (int)syscall(SYS_bpf, command, attr, sizeof(*attr));
}

static int create_map(uint32_t type, uint32_t key_size, uint32_t value_size, uint32_t n)
{
	union bpf_attr attr = {.map_type = type,
			       .key_size = key_size,
			       .value_size = value_size,
			       .max_entries = n};
	int fd = bpf(BPF_MAP_CREATE, &attr);

	if (fd < 0)
		fail("create a map");
	return fd;
}

static int load(uint32_t type, const struct bpf_insn *insns, size_t count,
		const char *what)
{
	static char log[65536];
	union bpf_attr attr = {.prog_type = type,
			       .insns = (uint64_t)(uintptr_t)insns,
			       .insn_cnt = (uint32_t)count,
			       .license = (uint64_t)(uintptr_t) "Apache-2.0",
			       .log_buf = (uint64_t)(uintptr_t)log,
			       .log_size = sizeof(log),
			       .log_level = 1};
	int fd = bpf(BPF_PROG_LOAD, &attr);

	if (fd < 0) {
		fprintf(stderr, "%s", log);
		fail(what);
	}
	return fd;
}

/* Enters each new connection of the cgroup into the map. */
static int load_ops(int sockets)
{
	const struct bpf_insn insns[] = {
		MOVE(6, 1),
		LOAD(2, 6, OPS(op)),
		IF_EQUAL(2, BPF_SOCK_OPS_ACTIVE_ESTABLISHED_CB, 1),
		IF_OTHER(2, BPF_SOCK_OPS_PASSIVE_ESTABLISHED_CB, 16),
		LOAD(2, 6, OPS(local_ip4)),
		STORE(10, KEY_AT(local_ip), 2),
		LOAD(2, 6, OPS(remote_ip4)),
		STORE(10, KEY_AT(remote_ip), 2),
		LOAD(2, 6, OPS(local_port)),
		STORE(10, KEY_AT(local_port), 2),
		LOAD(2, 6, OPS(remote_port)),
		TO_HOST(2),
		STORE(10, KEY_AT(remote_port), 2),
		MOVE(1, 6),
		MAP(2, sockets),
		MOVE(3, 10),
		ADD(3, -(int)sizeof(struct key)),
		SET(4, BPF_ANY),
		CALL(BPF_FUNC_sock_hash_update),
		SET(0, 1),
		EXIT(),
	};

	return load(BPF_PROG_TYPE_SOCK_OPS, insns, sizeof(insns) / sizeof(insns[0]),
		    "load the program for new connections");
}

/* Puts what a socket of the map sends into the queue of its peer, if that is there too;
 * otherwise it takes its way over TCP. */
static int load_msg(int sockets, int bytes)
{
	const struct bpf_insn insns[] = {
		MOVE(6, 1),
		LOAD(2, 6, MSG(remote_ip4)),
		STORE(10, KEY_AT(local_ip), 2),
		LOAD(2, 6, MSG(local_ip4)),
		STORE(10, KEY_AT(remote_ip), 2),
		LOAD(2, 6, MSG(remote_port)),
		TO_HOST(2),
		STORE(10, KEY_AT(local_port), 2),
		LOAD(2, 6, MSG(local_port)),
		STORE(10, KEY_AT(remote_port), 2),
		MAP(2, sockets),
		MOVE(3, 10),
		ADD(3, -(int)sizeof(struct key)),
		SET(4, BPF_F_INGRESS),
		CALL(BPF_FUNC_msg_redirect_hash),
		IF_OTHER(0, SK_PASS, 9),
		STORE_ZERO(10, ZERO_AT),
		MAP(1, bytes),
		MOVE(2, 10),
		ADD(2, ZERO_AT),
		CALL(BPF_FUNC_map_lookup_elem),
		IF_EQUAL(0, 0, 2),
		LOAD(1, 6, MSG(size)),
		ATOMIC_ADD(0, 1),
		SET(0, SK_PASS),
		EXIT(),
	};

	return load(BPF_PROG_TYPE_SK_MSG, insns, sizeof(insns) / sizeof(insns[0]),
		    "load the program for messages");
}

static void attach(int cgroup, int ops, int sockets, int msg)
{
	union bpf_attr attr = {.target_fd = (uint32_t)sockets,
			       .attach_bpf_fd = (uint32_t)msg,
			       .attach_type = BPF_SK_MSG_VERDICT};

	if (bpf(BPF_PROG_ATTACH, &attr))
		fail("attach to the map");
	memset(&attr, 0, sizeof(attr));
	attr.link_create.prog_fd = (uint32_t)ops;
	attr.link_create.target_fd = (uint32_t)cgroup;
	attr.link_create.attach_type = BPF_CGROUP_SOCK_OPS;
	if (bpf(BPF_LINK_CREATE, &attr) < 0)
		fail("attach to the cgroup");
}

static void answer(int bytes)
{
	uint32_t zero = 0;
	uint64_t count = 0;
	union bpf_attr attr = {.map_fd = (uint32_t)bytes,
			       .key = (uint64_t)(uintptr_t)&zero,
			       .value = (uint64_t)(uintptr_t)&count};

	if (bpf(BPF_MAP_LOOKUP_ELEM, &attr))
		fail("read the counter");
	printf("%llu\n", (unsigned long long)count);
	fflush(stdout);
}

/* Who is still in it then was left behind: its owner ends what it started. */
static void remove_cgroup(int cgroup)
{
	for (int ms = 0; rmdir(made) && ms < REMOVE_MS; ms += 10) {
		int fd = openat(cgroup, "cgroup.kill", O_WRONLY | O_CLOEXEC);

		if (fd >= 0 && write(fd, "1", 1) < 0 && errno != EOPNOTSUPP)
			fail("empty the cgroup");
		if (fd >= 0)
			close(fd);
		usleep(10000);
	}
}

int main(int argc, char **argv)
{
	char line[64];
	int cgroup, sockets, bytes;

	if (argc != 2) {
		fprintf(stderr, "usage: sockmap CGROUP\n");
		return 2;
	}
	sockets = create_map(BPF_MAP_TYPE_SOCKHASH, sizeof(struct key), 4, MAX_SOCKETS);
	bytes = create_map(BPF_MAP_TYPE_ARRAY, 4, 8, 1);
	int ops = load_ops(sockets), msg = load_msg(sockets, bytes);

	if (mkdir(argv[1], 0755))
		fail("make the cgroup");
	made = argv[1];
	cgroup = open(argv[1], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (cgroup < 0)
		fail("open the cgroup");
	attach(cgroup, ops, sockets, msg);
	printf("ready\n");
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin))
		answer(bytes);
	remove_cgroup(cgroup);
	return 0;
}
