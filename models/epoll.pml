/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One epoll instance on which several threads wait for one attached socket, which is
 * looked at in memory while it is hot and rings while it is armed; the doorbell is
 * registered edge-triggered. With POLLER another thread waits for the same socket in poll,
 * and empties the doorbell.
 *
 * Memory is sequentially consistent here: sleep.pml has the store buffers.
 */
#ifndef THREADS
#define THREADS 2
#endif
#ifndef POLLER
#define POLLER 0
#endif
#ifndef BYTES
#define BYTES 2
#endif

byte produced = 0, taken = 0;
#define READABLE (produced != taken)

/* Arming: the word in the segment, the slot's counts, the peer's last answer. */
byte rx_armed = 0, rx_arm = 0, rx_sleepers = 0, rx_rung = 0;
byte peer_seq = 0, leaver_seq[THREADS + POLLER];

/* The eventfd, and its item on the kernel's ready list for the instance. */
bool bell = false, edge = false;

/* The instance, and its record of the socket. */
byte lock = 0, sleepers = 0;
bool hot = true, armed = false, rung = false;

bool asleep[THREADS + POLLER];
bool interrupted = false; /* one thread leaves its sleep without having been woken */

inline ring_bell()
{
	bell = true;
	edge = true
}

#if THREADS + POLLER > 2
#define LEAVING_2(v) (leaver_seq[2] == v)
#else
#define LEAVING_2(v) false
#endif

/* A value that nobody holds: stands for one never used before. */
inline next_seq()
{
	d_step {
		rx_arm = 1;
		do
		:: rx_arm == rx_armed || rx_arm == rx_rung || rx_arm == peer_seq ||
		   leaver_seq[0] == rx_arm || leaver_seq[1] == rx_arm || LEAVING_2(rx_arm) ->
			rx_arm++
		:: else -> break
		od;
		rx_armed = rx_arm
	}
}

inline sock_arm()
{
	rx_sleepers++;
	next_seq()
}

inline sock_disarm()
{
	leaver_seq[me] = rx_arm;
	if
	:: atomic { rx_sleepers == 1 -> rx_sleepers-- };
		atomic { rx_armed = (rx_armed == leaver_seq[me] -> 0 : rx_armed) }
	:: atomic { rx_sleepers > 1 -> rx_sleepers-- }
	fi;
	leaver_seq[me] = 0
}

/* ---- the instance; all under its lock ---- */

inline reg_disarm()
{
	if
	:: atomic { armed -> armed = false }; sock_disarm()
	:: atomic { !armed -> skip }
	fi;
	rung = false
}

/* The doorbell has gone since: what comes next does not ring for the old sequence. */
#ifdef MUT_ANSWERED_STAYS
#define STILL_ARMED armed
#else
#define STILL_ARMED (armed && !rung)
#endif

inline reg_arm()
{
	if
	:: STILL_ARMED
	:: !STILL_ARMED ->
		reg_disarm();
		atomic { armed = true; sock_arm() }
	fi
}

/* A thread leaves with or without a result while others sleep. */
inline attend()
{
	if
	:: sleepers > 0 && hot ->
#ifndef MUT_LEAVER_DOES_NOT_ARM
		reg_arm();
#endif
#ifdef MUT_OWN_NOT_RUNG
		if
		:: atomic { READABLE && !told -> ring_bell() }
		:: !READABLE || told
		fi
#elif defined(MUT_ATTEND_DOES_NOT_LOOK)
		skip
#else
		if
		:: atomic { READABLE -> ring_bell() }
		:: !READABLE
		fi
#endif
	:: sleepers == 0 || !hot
	fi
}

inline disarm_if_last()
{
#ifdef MUT_DISARM_WITH_OTHERS
	reg_disarm()
#else
	if
	:: sleepers == 0 && hot -> reg_disarm()
	:: sleepers > 0 || !hot
	fi
#endif
}

inline scan()
{
	told = hot && READABLE
}

