/* SPDX-License-Identifier: Apache-2.0 */
/* The memory file that root's tools look at, opened and mapped once for many inputs. The linker leads the tool's
 * calls here. They have the names of 64 bits, as the tool is built with these. */
#include <pthread.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fuzz/fuzz.h"
#include "fuzz/kept_file.h"
#include "tool/observe/file.h"

#define NO_NUMBER (1 << 30) /* in the place of the file's descriptor */

int __real_observe_file_open(const char *path, int access, struct observe_file *out);
int __wrap_observe_file_open(const char *path, int access, struct observe_file *out);
bool __real_observe_file_is_sealed(const struct observe_file *f);
bool __wrap_observe_file_is_sealed(const struct observe_file *f);
ssize_t __real_pread64(int fd, void *to, size_t bytes, off64_t at);
ssize_t __wrap_pread64(int fd, void *to, size_t bytes, off64_t at);
void *__real_mmap64(void *at, size_t bytes, int prot, int flags, int fd, off64_t offset);
void *__wrap_mmap64(void *at, size_t bytes, int prot, int flags, int fd, off64_t offset);
int __real_munmap(void *at, size_t bytes);
int __wrap_munmap(void *at, size_t bytes);
int __real_close(int fd);
int __wrap_close(int fd);
int __real_stat64(const char *path, struct stat64 *st);
int __wrap_stat64(const char *path, struct stat64 *st);
int __real_pthread_create(pthread_t *to, const pthread_attr_t *attr, void *(*run)(void *),
			  void *arg);
int __wrap_pthread_create(pthread_t *to, const pthread_attr_t *attr, void *(*run)(void *),
			  void *arg);
int __real_pthread_join(pthread_t thread, void **result);
int __wrap_pthread_join(pthread_t thread, void **result);

static bool is_kept;
static struct observe_file file;
static void *map;

void kept_file_begin(void)
{
	static unsigned turn;

	is_kept = !fuzz_is_turn(&turn);
}

void kept_file_end(void)
{
	is_kept = false;
}

int __wrap_observe_file_open(const char *path, int access, struct observe_file *out)
{
	if (!is_kept)
		return __real_observe_file_open(path, access, out);
	if (!map) {
		FUZZ_CHECK(__real_observe_file_open(path, access, &file) == 0);
		FUZZ_CHECK(__real_observe_file_is_sealed(&file));
		map = __real_mmap64(NULL, file.size, PROT_READ, MAP_SHARED, file.fd, 0);
		FUZZ_CHECK(map != MAP_FAILED);
		__real_close(file.fd);
		file.fd = NO_NUMBER;
	}
	*out = file;
	return 0;
}

bool __wrap_observe_file_is_sealed(const struct observe_file *f)
{
	return f->fd == NO_NUMBER || __real_observe_file_is_sealed(f);
}

ssize_t __wrap_pread64(int fd, void *to, size_t bytes, off64_t at)
{
	size_t left = (size_t)at < file.size ? file.size - (size_t)at : 0;

	if (fd != NO_NUMBER)
		return __real_pread64(fd, to, bytes, at);
	bytes = bytes < left ? bytes : left;
	memcpy(to, (const char *)map + at, bytes);
	return (ssize_t)bytes;
}

void *__wrap_mmap64(void *at, size_t bytes, int prot, int flags, int fd, off64_t offset)
{
	if (fd != NO_NUMBER)
		return __real_mmap64(at, bytes, prot, flags, fd, offset);
	FUZZ_CHECK(!at && bytes <= file.size && prot == PROT_READ && offset == 0);
	return map;
}

int __wrap_munmap(void *at, size_t bytes)
{
	return map && at == map ? 0 : __real_munmap(at, bytes);
}

int __wrap_close(int fd)
{
	return fd == NO_NUMBER ? 0 : __real_close(fd);
}

/* Of one name alone: what is this process's network namespace. */
int __wrap_stat64(const char *path, struct stat64 *st)
{
	static struct stat64 own;

	if (!is_kept)
		return __real_stat64(path, st);
	FUZZ_CHECK(!strcmp(path, "/proc/self/ns/net"));
	if (!own.st_ino)
		FUZZ_CHECK(__real_stat64(path, &own) == 0);
	*st = own;
	return 0;
}

int __wrap_pthread_create(pthread_t *to, const pthread_attr_t *attr, void *(*run)(void *),
			  void *arg)
{
	if (!is_kept)
		return __real_pthread_create(to, attr, run, arg);
	*to = pthread_self();
	run(arg);
	return 0;
}

int __wrap_pthread_join(pthread_t thread, void **result)
{
	return is_kept ? 0 : __real_pthread_join(thread, result);
}
