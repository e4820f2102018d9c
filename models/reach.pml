/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Keys of the native interface: puts of one thread to two places of one export, by frames or written by a device to
 * memory for which the owner has given a key. The sources are lent: two writes may be under way at once, to different
 * places, which land in their order. A write of the device may be late, or in vain, with all that are under way then: the
 * owner alone can say that they will not land any more. The owner ends the export when it likes, and waits until
 * the peer says that its device has nothing under way, but not for ever. With PATIENT it waits until then, and
 * no write is in vain: then the device refuses none.
 */
#ifndef PUTS
#define PUTS 4
#endif
#define KEYS 4
#define WRITES 2 /* of the device, that may be late */

mtype = { PUT, PLACED, REACH, FLUSH, UNEXPORT, KEY, FLUSHED, UNMAPPED };
chan there = [2] of { mtype, byte, byte }; /* which put; the key that it voids */
chan back = [3] of { mtype, byte };

/* The owner. */
byte cell[2], last; /* the last put whose bytes are there, in each place, and in any */
byte place[PUTS + 1]; /* of each put */
bool exported = true, ended, landing;
bool is_keyed, is_returned; /* a key was told; nothing is under way by it */
bool is_open[KEYS + 1]; /* the device takes writes by that key */
byte number;

/* The peer's device: put, key and link of each write under way, 0 for none; and the last that has landed. */
byte write_put[WRITES], write_key[WRITES], write_link[WRITES], arrived;

inline store(n)
{
	assert(!ended);
	/* In the order of the calls; once the export is ending, frames are left out. */
	assert(n >= cell[place[n]] && (n <= last + 1 || !exported));
	cell[place[n]] = n;
	last = (n > last -> n : last)
}

inline land()
{
	if
	:: is_open[write_key[i]] ->
		store(write_put[i]);
		arrived = (write_put[i] > arrived -> write_put[i] : arrived)
	:: else
#ifdef PATIENT
		-> assert(false)
#endif
	fi;
	write_put[i] = 0;
	write_key[i] = 0;
	write_link[i] = 0;
	i = 0
}

/* None of the same link is before it. What is left of one that was given up wanders as it likes. */
#define MAY_LAND(i, j) (write_put[i] > 0 && \
	(write_put[j] == 0 || write_link[j] != write_link[i] || write_put[j] > write_put[i]))

active proctype device()
{
	byte i;

end:
	do
	:: atomic { MAY_LAND(0, 1) -> i = 0; land() }
	:: atomic { MAY_LAND(1, 0) -> i = 1; land() }
	od
}

inline post()
{
	atomic {
		if
		:: write_put[0] == 0 -> write_put[0] = n; write_key[0] = key; write_link[0] = link
		:: else -> write_put[1] = n; write_key[1] = key; write_link[1] = link
		fi;
		if
		:: lent[0] == 0 -> lent[0] = n; lent_key[0] = key
		:: else -> lent[1] = n; lent_key[1] = key
		fi
	}
}

/* The peer hears of the end, once. */
inline hear_end()
{
	is_stale = true;
	owes = was_told;
#ifndef MUT_KEY_KEPT
	key = 0
#endif
}

/* And has nothing under way, of which it knows. */
inline return_it()
{
	if
#ifdef MUT_RETURNED_UNDER_WAY
	:: owes -> owes = false; there!UNMAPPED(0, 0)
#else
	:: owes && lent[0] == 0 -> owes = false; there!UNMAPPED(0, 0)
#endif
	:: else
	fi
}

inline hear_key()
{
	assert(!is_stale); /* none comes behind UNEXPORT: else UNMAPPED would be due again */
	key = got;
	was_told = true;
	is_asked = false
}

inline retire()
{
	lent[0] = lent[1];
	lent_key[0] = lent_key[1];
	lent[1] = 0;
	lent_key[1] = 0
}

inline lose()
{
	if
	:: !is_lost -> link++; is_lost = true
	:: else
	fi
}

/* The first of the queue goes: it is there, or nobody knows. With it all that are under way are lost. */
inline settle()
{
	if
	:: !is_lost && arrived >= lent[0] -> there!PLACED(lent[0], 0)
#ifndef PATIENT
	:: true ->
		lose();
		if
		:: key == lent_key[0] -> key = 0
		:: else
		fi;
		by_frames = true;
#ifndef MUT_NOT_VOIDED
		there!PUT(lent[0], lent_key[0])
#else
		there!PUT(lent[0], 0)
#endif
#endif
	fi;
	retire();
	is_lost = is_lost && lent[0] > 0;
	return_it()
}

