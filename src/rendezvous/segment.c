/* SPDX-License-Identifier: Apache-2.0 */
/* The segment of one connection and its doorbells: made by the acceptor, checked by the
 * connector. */
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/fds.h"
#include "base/kernel.h"
#include "base/log.h"
#include "base/low.h"
#include "base/memory.h"
#include "base/pageable.h"
#include "base/put.h"
#include "base/quiet.h"
#include "base/real.h"
#include "base/space.h"
#include "rendezvous/farbell.h"
#include "rendezvous/segment.h"

#define SEGMENT_SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)

static const struct meet_segment segment_none = {
	.wire = NULL, .memfd = -1, .bell = -1, .peer_bell = -1, .far_bell = -1};

enum vd_reason segment_reason(int err)
{
	switch (err) {
	case EMFILE:
	case ENFILE:
	case ETOOMANYREFS:
		return VD_REASON_FD_LIMIT;
	case ENOMEM:
	case ENOBUFS:
	case ENOSPC:
	case EFBIG:
		return VD_REASON_MEMORY;
	default:
		return VD_REASON_KERNEL;
	}
}

static int segment_memfd(const char *name)
{
	return LOW_MADE(fds_adopt, memory_file(name));
}

/* Pages of a memory file count when they are touched: of this one, hardly any is. */
static bool empty_by_file(void *place)
{
	int fd = segment_memfd("viaduct-empty");
	bool done;

	if (fd < 0)
		return false;
	done = quiet_truncate(fd, WIRE_TOTAL_BYTES) == 0 &&
	       pageable_map(place, WIRE_TOTAL_BYTES, MAP_FIXED | MAP_SHARED, fd) !=
		       MAP_FAILED;
	fds_close(fd);
	return done;
}

void meet_empty(void *place)
{
	bool counted = space_is_counted();
	int flags = MAP_FIXED | MAP_ANONYMOUS | MAP_NORESERVE |
		    (counted ? MAP_SHARED : MAP_PRIVATE);

	if (counted && empty_by_file(place))
		return;
	if (pageable_map(place, WIRE_TOTAL_BYTES, flags, -1) == MAP_FAILED)
		log_error("a segment of %llu bytes stays mapped: %m",
			  (unsigned long long)WIRE_TOTAL_BYTES);
}

/* Straight to its place, if it has one: a mapping that moves there costs as much once more. */
static bool segment_map(struct meet_segment *s, int memfd, void *place)
{
	void *p = pageable_map(place, WIRE_TOTAL_BYTES,
			       MAP_SHARED | (place ? MAP_FIXED : 0), memfd);

	if (p == MAP_FAILED) {
		int saved = errno;

		/* Some kernels have unmapped by then what was there. */
		if (place)
			meet_empty(place);
		errno = saved;
		return false;
	}
	s->wire = p;
	s->at_place = place != NULL;
	return true;
}

static int segment_eventfd(void)
{
	return LOW_MADE(fds_adopt,
			kernel_call4(SYS_eventfd2, 0, EFD_NONBLOCK | EFD_CLOEXEC, 0, 0));
}

static void segment_fill(struct wire *w)
{
	w->magic = WIRE_MAGIC;
	w->version = WIRE_VERSION;
	w->header_bytes = sizeof(struct wire);
	w->dir_bytes = sizeof(struct wire_dir);
	for (unsigned i = 0; i < WIRE_AREAS; i++)
		w->area_bytes[i] = wire_area_bytes(i);
	w->total_bytes = WIRE_TOTAL_BYTES;
}

static int segment_make_memory(struct meet_segment *s, void *place)
{
	if (!space_is_left(WIRE_TOTAL_BYTES) || !space_takes_mapping())
		return -ENOMEM;
	s->memfd = segment_memfd("viaduct");
	if (s->memfd < 0)
		return s->memfd;
	/* RLIMIT_FSIZE holds for memory files, too. */
	int r = quiet_truncate(s->memfd, WIRE_TOTAL_BYTES);
	if (r < 0)
		return r;
	if (REAL(fcntl64)(s->memfd, F_ADD_SEALS, SEGMENT_SEALS) != 0)
		return -errno;
	if (!segment_map(s, s->memfd, place))
		return -errno;
	segment_fill(s->wire);
	return 0;
}

