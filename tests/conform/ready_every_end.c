/* SPDX-License-Identifier: Apache-2.0 */
/* Each kind of end is waited for in each way: before, amid and after the move to memory. */
#include <dlfcn.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

#include "conform/cases.h"
#include "conform/ready_epoll.h"

#define MESSAGE 64
#define LATE_US 10000
/* Wake-ups of one connection, more than are for something. Each further one leaves the peer a moment: wake-ups
 * with nothing there are to stop by themselves. */
#define MANY	   1000
#define MANY_TIMES 20000
#define A_MOMENT   1000 /* us */

static const char *const ends[] = {"shut", "shut and close", "close", "reset", "unread"};
enum { SHUT, SHUT_CLOSE, CLOSE, RESET, UNREAD, ENDS };
/* The move begins after the first round or two. */
static const int rounds[] = {0, 1, 2, 3, 4, 5, 6, 8, 10, 40};

struct way {
	uint16_t port;
	int end;
	uint32_t trigger, mask;
	bool is_late;
};

/* From the module that is preloaded for that, or NULL. */
static void be_late(const char *what, bool late)
{
	_Atomic unsigned *us = (_Atomic unsigned *)dlsym(RTLD_DEFAULT, what);

	if (us)
		atomic_store(us, late ? LATE_US : 0);
}

static void say_end(int fd)
{
	char byte;
	ssize_t n = recv(fd, &byte, 1, 0);

	if (n != 0)
		say_result("answer to the end", n);
}

static void end_by(int fd, int how)
{
	const struct linger at_once = {.l_onoff = 1};

	if (how == RESET)
		NEED(setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once)) ==
		     0);
	if (how == UNREAD) {
		send_pattern(fd, 0, MESSAGE);
		wait_inq(fd, MESSAGE);
	}
	if (how == SHUT || how == SHUT_CLOSE)
		NEED(shutdown(fd, SHUT_WR) == 0);
	if (how == SHUT)
		say_end(fd);
	close(fd);
}

static void client(const struct way *w)
{
	say_as("child ");
	for (size_t i = 0; i < sizeof(rounds) / sizeof(rounds[0]); i++) {
		int fd = connect_to(AF_INET, w->port);

		for (int k = 0; k < rounds[i]; k++) {
			send_pattern(fd, 0, MESSAGE);
			recv_pattern(fd, 0, MESSAGE);
		}
		be_late("conform_end_late", w->is_late);
		end_by(fd, w->end);
		be_late("conform_end_late", false);
	}
	exit(0);
}

/* What one event leads to. True: it was the end. */
static bool serve_event(int fd, bool once, size_t *bytes, int *error)
{
	char buf[4 * MESSAGE];
	ssize_t n;

	do {
		n = recv(fd, buf, sizeof(buf), 0);
		if (n > 0) {
			*bytes += (size_t)n;
			send_all(fd, buf, (size_t)n);
		}
	} while (n > 0 && !once);
	*error = n < 0 ? errno : 0;
	return n == 0 || (n < 0 && errno != EAGAIN);
}

static void serve(int fd, const struct way *w, int round)
{
	bool over = false, once = w->trigger == 0;
	int ep = ep_open(), error = 0, events = 0;
	size_t bytes = 0;

	nonblock(fd, true);
	ep_add(ep, fd, w->mask | w->trigger, 7);
	while (!over) {
		struct epoll_event ev;
		int n = epoll_wait(ep, &ev, 1, SOON);

		if (n != 1 || ev.data.u64 != 7 || ++events > MANY + MANY_TIMES) {
			say("round %d: %d events of wait, %d before", round, n, events);
			break;
		}
		over = serve_event(fd, once, &bytes, &error);
		if (events > MANY)
			usleep(A_MOMENT);
		if (!over && (w->trigger & EPOLLONESHOT))
			ep_mod(ep, fd, (w->mask & ~(uint32_t)EPOLLOUT) | w->trigger, 7);
	}
	say("%d: %zu, %s", round, bytes, error ? errno_name(error) : "end");
	close(ep);
	close(fd);
}

static void wait_for_it(struct way *w, bool is_late)
{
	int listener = listen_any(AF_INET, &w->port);
	pid_t pid = fork();

	NEED(pid >= 0);
	w->is_late = is_late;
	if (pid == 0)
		client(w);
	be_late("conform_ask_late", !is_late);
	for (size_t i = 0; i < sizeof(rounds) / sizeof(rounds[0]); i++) {
		int fd = accept(listener, NULL, NULL);

		NEED(fd >= 0);
		serve(fd, w, rounds[i]);
	}
	be_late("conform_ask_late", false);
	say("client: %d", child_status(pid));
	close(listener);
}

static void every_end(uint32_t trigger, bool is_late)
{
	static const uint32_t masks[] = {EPOLLIN, EPOLLIN | EPOLLRDHUP,
					 EPOLLIN | EPOLLOUT};

	for (int end = 0; end < ENDS; end++)
		for (size_t i = 0; i < sizeof(masks) / sizeof(masks[0]); i++) {
			struct way w = {.end = end, .trigger = trigger, .mask = masks[i]};

			say("%s, %s", ends[end], poll_names((int)masks[i]));
			wait_for_it(&w, is_late);
		}
}

CASE(every_end_level, DIRECT)
{
	every_end(0, false);
}

CASE(every_end_rising, DIRECT)
{
	every_end(EPOLLET, false);
}

CASE(every_end_once, DIRECT)
{
	every_end(EPOLLONESHOT, false);
}

CASE(every_end_rising_once, DIRECT)
{
	every_end(EPOLLONESHOT | EPOLLET, false);
}

/* The kernel hears late of what memory says at once. */
CASE(every_late_end_level, DIRECT)
{
	every_end(0, true);
}

CASE(every_late_end_rising, DIRECT)
{
	every_end(EPOLLET, true);
}

CASE(every_late_end_once, DIRECT)
{
	every_end(EPOLLONESHOT, true);
}

CASE(every_late_end_rising_once, DIRECT)
{
	every_end(EPOLLONESHOT | EPOLLET, true);
}
