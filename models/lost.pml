/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A close that leaves bytes unread in the ring, while another thread goes to the kernel by the same number: past
 * the ring, since the number is in no table any more. It must not get what comes behind those bytes. The
 * sender leaves the ring when it sees the close, or when it likes.
 *
 * Stores of the sender go through a buffer, as on x86: only a fence waits for it.
 */
#ifndef BYTES
#define BYTES 3
#endif

/* The segment. */
byte produced; /* as others see it */
byte consumed;
bool closed;

/* The sender: what it has written to the ring, and whether its buffer has that still. */
byte written;
bool is_late, is_down;

/* The kernel. */
chan tcp = [BYTES] of { byte };
bool is_reset; /* by either end */

bool is_out; /* the number can be found no more */

active proctype buffer()
{
end:
	do
	:: atomic { is_late -> produced = written; is_late = false }
	od
}

inline reset()
{
	atomic {
		is_reset = true;
		do
		:: nempty(tcp) -> tcp?_
		:: empty(tcp) -> break
		od
	}
}

inline leave_ring()
{
#ifndef MUT_NO_FENCE_SENDER
	!is_late;
#endif
#ifndef MUT_SENDER_DOES_NOT_LOOK
	if
	:: closed && written != consumed -> reset()
	:: else
	fi;
#endif
	is_down = true
}

active proctype sender()
{
	byte n = 0;
	bool saw;
	do
	:: n < BYTES && !is_down ->
		saw = closed; /* what is written to the ring comes after this look */
		if
		:: !saw -> n++; atomic { !is_late; written = n; is_late = true }
		:: true -> leave_ring()
		fi
	:: n < BYTES && is_down ->
		n++;
		atomic {
			if
			:: !is_reset -> tcp!n
			:: is_reset
			fi
		}
	:: n == BYTES -> break
	od
}

inline look()
{
	if
	:: produced != consumed -> reset()
	:: produced == consumed
	fi
}

active proctype closer()
{
	do
	:: atomic { produced != consumed -> consumed++ }
	:: break
	od;
#ifdef MUT_OUT_BEFORE_WORDS
	is_out = true;
#endif
	look();
	closed = true;
#ifndef MUT_NO_SECOND_LOOK
	look();
#endif
	is_out = true
}

/* In the kernel's receive. */
active proctype other()
{
	is_out;
end:
	do
	:: atomic { nempty(tcp) -> tcp?_; assert(consumed == written) }
	od
}
