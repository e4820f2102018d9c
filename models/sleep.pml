/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sleeping and waking on one doorbell: the threads of one end wait to read or for room to
 * write, and share an eventfd; the peer produces and consumes, and rings only for an
 * armed sequence that it has not answered.
 *
 * READERS and WRITERS threads sleep; a TAKER, when there, reads without ever sleeping; a LOOKER looks
 * for a moment before it reads, LOOKS times, and has the peer ring for nobody meanwhile.
 * Stores go through a buffer of one entry for each processor and reach memory later, as
 * on x86: only a fence or an atomic read-modify-write waits for it.
 */
#ifndef READERS
#define READERS 2
#endif
#ifndef WRITERS
#define WRITERS 0
#endif
#ifndef TAKER
#define TAKER 0
#endif
#ifndef LOOKER
#define LOOKER 0
#endif
#ifndef LOOKS
#define LOOKS 2
#endif
#ifndef BYTES
#define BYTES 2 /* that the peer produces */
#endif
#ifndef WRITES
#define WRITES 3 /* by each writer */
#endif
#ifndef SIZE
#define SIZE 2 /* of the ring that is written */
#endif
#ifndef LOW
#define LOW 1 /* room that is worth a wake-up */
#endif
#ifdef MUT_LOW_DIFFERS
#define ROOMY_AT (LOW + 1)
#else
#define ROOMY_AT LOW
#endif
#define THREADS (READERS + WRITERS)
#define CPUS	(THREADS + LOOKER)

/* Words of the segment, all behind store buffers. Processor 0 is the peer's. */
#define PRODUCED 1
#define RX_ARMED 2
#define CONSUMED 3
#define TX_ARMED 4
byte mem[5];
byte buf_word[CPUS + 1], buf_value[CPUS + 1];

#define LOAD(cpu, word) (buf_word[cpu] == word -> buf_value[cpu] : mem[word])
#define FLUSHED(cpu) (buf_word[cpu] == 0)

inline store(cpu, word, value)
{
	atomic { FLUSHED(cpu) -> buf_value[cpu] = value; buf_word[cpu] = word }
}

inline flush(cpu)
{
	mem[buf_word[cpu]] = buf_value[cpu];
	buf_word[cpu] = 0;
	buf_value[cpu] = 0
}

/* The slot of the end that sleeps: never behind a buffer for its own threads, since it is
 * guarded by locks or changed by read-modify-writes. */
byte rx_sleepers = 0, rx_arm = 0, tx_sleepers = 0, tx_arm = 0;
byte taken = 0;	   /* ring_rx.consumed */
byte written = 0;  /* ring_tx.produced, seen by the peer at once: its bell is not modelled */
bool bell = false; /* the eventfd is readable */

/* Last answered sequences, the peer's own; and what the processors hold in registers. */
byte rx_rung = 0, tx_rung = 0, seq[CPUS + 1];

/* For the check at the end: who sleeps, and for what. */
bool asleep_rx[THREADS], asleep_tx[THREADS];

#define ROOM(consumed) (SIZE - (written - consumed))
#define READABLE(cpu) (LOAD(cpu, PRODUCED) != taken)
#define WRITABLE(cpu) (ROOM(LOAD(cpu, CONSUMED)) >= LOW)

#define HOLDS(cpu, word, v) (seq[cpu] == v || (buf_word[cpu] == word && buf_value[cpu] == v))
#if CPUS > 2
#define HOLDS_3(word, v) HOLDS(3, word, v)
#else
#define HOLDS_3(word, v) false
#endif
#if CPUS > 1
#define HOLDS_2(word, v) HOLDS(2, word, v)
#else
#define HOLDS_2(word, v) false
#endif

/*
 * The next sequence. Sequences are only compared for being equal, so that any value which
 * nobody holds any more stands for "never used before".
 */
