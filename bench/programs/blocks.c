/* SPDX-License-Identifier: Apache-2.0 */
/* A file by blocks, as tftp: each is acknowledged before the next is sent, and written to a file. */
/* usage: blocks tcp|unix BYTES BLOCK */
#include <fcntl.h>
#include <stdint.h>
#include <sys/mman.h>

#include "local.h"

static uint8_t *content(size_t size)
{
	uint8_t *made = malloc(size);
	uint32_t x = 12345;

	NEED(made);
	for (size_t i = 0; i < size; i++)
		made[i] = (uint8_t)((x = x * 1664525 + 1013904223) >> 24);
	return made;
}

static void serve(const struct place *p, size_t bytes, size_t block)
{
	uint8_t *file = content(bytes);
	int fd = place_connect(p);
	uint32_t number, ack;

	for (size_t at = 0; at < bytes; at += block) {
		number = (uint32_t)(at / block);
		put_all(fd, &number, sizeof(number));
		put_all(fd, file + at, bytes - at < block ? bytes - at : block);
		get_all(fd, &ack, sizeof(ack));
		NEED(ack == number);
	}
	exit(0);
}

int main(int argc, char **argv)
{
	size_t bytes, block;
	struct place p;
	uint8_t *room;
	void *written;
	double began;
	int fd, file;
	pid_t pid;

	NEED(argc == 4 && (bytes = (size_t)atol(argv[2])) > 0 &&
	     (block = (size_t)atol(argv[3])) > 0 && (room = malloc(block)));
	p = place_open(argv[1]);
	pid = fork();
	NEED(pid >= 0);
	if (pid == 0)
		serve(&p, bytes, block);
	file = memfd_create("blocks", 0);
	NEED(file >= 0);
	fd = place_accept(&p);
	began = now_s();
	for (size_t at = 0; at < bytes; at += block) {
		size_t size = bytes - at < block ? bytes - at : block;
		uint32_t number;

		get_all(fd, &number, sizeof(number));
		NEED(number == at / block);
		get_all(fd, room, size);
		put_all(file, room, size);
		put_all(fd, &number, sizeof(number));
	}
	began = now_s() - began;
	written = mmap(NULL, bytes, PROT_READ, MAP_SHARED, file, 0);
	NEED(written != MAP_FAILED && !memcmp(written, content(bytes), bytes));
	tell(began, sum_of(written, bytes));
	children_end(1);
	return 0;
}
