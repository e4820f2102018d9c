/* SPDX-License-Identifier: Apache-2.0 */
/* Preloaded into a program of the native library: its connection is on RDMA before the program has it. */
/*
 * At both ends, so that neither waits long for the other afterwards. Each flush goes to the peer's library
 * and back, and so the upgrade has its turns.
 */
#include <dlfcn.h>
#include <viaduct/viaduct.h>

static int await(int r, vd_conn **c)
{
	while (r == 0 && vd_path(*c) != VD_PATH_RDMA)
		r = vd_flush(*c);
	return r;
}

__attribute__((visibility("default"))) int
vd_connect(const char *host, const char *service, int timeout_ms, vd_conn **c)
{
	int (*real)(const char *, const char *, int, vd_conn **);

	*(void **)&real = dlsym(RTLD_NEXT, "vd_connect");
	return await(real(host, service, timeout_ms, c), c);
}

__attribute__((visibility("default"))) int vd_accept(vd_listener *l, int timeout_ms,
						     vd_conn **c)
{
	int (*real)(vd_listener *, int, vd_conn **);

	*(void **)&real = dlsym(RTLD_NEXT, "vd_accept");
	return await(real(l, timeout_ms, c), c);
}
