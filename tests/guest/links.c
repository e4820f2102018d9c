/* SPDX-License-Identifier: Apache-2.0 */
/* One end of a link over RDMA: exchanges hellos over TCP, then bytes both ways, and compares. */
#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "rdma/verbs.h"

/*
 * usage: links listen|connect ADDRESS PORT BYTES right|die|dead|forge|wronged
 *
 * right: all is right. die: kills itself in the middle. dead: its peer does. forge: writes
 * with a key that it was not given. wronged: its peer does.
 *
 * Each end's window is a ring for the peer's bytes, behind two cursors that the peer writes.
 */
enum { RING = 64 * 1024, CHUNK = 12000, PIECE_ID = 77, HELLO_KEY_AT = 56, STUCK_S = 40 };
enum { FLAG_BYTES = 1, FLAG_TAKEN = 2 };

struct window {
	uint64_t produced; /* by the peer, for us */
	uint64_t consumed; /* by the peer, of ours */
	uint8_t pad[48];
	uint8_t ring[RING];
};

static _Alignas(4096) struct window window;
static _Alignas(4096) uint8_t source[RING];
static struct link_context *context;
static struct link *l;
static struct link_memory memory;
static uint64_t total, produced, announced, peer_consumed; /* of what we send */
static uint64_t peer_produced, consumed, acknowledged;	   /* of what we get */
static uint32_t immediates, got_immediates, sleeps, probes;
static uint32_t random_state = 1;
static bool up, closed, failed, forked;
static const char *mode;

static void die(const char *what, const char *why)
{
	printf("links: %s: %s\n", what, why);
	exit(1);
}

static uint32_t draw(uint32_t below)
{
	random_state = random_state * 1664525 + 1013904223;
	return (random_state >> 8) % below;
}

static uint8_t byte_at(uint64_t at, bool of_connector)
{
	return (uint8_t)(at * 7 + (at >> 8) * 13 + (at >> 16) + (of_connector ? 101 : 3));
}

static void whole(int fd, uint8_t *data, size_t bytes, bool out)
{
	for (size_t done = 0; done < bytes;) {
		ssize_t n = out ? write(fd, data + done, bytes - done)
				: read(fd, data + done, bytes - done);

		if (n <= 0)
			die("TCP", n ? strerror(errno) : "the peer has hung up");
		done += (size_t)n;
	}
}

/* The TCP connection. */
static int meet(bool listens, const char *address, const char *port)
{
	struct addrinfo hints = {.ai_flags = AI_NUMERICHOST, .ai_socktype = SOCK_STREAM};
	struct addrinfo *a;
	int fd, one = 1, r;

	r = getaddrinfo(address, port, &hints, &a);
	if (r)
		die(address, gai_strerror(r));
	fd = socket(a->ai_family, SOCK_STREAM, 0);
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (!listens) {
		if (connect(fd, a->ai_addr, a->ai_addrlen) < 0)
			die("connect", strerror(errno));
	} else {
		int listener = fd;

		if (bind(listener, a->ai_addr, a->ai_addrlen) < 0 ||
		    listen(listener, 1) < 0)
			die("listen", strerror(errno));
		fd = accept(listener, NULL, NULL);
		close(listener);
	}
	freeaddrinfo(a);
	return fd;
}

/* The connector is first. */
static void set_up(int tcp, bool listens)
{
	struct link_limits limits = {.links = 2, .credits = 32, .sends = 32};
	uint8_t own[LINK_HELLO_BYTES], peer[LINK_HELLO_BYTES];
	struct sockaddr_storage local;
	socklen_t len = sizeof(local);
	const char *why;
	int r;

	getsockname(tcp, (struct sockaddr *)&local, &len);
	r = link_verbs_open((struct sockaddr *)&local, &limits, &context, &why);
	if (r < 0)
		die(why, strerror(-r));
	r = link_create(context, &window, sizeof(window), &l);
	if (r == 0)
		r = link_register(l, source, sizeof(source), &memory);
	if (r < 0)
		die("link", strerror(-r));
	if (!listens) {
		link_hello(l, own);
		whole(tcp, own, sizeof(own), true);
	}
	whole(tcp, peer, sizeof(peer), false);
	if (strcmp(mode, "forge") == 0)
		peer[HELLO_KEY_AT] ^= 0x5a;
	r = link_connect(l, peer, sizeof(peer), &why);
	if (r < 0)
		die(why ? why : "connect", strerror(-r));
	if (listens) {
		link_hello(l, own);
		whole(tcp, own, sizeof(own), true);
	}
}

/* A cursor for the peer, and a word that it is there. */
static bool tell(uint64_t value, size_t at, uint32_t flag)
{
	struct link_write w = {.from = &value,
			       .bytes = sizeof(value),
			       .flags = LINK_IMMEDIATE,
			       .at = at,
			       .immediate = link_immediate(PIECE_ID, 1, flag)};
	int r = link_post(l, &w);

	if (r < 0 && r != -EAGAIN && r != -EPIPE)
		die("post", strerror(-r));
	immediates += r == 0;
	return r == 0;
}