static int segment_make(struct meet_segment *s, bool far, uint64_t netns, void *place)
{
	int r = segment_make_memory(s, place);

	if (r < 0)
		return r;
	s->bell = segment_eventfd();
	if (s->bell < 0)
		return s->bell;
	if (far) {
		s->far_bell = farbell_create(netns);
		if (s->far_bell < 0)
			return s->far_bell;
	} else {
		s->peer_bell = segment_eventfd();
		if (s->peer_bell < 0)
			return s->peer_bell;
	}
	return 0;
}

int segment_create(bool far, uint64_t netns, void *place, struct meet_segment *out)
{
	struct meet_segment s = segment_none;
	int r = segment_make(&s, far, netns, place);

	if (r < 0) {
		log_debug("no segment: %s", strerror(-r));
		meet_finish(&s);
		return -(int)segment_reason(-r);
	}
	*out = s;
	return 1;
}

/*
 * Memory that its sender can shrink, or whose pages can fail to come, would kill us by
 * SIGBUS: so sealed, of the right size, and a tmpfs of the kernel's own (a file of a
 * mounted tmpfs, which may be full, cannot carry the seals; hugetlbfs has another magic).
 */
static const char *segment_memfd_fault(int fd)
{
	struct stat st;
	struct statfs fs;
	int seals = REAL(fcntl64)(fd, F_GET_SEALS);

	if (seals < 0 || (seals & SEGMENT_SEALS) != SEGMENT_SEALS)
		return "the memory is not sealed";
	if (kernel_fstat(fd, &st) != 0 || !S_ISREG(st.st_mode) ||
	    (uint64_t)st.st_size != WIRE_TOTAL_BYTES)
		return "the memory has another size";
	if (kernel_fstatfs(fd, &fs) != 0 || fs.f_type != TMPFS_MAGIC)
		return "the memory is not tmpfs";
	return NULL;
}

/*
 * By the kernel's name for it, not by trying it out: the peer shares the open file, and
 * may make it blocking at any moment.
 */
static const char *segment_bell_fault(int fd)
{
	static const char eventfd[] = "anon_inode:[eventfd]";
	char path[32], target[sizeof(eventfd)];
	int flags = REAL(fcntl64)(fd, F_GETFL);

	put_number(put_text(path, "/proc/self/fd/"), fd);
	if (kernel_readlink(path, target, sizeof(target)) != sizeof(eventfd) - 1 ||
	    memcmp(target, eventfd, sizeof(eventfd) - 1) != 0)
		return "a doorbell is not an eventfd, or there is no /proc";
	if (flags < 0 || ((flags & O_NONBLOCK) == 0 &&
			  REAL(fcntl64)(fd, F_SETFL, flags | O_NONBLOCK) != 0))
		return "a doorbell cannot be made nonblocking";
	return NULL;
}

/* In shared memory: read once each, since the peer may still write. */
static bool segment_header_fits(const struct wire *w)
{
	bool fits = __atomic_load_n(&w->magic, __ATOMIC_RELAXED) == WIRE_MAGIC &&
		    __atomic_load_n(&w->version, __ATOMIC_RELAXED) == WIRE_VERSION;

	for (unsigned i = 0; i < WIRE_AREAS; i++)
		fits = fits && __atomic_load_n(&w->area_bytes[i], __ATOMIC_RELAXED) ==
				       wire_area_bytes(i);
	return fits;
}

static const char *segment_fault(const struct meet_segment *s)
{
	const char *fault = segment_memfd_fault(s->memfd);

	if (!fault && s->far_bell < 0)
		fault = segment_bell_fault(s->bell);
	if (!fault && s->far_bell < 0)
		fault = segment_bell_fault(s->peer_bell);
	return fault;
}

/* The connector's own bells, where the peer's user is another. 0 or -errno. */
static int segment_far_bells(struct meet_segment *s, uint32_t port, uint64_t netns)
{
	s->bell = segment_eventfd();
	if (s->bell < 0)
		return s->bell;
	s->far_bell = farbell_create(netns);
	return s->far_bell < 0 ? s->far_bell : farbell_connect(s->far_bell, port);
}

