/* SPDX-License-Identifier: Apache-2.0 */
/* The limit of open files, for measurements over many connections. */
#include <errno.h>
#include <string.h>
#include <sys/resource.h>

#include "measure/bench.h"

/* Besides the socket, each end of a direct path keeps both bells. */
enum { PER_TCP = 1, PER_VIADUCT = 3, BESIDE = 300 };

int bench_files_raise(unsigned conns, bool viaduct)
{
	rlim_t need = (rlim_t)conns * (viaduct ? PER_VIADUCT : PER_TCP) + BESIDE;
	struct rlimit now, wish;

	if (getrlimit(RLIMIT_NOFILE, &now) < 0 || now.rlim_cur >= need)
		return 0;
	wish = now;
	wish.rlim_cur = need;
	if (wish.rlim_max < need)
		wish.rlim_max = need; /* only a privileged user may */
	if (!setrlimit(RLIMIT_NOFILE, &wish))
		return 0;
	fprintf(stderr,
		"viaduct bench: %u connections need %ju open files in each process, and "
		"the hard limit is %ju: raise it (`ulimit -Hn %ju` as root, LimitNOFILE= "
		"of a service, nofile in /etc/security/limits.conf), or give a smaller "
		"--conns\n",
		conns, (uintmax_t)need, (uintmax_t)now.rlim_max, (uintmax_t)need);
	return -EMFILE;
}
