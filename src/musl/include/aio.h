/* SPDX-License-Identifier: Apache-2.0 */
/* musl's header, with names of glibc's as names of their own. */
#ifndef VD_MUSL_AIO_H
#define VD_MUSL_AIO_H

#define lio_listio lio_listio_of_musl
#include_next <aio.h>
#undef lio_listio

#undef aio_read64
#undef aio_write64
#undef lio_listio64
int lio_listio(int mode, struct aiocb *const list[], int count, struct sigevent *event);
int aio_read64(struct aiocb *block);
int aio_write64(struct aiocb *block);
int lio_listio64(int mode, struct aiocb *const list[], int count, struct sigevent *event);

#define __return_value __ret
#define __error_code   __err

#endif
