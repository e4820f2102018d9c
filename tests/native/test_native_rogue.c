/* SPDX-License-Identifier: Apache-2.0 */
/* Who brings other memory than he ought to, or is not who ought to bring it: none of it is mapped. */
#include <sched.h>
#include <sys/un.h>

#include "native/liar.h"

#define MAP_BYTES 8192

static int some_file(int kind)
{
	int fd = memfd_create("rogue", MFD_CLOEXEC | MFD_ALLOW_SEALING), two[2];

	if (kind == 0) { /* can be cut */
		REQUIRE(ftruncate(fd, MAP_BYTES) == 0);
	} else if (kind == 1) { /* is too short */
		REQUIRE(ftruncate(fd, MAP_BYTES / 2) == 0);
		REQUIRE(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK) == 0);
	} else { /* is no memory */
		close(fd);
		REQUIRE(pipe(two) == 0);
		close(two[1]);
		fd = two[0];
	}
	return fd;
}

static void bring(const uint8_t *random, int fd)
{
	struct sockaddr_un to = {.sun_family = AF_UNIX};
	int way = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0), n = 1;
	char control[CMSG_SPACE(sizeof(int))] = {0}, byte = 0;
	struct iovec iov = {&byte, 1};
	struct msghdr msg = {.msg_iov = &iov,
			     .msg_iovlen = 1,
			     .msg_control = control,
			     .msg_controllen = sizeof(control)};
	struct cmsghdr *c = CMSG_FIRSTHDR(&msg);

	n += sprintf(to.sun_path + n, "viaduct-map-");
	for (uint32_t i = 0; i < FRAME_NAME_BYTES; i++)
		n += sprintf(to.sun_path + n, "%02x", random[i]);
	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(c), &fd, sizeof(fd));
	REQUIRE(connect(way, (struct sockaddr *)&to,
			(socklen_t)(offsetof(struct sockaddr_un, sun_path) +
				    (size_t)n)) == 0);
	REQUIRE(sendmsg(way, &msg, MSG_NOSIGNAL) == 1);
	close(way);
	close(fd);
}

/* Plays along until the victim asks for the memory, at that name. */
static void hear_map(struct liar *l, uint8_t random[FRAME_NAME_BYTES])
{
	uint8_t name[64];
	struct frame f;

	do {
		REQUIRE(recv(l->fd, &f, sizeof(f), MSG_WAITALL) == sizeof(f));
		if (f.type == FRAME_FLUSH)
			say(l, (struct frame){.type = FRAME_FLUSHED, .token = f.token},
			    NULL);
		else if (f.type != FRAME_MAP && f.len)
			REQUIRE(recv(l->fd, name, f.len, MSG_WAITALL) == (ssize_t)f.len);
	} while (f.type != FRAME_MAP);
	REQUIRE(recv(l->fd, random, FRAME_NAME_BYTES, MSG_WAITALL) == FRAME_NAME_BYTES);
}

static void lend_rogue(struct liar *l, int kind)
{
	uint8_t random[FRAME_NAME_BYTES];

	hear_map(l, random);
	if (kind < 3)
		bring(random, some_file(kind));
	say(l, (struct frame){.type = FRAME_MAPPED, .id = ID}, NULL);
}

NATIVE_TEST(rogue_memory)
{
	for (int kind = 0; kind < 4; kind++) {
		struct liar l = liar_open();
		struct import_call call = {.c = l.c};
		pthread_t thread;

		say_hello(&l);
		export_whole(&l, MAP_BYTES);
		REQUIRE(pthread_create(&thread, NULL, import_it, &call) == 0);
		lend_rogue(&l, kind);
		pthread_join(thread, NULL);
		CHECK_EQ(call.r, 0);
		CHECK_STR(vd_remote_reason(call.h), "memory");
		/* It goes by the stream, and is returned all the same. */
		CHECK_EQ(vd_put(call.h, 0, "x", 1, 0, 0), 0);
		hear(&l, FRAME_PUT);
		say(&l, (struct frame){.type = FRAME_UNEXPORT, .id = ID}, NULL);
		CHECK_EQ(hear(&l, FRAME_UNMAPPED).id, ID);
		vd_close(l.c);
		close(l.fd);
	}
}

/* A process of our user in a container, which has found the name in a list. It stays until nobody has `until`.
 * Returns whether there can be one. */
static bool bring_from_elsewhere(const uint8_t *random, const int until[2])
{
	int fd = memfd_create("fuzz", MFD_CLOEXEC | MFD_ALLOW_SEALING), told[2];
	char byte;
	bool can;

	REQUIRE(ftruncate(fd, MAP_BYTES) == 0 &&
		fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK) == 0);
	REQUIRE(pipe(told) == 0);
	if (fork() == 0) {
		if (unshare(CLONE_NEWPID) < 0 || fork() != 0) /* whose child enters it */
			_exit(0);
		close(until[1]);
		bring(random, fd);
		(void)!write(told[1], "x", 1);
		(void)!read(until[0], &byte, 1);
		_exit(0);
	}
	close(told[1]);
	close(fd);
	can = read(told[0], &byte, 1) == 1;
	close(told[0]);
	return can;
}

NATIVE_TEST(memory_from_another_pid_namespace)
{
	struct liar l = liar_open();
	struct import_call call = {.c = l.c};
	uint8_t random[FRAME_NAME_BYTES];
	pthread_t thread;
	int until[2];
	bool can;

	REQUIRE(pipe(until) == 0);
	say_hello(&l);
	export_whole(&l, MAP_BYTES);
	REQUIRE(pthread_create(&thread, NULL, import_it, &call) == 0);
	hear_map(&l, random);
	can = bring_from_elsewhere(random, until);
	say(&l, (struct frame){.type = FRAME_MAPPED, .id = ID}, NULL);
	pthread_join(thread, NULL);
	CHECK_EQ(call.r, 0);
	CHECK_STR(vd_remote_reason(call.h), "memory");
	close(until[0]);
	close(until[1]);
	while (wait(NULL) > 0)
		;
	vd_close(l.c);
	close(l.fd);
	if (!can)
		SKIP("no pid namespace to be had");
}
