/* SPDX-License-Identifier: Apache-2.0 */
/* The two processes on two hosts: each has a supervisor of its own, and these tell each other, by
 * datagrams, what else would lie in memory that both see. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "integrity.h"

#define FAR_PORT       7199
#define CHANGE_MS      5
#define REPEAT_MS      50
#define LAST_WORDS     30
#define WORDS_APART_US 10000

enum stage { STAGE_WAITING, STAGE_RUNNING, STAGE_GONE, STAGE_FAILED, STAGE_DONE };

/* Each datagram has all of it, so that one that is lost, or comes twice, does not matter. */
struct state {
	uint64_t number; /* of the datagram: older ones are not taken */
	uint32_t round, stage, listen_port;
	uint8_t killed, killed_seen;
	struct {
		uint32_t port;
		uint64_t rx_off;
	} conn[CONNS_MAX];
};

static struct state ours, theirs;
static int sock = -1;
static double sent_at;

static size_t state_bytes(void)
{
	return offsetof(struct state, conn) + opt.conns * sizeof ours.conn[0];
}

static struct sockaddr_in at(uint32_t address)
{
	struct sockaddr_in sa = {.sin_family = AF_INET, .sin_port = htons(FAR_PORT)};
	sa.sin_addr.s_addr = address;
	return sa;
}

/* Viaduct carries no datagrams: this way is not part of what is tested. */
void far_open(void)
{
	struct sockaddr_in own = at(opt.own), peer = at(opt.peer);
	sock = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (sock < 0 || bind(sock, (struct sockaddr *)&own, sizeof own) != 0 ||
	    connect(sock, (struct sockaddr *)&peer, sizeof peer) != 0) {
		perror("integrity: the other host");
		exit(1);
	}
}

static void send_ours(void)
{
	ours.number++;
	sent_at = now();
	/* Nobody there yet, or no room: it is said again. */
	(void)!send(sock, &ours, state_bytes(), 0);
}

static void gather(void)
{
	ours.killed = (uint8_t)sh->killed;
	if (opt.side == SERVER)
		ours.listen_port = sh->listen_port;
	for (unsigned i = 0; i < opt.conns; i++) {
		ours.conn[i].rx_off = sh->conn[opt.side][i].rx.off;
		if (opt.side == CLIENT)
			ours.conn[i].port = sh->port[i];
	}
}

static void take(const struct state *s)
{
	theirs = *s;
	if (s->round != round_now)
		return;
	if (s->killed)
		sh->killed = s->killed;
	ours.killed_seen = (uint8_t)sh->killed;
	if (opt.side == CLIENT)
		sh->listen_port = s->listen_port;
	for (unsigned i = 0; i < opt.conns; i++) {
		sh->conn[!opt.side][i].rx.off = s->conn[i].rx_off;
		if (opt.side == SERVER)
			sh->port[i] = s->conn[i].port;
	}
}

void far_exchange(void)
{
	struct state before = ours, got;
	while (recv(sock, &got, sizeof got, 0) == (ssize_t)state_bytes())
		if (got.number > theirs.number)
			take(&got);
	gather();
	double waited_ms = (now() - sent_at) * 1000;
	if (waited_ms >= REPEAT_MS ||
	    (waited_ms >= CHANGE_MS && memcmp(&before, &ours, state_bytes()) != 0))
		send_ours();
}

/* The change may fall between two sends: then it goes with the next repetition. */
static void say(enum stage stage)
{
	ours.stage = stage;
	send_ours();
}

bool far_begin(bool done)
{
	double since = now();
	memset(&ours.round, 0, sizeof ours - offsetof(struct state, round));
	ours.round = round_now;
	say(done ? STAGE_DONE : STAGE_WAITING);
	while (theirs.number == 0 || theirs.round < round_now) {
		far_exchange();
		if (far_failed())
			return false;
		if (now() - since > opt.wait_seconds) {
			fprintf(stderr, "integrity: the other host does not begin\n");
			sh->failed = 1;
			return false;
		}
		usleep(1000);
	}
	if (done || theirs.stage == STAGE_DONE)
		return false;
	say(STAGE_RUNNING);
	return true;
}

void far_gone(void)
{
	if (ours.stage == STAGE_RUNNING)
		say(STAGE_GONE);
}

bool far_peer_gone(void)
{
	return theirs.round > round_now ||
	       (theirs.round == round_now && theirs.stage == STAGE_GONE);
}

bool far_failed(void)
{
	return theirs.number && theirs.stage == STAGE_FAILED;
}

/* The other side must know before, or it would take the reset for a mistake. */
bool far_may_kill(enum side victim)
{
	if (victim != opt.side)
		return false;
	sh->killed = 1 + (int)victim;
	return theirs.round == round_now && theirs.killed_seen == sh->killed;
}

void far_end(bool ok)
{
	if (!ok)
		ours.stage = STAGE_FAILED;
	for (int i = 0; i < LAST_WORDS; i++) {
		send_ours();
		usleep(WORDS_APART_US);
	}
}
