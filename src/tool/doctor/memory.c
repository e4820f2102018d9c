/* SPDX-License-Identifier: Apache-2.0 */
/* Checks of what a connection's segment is made of: sealed memory, eventfds, /proc. */
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "tool/doctor/doctor.h"

/* A little more than the segment of src/ring/wire.h, which has 8.5 MiB of rings. */
enum { SEGMENT_MIB = 9, SEGMENT_BYTES = SEGMENT_MIB << 20 };

#define SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)

/* What is written into the mapping must be in the file. */
static const char *map_fault(int fd)
{
	char *map = mmap(NULL, SEGMENT_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	char ends[2] = {0};

	if (map == MAP_FAILED)
		return "mapping memory";
	map[0] = 1;
	map[SEGMENT_BYTES - 1] = 2;
	errno = EIO;
	if (pread(fd, ends, 1, 0) != 1 || pread(fd, ends + 1, 1, SEGMENT_BYTES - 1) != 1)
		ends[1] = 0;
	munmap(map, SEGMENT_BYTES);
	return ends[0] == 1 && ends[1] == 2 ? NULL : "sharing mapped memory";
}

/* The call that failed, with errno; NULL when all went well. */
static const char *memory_fault(int fd)
{
	struct statfs fs;

	if (ftruncate(fd, SEGMENT_BYTES) != 0)
		return "giving memory its size";
	if (fcntl(fd, F_ADD_SEALS, SEALS) != 0)
		return "F_ADD_SEALS";
	errno = EOPNOTSUPP;
	if (ftruncate(fd, 0) == 0 || fcntl(fd, F_GET_SEALS) != SEALS)
		return "keeping sealed memory from being shrunk";
	if (fstatfs(fd, &fs) != 0 || fs.f_type != TMPFS_MAGIC)
		return "memory on tmpfs";
	return map_fault(fd);
}

void check_sealed_memory(struct finding *f)
{
	/* Past `ulimit -f` the kernel sends a signal; without a handler, an error. */
	void (*before)(int) = signal(SIGXFSZ, SIG_IGN);
	int fd = memfd_create("viaduct-doctor", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	const char *fault = fd < 0 ? "memfd_create" : memory_fault(fd);
	int err = errno;

	if (fd >= 0)
		close(fd);
	signal(SIGXFSZ, before);
	if (fault) {
		found_refused(f, fault, err);
		return;
	}
	found(f, "%d MiB of sealed memory, as a connection takes, were made and mapped",
	      SEGMENT_MIB);
	found_number(f, SEGMENT_MIB, "MiB");
}

static const char *eventfd_fault(int fd)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};
	static const char eventfd_name[] = "anon_inode:[eventfd]";
	char path[32], name[sizeof(eventfd_name) - 1] = "";
	uint64_t n = 1;

	if (write(fd, &n, sizeof(n)) != sizeof(n))
		return "writing an eventfd";
	if (poll(&p, 1, 0) != 1)
		return "polling an eventfd";
	if (read(fd, &n, sizeof(n)) != sizeof(n))
		return "reading an eventfd";
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	if (readlink(path, name, sizeof(name)) < 0)
		return "reading an eventfd's name in /proc";
	errno = EOPNOTSUPP;
	return memcmp(name, eventfd_name, sizeof(name)) ? "telling an eventfd by its name"
							: NULL;
}

void check_eventfd(struct finding *f)
{
	int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	const char *fault = fd < 0 ? "eventfd" : eventfd_fault(fd);
	int err = errno;

	if (fd >= 0)
		close(fd);
	if (fault)
		found_refused(f, fault, err);
	else
		found(f, "a doorbell was rung and answered");
}

void check_proc(struct finding *f)
{
	static const char *const paths[] = {"/proc/self/exe", "/proc/self/stat",
					    "/proc/self/uid_map", "/proc/self/ns/user",
					    "/proc/self/ns/pid"};

	for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++) {
		if (access(paths[i], R_OK) == 0)
			continue;
		found(f, "%s cannot be read: %s", paths[i], strerror(errno));
		found_word(f, paths[i]);
		found_trouble(f, FINDING_PROBLEM,
			      "Connections stay on TCP, since their ends cannot be told.",
			      "Mount it: `mount -t proc proc /proc`.");
		return;
	}
	found(f, "what /proc says about a process can be read");
}
