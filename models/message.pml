/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages and notifications that are told through a board in memory, past the stream, beside frames in it. The
 * sender makes messages and notifications in any order; a notification goes by a frame, or by the board behind
 * bytes that were put into the other end's memory. At that end the program asks for what has come, spinning or
 * asleep, or stays away for ever; then the service thread is to learn of all of it.
 *
 * Stores to memory go through a buffer, as on x86: only a fence waits for it. A frame is one, too, and
 * comes behind what was stored before.
 */
#ifndef ITEMS
#define ITEMS 3
#endif
#define ROUND 2 /* messages that may be under way */
#define NOTES 1 /* notifications on the board that the program has not taken */
#ifndef MUT_SLOTS_SHORT
#define SLOTS 3 /* both */
#else
#define SLOTS ROUND
#endif

mtype = { PUT, LOOK, WAITS, RELEASED, BYE };
chan there = [2] of { mtype, byte }; /* which item */
chan back = [2] of { mtype, byte };

/* Memory of the sender: a board, and the messages. */
byte entry[SLOTS], after[SLOTS]; /* its number; how many frames come first */
byte note[SLOTS];		 /* the notification's item; 0: it tells of a message */
byte cell[ROUND];
/* Memory of the receiver. */
byte box; /* that puts go to */
bool wants = true; /* a frame is to tell of each message */
byte released;

/* Both buffers. */
bool post_is_late, wants_is_late;
byte late_at, late_entry, late_after, late_note;
bool late_wants;

/* The receiver, under mu. */
bool is_quiet; /* it has said that it wants none */
bool is_read;  /* there is a reader */
bool called, over, waits;
byte frames_come, told_come, come, taken, last, awaited;
byte notes_come, notes_taken; /* by the board */
byte noted; /* items, as events */
bool is_done; /* the sender is */
chan queue = [ROUND] of { byte }; /* messages that have come: their items */

#ifndef MUT_AFTER_IGNORED
#define IS_TOLD (entry[told_come % SLOTS] == told_come + 1 && after[told_come % SLOTS] <= frames_come)
#else
#define IS_TOLD (entry[told_come % SLOTS] == told_come + 1)
#endif

active proctype buffers()
{
end:
	do
	:: atomic { post_is_late ->
		entry[late_at] = late_entry; after[late_at] = late_after; note[late_at] = late_note;
		post_is_late = false }
	:: atomic { wants_is_late -> wants = late_wants; wants_is_late = false }
	od
}

/* ---- the sender ---- */

inline send(type, value)
{
	!post_is_late;
	there!type(value);
	sent++
}

inline tell(what)
{
	atomic {
		!post_is_late;
		late_at = told % SLOTS;
		late_entry = told + 1;
		late_after = sent;
		late_note = what;
		post_is_late = true;
		told++
	}
}

inline ask_for_look()
{
#ifndef MUT_NO_FENCE_SENDER
	!post_is_late;
#endif
	if
	:: wants -> send(LOOK, 0)
	:: else
	fi
}

inline post()
{
	do
	:: posted - freed < ROUND -> break
#ifdef MUT_ROOM_IGNORED
	:: posted - freed == ROUND -> break
#endif
	:: posted - freed == ROUND ->
		freed = released;
		if
		:: posted - freed < ROUND
		:: else ->
			send(WAITS, posted + 1 - ROUND);
end_waits:
			back?RELEASED(freed)
		fi
	od;
#ifndef MUT_TOLD_BEFORE_BYTES
	cell[posted % ROUND] = n;
#endif
	tell(0);
	posted++;
#ifdef MUT_TOLD_BEFORE_BYTES
	cell[(posted - 1) % ROUND] = n;
#endif
	ask_for_look()
}

/* Where the program has left room for one more. */
inline put_and_note()
{
#ifndef MUT_NOTE_BEFORE_BYTES
	box = n;
#endif
	tell(n);
	notes_sent++;
#ifdef MUT_NOTE_BEFORE_BYTES
	box = n;
#endif
	ask_for_look()
}

