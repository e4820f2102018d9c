/* SPDX-License-Identifier: Apache-2.0 */
/* Memory without the heap: blocks that are kept, threads, handlers, forks, and limits. */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <unistd.h>

#include "base/pages.h"
#include "base/scratch.h"
#include "unit/child.h"

#define THREADS 4
#define ROUNDS	20000
#define MANY	200

static const size_t sizes[] = {1,     4096,	  4097,		  8192,		 40000,
			       65536, PAGES_MOST, PAGES_MOST + 1, 3 * PAGES_MOST};
#define SIZES (sizeof(sizes) / sizeof(*sizes))

static bool is_mapped(void *page)
{
	unsigned char in;

	return mincore(page, 4096, &in) == 0;
}

TEST(blocks_are_kept)
{
	for (size_t i = 0; i < SIZES; i++) {
		char *a = pages_take(sizes[i]), *b = pages_take(sizes[i]), *again;

		REQUIRE(a && b);
		CHECK(a != b);
		CHECK_EQ((uintptr_t)a % 4096, 0);
		memset(a, 1, sizes[i]);
		memset(b, 2, sizes[i]);
		CHECK_EQ(a[sizes[i] - 1], 1);
		pages_give(a, sizes[i]);
		again = pages_take(sizes[i]);
		CHECK(sizes[i] > PAGES_MOST || again == a);
		REQUIRE(again);
		again[sizes[i] - 1] = 3;
		CHECK_EQ(b[0], 2);
		pages_give(again, sizes[i]);
		pages_give(b, sizes[i]);
		CHECK_EQ(is_mapped(b), sizes[i] <= PAGES_MOST);
	}
	pages_give(NULL, 1);
}

TEST(not_all_are_kept)
{
	static void *block[MANY];
	int mapped = 0;

	for (int i = 0; i < MANY; i++)
		block[i] = pages_take(PAGES_MOST);
	for (int i = 0; i < MANY; i++)
		pages_give(block[i], PAGES_MOST);
	for (int i = 0; i < MANY; i++)
		mapped += is_mapped(block[i]);
	CHECK_EQ(mapped, PAGES_KEPT / PAGES_MOST);
}

/* Each has what it takes for itself. */
static void use(uint64_t own)
{
	for (int i = 0; i < ROUNDS; i++) {
		size_t bytes = (size_t)4096 << i % 4;
		volatile uint64_t *at = i % 2 ? pages_take(bytes) : scratch_take(bytes);

		REQUIRE(at);
		at[0] = at[bytes / 8 - 1] = own;
		CHECK_EQ(at[0], own);
		CHECK_EQ(at[bytes / 8 - 1], own);
		if (i % 2)
			pages_give((void *)at, bytes);
		else
			scratch_give((void *)at, bytes);
	}
}

static void *use_in_thread(void *arg)
{
	use((uint64_t)(uintptr_t)arg);
	return NULL;
}

static _Atomic int handled;

static void handle(int sig)
{
	void *at = pages_take(8192), *other = scratch_take(30000);

	(void)sig;
	REQUIRE(at && other);
	memset(at, 0xff, 8192);
	memset(other, 0xff, 30000);
	scratch_give(other, 30000);
	pages_give(at, 8192);
	atomic_fetch_add(&handled, 1);
}

TEST(threads_and_handlers)
{
	struct itimerval often = {{0, 200}, {0, 200}}, never = {{0, 0}, {0, 0}};
	struct sigaction action = {.sa_handler = handle, .sa_flags = SA_RESTART};
	pthread_t thread[THREADS];

	REQUIRE(sigaction(SIGALRM, &action, NULL) == 0);
	setitimer(ITIMER_REAL, &often, NULL);
	for (uintptr_t i = 0; i < THREADS; i++)
		REQUIRE(pthread_create(&thread[i], NULL, use_in_thread,
				       (void *)(i + 1)) == 0);
	for (int i = 0; i < THREADS; i++)
		pthread_join(thread[i], NULL);
	setitimer(ITIMER_REAL, &never, NULL);
	CHECK(atomic_load(&handled) > 0);
}

static _Atomic bool ended;

static void *use_and_end(void *arg)
{
	use((uint64_t)(uintptr_t)arg);
	atomic_store(&ended, true);
	return NULL;
}

static void child_uses(void *arg)
{
	(void)arg;
	use(7);
}

TEST(a_child_while_others_have_blocks)
{
	pthread_t thread;

	REQUIRE(pthread_create(&thread, NULL, use_and_end, (void *)1) == 0);
	/* The thread sanitizer tells each child of a thread that could be joined, and is not. */
	pthread_detach(thread);
	for (int i = 0; i < 5; i++)
		CHILD(child_uses, NULL);
	while (!atomic_load(&ended))
		usleep(1000);
}

static void no_memory(void *kept)
{
	struct rlimit limit = {1, 1};
	void *block[2], *own;
	bool found = false;

	pages_give(kept, 16384);
	REQUIRE(setrlimit(RLIMIT_AS, &limit) == 0);
	errno = 0;
	/* What was kept is there, and no more. */
	for (size_t bytes = PAGES_LEAST; bytes <= PAGES_MOST; bytes *= 2) {
		void *at;

		while ((at = pages_take(bytes)))
			found |= at == kept;
	}
	CHECK(found);
	CHECK(pages_take(SIZE_MAX) == NULL);
	/* 64 small ones are there in any case, in one row. */
	own = scratch_take(1);
	CHECK(own);
	block[0] = scratch_take(31 * SCRATCH_BYTES);
	block[1] = scratch_take(31 * SCRATCH_BYTES - 1);
	CHECK(block[0] != NULL || block[1] != NULL);
	CHECK(scratch_take(40 * SCRATCH_BYTES) == NULL);
	for (int i = 0; i < 2; i++)
		if (block[i])
			scratch_give(block[i], 31 * SCRATCH_BYTES - (size_t)i);
	scratch_give(own, 1);
	block[0] = scratch_take(64 * SCRATCH_BYTES);
	CHECK(block[0]);
	CHECK(scratch_take(1) == NULL);
	scratch_give(block[0], 64 * SCRATCH_BYTES);
	CHECK(scratch_take(65 * SCRATCH_BYTES) == NULL);
	CHECK(scratch_take(1));
	CHECK_EQ(errno, 0);
}

TEST(no_memory_is_left)
{
	void *kept = pages_take(16384);

	REQUIRE(kept);
	CHILD(no_memory, kept);
	pages_give(kept, 16384);
}

static void *take_for_good(void *arg)
{
	uint8_t *mine[MANY];

	for (int i = 0; i < MANY; i++) {
		size_t bytes = i % 50 == 49 ? 100000 : (size_t)i * 7 + 1;

		mine[i] = pages_for_good(bytes);
		REQUIRE(mine[i]);
		CHECK_EQ((uintptr_t)mine[i] % 16, 0);
		for (size_t j = 0; j < bytes; j++)
			CHECK_EQ(mine[i][j], 0);
		memset(mine[i], (int)(uintptr_t)arg, bytes);
	}
	for (int i = 0; i < MANY; i++)
		CHECK_EQ(mine[i][0], (uint8_t)(uintptr_t)arg);
	return NULL;
}

TEST(for_good)
{
	pthread_t thread[THREADS];

	for (uintptr_t i = 0; i < THREADS; i++)
		REQUIRE(pthread_create(&thread[i], NULL, take_for_good,
				       (void *)(i + 1)) == 0);
	for (int i = 0; i < THREADS; i++)
		pthread_join(thread[i], NULL);
}
