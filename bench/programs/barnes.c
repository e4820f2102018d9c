/* SPDX-License-Identifier: Apache-2.0 */
/* Barnes-Hut in the plane: four processes, each with a part of the bodies, over sockets. */
/*
 * usage: barnes tcp|unix BODIES STEPS
 *
 * In each step a process builds the tree of all bodies, moves its own by it, and sends them to the three
 * others, which send theirs.
 */
#include <math.h>

#include "local.h"

enum { PARTS = 4, DEPTH_MOST = 40 };
static const double reach = 0.5, soft = 1e-4, turn = 1e-3;

struct body {
	double x, y, vx, vy, mass;
};

struct cell {
	double x, y, mass; /* centre of mass, once summed */
	int child[4];	   /* 0 is none */
	int body;	   /* of a leaf, or -1 */
};

static struct body *bodies;
static struct cell *cells;
static int count, used;

static int cell_new(int body)
{
	cells[used] = (struct cell){.body = body};
	return used++;
}

/* Below `at`, whose square has this middle and half a side. */
static void insert(int at, int body, double mx, double my, double half)
{
	for (int depth = 0;; depth++) {
		const struct body *b = &bodies[body];
		int quarter = (b->x > mx) + 2 * (b->y > my),
		    *to = &cells[at].child[quarter];

		if (!*to) {
			*to = cell_new(body);
			return;
		}
		half /= 2;
		mx += quarter & 1 ? half : -half;
		my += quarter & 2 ? half : -half;
		at = *to;
		if (cells[at].body >= 0 && depth < DEPTH_MOST) {
			int old = cells[at].body;
			const struct body *o = &bodies[old];

			cells[at].body = -1;
			cells[at].child[(o->x > mx) + 2 * (o->y > my)] = cell_new(old);
		} else if (cells[at].body >= 0) {
			return; /* two bodies in one place: one stands for both */
		}
	}
}

static void sum(int at)
{
	struct cell *c = &cells[at];

	if (c->body >= 0) {
		const struct body *b = &bodies[c->body];

		c->x = b->x, c->y = b->y, c->mass = b->mass;
		return;
	}
	for (int i = 0; i < 4; i++) {
		const struct cell *k = &cells[c->child[i]];

		if (!c->child[i])
			continue;
		sum(c->child[i]);
		c->x += k->x * k->mass, c->y += k->y * k->mass, c->mass += k->mass;
	}
	if (c->mass > 0)
		c->x /= c->mass, c->y /= c->mass;
}

static void pull(int at, const struct body *b, double side, double *ax, double *ay)
{
	const struct cell *c = &cells[at];
	double dx = c->x - b->x, dy = c->y - b->y, d2 = dx * dx + dy * dy + soft;

	if (c->body >= 0 || side * side < reach * reach * d2) {
		double f = c->mass / (d2 * sqrt(d2));

		*ax += dx * f, *ay += dy * f;
		return;
	}
	for (int i = 0; i < 4; i++)
		if (c->child[i])
			pull(c->child[i], b, side / 2, ax, ay);
}

static void step(int first, int end, struct body *moved)
{
	double half = 1e-9;
	int root;

	used = 1; /* 0 is none */
	root = cell_new(-1);
	for (int i = 0; i < count; i++)
		half = fmax(half, fmax(fabs(bodies[i].x), fabs(bodies[i].y)));
	for (int i = 0; i < count; i++)
		insert(root, i, 0, 0, half);
	sum(root);
	for (int i = first; i < end; i++) {
		struct body b = bodies[i];
		double ax = 0, ay = 0;

		pull(root, &b, 2 * half, &ax, &ay);
		b.vx += ax * turn, b.vy += ay * turn;
		b.x += b.vx * turn, b.y += b.vy * turn;
		moved[i - first] = b;
	}
}

static int first_of(int part)
{
	return (int)((long)count * part / PARTS);
}

/* The lower part sends first, so that no two wait for each other's room. */
static void exchange(int me, const int fds[PARTS])
{
	for (int other = 0; other < PARTS; other++) {
		struct body *mine = bodies + first_of(me),
			    *its = bodies + first_of(other);
		size_t my_size =
			(size_t)(first_of(me + 1) - first_of(me)) * sizeof(*bodies);
		size_t its_size =
			(size_t)(first_of(other + 1) - first_of(other)) * sizeof(*bodies);

		if (me < other)
			put_all(fds[other], mine, my_size);
		if (me != other)
			get_all(fds[other], its, its_size);
		if (me > other)
			put_all(fds[other], mine, my_size);
	}
}

/* Each connects to the parts below it, and says who it is. */
static void meet(int me, const struct place places[PARTS], int fds[PARTS])
{
	for (int other = 0; other < me; other++) {
		fds[other] = place_connect(&places[other]);
		put_all(fds[other], &me, sizeof(me));
	}
	for (int i = me + 1; i < PARTS; i++) {
		int fd = place_accept(&places[me]), other;

		get_all(fd, &other, sizeof(other));
		NEED(other > me && other < PARTS);
		fds[other] = fd;
	}
}

int main(int argc, char **argv)
{
	struct place places[PARTS];
	int fds[PARTS], me = 0, steps;
	struct body *moved;
	double began;

	NEED(argc == 4 && (count = atoi(argv[2])) >= PARTS &&
	     (steps = atoi(argv[3])) > 0);
	bodies = calloc((size_t)count, sizeof(*bodies));
	moved = calloc((size_t)count, sizeof(*moved));
	cells = calloc((size_t)count * (DEPTH_MOST + 2), sizeof(*cells));
	NEED(bodies && moved && cells);
	for (int i = 0; i < count; i++)
		bodies[i] = (struct body){sin(i * 1.3) * (i % 97 + 1),
					  cos(i * 2.7) * (i % 89 + 1), 0, 0, 1.0 + i % 3};
	for (int i = 0; i < PARTS; i++)
		places[i] = place_open(argv[1]);
	for (int i = 1; i < PARTS && me == 0; i++) {
		pid_t pid = fork();

		NEED(pid >= 0);
		if (pid == 0)
			me = i;
	}
	meet(me, places, fds);
	began = now_s();
	for (int i = 0; i < steps; i++) {
		step(first_of(me), first_of(me + 1), moved);
		memcpy(bodies + first_of(me), moved,
		       (size_t)(first_of(me + 1) - first_of(me)) * sizeof(*moved));
		exchange(me, fds);
	}
	if (me > 0)
		return 0;
	tell(now_s() - began, sum_of(bodies, (size_t)count * sizeof(*bodies)));
	children_end(PARTS - 1);
	return 0;
}
