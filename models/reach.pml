/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Keys of the native interface: puts of one thread to one export, by frames or written by a device to
 * memory for which the owner has given a key. A write of the device may be late, or in vain: then the
 * owner alone can say that it will not land any more. The owner ends the export when it likes, and waits until
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
byte cell; /* the last put whose bytes are there */
bool exported = true, ended, landing;
bool is_keyed, is_returned; /* a key was told; nothing is under way by it */
bool is_open[KEYS + 1]; /* the device takes writes by that key */
byte number;

/* The peer's device: put and key of each write under way, 0 for none; and the last that has landed. */
byte write_put[WRITES], write_key[WRITES], arrived;

inline store(n)
{
	assert(!ended);
	assert(n >= cell); /* in the order of the calls */
	cell = n
}

inline land()
{
	if
	:: is_open[write_key[i]] -> store(write_put[i]); arrived = write_put[i]
	:: else
#ifdef PATIENT
		-> assert(false)
#endif
	fi;
	write_put[i] = 0;
	write_key[i] = 0;
	i = 0
}

active proctype device()
{
	byte i;

end:
	do
	:: atomic { write_put[0] > 0 -> i = 0; land() }
	:: atomic { write_put[1] > 0 -> i = 1; land() }
	od
}

inline post()
{
	atomic {
		if
		:: write_put[0] == 0 -> write_put[0] = n; write_key[0] = key
		:: else -> write_put[1] = n; write_key[1] = key
		fi
	}
}

/* The peer hears of the end, once, while no write is under way that it knows of. */
inline hear_end()
{
	is_stale = true;
#ifndef MUT_KEY_KEPT
	key = 0;
#endif
	if
	:: was_told -> there!UNMAPPED(0, 0)
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

/* The peer: a thread that puts. */
active proctype peer()
{
	byte n, key, voids;
	bool is_stale, by_frames, is_asked, was_told;
	byte got;

	do
	:: n < PUTS && !is_stale ->
		n++;
		voids = 0;
		if
		:: key == 0 && !is_asked && number < KEYS -> is_asked = true; there!REACH(0, 0)
		:: true
		fi;
		do
		:: back?KEY(got) -> hear_key()
		:: back?UNEXPORT(got) -> hear_end()
		:: empty(back) -> break
		od;
		if
		:: key > 0 && !(write_put[0] > 0 && write_put[1] > 0) ->
#ifndef MUT_NOT_FLUSHED
			if
			:: by_frames ->
				there!FLUSH(0, 0);
				do
				:: back?FLUSHED(got) -> break
				:: back?UNEXPORT(got) -> hear_end()
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
			goto next;
#endif
			if
			:: arrived == n -> there!PLACED(n, 0); goto next
#ifndef PATIENT
			:: true ->
				/* Nobody knows what becomes of it. */
#ifndef MUT_NOT_VOIDED
				voids = key;
#endif
				key = 0
#endif
			fi
		:: true
		fi;
frames:
		by_frames = true;
		there!PUT(n, voids);
next:
		got = 0
	:: else -> break
	od;
end:
	do
	:: back?KEY(got) -> hear_key()
	:: back?UNEXPORT(got) -> hear_end()
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
			:: exported -> assert(cell >= n)
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
