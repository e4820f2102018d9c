/* SPDX-License-Identifier: Apache-2.0 */
/* Stands in for raw verbs where the header of libibverbs was missing at build time. */
#include <errno.h>

#include "measure/bench.h"

bool bench_raw_found(int fd)
{
	(void)fd;
	return false;
}

_Noreturn static void fail(void)
{
	errno = ENODEV;
	bench_role_fail("built without libibverbs");
}

void bench_raw_run(const struct bench_job *job, int fd, struct bench_result *res)
{
	(void)job;
	(void)fd;
	(void)res;
	fail();
}

struct raw *bench_raw_open(size_t size, int fd)
{
	(void)size;
	(void)fd;
	fail();
}

void bench_raw_send(struct raw *r, uint64_t number, bool is_answered,
		    struct bench_result *res)
{
	(void)res;
	(void)r;
	(void)number;
	(void)is_answered;
}

void bench_raw_receive(struct raw *r, uint64_t number, struct bench_result *res)
{
	(void)r;
	(void)number;
	(void)res;
}

void bench_raw_mark(struct raw *r)
{
	(void)r;
}

void bench_raw_sink(struct raw *r, struct bench_result *res)
{
	(void)r;
	(void)res;
}