inline next_seq(cpu, arm_word, armed_word, rung)
{
	seq[cpu] = 1;
	do
	:: seq[cpu] == arm_word || seq[cpu] == rung || seq[cpu] == mem[armed_word] ||
	   (cpu != 0 && HOLDS(0, armed_word, seq[cpu])) ||
	   (cpu != 1 && HOLDS(1, armed_word, seq[cpu])) ||
	   (cpu != 2 && HOLDS_2(armed_word, seq[cpu])) ||
	   (cpu != 3 && HOLDS_3(armed_word, seq[cpu])) ->
		seq[cpu]++
	:: else -> break
	od;
	arm_word = seq[cpu];
	/* Into the buffer at once: nobody can see that. */
	buf_value[cpu] = seq[cpu];
	buf_word[cpu] = armed_word;
	seq[cpu] = 0
}

/* A read-modify-write on x86 waits for the processor's own buffer. */
inline arm(cpu, sleepers, arm_word, armed_word, rung)
{
	atomic { FLUSHED(cpu) -> sleepers++; next_seq(cpu, arm_word, armed_word, rung) }
}

/* Between arming and sleeping. */
#ifdef MUT_NO_SECOND_LOOK
#define SECOND_LOOK(condition) false
#else
#define SECOND_LOOK(condition) (condition)
#endif

/* Guards of the first look after a store that the other side must not miss. */
#ifdef MUT_NO_FENCE_SLEEPER
#define FENCED(cpu) true
#else
#define FENCED(cpu) FLUSHED(cpu)
#endif
#ifdef MUT_NO_FENCE_PRODUCER
#define FENCED_PEER true
#else
#define FENCED_PEER FLUSHED(0) /* the exchange that drops its lock */
#endif

/* The last to leave clears, unless somebody has armed again since. */
inline disarm(cpu, sleepers, arm_word, armed_word)
{
	seq[cpu] = arm_word;
	if
	:: atomic { FLUSHED(cpu) && sleepers == 1 -> sleepers-- };
#ifdef MUT_DISARM_BLINDLY
		store(cpu, armed_word, 0)
#else
		atomic { FLUSHED(cpu) ->
			mem[armed_word] = (mem[armed_word] == seq[cpu] -> 0 : mem[armed_word]) }
#endif
	:: atomic { FLUSHED(cpu) && sleepers > 1 -> sleepers-- };
#ifdef MUT_DISARM_WITH_OTHERS
		store(cpu, armed_word, 0)
#endif
	fi;
	seq[cpu] = 0
}

/* The caller has disarmed. Empties the bell, arms again for whoever still sleeps, looks for
 * them, and rings again when one of them has something to do. */
inline answer_bell(cpu)
{
	atomic { bell = false; rx = (rx_sleepers > 0); tx = (tx_sleepers > 0) };
#ifndef MUT_NO_REARM
	if
	:: atomic { rx && FLUSHED(cpu) -> next_seq(cpu, rx_arm, RX_ARMED, rx_rung) }
	:: !rx
	fi;
	if
	:: atomic { tx && FLUSHED(cpu) -> next_seq(cpu, tx_arm, TX_ARMED, tx_rung) }
	:: !tx
	fi;
#endif
#ifndef MUT_NO_RERING
	atomic { FENCED(cpu) ->
		bell = bell || (rx && READABLE(cpu)) || (tx && WRITABLE(cpu)) };
#endif
	rx = false;
	tx = false
}

/* Reads one byte at a time until it has something else to do, at any moment. */
proctype reader(byte me)
{
	bool rx, tx, rung = false;
	do
	:: atomic { READABLE(me + 1) -> taken++ } /* one step: under rx_lock */
	:: atomic { !READABLE(me + 1) -> skip };
		arm(me + 1, rx_sleepers, rx_arm, RX_ARMED, rx_rung);
		if
		:: FENCED(me + 1) && SECOND_LOOK(READABLE(me + 1))
		:: atomic { FENCED(me + 1) && !SECOND_LOOK(READABLE(me + 1)) ->
			asleep_rx[me] = true };
end:
			atomic { bell -> asleep_rx[me] = false; rung = true }
		fi;
		disarm(me + 1, rx_sleepers, rx_arm, RX_ARMED);
		if
		:: rung -> answer_bell(me + 1); rung = false
		:: !rung
		fi
	:: break
	od
}

