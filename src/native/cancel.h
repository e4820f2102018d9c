/* SPDX-License-Identifier: Apache-2.0 */
/* Where a thread of the program cannot be cancelled. */
#ifndef VD_NATIVE_CANCEL_H
#define VD_NATIVE_CANCEL_H

#include <pthread.h>

/*
 * Among the declarations of a function: its thread is not cancelled in it. One that ended in mid-call would leave
 * locks, or half a frame. No public call is a point of cancellation, but vd_connect, vd_accept and vd_close. Where
 * a call does not wait it makes none of the system calls that are such points: so puts and messages have
 * this only in what they call to wait, or to send (send.c, wait.c).
 */
#define NOT_CANCELLED                                                                    \
	__attribute__((cleanup(cancel_as), unused)) int cancel_ = cancel_off()
static inline int cancel_off(void)
{
	int was;

	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &was);
	return was;
}
static inline void cancel_as(const int *was)
{
	pthread_setcancelstate(*was, NULL);
}

#endif
