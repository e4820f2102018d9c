/* SPDX-License-Identifier: Apache-2.0 */
/* How often a receiver is woken for a message that comes in a burst: its voluntary changes of context. */
/* usage: bursts tcp|unix BURSTS MESSAGES */
#include <stdint.h>
#include <sys/resource.h>

#include "local.h"

#define BYTES 64

/* An answer to each burst: the next one begins when the receiver has nothing. */
static void send_bursts(int fd, long bursts, long messages)
{
	uint8_t message[BYTES] = "", answer;

	for (long i = 0; i < bursts; i++) {
		for (long j = 0; j < messages; j++) {
			message[0] = (uint8_t)(i + j);
			put_all(fd, message, BYTES);
		}
		get_all(fd, &answer, 1);
		NEED(answer == (uint8_t)i);
	}
}

int main(int argc, char **argv)
{
	unsigned long sum = 0;
	long bursts, messages;
	struct rusage used;
	struct place p;
	pid_t pid;
	int fd;

	NEED(argc == 4 && (bursts = atol(argv[2])) > 0 && (messages = atol(argv[3])) > 0);
	p = place_open(argv[1]);
	pid = fork();
	NEED(pid >= 0);
	if (pid == 0) {
		send_bursts(place_connect(&p), bursts, messages);
		exit(0);
	}
	fd = place_accept(&p);
	for (long i = 0; i < bursts; i++) {
		uint8_t message[BYTES], answer = (uint8_t)i;

		for (long j = 0; j < messages; j++) {
			get_all(fd, message, BYTES);
			sum = sum * 31 + message[0];
		}
		put_all(fd, &answer, 1);
	}
	NEED(getrusage(RUSAGE_SELF, &used) == 0);
	/* Never 0, so that there is a ratio: that the connection came is counted, too. */
	printf("%.6f a message, sum %lx\n",
	       (double)(used.ru_nvcsw + 1) / (double)bursts / (double)messages, sum);
	children_end(1);
	return 0;
}
