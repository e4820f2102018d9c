/* SPDX-License-Identifier: Apache-2.0 */
/* Two that use one end of a connection at once, as fast as they can: threads, or processes. */
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "cases.h"

enum { ROUNDS = 600000, BYTES = 16 };

struct user {
	int fd;
	char letter;
	uint64_t seen[256]; /* how often each byte has come */
};

/* ---- what each does ---- */

static void tally(void *arg)
{
	struct user *u = arg;
	uint8_t buf[BYTES];
	ssize_t n;
	while ((n = recv(u->fd, buf, sizeof buf, 0)) > 0)
		for (ssize_t i = 0; i < n; i++)
			u->seen[buf[i]]++;
	NEED(n == 0);
}

static void send_letters(void *arg)
{
	struct user *u = arg;
	char buf[BYTES];
	memset(buf, u->letter, sizeof buf);
	for (int i = 0; i < ROUNDS; i++)
		send_all(u->fd, buf, sizeof buf);
}

/* ---- and the peer ---- */

static void count_letters(int fd, void *arg)
{
	struct user all = {.fd = fd};
	(void)arg;
	tally(&all);
	say("%lu and %lu", (unsigned long)all.seen['a'], (unsigned long)all.seen['b']);
}

/* Each byte as often as any other. */
static void send_numbers(int fd, void *arg)
{
	uint8_t buf[BYTES];
	(void)arg;
	for (int i = 0; i < ROUNDS / 256 * 256; i++) {
		for (int j = 0; j < BYTES; j++)
			buf[j] = (uint8_t)(i + j);
		send_all(fd, buf, sizeof buf);
	}
}

/* ---- both at once ---- */

static void run_processes(struct user users[2], void (*run)(void *))
{
	pid_t child = fork();
	NEED(child >= 0);
	run(&users[child == 0]);
	if (child == 0)
		_exit(0);
	say("status %d", child_status(child));
}

static void run_threads(struct user users[2], void (*run)(void *))
{
	struct worker w;
	worker_start(&w, run, &users[1]);
	run(&users[0]);
	worker_join(&w);
}

static void both(void (*start)(struct user users[2], void (*run)(void *)),
		 void (*run)(void *), void (*peer)(int fd, void *arg))
{
	pid_t pid;
	int fd = peer_start(peer, NULL, &pid);
	struct user *users = mmap(NULL, 2 * sizeof *users, PROT_READ | PROT_WRITE,
				  MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	NEED(users != MAP_FAILED);
	users[0] = (struct user){.fd = fd, .letter = 'a'};
	users[1] = (struct user){.fd = fd, .letter = 'b'};
	start(users, run);
	shutdown(fd, SHUT_WR);
	say("status %d", child_status(pid));
	uint64_t least = UINT64_MAX, most = 0;
	for (int i = 0; i < 256; i++) {
		uint64_t sum = users[0].seen[i] + users[1].seen[i];
		least = sum < least ? sum : least;
		most = sum > most ? sum : most;
	}
	say("each byte came %lu to %lu times", (unsigned long)least, (unsigned long)most);
	close(fd);
	munmap(users, 2 * sizeof *users);
}

CASE(processes_both_send, DIRECT)
{
	both(run_processes, send_letters, count_letters);
}

CASE(processes_both_receive, DIRECT)
{
	both(run_processes, tally, send_numbers);
}

CASE(threads_both_send, DIRECT)
{
	both(run_threads, send_letters, count_letters);
}

CASE(threads_both_receive, DIRECT)
{
	both(run_threads, tally, send_numbers);
}
