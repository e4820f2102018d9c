/* SPDX-License-Identifier: Apache-2.0 */
/* Libc's functions are found, by threads that arrive together, and missing ones are met.
 */
#include <fcntl.h>
#include <pthread.h>

/* The source itself: the search is private to it. */
#include "base/real.c"
#include "unit/test.h"

enum { THREADS = 8, ROUNDS = 200 };

static pthread_barrier_t barrier;

static void *resolve_and_call(void *arg)
{
	for (int i = 0; i < ROUNDS; i++) {
		char c = 'x';
		int p[2];
		pthread_barrier_wait(&barrier);
		if (arg) {
			memset(&real_table, 0, sizeof(real_table));
			__atomic_store_n(&real_ready, 0, __ATOMIC_RELEASE);
		}
		pthread_barrier_wait(&barrier);
		CHECK_EQ(REAL(socketpair)(AF_UNIX, SOCK_STREAM, 0, p), 0);
		CHECK_EQ(REAL(send)(p[0], &c, 1, 0), 1);
		CHECK_EQ(REAL(recv)(p[1], &c, 1, 0), 1);
		REAL(close)(p[0]);
		REAL(close)(p[1]);
	}
	return NULL;
}

TEST(threads_may_resolve_together)
{
	pthread_t thread[THREADS];

	pthread_barrier_init(&barrier, NULL, THREADS);
	for (long i = 0; i < THREADS; i++)
		REQUIRE(!pthread_create(&thread[i], NULL, resolve_and_call,
					i == 0 ? &barrier : NULL));
	for (int i = 0; i < THREADS; i++)
		pthread_join(thread[i], NULL);
	pthread_barrier_destroy(&barrier);
}

TEST(every_symbol_is_libcs)
{
	real_resolve();
#define X(ret, name, params)                                                             \
	CHECK(real_table.name != NULL);                                                  \
	CHECK((void *)real_table.name == dlsym(RTLD_DEFAULT, #name));
	VD_REAL(X)
#undef X
}

TEST(resolving_keeps_errno)
{
	errno = 77;
	real_resolve();
	CHECK_EQ(errno, 77);
}

TEST(missing_symbols)
{
	CHECK(real_find("viaduct_no_such_function") == NULL);
	CHECK(real_find("viaduct_no_such_function64") == NULL);
	CHECK(real_find("strchrnul64") == dlsym(RTLD_DEFAULT, "strchrnul"));
	errno = 0;
	CHECK_EQ(real_missing(), -1);
	CHECK_EQ(errno, ENOSYS);
}
