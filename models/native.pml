/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One export of the native interface. Two threads of the peer import it and put to it: over the
 * stream, or with WHOLE past it, into memory that both ends map. The owner's program takes events,
 * redirects, ends that, and ends the export, each when it likes. With STOP a thread of the peer
 * stops for ever at any step of a put.
 */
#ifndef PUTS
#define PUTS 2 /* by the first thread, to two bytes of its own */
#endif
#ifndef OTHERS
#define OTHERS 1 /* by the second, to two others */
#endif
#define THREADS 2
#define BYTES	4
#define NONE	0
#define YES	1
#define NO	2

mtype = { PUT, BYTE, PLACED, MAP, UNMAPPED, UNEXPORT, MAPPED, REFUSED };
chan there = [1] of { mtype, byte, byte }; /* whose, which put */
chan back = [3] of { mtype };

/* The owner: its memory, under mu the rest. */
byte cell[BYTES], aside[BYTES]; /* the export; where a redirection leads to */
bool exported = true, landing, returned, parted;
bool lent, owes_mapped, refuses;
bool detour;
byte run_from, run_end;
chan events = [PUTS + OTHERS] of { byte, byte };
/* What the program knows. */
bool redirected, aside_is_mine, detour_is_gone, ended;
byte seen[THREADS];

/* The peer: what it knows of the export, under its mu; and wr. */
bool alive = true, is_whole = true, mapping, map, is_lent, owes_return;
byte users, answer;
bool wr;

#define IN_RUN(i)  (run_from <= (i) && (i) < run_end)
#define NEWEST(i)                                                                        \
	(aside_is_mine -> (aside[i] > cell[i] -> aside[i] : cell[i])                    \
		       : (IN_RUN(i) -> aside[i] : cell[i]))

/* ---- the peer ---- */

inline take_wr()
{
#ifndef MUT_FRAMES_MINGLE
	atomic { !wr -> wr = true }
#else
	wr = true
#endif
}

inline drop_wr()
{
	wr = false
}

inline may_stop()
{
	if
	:: true
#ifdef STOP
	:: me == 0 -> goto end_stopped
#endif
	fi
}

/* map_ended, under mu */
inline map_ended()
{
	if
#ifdef MUT_RETURNED_IN_USE
	:: false
#else
	:: users > 0
#endif
	:: else ->
		map = false;
		owes_return = owes_return || is_lent;
		is_lent = false
	fi
}

/* A byte of the export is written: past the stream, or by the owner's reader. */
inline store(i, v, past)
{
	atomic {
		if
		:: past && parted /* it is nobody's memory */
		:: else ->
			assert(!ended);
			assert(v >= cell[i]); /* in the order of the calls */
			cell[i] = v
		fi
	}
}

proctype thread(byte me)
{
	byte n;
	bool is_placed, first;

#ifdef WHOLE
	atomic { first = is_whole; is_whole = false; mapping = mapping || first };
	if
	:: first ->
end_asking:
		take_wr();
		there!MAP(0, 0);
		drop_wr();
end_asked:
		answer != NONE;
		atomic { map = answer == YES && alive; mapping = false }
	:: else ->
#ifndef MUT_IMPORT_NOT_AWAITED
end_importing:
		!mapping
#endif
	fi;
#endif
	do
	:: n < (me -> OTHERS : PUTS) ->
		atomic {
			n++;
			if
			:: !alive -> break
			:: else -> is_placed = map; users = users + is_placed
			fi
		};
		if
		:: is_placed ->
#ifdef MUT_TOLD_BEFORE_COPY
			there!PLACED(me, n);
#endif
			may_stop();
			store(2 * me, n, true);
			may_stop();
			store(2 * me + 1, n, true);
			may_stop();
			atomic {
				users--;
				if
				:: !alive -> map_ended()
				:: else
				fi
			};
end_placed:
			take_wr();
#ifndef MUT_TOLD_BEFORE_COPY
			there!PLACED(me, n);
#endif
			drop_wr()
		:: else ->
end_put:
			take_wr();
			there!PUT(me, n);
			may_stop();
			there!BYTE(me, n);
			may_stop();
			there!BYTE(me, n);
			drop_wr()
		fi
	:: else -> break
	od;
end_stopped:
	false
}

/* Whoever reads there, and writes what is owed. */
active proctype peer_reader()
{
end:
	do
	:: back?UNEXPORT -> atomic { alive = false; map_ended() }
	:: back?MAPPED ->
		atomic {
			is_lent = true;
			if
#ifndef MUT_LATE_MAP_KEPT
			:: !alive -> map_ended()
#endif
			:: else
			fi;
			answer = YES
		}
	:: back?REFUSED -> answer = NO
	:: atomic { owes_return && !wr -> owes_return = false; wr = true };
		there!UNMAPPED(0, 0);
		drop_wr()
	od
}

