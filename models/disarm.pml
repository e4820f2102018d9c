/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The last sleeper to leave clears the word by which the peer would ring, while one who is not counted arms for
 * those who are (sock_lacks_room), in two steps, and another goes to sleep.
 */
byte armed = 0, arm = 0, sleepers = 0, rung = 0;
bool room = false, bell = false, asleep = false;

inline next_seq(seq)
{
	atomic { arm++; seq = arm }
}

active proctype leaver()
{
	byte seq;
	bool last, cleared = false;
	sleepers++;
	next_seq(seq);
	armed = seq;
	/* It has slept. */
	seq = arm;
	atomic { last = (sleepers == 1); sleepers-- };
	if
	:: last -> atomic {
		if
		:: armed == seq -> armed = 0; cleared = true
		:: armed != seq
		fi }
	:: !last
	fi;
#ifndef MUT_COUNT_NOT_LOOKED_AT
	if
	:: cleared && sleepers > 0 ->
		next_seq(seq);
#ifndef MUT_NOT_ARMED_ANEW
		armed = seq;
#endif
#ifndef MUT_NO_LOOK_BEHIND
		if
		:: room -> bell = true
		:: !room
		fi
#endif
	:: !cleared || sleepers == 0
	fi
#endif
}

active proctype finder()
{
	byte seq;
	if
	:: sleepers == 0
	:: sleepers > 0 ->
		next_seq(seq);
		armed = seq;
		if
		:: room -> bell = true
		:: !room
		fi
	fi
}

active proctype sleeper()
{
	byte seq;
	sleepers++;
	next_seq(seq);
	armed = seq;
	if
	:: room
	:: !room ->
		asleep = true;
end:
		bell -> asleep = false
	fi
}

active proctype peer()
{
	byte seq;
	room = true;
	seq = armed;
	if
	:: seq != 0 && seq != rung -> bell = true; rung = seq
	:: else
	fi
}

/* Nothing moves any more: then nobody sleeps over room. */
active proctype monitor()
{
end:
	do
	:: timeout -> assert(!(asleep && room)); break
	od
}
