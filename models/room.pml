/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Room as an edge. A thread waits in an edge-triggered epoll instance, which arms for room only where
 * somebody has found none since it last told of room; until then it is counted as asleep, and no
 * more. A sender finds the ring full, counts that, and arms for those who are counted. Another thread
 * sleeps on the same doorbell for bytes, and empties it.
 *
 * Memory is sequentially consistent here: each count is a locked instruction in the code.
 */
#ifndef CAP
#define CAP 1
#endif
#ifndef SENDS
#define SENDS 3
#endif
#ifndef READER
#define READER 1
#endif

byte produced = 0, consumed = 0;
#define ROOM (produced - consumed < CAP)

/* Somebody has found none. */
byte tx_full = 0;

/* Arming: the word in the segment, the slot's counts, the peer's last answer. */
byte tx_armed = 0, tx_arm = 0, tx_sleepers = 0, tx_rung = 0;
byte peer_seq = 0, leaver_seq = 0;

/* The eventfd, and its item on the kernel's ready list for the instance. */
bool bell = false, edge = false;

byte edge_out = 0;
bool asleep = false;

inline ring_bell()
{
	atomic { bell = true; edge = true }
}

/* A value that nobody holds: stands for one never used before. */
inline arm()
{
	d_step {
		tx_arm = 1;
		do
		:: tx_arm == tx_armed || tx_arm == tx_rung || tx_arm == peer_seq ||
		   leaver_seq == tx_arm ->
			tx_arm++
		:: else -> break
		od;
		tx_armed = tx_arm
	}
}

inline disarm()
{
	leaver_seq = tx_arm;
	if
	:: atomic { tx_sleepers == 1 -> tx_sleepers-- };
		atomic { tx_armed = (tx_armed == leaver_seq -> 0 : tx_armed) }
	:: atomic { tx_sleepers > 1 -> tx_sleepers-- }
	fi;
	leaver_seq = 0
}

/* What is told is known before the look. */
inline look()
{
	seen = tx_full;
	told = seen != edge_out && ROOM;
	if
	:: told -> edge_out = seen
	:: !told
	fi
}

inline lie_down()
{
#ifdef MUT_COUNTED_AFTER_LOOK
	seen = tx_full;
	tx_sleepers++;
#else
	tx_sleepers++;
	seen = tx_full;
#endif
	if
#ifdef MUT_NEVER_ARMS
	:: seen != edge_out
#else
	:: seen != edge_out -> arm()
#endif
	:: seen == edge_out
#ifdef MUT_COUNTED_WHEN_ARMED
		-> tx_sleepers--; counted = false
#endif
	fi
}

active proctype waiter()
{
	byte seen;
	bool told, counted = true;
	do
	:: look();
		if
		:: told
		:: !told ->
			counted = true;
			lie_down();
			look();
			if
			:: told
			:: !told ->
				asleep = true;
end:
				do
				/* The kernel asks the eventfd once more before it reports the edge. */
				:: atomic { edge -> edge = false;
					if
					:: bell -> asleep = false; break
					:: !bell
					fi }
				od
			fi;
			if
			:: counted -> disarm()
			:: !counted
			fi
		fi
	od
}

/* Sends until there is no room, and again when it likes. */
active proctype sender()
{
	byte sent = 0;
	do
	:: sent == SENDS -> break
	:: sent < SENDS ->
		if
		:: atomic { ROOM -> produced++; sent++ }
		:: atomic { !ROOM -> tx_full++ };
			if
			:: tx_sleepers > 0 ->
#ifndef MUT_FINDER_DOES_NOT_ARM
				arm();
#endif
				if
				:: ROOM ->
#ifndef MUT_FINDER_DOES_NOT_LOOK
					ring_bell()
#else
					skip
#endif
				:: !ROOM
				fi
			:: tx_sleepers == 0
			fi;
			sent++
		fi
	od
}

#if READER
/* Sleeps for bytes. Whatever rings, it empties the doorbell. */
active proctype reader()
{
	byte wakes = 0;
	do
	:: wakes == 2 -> break
	:: wakes < 2 ->
end:
		atomic { bell -> bell = false };
		wakes++;
#ifndef MUT_NO_RERING
		if
		:: tx_sleepers > 0 ->
			arm();
			if
			:: ROOM -> ring_bell()
			:: !ROOM
			fi
		:: tx_sleepers == 0
		fi
#endif
	od
}
#endif

active proctype peer()
{
	bool bytes = false;
end:
	do
	:: atomic { consumed < produced -> consumed++ };
		atomic { peer_seq = tx_armed };
		if
		:: atomic { peer_seq != 0 && peer_seq != tx_rung ->
			bell = true;
			edge = true;
			tx_rung = peer_seq }
		:: peer_seq == 0 || peer_seq == tx_rung
		fi;
		peer_seq = 0
	/* Bytes of its own ring, too. */
	:: atomic { !bytes -> bytes = true; bell = true; edge = true }
	od
}

/* Nothing moves any more: then nobody sleeps over room that has not been told of. */
active proctype monitor()
{
end:
	do
	:: timeout ->
		assert(!(asleep && ROOM && tx_full != edge_out));
		break
	od
}
