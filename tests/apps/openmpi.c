/* SPDX-License-Identifier: Apache-2.0 */
/* An MPI program whose result must be the same over every transport: it prints a sum of
 * all bytes that each rank received. */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define LARGE  (6 * 1024 * 1024 + 13)
#define ROUNDS 300

static uint64_t sum = 1469598103934665603u;

static void add(const void *data, size_t len)
{
	const unsigned char *bytes = data;

	for (size_t i = 0; i < len; i++)
		sum = (sum ^ bytes[i]) * 1099511628211u;
}

static void fill(unsigned char *data, size_t len, unsigned seed)
{
	for (size_t i = 0; i < len; i++)
		data[i] = (unsigned char)(i * 31 + (i >> 8) + seed);
}

/* Rank 0 with every other: all sizes to and fro. */
static void ping_pong(int rank, int size, unsigned char *out, unsigned char *in)
{
	for (int peer = 1; peer < size; peer++) {
		for (int i = 0; i < ROUNDS; i++) {
			int len = i < 200 ? i * 7 : i * i;

			if (rank == 0) {
				fill(out, (size_t)len, (unsigned)i);
				MPI_Send(out, len, MPI_BYTE, peer, i, MPI_COMM_WORLD);
				MPI_Recv(in, len, MPI_BYTE, peer, i, MPI_COMM_WORLD,
					 MPI_STATUS_IGNORE);
				add(in, (size_t)len);
			} else if (rank == peer) {
				MPI_Recv(in, len, MPI_BYTE, 0, i, MPI_COMM_WORLD,
					 MPI_STATUS_IGNORE);
				add(in, (size_t)len);
				MPI_Send(in, len, MPI_BYTE, 0, i, MPI_COMM_WORLD);
			}
		}
	}
}

/* Everybody to the next, large messages both ways at once, by several requests. */
static void around(int rank, int size, unsigned char *out, unsigned char *in)
{
	int next = (rank + 1) % size, last = (rank + size - 1) % size;
	MPI_Request all[16];

	fill(out, LARGE, (unsigned)rank);
	for (int i = 0; i < 3; i++) {
		MPI_Sendrecv(out, LARGE, MPI_BYTE, next, 0, in, LARGE, MPI_BYTE, last, 0,
			     MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		add(in, LARGE);
	}
	for (int i = 0; i < 8; i++) {
		MPI_Irecv(in + i * 300000, 300000, MPI_BYTE, last, i, MPI_COMM_WORLD,
			  &all[i]);
		MPI_Isend(out + i * 300000, 300000, MPI_BYTE, next, i, MPI_COMM_WORLD,
			  &all[8 + i]);
	}
	MPI_Waitall(16, all, MPI_STATUSES_IGNORE);
	add(in, 2400000);
}

static void collectives(int rank, int size, unsigned char *out, unsigned char *in)
{
	int part = 200000 / size;

	for (int i = 1; i < 50000; i *= 3) {
		uint64_t *mine = (uint64_t *)out, *sums = (uint64_t *)in;

		for (int j = 0; j < i; j++)
			mine[j] = (uint64_t)j * (unsigned)(rank + 1);
		MPI_Allreduce(mine, sums, i, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
		add(sums, (size_t)i * sizeof(*sums));
		MPI_Barrier(MPI_COMM_WORLD);
	}
	fill(out, (size_t)(part * size), (unsigned)rank);
	MPI_Alltoall(out, part, MPI_BYTE, in, part, MPI_BYTE, MPI_COMM_WORLD);
	add(in, (size_t)(part * size));
	MPI_Bcast(out, LARGE, MPI_BYTE, size - 1, MPI_COMM_WORLD);
	add(out, 200000);
}

/* Even and odd ranks as two groups that talk by an intercommunicator. */
static void between_groups(int rank, int size)
{
	MPI_Comm group, inter;
	int value = rank * 100 + 7, got = 0;

	if (size < 2)
		return;
	MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &group);
	MPI_Intercomm_create(group, 0, MPI_COMM_WORLD, 1 - rank % 2, 99, &inter);
	MPI_Allreduce(&value, &got, 1, MPI_INT, MPI_SUM, inter);
	add(&got, sizeof(got));
	MPI_Comm_free(&inter);
	MPI_Comm_free(&group);
}

int main(int argc, char **argv)
{
	unsigned char *out = calloc(1, LARGE), *in = calloc(1, LARGE);
	uint64_t sums[64];
	int rank, size;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	if (!out || !in || size > 64)
		MPI_Abort(MPI_COMM_WORLD, 1);
	ping_pong(rank, size, out, in);
	around(rank, size, out, in);
	collectives(rank, size, out, in);
	between_groups(rank, size);
	MPI_Gather(&sum, 1, MPI_UINT64_T, sums, 1, MPI_UINT64_T, 0, MPI_COMM_WORLD);
	for (int i = 0; rank == 0 && i < size; i++)
		printf("%d: %016llx\n", i, (unsigned long long)sums[i]);
	MPI_Finalize();
	free(out);
	free(in);
	return 0;
}