/* A record that nothing has happened to for long becomes cold: it stays armed. */
inline age()
{
	if
	:: hot && !told ->
#ifndef MUT_COLD_NOT_ARMED
		reg_arm();
#endif
		if
		:: !READABLE -> hot = false
		:: READABLE -> disarm_if_last()
		fi
	:: true
	fi
}

/* The tag of the doorbell has come from the kernel. */
inline heard()
{
	atomic { lock == 0 -> lock = me + 1; hot = true; rung = true };
	if
	:: sleepers == 0 -> reg_disarm()
	:: sleepers > 0
	fi;
	lock = 0
}

inline look()
{
	atomic { lock == 0 -> lock = me + 1; scan() };
	age();
	attend();
	lock = 0
}

inline lie_down()
{
	atomic { lock == 0 -> lock = me + 1; sleepers++ };
	if
	:: hot -> reg_arm()
	:: !hot
	fi;
	scan();
	if
	:: told ->
		sleepers--;
		disarm_if_last();
		attend()
	:: !told
	fi;
	lock = 0
}

inline kernel_sleep()
{
	atomic {
		asleep[me] = true;
		if
		:: !interrupted -> interrupted = true; out = true
		:: true
		fi
	};
end:
	do
	/* The kernel asks the eventfd once more before it reports the edge. */
	:: atomic { edge && !out -> edge = false;
		if
		:: bell -> asleep[me] = false; break
		:: !bell
		fi }
	/* A signal or the timeout: the program is elsewhere, and looks at nothing. */
	:: atomic { out -> asleep[me] = false; break }
	od;
	atomic { lock == 0 -> lock = me + 1; sleepers-- };
	disarm_if_last();
	lock = 0
}

proctype waiter(byte me)
{
	bool told, out = false;
	do
	:: break /* has something else to do, for ever */
	:: true ->
		look();
		if
		:: told
		:: !told ->
			/* The kernel's half, without waiting. */
			if
			:: atomic { edge && bell -> edge = false };
				heard();
				look()
			:: true
			fi
		fi;
		if
		:: told
		:: !told -> lie_down()
		fi;
		if
		:: told
		:: !told ->
			kernel_sleep();
			if
			:: out -> break
			:: !out -> heard(); look()
			fi
		fi;
		/* The program reads what it likes. */
		do
		:: told && READABLE -> atomic { taken = (READABLE -> taken + 1 : taken) }
		:: told = false; break
		od
	od
}

#if POLLER
proctype poller(byte me)
{
	bool others, heard_it = false;
	do
	:: break
	:: atomic { READABLE -> taken++ }
	:: atomic { !READABLE -> sock_arm() };
		if
		:: READABLE
		:: atomic { !READABLE -> asleep[me] = true };
end:
			atomic { bell -> asleep[me] = false; heard_it = true }
		fi;
		sock_disarm();
		if
		:: heard_it ->
			atomic { heard_it = false; bell = false; others = rx_sleepers > 0 };
			if
			:: others ->
				next_seq();
#ifndef MUT_NO_RERING
				if
				:: atomic { READABLE -> ring_bell() }
				:: !READABLE
				fi
#endif
			:: !others
			fi;
			others = false
		:: !heard_it
		fi
	od
}
#endif

active proctype peer()
{
	do
	:: produced < BYTES ->
		produced++;
		atomic { peer_seq = rx_armed };
		if
		:: atomic { peer_seq != 0 && peer_seq != rx_rung ->
			ring_bell();
			rx_rung = peer_seq }
		:: peer_seq == 0 || peer_seq == rx_rung
		fi;
		peer_seq = 0
	:: produced == BYTES -> break
	od
}

#define LOST(i) (asleep[i] && READABLE)

/* Nothing moves any more: then nobody may sleep over something to read. */
active proctype monitor()
{
end:
	do
	:: timeout ->
		assert(!LOST(0));
		assert(!LOST(1));
#if THREADS + POLLER > 2
		assert(!LOST(2));
#endif
		break
	od
}

init
{
	byte i = 0;
	atomic {
		do
		:: i < THREADS -> run waiter(i); i++
		:: i == THREADS -> break
		od;
#if POLLER
		run poller(THREADS);
#endif
		i = 0
	}
}