/* What a caller sends waits for the queue. */
inline drain()
{
	do
	:: lent[0] > 0 -> settle()
	:: else -> break
	od
}

/* What is sent again must not be older than what is there. */
#ifdef MUT_ONE_OVER_ANOTHER
#define IS_APART true
#else
#define IS_APART (lent[0] == 0 || place[lent[0]] != place[n])
#endif
#ifdef MUT_BEGUN_BEHIND_LOST
#define MAY_BEGIN (lent[1] == 0 && IS_APART)
#else
#define MAY_BEGIN (lent[1] == 0 && IS_APART && !is_lost)
#endif

/* The peer: a thread that puts. */
active proctype peer()
{
	byte n, key, link = 1, lent[2], lent_key[2];
	bool is_stale, by_frames, is_asked, was_told, owes, is_lost;
	byte got;

	do
	:: n < PUTS && !is_stale ->
		n++;
		if
		:: place[n] = 0
		:: place[n] = 1
		fi;
		if
		:: key == 0 && !is_asked && number < KEYS -> is_asked = true; drain(); there!REACH(0, 0)
		:: true
		fi;
		do
		:: back?KEY(got) -> hear_key()
		:: back?UNEXPORT(got) -> hear_end(); return_it()
		:: empty(back) -> break
		od;
		if
		:: key > 0 && MAY_BEGIN && !(write_put[0] > 0 && write_put[1] > 0) ->
#ifndef MUT_NOT_FLUSHED
			if
			:: by_frames ->
				drain();
				there!FLUSH(0, 0);
				do
				:: back?FLUSHED(got) -> break
				:: back?UNEXPORT(got) -> hear_end(); return_it()
				:: back?KEY(got) -> hear_key()
				od;
				by_frames = false
			:: else
			fi;
#endif
			if
			:: key == 0 -> goto frames
			:: else
			fi;
			post();
#ifdef MUT_TOLD_BEFORE_LANDED
			there!PLACED(n, 0);
#endif
			goto next
		:: true
		fi;
frames:
#ifndef MUT_FRAMES_OVERTAKE
		drain();
#endif
		by_frames = true;
		there!PUT(n, 0);
next:
		got = 0
	:: lent[0] > 0 -> settle()
#ifndef PATIENT
	:: lent[0] > 0 -> lose() /* and this thread does not know yet */
#endif
	:: back?KEY(got) -> hear_key()
	:: back?UNEXPORT(got) -> hear_end(); return_it()
	:: (n == PUTS || is_stale) && lent[0] == 0 -> break
	od;
end:
	do
	:: back?KEY(got) -> hear_key()
	:: back?UNEXPORT(got) -> hear_end(); return_it()
	od
}

/* The owner's reader. */
active proctype reader()
{
	byte n, voids;

end:
	do
	:: there?PUT(n, voids) ->
		atomic {
			if
			:: voids > 0 && voids == number -> is_open[number] = false
			:: else
			fi;
			landing = exported
		};
		atomic {
			if
			:: landing -> store(n)
			:: else
			fi;
			landing = false
		}
	:: there?PLACED(n, voids) ->
		atomic {
			if
			:: exported -> assert(last >= n)
			:: else
			fi
		}
	:: there?REACH(n, voids) ->
		atomic {
			if
			:: exported ->
				is_open[number] = false;
				number++;
				is_open[number] = true
			:: else
			fi
		};
		/* It is told under the lock under which the end is told, and not behind that. */
		atomic {
			if
#ifdef MUT_TOLD_AFTER_END
			:: number > 0 -> back!KEY(number); is_keyed = true
#else
			:: exported && number > 0 -> back!KEY(number); is_keyed = true
#endif
			:: else
			fi
		}
	:: there?UNMAPPED(n, voids) -> is_returned = true
	:: there?FLUSH(n, voids) -> back!FLUSHED(0)
	od
}

active proctype program()
{
#ifndef MUT_READER_NOT_AWAITED
	atomic { exported = false; !landing };
#else
	exported = false;
#endif
	back!UNEXPORT(0);
#ifndef MUT_RETURN_NOT_AWAITED
	if
	:: !is_keyed
	:: is_returned
#ifndef PATIENT
	:: true /* it has taken too long */
#endif
	fi;
#endif
	atomic {
#ifndef MUT_OPEN_AFTER_END
		is_open[number] = false;
#endif
		ended = true
	}
}
