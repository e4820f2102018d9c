/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the preloaded library's engine, and libtirpc, in the process. */
#include "rpc/engine.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <netinet/in.h>

#include "base/reason.h"
#include "rpc/count.h"

#define LIBRARY "libtirpc.so.3"

const struct door *engine;

static struct tirpc found;
static pthread_once_t once = PTHREAD_ONCE_INIT;

#define FUNCTION(name, member)                                                           \
	{                                                                                \
		name, "TIRPC_0.3.0", offsetof(struct tirpc, member), false               \
	}
#define DATA(name, member)                                                               \
	{                                                                                \
		name, "TIRPC_0.3.3", offsetof(struct tirpc, member), true                \
	}

static const struct {
	const char *name, *version;
	size_t at;
	bool is_data;
} wanted[] = {
	FUNCTION("clnt_vc_create", clnt_vc_create),
	FUNCTION("clnt_create_timed", clnt_create_timed),
	FUNCTION("__rpc_createerr", createerr),
	FUNCTION("svc_create", svc_create),
	FUNCTION("svc_vc_create", svc_vc_create),
	FUNCTION("xprt_register", xprt_register),
	FUNCTION("svc_run", svc_run),
	FUNCTION("svc_getreq_common", svc_getreq_common),
	FUNCTION("svc_getreq_poll", svc_getreq_poll),
	FUNCTION("rpc_control", rpc_control),
	FUNCTION("__rpc_get_t_size", rpc_get_t_size),
	FUNCTION("xdr_replymsg", xdr_replymsg),
	FUNCTION("xdr_callmsg", xdr_callmsg),
	FUNCTION("xdr_bytes", xdr_bytes),
	FUNCTION("xdr_opaque_auth", xdr_opaque_auth),
	FUNCTION("xdr_void", xdr_void),
	FUNCTION("_seterr_reply", seterr_reply),
	DATA("svc_pollfd", svc_pollfd),
	DATA("svc_max_pollfd", svc_max_pollfd),
};

/* Of functions the library's own count, since some of the module's have the same names. Its data may
 * have been copied into the program, and then that copy is what the library uses, too. */
static void *look_up(void *library, const char *name, const char *version, bool is_data)
{
	void *symbol = is_data ? dlvsym(RTLD_DEFAULT, name, version) : NULL;

	if (!symbol && library)
		symbol = dlvsym(library, name, version);
	if (symbol)
		return symbol;
	fprintf(stderr, "libviaduct-rpc.so: " LIBRARY " has no %s\n", name);
	abort();
}

static void find(void)
{
	/* Whoever calls has loaded it. */
	void *library = dlopen(LIBRARY, RTLD_LAZY | RTLD_NOLOAD);
	uint32_t reason = VD_REASON_OFF;

	for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++)
		*(void **)((char *)&found + wanted[i].at) = look_up(
			library, wanted[i].name, wanted[i].version, wanted[i].is_data);
	const struct door *d = dlsym(RTLD_DEFAULT, DOOR_NAME);
	if (!d || d->version != DOOR_VERSION || d->bytes != sizeof(*d))
		return;
	d->path(-1, &reason);
	if (reason == VD_REASON_OFF)
		return;
	count_init();
	engine = d;
}

const struct tirpc *tirpc(void)
{
	pthread_once(&once, find);
	return &found;
}

bool engine_find(void)
{
	tirpc();
	return engine != NULL;
}

bool engine_is_libtirpc(void *function)
{
	Dl_info one, other;

	return dladdr(function, &one) && dladdr((void *)tirpc()->xprt_register, &other) &&
	       one.dli_fbase == other.dli_fbase;
}

bool engine_is_tcp(int fd)
{
	int protocol = 0;
	socklen_t len = sizeof(protocol);

	return getsockopt(fd, SOL_SOCKET, SO_PROTOCOL, &protocol, &len) == 0 &&
	       protocol == IPPROTO_TCP;
}