/* Bytes as far as there is room, told of after some pieces. */
static bool produce(bool connector)
{
	uint64_t room = RING - (produced - peer_consumed), offset = produced % RING;
	uint64_t bytes = 1 + draw(CHUNK);
	struct link_write w;
	int r;

	if (produced != announced &&
	    (draw(3) == 0 || room < bytes || produced == total)) {
		if (!tell(produced, offsetof(struct window, produced), FLAG_BYTES))
			return false;
		announced = produced;
		return true;
	}
	if (bytes > total - produced)
		bytes = total - produced;
	if (bytes > RING - offset)
		bytes = RING - offset;
	if (bytes == 0 || bytes > room)
		return false;
	/* What the peer has consumed has surely been read from here. */
	for (uint64_t i = 0; i < bytes; i++)
		source[offset + i] = byte_at(produced + i, connector);
	w = (struct link_write){.from = source + offset,
				.bytes = (uint32_t)bytes,
				.memory = &memory,
				.at = offsetof(struct window, ring) + offset};
	r = link_post(l, &w);
	if (r < 0 && r != -EAGAIN && r != -EPIPE)
		die("post", strerror(-r));
	produced += r == 0 ? bytes : 0;
	return r == 0;
}

static bool consume(bool connector)
{
	bool moved = consumed != peer_produced;

	if (peer_produced - consumed > RING)
		die("cursor", "it lies");
	for (; consumed != peer_produced; consumed++)
		if (window.ring[consumed % RING] != byte_at(consumed, !connector))
			die("compare", "a byte is wrong");
	if (strcmp(mode, "die") == 0 && consumed > total / 2)
		raise(SIGKILL);
	if (consumed - acknowledged >= RING / 4 ||
	    (consumed == total && acknowledged != total))
		if (tell(consumed, offsetof(struct window, consumed), FLAG_TAKEN)) {
			acknowledged = consumed;
			return true;
		}
	return moved;
}

static int hear(void)
{
	struct link_event events[8];
	int n = link_poll(context, events, 8);

	if (n < 0)
		die("poll", strerror(-n));
	for (int i = 0; i < n; i++) {
		uint32_t word = events[i].immediate;

		up |= events[i].type == LINK_EVENT_UP;
		closed |= events[i].type == LINK_EVENT_CLOSED;
		failed |= events[i].type == LINK_EVENT_FAILED;
		if (events[i].type != LINK_EVENT_IMMEDIATE)
			continue;
		got_immediates++;
		if (link_immediate_id(word) != PIECE_ID ||
		    link_immediate_generation(word) != 1)
			die("immediate", "it is not ours");
		if (link_immediate_flags(word) == FLAG_BYTES)
			peer_produced = window.produced;
		else
			peer_consumed = window.consumed;
	}
	return n;
}

/* Armed, and looked again: until something comes. */
static void rest(void)
{
	struct pollfd p = {.fd = link_fd(context), .events = POLLIN};
	static int in_vain;

	if (link_arm(context) < 0)
		die("arm", "refused");
	if (hear())
		return;
	sleeps++;
	if (poll(&p, 1, 1000) == 1) {
		link_answer(context, true);
		in_vain = 0;
		return;
	}
	/* Without credit nothing is under way, and a death is not noticed. */
	probes++;
	link_probe(l);
	if (++in_vain == STUCK_S)
		die("waiting", "nothing happens");
}

/* A child that leaves does not end its parent's link. */
static void fork_once(void)
{
	pid_t child;
	int status = 0;

	forked = true;
	child = fork();
	if (child == 0) {
		link_context_abandon(context);
		_exit(0);
	}
	if (child < 0 || waitpid(child, &status, 0) != child || status != 0)
		die("fork", "the child has failed");
}

static void end(void)
{
	int r;

	while ((r = link_drain(l)) == 0)
		if (!hear())
			rest();
	if (r != 1)
		die("drain", link_error_text(link_error(l)));
	while ((r = link_close(l)) == 0)
		if (!hear())
			rest();
	if (r != 1)
		die("close", link_error_text(link_error(l)));
	printf("%llu bytes are right, %u immediates, %u sleeps, %llu writes\n",
	       (unsigned long long)total, got_immediates, sleeps,
	       (unsigned long long)link_posted(l));
}

static void expect_error(long seconds)
{
	enum link_error error = link_error(l);
	bool is_right = false;

	if (strcmp(mode, "dead") == 0)
		is_right = error == LINK_PEER_DEAD;
	else if (strcmp(mode, "forge") == 0)
		is_right = error == LINK_PEER_REFUSED;
	else if (strcmp(mode, "wronged") == 0) /* rxe does not tell why */
		is_right = error == LINK_PEER_WRONG || error == LINK_BROKEN;
	printf("%s: %s, after %ld s without a word and %u probes\n",
	       is_right ? "right" : "wrong", link_error_text(error), seconds, probes);
	exit(is_right ? 0 : 1);
}

int main(int argc, char **argv)
{
	bool listens = argc == 6 && strcmp(argv[1], "listen") == 0;
	time_t last = time(NULL);
	int tcp;

	if (argc != 6)
		return 2;
	setvbuf(stdout, NULL, _IOLBF, 0);
	total = strtoull(argv[4], NULL, 10);
	mode = argv[5];
	tcp = meet(listens, argv[2], argv[3]);
	set_up(tcp, listens);
	while (listens && !up && !failed)
		if (!hear())
			rest();
	while (!failed && (peer_consumed < total || acknowledged < total)) {
		bool moved = produce(!listens);

		moved |= consume(!listens);
		if (!forked && consumed > total / 4)
			fork_once();
		if (hear() || moved)
			last = time(NULL);
		else
			rest();
	}
	if (failed)
		expect_error((long)(time(NULL) - last));
	if (strcmp(mode, "right") != 0)
		die(mode, "everything went well");
	end();
	link_unregister(l, &memory);
	link_destroy(l);
	link_context_destroy(context);
	close(tcp);
	return 0;
}
