/* SPDX-License-Identifier: Apache-2.0 */
/* Included before each conformance case that is built for musl: glibc's other names of its calls. */
#ifndef TESTS_MUSL_NAMES_H
#define TESTS_MUSL_NAMES_H

#include <pthread.h>
#include <sys/uio.h>
/* The library's, which src/musl/include has put in the place of musl's. */
#undef _pthread_cleanup_push
#undef _pthread_cleanup_pop

/* These are one function there, too. */
#define _IO_fclose  fclose
#define _IO_fdopen  fdopen
#define _IO_popen   popen
#define __clone	    clone
#define __close	    close
#define __connect   connect
#define __dup2	    dup2
#define __fcntl	    fcntl
#define __fork	    fork
#define __open	    open
#define __open64    open
#define __pipe	    pipe
#define __poll	    poll
#define __read	    read
#define __select    select
#define __send	    send
#define __sigaction sigaction
#define __vfork	    vfork
#define __write	    write
#define fcntl64	    fcntl
#define ssignal	    signal
#define sysv_signal signal

/* Of a program's own data. */
#define __data_start __dso_handle

#define SO_RESERVE_MEM 73
#define SO_TXREHASH    74

char *strerrorname_np(int error);
ssize_t preadv64v2(int fd, const struct iovec *iov, int count, off_t offset, int flags);
ssize_t pwritev64v2(int fd, const struct iovec *iov, int count, off_t offset, int flags);

#endif