/* ---- the owner ---- */

/* event_note, under mu */
inline note(s, n)
{
	atomic {
		if
#ifndef MUT_EVENT_OF_ENDED
		:: !exported
#endif
		:: else -> assert(!ended); events!s, n
		fi
	}
}

/* body_target: where the next byte goes */
inline owner()
{
	atomic {
		at = 2 * s + k;
		to_aside = detour && (run_from == run_end || (run_from <= at && at <= run_end));
#ifdef MUT_RUN_WITH_HOLES
		to_aside = detour;
#endif
		landing = exported;
		is_here = exported;
		to_aside = to_aside && exported;
#ifdef MUT_RUN_BEFORE_BYTES
		landed();
#endif
		skip
	}
}

/* detour_landed */
inline landed()
{
	if
	:: to_aside ->
		assert(!detour_is_gone);
		if
		:: run_from == run_end -> run_from = at; run_end = at
		:: else
		fi;
		run_end = (at + 1 > run_end -> at + 1 : run_end)
	:: else
	fi
}

active proctype reader()
{
	byte s, n, k, at, s2, n2;
	bool to_aside, is_here;

end:
	do
	:: there?PUT(s, n) ->
#ifdef MUT_EVENT_BEFORE_BYTES
		note(s, n);
#endif
		k = 0;
		do
		:: k < 2 ->
			owner();
			if
			:: there?BYTE(s2, n2) ->
				assert(s2 == s && n2 == n);
				if
				:: to_aside ->
					atomic {
						assert(!aside_is_mine);
						aside[at] = n
					}
				:: is_here && !to_aside -> store(at, n, false)
				:: else
				fi;
				atomic {
#ifndef MUT_RUN_BEFORE_BYTES
					landed();
#endif
					landing = false;
					k++;
					at = 0;
					s2 = 0;
					n2 = 0;
					to_aside = false;
					is_here = false
				}
#ifndef MUT_LANDS_WAITING
			:: empty(there) ->
				landing = false;
end_body:
				nempty(there)
#endif
			fi
		:: else -> break
		od;
#ifndef MUT_EVENT_BEFORE_BYTES
		note(s, n);
#endif
		atomic { s = 0; n = 0; k = 0 }
	:: there?BYTE(s, n) -> assert(false)
	:: there?PLACED(s, n) -> note(s, n); atomic { s = 0; n = 0 }
	:: there?MAP(s, n) ->
		atomic {
			lent = exported;
			owes_mapped = exported;
			refuses = !exported
		}
	:: there?UNMAPPED(s, n) -> returned = true
	:: atomic { owes_mapped -> owes_mapped = false }; back!MAPPED
	:: atomic { refuses -> refuses = false }; back!REFUSED
	od
}

inline await_reader()
{
	!landing
}

inline copy_rest()
{
	i = 0;
	do
	:: i < BYTES ->
		atomic {
			if
			:: IN_RUN(i)
			:: else -> aside[i] = cell[i]
			fi;
			i++
		}
	:: else -> break
	od
}

inline redirect_end()
{
	detour = false;
#ifdef MUT_COPIED_BEFORE_WAIT
	copy_rest();
#endif
#ifndef MUT_END_NOT_AWAITED
	await_reader();
#endif
	aside_is_mine = true;
#ifndef MUT_COPIED_BEFORE_WAIT
	copy_rest();
#endif
	detour_is_gone = true;
	d_step {
		i = 0;
		do
		:: i < BYTES -> assert(aside[i] >= seen[i / 2]); i++
		:: else -> break
		od;
		i = 0
	}
}

inline drop_events()
{
	do
	:: events?s, n
	:: empty(events) -> break
	od
}

inline unexport()
{
	atomic { exported = false; drop_events() };
#ifndef MUT_WITHDRAWN_UNDER_READER
	await_reader();
#endif
	back!UNEXPORT;
	if
	:: !lent
#ifdef MUT_RECALL_NOT_AWAITED
	:: lent
#endif
	:: lent && returned
#ifdef STOP
	/* Not within a second. */
	:: lent && !returned ->
#ifndef MUT_NOT_PARTED
		parted = true
#else
		skip
#endif
#endif
	fi;
	ended = true
}

active proctype program()
{
	byte s, n, i;

	atomic { run thread(0); run thread(1) };
	do
	:: atomic {
		events?s, n ->
		assert(NEWEST(2 * s) >= n && NEWEST(2 * s + 1) >= n);
		seen[s] = n;
		s = 0;
		n = 0
	}
#ifndef WHOLE
	:: atomic { !redirected -> redirected = true; detour = true }
	:: detour -> redirect_end()
#endif
	:: !detour -> break
	od;
	unexport()
}