active proctype sender()
{
	byte n, sent, told, posted, freed, notes_sent;

	do
	:: n < ITEMS ->
		n++;
		if
		:: post()
		:: notes_sent - notes_taken < NOTES -> put_and_note()
		:: send(PUT, n)
		fi
	:: else -> break
	od;
	if
	:: send(BYE, 0)
	:: true
	fi;
	is_done = true
}

/* ---- the receiver ---- */

/* Under mu: what the board tells, as far as it is its turn. */
inline drain()
{
	do
	:: IS_TOLD && note[told_come % SLOTS] ->
		assert(note[told_come % SLOTS] == last + 1);
		assert(box >= last + 1); /* the bytes, or those of a later put */
		last++;
		noted++;
		notes_come++;
		told_come++
	:: IS_TOLD && !note[told_come % SLOTS] ->
		assert(cell[come % ROUND] == last + 1);
		last++;
		noted++;
		queue!cell[come % ROUND];
		come++;
		told_come++
	:: else -> break
	od
}

/* Whoever begins to read without a look at the board. */
inline watch()
{
	if
	:: is_quiet ->
		is_quiet = false;
#ifndef MUT_ASLEEP_AND_QUIET
		late_wants = true;
		wants_is_late = true
#endif
	:: else
	fi
}

inline second_look()
{
#ifndef MUT_NO_FENCE_SLEEPER
	!wants_is_late;
#endif
#ifndef MUT_NO_SECOND_LOOK
	atomic { drain() }
#endif
	skip
}

inline answer_wait()
{
	if
	:: waits && taken >= awaited -> waits = false; back!RELEASED(taken)
	:: else
	fi
}

/* As the reader: one frame. */
inline carry_out()
{
	there?type, value;
	atomic {
#ifndef MUT_FRAME_FIRST
		drain();
#endif
		frames_come++;
		if
		:: type == PUT -> assert(value == last + 1); last++; noted++
		:: type == WAITS -> waits = true; awaited = value; answer_wait()
		:: type == BYE -> over = true
		:: type == LOOK -> drain()
		fi;
		type = 0;
		value = 0
	}
}

/* vd_peek, and the program has it for some time. */
inline hold()
{
	queue?<n>;
	assert(cell[taken % ROUND] == n);
	may_leave();
	assert(cell[taken % ROUND] == n);
	atomic {
		queue?n;
		taken++;
		released = taken;
#ifndef MUT_WAITS_UNANSWERED
		answer_wait();
#endif
		n = 0
	}
}

inline may_leave()
{
	if
	:: true
	:: atomic { true -> called = false; goto end_away }
	fi
}

active proctype program()
{
	byte n, value;
	mtype type;

	called = true;
end:
	do
	:: nempty(queue) -> hold()
	:: notes_taken < notes_come -> notes_taken++
	:: empty(queue) && over -> break
	:: empty(queue) && !over && !is_read ->
		atomic { !is_read -> is_read = true };
		if
		:: true -> /* spins */
			atomic {
				if
				:: !is_quiet && !wants_is_late ->
					is_quiet = true; late_wants = false; wants_is_late = true
				:: else
				fi
			};
			if
			:: entry[told_come % SLOTS] == told_come + 1
			:: nempty(there)
			:: true
			fi;
			atomic { drain() };
			if
			:: nempty(there) -> carry_out()
			:: empty(there)
			fi
		:: true -> /* sleeps */
			atomic { !wants_is_late; watch() };
			second_look();
			if
			:: empty(queue) ->
end_asleep:
				carry_out()
			:: nempty(queue)
			fi
		fi;
		is_read = false;
		may_leave()
	:: atomic { true -> called = false; goto end_away }
	od;
end_away:
	called = false
}

/* It takes the connection when no caller is there. */
active proctype service()
{
	byte value;
	mtype type;

end:
	do
	:: over -> break
	:: atomic { !called && !is_read && !over -> is_read = true };
#ifndef MUT_TAKEN_QUIET
		atomic { !wants_is_late; watch() };
		second_look();
#endif
end_asleep:
		carry_out();
		is_read = false
	od;
}

/* Nobody can go on. */
active proctype idle()
{
	timeout;
	assert(!IS_TOLD);
	assert(!(waits && taken >= awaited));
	assert(is_done || (waits && !called));
	assert(!is_done || (last == ITEMS && noted == ITEMS))
}
