/* SPDX-License-Identifier: Apache-2.0 */
/* Messages, chance and disturbances of the random calls. */
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "stress.h"

__attribute__((weak)) void viaduct_test_bounce(int fd);

bool_t xdr_two(XDR *xdrs, struct two *t)
{
	return xdr_u_int(xdrs, &t->one) && xdr_u_int(xdrs, &t->other);
}

/* ---- chance ---- */

uint64_t chance_next(struct chance *c)
{
	uint64_t z = c->state += 0x9e3779b97f4a7c15u;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
	z = (z ^ z >> 27) * 0x94d049bb133111ebu;
	return z ^ z >> 31;
}

u_int chance_below(struct chance *c, u_int n)
{
	return (u_int)(chance_next(c) % n);
}

u_int chance_size(struct chance *c)
{
	u_int kind = chance_below(c, 2000);

	if (kind == 0)
		return 64u << 20;
	if (kind < 4)
		return chance_below(c, (64u << 20) + 1);
	if (kind < 20)
		return chance_below(c, 4u << 20);
	if (kind < 200)
		return chance_below(c, 300000);
	if (kind < 400)
		return chance_below(c, 70000);
	return chance_below(c, kind < 900 ? 9000 : 300);
}

blob stress_blob(u_int len, u_int seed)
{
	blob b = {len, malloc((size_t)len + 8)};
	uint64_t word = seed;

	for (u_int i = 0; i < len; i += 8) {
		word = word * 6364136223846793005u + 1442695040888963407u;
		memcpy(b.blob_val + i, &word, 8);
	}
	return b;
}

u_int stress_sum(const blob *b)
{
	uint64_t sum = b->blob_len, word;
	u_int i = 0;

	for (; b->blob_len - i >= 8; i += 8) {
		memcpy(&word, b->blob_val + i, 8);
		sum = (sum ^ word) * 0xbf58476d1ce4e5b9u;
	}
	for (; i < b->blob_len; i++)
		sum = (sum ^ (unsigned char)b->blob_val[i]) * 0x94d049bb133111ebu;
	return (u_int)(sum >> 32);
}

/* ---- disturbances ---- */

/* To this very process, as to any other. */
static void pass(int fd)
{
	union {
		struct cmsghdr head;
		char bytes[CMSG_SPACE(sizeof(int))];
	} control = {.head = {CMSG_LEN(sizeof(int)), SOL_SOCKET, SCM_RIGHTS}};
	struct iovec iov = {&(char){'x'}, 1};
	struct msghdr msg = {.msg_iov = &iov,
			     .msg_iovlen = 1,
			     .msg_control = &control,
			     .msg_controllen = sizeof(control)};
	int ends[2], got;

	memcpy(CMSG_DATA(&control.head), &fd, sizeof(fd));
	if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) || sendmsg(ends[0], &msg, 0) != 1 ||
	    recvmsg(ends[1], &msg, MSG_CMSG_CLOEXEC) != 1)
		abort();
	memcpy(&got, CMSG_DATA(&control.head), sizeof(got));
	close(got);
	close(ends[0]);
	close(ends[1]);
}

static void set(int fd, int level, int option, int value)
{
	if (setsockopt(fd, level, option, &value, sizeof(value)))
		abort();
}

void disturb(int fd, u_int kind)
{
	switch (kind) {
	case DISTURB_BOUNCE:
		if (viaduct_test_bounce)
			viaduct_test_bounce(fd);
		break;
	case DISTURB_DUP:
		close(dup(fd));
		break;
	case DISTURB_PASS:
		pass(fd);
		break;
	case DISTURB_FLAGS:
		fcntl(fd, F_SETFL, O_RDWR | O_NONBLOCK);
		fcntl(fd, F_SETFL, O_RDWR | O_ASYNC);
		fcntl(fd, F_SETFL, O_RDWR);
		break;
	case DISTURB_OPTION:
		set(fd, IPPROTO_TCP, TCP_NODELAY, 1);
		set(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
		break;
	case DISTURB_MORE_OPTIONS:
		set(fd, SOL_SOCKET, SO_RCVBUF, 100000);
		set(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, 1000000);
		break;
	case DISTURB_KILL:
		raise(SIGKILL);
		break;
	default:
		break;
	}
}

bool_t xdr_amid(XDR *xdrs, struct amid *a)
{
	blob *b = &a->bytes;
	u_int half;

	if (xdrs->x_op == XDR_FREE)
		return xdr_blob(xdrs, b);
	if (!xdr_u_int(xdrs, &b->blob_len))
		return FALSE;
	if (xdrs->x_op == XDR_DECODE)
		b->blob_val = malloc((size_t)b->blob_len + 1);
	half = b->blob_len / 8 * 4;
	if (!xdr_opaque(xdrs, b->blob_val, half))
		return FALSE;
	if (a->kind == DISTURB_FAIL)
		return FALSE;
	disturb(a->fd, a->kind);
	return xdr_opaque(xdrs, b->blob_val + half, b->blob_len - half);
}

/* ---- connections ---- */

CLIENT *stress_handle(int fd, unsigned short port, rpcprog_t program, rpcvers_t version)
{
	struct sockaddr_in addr = {.sin_family = AF_INET,
				   .sin_port = htons(port),
				   .sin_addr = {htonl(INADDR_LOOPBACK)}};
	struct netbuf buf = {sizeof(addr), sizeof(addr), &addr};
	CLIENT *cl = fd < 0 ? clnttcp_create(&addr, program, version, &fd, 0, 0)
			    : clnt_vc_create(fd, &buf, program, version, 0, 0);

	if (!cl) {
		clnt_pcreateerror("stress");
		exit(2);
	}
	return cl;
}

enum clnt_stat stress_call(CLIENT *cl, rpcproc_t procedure, void *xdr_args, void *args,
			   void *xdr_results, void *results)
{
	return clnt_call(cl, procedure, (xdrproc_t)xdr_args, args, (xdrproc_t)xdr_results,
			 results, ((struct timeval){STRESS_LONG_S, 0}));
}

static bool echoes(CLIENT *cl, struct chance *c)
{
	u_int len = chance_size(c);
	blob b = stress_blob(len, len), back = {0, NULL};
	bool good;

	good = stress_call(cl, S_ECHO, xdr_blob, &b, xdr_blob, &back) == RPC_SUCCESS &&
	       back.blob_len == len &&
	       (len == 0 || !memcmp(back.blob_val, b.blob_val, len));
	free(b.blob_val);
	clnt_freeres(cl, (xdrproc_t)xdr_blob, (char *)&back);
	return good;
}

u_int stress_plain(CLIENT *cl, struct chance *c, int count)
{
	u_int wrong = 0;

	for (int i = 0, result = 0; i < count; i++)
		if (chance_below(c, 3))
			wrong += stress_call(cl, S_NEXT, xdr_int, &i, xdr_int, &result) !=
					 RPC_SUCCESS ||
				 result != i + 1;
		else
			wrong += !echoes(cl, c);
	return wrong;
}
