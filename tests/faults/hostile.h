/* SPDX-License-Identifier: Apache-2.0 */
/* A hostile peer: meets a victim as an honest end would, and then lies. */
#ifndef VD_TESTS_FAULTS_HOSTILE_H
#define VD_TESTS_FAULTS_HOSTILE_H

#include <stdbool.h>
#include <stdint.h>

#include "rendezvous/rendezvous.h"

struct hostile {
	int fd;
	enum tcp_role role;
	int announced, name;
	struct meet_segment seg;
	struct wire_dir *out, *in; /* what we send, and what the victim sends */
	uint8_t *out_data;	   /* first area */
	uint64_t produced;
};

struct attack {
	const char *name;
	/* What the victim must see: "eof", "reset", or "any" end. */
	const char *end;
	enum { BEFORE, ATTACHED, RAISED, BOTH } when;
	void (*lie)(struct hostile *h);
	/* By whom: doorbells are of two kinds, see rendezvous/farbell.h. */
	enum { ANYBODY, OWN_USER, OTHER_USER } who;
};

extern const struct attack attacks[];

/* Prints what went wrong, and ends the program. */
void die(const char *what) __attribute__((noreturn));
/* One byte there and back over TCP: gives the victim operations to look at. */
void echo_tcp(struct hostile *h);
/* Writes n bytes to the ring, as an honest sender whose direction is up. */
void say_ring(struct hostile *h, uint64_t n);
void ring_bell(struct hostile *h);
/* Until the victim has hung up; a victim that never does is found by the driver. */
void wait_for_end(struct hostile *h);

/* The program that is attacked: echoes, over and over, until it is told to quit. */
int victim(int argc, char **argv);

#endif