/* Writes until the ring is full, then sleeps for room. */
proctype writer(byte me)
{
	byte n = 0;
	bool rx, tx, rung = false;
	do
	:: n == WRITES -> break
	:: atomic { n < WRITES && ROOM(LOAD(me + 1, CONSUMED)) > 0 -> written++; n++ }
	:: atomic { n < WRITES && ROOM(LOAD(me + 1, CONSUMED)) == 0 -> skip };
		arm(me + 1, tx_sleepers, tx_arm, TX_ARMED, tx_rung);
		if
		:: FENCED(me + 1) && SECOND_LOOK(WRITABLE(me + 1))
		:: atomic { FENCED(me + 1) && !SECOND_LOOK(WRITABLE(me + 1)) -> asleep_tx[me] = true };
end:
			atomic { bell -> asleep_tx[me] = false; rung = true }
		fi;
		disarm(me + 1, tx_sleepers, tx_arm, TX_ARMED);
		if
		:: rung -> answer_bell(me + 1); rung = false
		:: !rung
		fi
	od
}

#if TAKER
/* Another thread that reads without waiting, or looks at the ring as epoll does. */
active proctype taker()
{
end:
	do
	:: atomic { mem[PRODUCED] != taken -> taken++ }
	od
}
#endif

#if LOOKER
#ifdef MUT_LOOKER_NO_FENCE
#define LOOKED true
#else
#define LOOKED FLUSHED(CPUS)
#endif
/* Reads, or finds nothing in time, or leaves the rest: then it arms for those that are counted. */
active proctype looker()
{
	bool rx = false;
	byte looks = 0;
	do
	:: looks < LOOKS ->
		store(CPUS, RX_ARMED, 0);
		if
		:: atomic { READABLE(CPUS) -> taken++ }
		:: skip
		fi;
		atomic { LOOKED -> rx = (rx_sleepers > 0) };
#ifndef MUT_LOOKER_DOES_NOT_ARM
		if
		:: atomic { rx && FLUSHED(CPUS) -> next_seq(CPUS, rx_arm, RX_ARMED, rx_rung) }
		:: !rx
		fi;
#endif
#ifndef MUT_LOOKER_DOES_NOT_LOOK
		atomic { FENCED(CPUS) -> bell = bell || (rx && READABLE(CPUS)) };
#endif
		rx = false;
		looks++
	:: break
	od
}
#endif

inline ring_if(armed_word, rung)
{
	atomic { FENCED_PEER -> seq[0] = LOAD(0, armed_word) };
	if
	:: atomic { seq[0] != 0 && seq[0] != rung -> bell = true; rung = seq[0]; seq[0] = 0 }
	:: atomic { seq[0] == 0 || seq[0] == rung -> seq[0] = 0 }
	fi
}

active proctype peer()
{
	byte produced = 0, consumed = 0;
end:
	do
	:: atomic { produced < BYTES && FLUSHED(0) ->
		produced++;
		store(0, PRODUCED, produced) };
		ring_if(RX_ARMED, rx_rung)
	:: atomic { consumed < written && FLUSHED(0) -> /* or never, as it likes */
		consumed++;
		store(0, CONSUMED, consumed) };
		if
		:: ROOM(consumed) >= ROOMY_AT -> ring_if(TX_ARMED, tx_rung)
		:: ROOM(consumed) < ROOMY_AT
		fi
	:: WRITERS && produced == BYTES -> break
	od
}

/* Memory catches up with the processors. */
active proctype flusher()
{
end:
	do
	:: atomic { buf_word[0] != 0 -> flush(0) }
	:: atomic { buf_word[1] != 0 -> flush(1) }
#if CPUS > 1
	:: atomic { buf_word[2] != 0 -> flush(2) }
#endif
#if CPUS > 2
	:: atomic { buf_word[3] != 0 -> flush(3) }
#endif
	od
}

#define LOST(i)                                                                          \
	((asleep_rx[i] && mem[PRODUCED] != taken) ||                                     \
	 (asleep_tx[i] && ROOM(mem[CONSUMED]) >= LOW))

/* Nothing moves any more: then nobody may sleep over something to do. */
active proctype monitor()
{
end:
	do
	:: timeout ->
		assert(!LOST(0));
#if READERS + WRITERS > 1
		assert(!LOST(1));
#endif
#if READERS + WRITERS > 2
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
		:: i < READERS -> run reader(i); i++
		:: i >= READERS && i < THREADS -> run writer(i); i++
		:: i == THREADS -> break
		od;
		i = 0
	}
}