/* Takes over all that came, also when one of them fails. 0 or -errno. */
static int segment_adopt(struct meet_segment *s, int fds[SEGMENT_FDS], uint32_t far_port,
			 uint64_t netns)
{
	s->memfd = fds_adopt(fds[SEGMENT_MEMFD]);
	if (far_port)
		return s->memfd < 0 ? s->memfd : segment_far_bells(s, far_port, netns);
	s->peer_bell = fds_adopt(fds[SEGMENT_ACCEPTOR_BELL]);
	s->bell = fds_adopt(fds[SEGMENT_CONNECTOR_BELL]);
	return s->memfd < 0 || s->bell < 0 || s->peer_bell < 0 ? -EMFILE : 0;
}

/* Descriptors are there. 1, or -enum vd_reason. */
static int segment_check(struct meet_segment *s, void *place)
{
	const char *fault;

	if (!space_is_left(WIRE_TOTAL_BYTES) || !space_takes_mapping())
		return -VD_REASON_MEMORY;
	fault = segment_fault(s);
	if (fault) {
		log_debug("refused an offer: %s", fault);
		return -VD_REASON_HELLO;
	}
	if (!segment_map(s, s->memfd, place))
		return errno == ENOMEM ? -VD_REASON_MEMORY : -VD_REASON_HELLO;
	return segment_header_fits(s->wire) ? 1 : -VD_REASON_HELLO;
}

int segment_take(int fds[SEGMENT_FDS], uint32_t far_port, uint64_t netns, void *place,
		 struct meet_segment *out)
{
	struct meet_segment s = segment_none;
	int r = segment_adopt(&s, fds, far_port, netns);

	r = r < 0 ? -(int)segment_reason(-r) : segment_check(&s, place);
	if (r == 1)
		*out = s;
	else
		meet_finish(&s);
	return r;
}

int segment_take_near(int memfd, int far_bell, void *place, struct meet_segment *out)
{
	struct meet_segment s = segment_none;
	int r;

	s.memfd = fds_adopt(memfd);
	s.bell = s.memfd < 0 ? -EMFILE : segment_eventfd();
	s.far_bell = far_bell;
	r = s.bell < 0 ? -(int)segment_reason(-s.bell) : segment_check(&s, place);
	if (r == 1) {
		*out = s;
		return 1;
	}
	s.far_bell = -1;
	meet_finish(&s);
	return r;
}

static int segment_alone_at(void *place, struct meet_segment *out)
{
	struct meet_segment s = segment_none;
	int r = segment_make_memory(&s, place);

	if (r < 0) {
		meet_finish(&s);
		return -(int)segment_reason(-r);
	}
	*out = s;
	return 1;
}

int segment_alone(struct meet_segment *out)
{
	return segment_alone_at(NULL, out);
}

int segment_with_bell(void *place, struct meet_segment *out)
{
	int r = segment_alone_at(place, out);

	if (r != 1)
		return r;
	out->bell = segment_eventfd();
	if (out->bell >= 0)
		return 1;
	r = -(int)segment_reason(-out->bell);
	out->bell = -1;
	meet_finish(out);
	return r;
}

int segment_alone_take(int memfd, struct meet_segment *out)
{
	struct meet_segment s = segment_none;
	const char *fault = segment_memfd_fault(memfd);

	if (fault) {
		log_debug("refused what the last image left: %s", fault);
		return -VD_REASON_HELLO;
	}
	s.bell = segment_eventfd();
	if (s.bell < 0)
		return -(int)segment_reason(-s.bell);
	if (!segment_map(&s, memfd, NULL) || !segment_header_fits(s.wire)) {
		int reason = s.wire ? VD_REASON_HELLO : VD_REASON_MEMORY;

		meet_finish(&s);
		return -reason;
	}
	*out = s;
	return 1;
}

void meet_finish(struct meet_segment *seg)
{
	if (seg->at_place)
		meet_empty(seg->wire);
	else if (seg->wire)
		pageable_unmap(seg->wire, WIRE_TOTAL_BYTES);
	fds_close(seg->memfd);
	fds_close(seg->bell);
	fds_close(seg->peer_bell);
	fds_close(seg->far_bell);
	*seg = segment_none;
}
