/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A connection that is lent to images which do not know its ring, and comes back: one thread starts IMAGES programs
 * with it, another one uses it. What must hold: with the gate at RING nobody else has the socket. An image may start another one, which
 * may be one that knows of no token. DEATHS images are killed at any step.
 * MUT_* takes one line of the protocol away (docs/models.md).
 */
#ifndef IMAGES
#define IMAGES 1
#endif
#ifndef DEATHS
#define DEATHS 0
#endif

#define TCP  0
#define RING 1

byte gate = RING, lock = 0;
byte count = 0;	   /* slot.left, high half */
byte marks = 0;	   /* descriptors of tokens: the lock on the connection's byte is there as long as one is open */
byte having = 0;   /* images that have the socket */
bool filter = false; /* of the socket */
bool for_good = false;
byte images = 0, deaths = 0;

#define EXACT assert(gate == TCP || having == 0)

/* Has the token and the socket from its exec on. */
proctype image()
{
	bool has = true, knows = true, token = true;
	do
	:: has -> EXACT /* reads or writes */
	:: has && knows && images < IMAGES + 1 ->
		/* Starts another one, which inherits both in one step. */
		atomic { images++; having++; marks++; run image() }
	:: has && knows ->
		/* Executes one that knows of none, and may close what it does not know. */
#ifdef MUT_NOT_TOLD
		knows = false
#elif defined(MUT_TOLD_LATE)
		knows = false;
		if
		:: token -> atomic { marks--; token = false }
		:: skip
		fi;
		filter = true
#else
		filter = true;
		knows = false
#endif
	:: !knows && token -> atomic { marks--; token = false }
	:: has && knows ->
#ifdef MUT_TOKEN_FIRST
		atomic { marks--; token = false };
		EXACT;
		atomic { having--; has = false }
#else
		atomic { having--; has = false };
		atomic { marks--; token = false }
#endif
		break
	:: atomic { !knows && has -> having--; has = false }
	:: !has && !knows && !token -> break
	:: atomic { deaths < DEATHS && has && token -> deaths++; having--; has = false;
			marks--; token = false }; break
	od
}

proctype lender()
{
	byte n = 0;
	do
	:: n < IMAGES && !for_good ->
#ifdef MUT_COUNT_FIRST
		count++;
		marks++;
#else
		marks++;
		count++;
#endif
		/* The way down takes the lock; the peer has answered when it is over. */
		atomic { lock == 0 -> lock = 1 };
		gate = TCP;
		lock = 0;
		atomic { images++; having++; marks++; run image() };
		marks--; /* its own */
		n++
	:: n == IMAGES || for_good -> break
	od
}

proctype user()
{
	byte left;
	bool marked;
	do
	:: gate == RING -> EXACT
	:: gate == TCP && count > 0 && !for_good ->
#ifdef MUT_COUNT_LATE
		marked = marks > 0;
		left = count;
#else
		left = count;
		marked = marks > 0;
#endif
		if
		:: marked
#ifdef MUT_FILTER_NOT_ASKED
		:: !marked ->
#else
		:: !marked && filter -> for_good = true
		:: !marked && !filter ->
#endif
#ifdef MUT_STORED
			count = 0
#else
			atomic { count == left -> count = 0 }
#endif
		:: !marked && count != left
		fi;
		left = 0;
		marked = false
	:: gate == TCP && count == 0 ->
#ifdef MUT_LOOK_UNLOCKED
		if
		:: count == 0 -> atomic { lock == 0 -> lock = 2 }; gate = RING; lock = 0
		:: else
		fi
#else
		atomic { lock == 0 -> lock = 2 };
		if
		:: count == 0 -> gate = RING
		:: else
		fi;
		lock = 0
#endif
	:: break
	od
}

init
{
	atomic { run lender(); run user() }
}
