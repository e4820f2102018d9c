/* SPDX-License-Identifier: Apache-2.0 */
/* A task farm, as PARFUM: a master hands out pixels, and three workers cast their rays. */
/*
 * usage: farm tcp|unix PIXELS TASK
 *
 * A task is TASK pixels; a worker gets the next one when it has sent the last one's back.
 */
#include <math.h>
#include <poll.h>
#include <stdint.h>

#include "local.h"

enum { WORKERS = 3, WIDTH = 256, SPHERES = 12, TASK_MOST = 4096 };

struct task {
	uint32_t first, count;
};

/* Brightness of the nearest sphere that the pixel's ray meets. */
static uint8_t cast(uint32_t pixel)
{
	double x = (pixel % WIDTH) / 128.0 - 1, y = (pixel / WIDTH % WIDTH) / 128.0 - 1;
	double nearest = 1e9, light = 0;

	for (int i = 0; i < SPHERES; i++) {
		double cx = sin(i * 2.1) * 0.7, cy = cos(i * 1.7) * 0.7,
		       r = 0.15 + i * 0.02;
		double depth = r * r - (x - cx) * (x - cx) - (y - cy) * (y - cy);
		double z = 3 + sin(i) - sqrt(depth > 0 ? depth : 0);

		if (depth > 0 && z < nearest) {
			nearest = z;
			light = sqrt(depth) / r;
		}
	}
	return (uint8_t)(light * 255);
}

static void work(const struct place *p)
{
	static uint8_t pixels[TASK_MOST];
	struct task t;
	int fd = place_connect(p);

	for (;;) {
		get_all(fd, &t, sizeof(t));
		if (t.count == 0)
			exit(0);
		for (uint32_t i = 0; i < t.count; i++)
			pixels[i] = cast(t.first + i);
		put_all(fd, pixels, t.count);
	}
}

/* The next task of the queue; an empty one when there is none. */
static struct task hand_out(int fd, uint32_t *next, uint32_t pixels, uint32_t size)
{
	struct task t = {*next, pixels - *next < size ? pixels - *next : size};

	put_all(fd, &t, sizeof(t));
	*next += t.count;
	return t;
}

int main(int argc, char **argv)
{
	static struct pollfd fds[WORKERS];
	static struct task under[WORKERS];
	uint32_t pixels, size, next = 0;
	int left = WORKERS;
	struct place p;
	uint8_t *image;
	double began;

	NEED(argc == 4 && (pixels = (uint32_t)atol(argv[2])) > 0);
	size = (uint32_t)atol(argv[3]);
	NEED(size > 0 && size <= TASK_MOST && (image = calloc(1, pixels)));
	p = place_open(argv[1]);
	for (int i = 0; i < WORKERS; i++) {
		pid_t pid = fork();

		NEED(pid >= 0);
		if (pid == 0)
			work(&p);
	}
	for (int i = 0; i < WORKERS; i++)
		fds[i] = (struct pollfd){place_accept(&p), POLLIN, 0};
	began = now_s();
	for (int i = 0; i < WORKERS; i++) {
		under[i] = hand_out(fds[i].fd, &next, pixels, size);
		left -= under[i].count == 0;
	}
	while (left > 0) {
		NEED(poll(fds, WORKERS, -1) > 0);
		for (int i = 0; i < WORKERS; i++) {
			if (!fds[i].revents || under[i].count == 0)
				continue;
			get_all(fds[i].fd, image + under[i].first, under[i].count);
			under[i] = hand_out(fds[i].fd, &next, pixels, size);
			if (under[i].count == 0) {
				left--;
				fds[i].fd = -1; /* it ends: poll leaves it out */
			}
		}
	}
	tell(now_s() - began, sum_of(image, pixels));
	children_end(WORKERS);
	return 0;
}
