/* SPDX-License-Identifier: Apache-2.0 */
/* The one lock of this folder, and what it guards. */
#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/random.h>

#include "base/lock.h"
#include "base/sections.h"
#include "remote/parts.h"

struct peer across_pool[ACROSS_CONNECTIONS];
int across_used;
struct peer across_lost;
struct across_link across_links[ACROSS_LINKS];
struct across_context across_contexts[ACROSS_CONTEXTS];

static struct lock lock FORK_DATA;
static uint8_t process[16];
static bool process_known;

/* The device's library makes calls that are points of cancellation. */
struct across_guard across_enter(void)
{
	struct across_guard g = {.saved_errno = errno};

	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &g.cancel);
	lock_take(&lock);
	return g;
}

bool across_try(struct across_guard *g)
{
	if (!lock_try(&lock))
		return false;
	g->saved_errno = errno;
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &g->cancel);
	return true;
}

void across_leave(struct across_guard g)
{
	/* A handler that has waited may never come back: it finds the thread as it was. */
	crit_enter();
	lock_drop(&lock);
	pthread_setcancelstate(g.cancel, &g.cancel);
	errno = g.saved_errno;
	crit_leave();
}

const uint8_t *across_process(void)
{
	if (!process_known)
		process_known = getrandom(process, sizeof(process), 0) == sizeof(process);
	return process;
}

void across_forking(void)
{
	lock_take(&lock);
	reach_forking();
}

void across_forked_parent(void)
{
	lock_drop(&lock);
}

/* The links are the parent's. No socket of the child's names a handle any more by the time that it takes one
 * (peer_forked_child), so they are all free: one word says so, and no page is copied. */
static void abandon(void)
{
	for (int i = 0; i < ACROSS_CONTEXTS; i++) {
		if (across_contexts[i].context)
			link_context_abandon(across_contexts[i].context);
		across_contexts[i] = (struct across_context){0};
	}
	memset(across_links, 0, sizeof(across_links));
	memset(across_bulks, 0, sizeof(across_bulks));
	reach_forget();
	cache_forked();
	across_used = 0;
}

FORK_CODE void across_forked_child(void)
{
	if (across_used)
		abandon();
	if (process_known) /* each page that is written to is copied */
		process_known = false;
	relay_forked();
	lock_drop_forked(&lock);
}
