/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Keys of the native interface: puts of one thread to one export, by frames or written by a device to
 * memory for which the owner has given a key. A write of the device may be late, or in vain: then the
 * owner alone can say that it will not land any more. The owner ends the export when it likes.
 */
#ifndef PUTS
#define PUTS 4
#endif
#define KEYS 4
#define WRITES 2 /* of the device, that may be late */

mtype = { PUT, PLACED, REACH, FLUSH, UNEXPORT, KEY, FLUSHED };
chan there = [2] of { mtype, byte, byte }; /* which put; the key that it voids */
chan back = [3] of { mtype, byte };

/* The owner. */
byte cell; /* the last put whose bytes are there */
bool exported = true, ended, landing;
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

/* The peer: a thread that puts. */
active proctype peer()
{
	byte n, key, voids;
	bool is_stale, by_frames, is_asked;
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
		:: back?KEY(got) -> key = got; is_asked = false
		:: back?UNEXPORT(got) -> is_stale = true
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
				:: back?UNEXPORT(got) -> is_stale = true
				:: back?KEY(got) -> is_asked = false
				od;
				by_frames = false
			:: else
			fi;
#endif
			post();
#ifdef MUT_TOLD_BEFORE_LANDED
			there!PLACED(n, 0);
			goto next;
#endif
			if
			:: arrived == n -> there!PLACED(n, 0); goto next
			:: true ->
				/* Nobody knows what becomes of it. */
#ifndef MUT_NOT_VOIDED
				voids = key;
#endif
				key = 0
			fi
		:: true
		fi;
		by_frames = true;
		there!PUT(n, voids);
next:
		got = 0
	:: else -> break
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
			fi;
			n = (exported -> number : 0)
		};
		if
		:: n > 0 -> back!KEY(n)
		:: else
		fi
	:: there?FLUSH(n, voids) -> back!FLUSHED(0)
	od
}

active proctype program()
{
	atomic {
		exported = false;
#ifndef MUT_OPEN_AFTER_END
		is_open[number] = false
#endif
	};
#ifndef MUT_READER_NOT_AWAITED
	!landing;
#endif
	ended = true;
end_told:
	back!UNEXPORT(0)
}
