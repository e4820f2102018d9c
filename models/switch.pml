/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The switch, one direction: a sender end and a receiver end, each held by up to two
 * processes or threads that share gates, locks and cursors; TCP and the ring carry
 * numbered bytes, and the reader asserts their order.
 *
 * SENDERS and RECEIVERS (1 or 2), MSGS messages per sender of up to LEN bytes, EPOCHS
 * openings, queues of TCP_CAP and RING_CAP bytes, DEATHS processes killed at any step.
 * With REWIND receiver 2 hands the connection over: it asks for what is unread over TCP, and
 * may become a program that knows no ring once nothing lies in it; with CARRY it may take along
 * what lies in it, or fail to become one after that.
 * MUT_* takes one line of the protocol away (docs/models.md).
 *
 * Steps are merged where that loses nothing: taking a lock with the first look under it,
 * the last store under a lock with dropping it, and stores that nobody reads before the
 * store that follows them.
 */
#ifndef SENDERS
#define SENDERS 2
#endif
#ifndef RECEIVERS
#define RECEIVERS 1
#endif
#ifndef MSGS
#define MSGS 1
#endif
#ifndef LEN
#define LEN 2
#endif
#ifndef EPOCHS
#define EPOCHS 2
#endif
#ifndef TCP_CAP
#define TCP_CAP 2
#endif
#ifndef RING_CAP
#define RING_CAP 2
#endif
#ifndef DEATHS
#define DEATHS 0
#endif

#ifdef REWIND
#define REWINDS true
#else
#define REWINDS false
#endif
#ifdef CARRY
#define START start
#define FAILURES 1
#else
#define START consumed
#endif

#define TCP   0
#define READY 1
#define RING  2
#define FINAL 3

/* One end's half of the direction in its slot: gate {state, count}, lock, cursor. */
byte gate_tx = TCP, count_tx = 0, tx_lock = 0, tx_produced = 0;
byte gate_rx = TCP, count_rx = 0, rx_lock = 0, rx_consumed = 0, rx_epoch = 0;

/* The segment. */
byte produced = 0, consumed = 0;
byte up_epoch = 0, up_at = 0, down_epoch = 0, down_at = 0, ready_epoch = 0;
bool want_down = false, fin = false;
byte ring[RING_CAP];

/* WANT_REWIND is want_down and want_rewind, stored as one; REWIND_TAKING is taking. */
bool want_rewind = false, taking = false;
bool want_last = false; /* WANT_LAST is WANT_REWIND and this, stored as one */
bool rewinding = false; /* in the receiver's slot */
#ifdef CARRY
byte kept = 0, rx_end = 0; /* 0: none; RING_ENDED at the second, plus 1 */
byte failures = 0;
#endif

/* The kernel: what the sender's socket holds, what has arrived, and the counts. */
chan sendq = [TCP_CAP] of { byte };
chan recvq = [TCP_CAP] of { byte };
byte written = 0, taken = 0;
bool shut = false;	  /* no more sends; FIN is queued behind sendq */
bool fin_arrived = false; /* FIN received; an EOF once recvq is empty */

/* What must hold. */
byte sent = 0; /* bytes accepted from the senders: the number of the next one */
byte got = 0;  /* bytes handed to the readers */
bool eof = false;
bool broken = false;	/* an error for everybody, and never a clean end */
bool has_asked = false;

byte moves = 0; /* of gate_rx: each rings for the threads that sleep on the same side */

/* Processes: 0 and 1 send, 2 and 3 receive. Gone: holds the socket no more. */
bool dead[4], gone[4];

#define NO_WRITER ((SENDERS < 1 || gone[0]) && (SENDERS < 2 || gone[1]))
#define NO_READER ((RECEIVERS < 1 || gone[2]) && (RECEIVERS < 2 || gone[3]))
/* Robust: a lock passes on when its owner is dead. */
#define FREE(lock) (lock == 0 || dead[lock - 1])
#ifdef MUT_TX_LOCK_NOT_HELD
#define TX_FREE true
#else
#define TX_FREE FREE(tx_lock)
#endif
#ifdef MUT_RX_LOCK_NOT_HELD
#define RX_FREE true
#else
#define RX_FREE FREE(rx_lock)
#endif

/* A sleep is bounded while several processes hold the socket: one more look after a death. */
bool looked_after[4];
#define SIBLING_DEAD ((me < 2 && (dead[0] || dead[1])) || (me >= 2 && (dead[2] || dead[3])))
#ifdef MUT_SLEEP_UNBOUNDED
#define NAP_OVER false
#else
#define NAP_OVER (SIBLING_DEAD && !looked_after[me])
#endif

inline sleep_until(condition)
{
	atomic { (condition) || NAP_OVER ->
		looked_after[me] = looked_after[me] || SIBLING_DEAD }
}

inline deliver(byte_number)
{
	assert(byte_number == got); /* order, no loss, no repetition */
	got++
}

/* ---- the sending end ---- */

/* One byte into the socket's queue; false (EPIPE) when it is shut. Blocks when full. */
inline kernel_send(ok)
{
	if
	:: atomic { !shut && !broken && !NO_READER && nfull(sendq) ->
		sendq!sent; sent++; written++; ok = true }
	:: atomic { shut || broken || NO_READER -> ok = false }
	fi
}

/* Under tx_lock with the gate in the ring: a dead owner left an up or down half done. */
#ifdef MUT_NO_REPAIR_TX
#define HALF_DONE false
#else
#define HALF_DONE (up_epoch != down_epoch + 1)
#endif

#if defined(MUT_NO_REPAIR_FIN) || defined(MUT_SHUTDOWN_UNLOCKED)
#define SHUT (shut || NO_READER)
#else
#define SHUT (fin || shut || NO_READER)
#endif

#ifdef MUT_COUNT_IGNORED_TX
#define TX_IDLE true
#else
#define TX_IDLE (count_tx == 0)
#endif

#define MAY_UP                                                                           \
	(gate_tx == TCP && ready_epoch == down_epoch + 1 && TX_IDLE && !want_down)

#define ROOM	(tx_produced - consumed < RING_CAP)

inline try_up()
{
	atomic { left > 0 && MAY_UP && TX_FREE -> tx_lock = me + 1; gate_tx = RING };
#ifdef MUT_MARK_BEFORE_COUNT
	atomic { up_epoch = down_epoch + 1 };
	atomic { up_at = written; tx_lock = 0 }
#else
	atomic { up_at = written; up_epoch = down_epoch + 1; tx_lock = 0 }
#endif
}

/*
 * To TCP for good, from TCP: an epoch that the receiver has opened is passed over by its
 * down mark alone.
 */
inline leave()
{
	atomic { left > 0 && gate_tx == TCP && want_down && TX_FREE -> tx_lock = me + 1 };
	if
	:: ready_epoch == down_epoch + 1 -> down_epoch = ready_epoch
	:: ready_epoch != down_epoch + 1
	fi;
#ifdef REWIND
	if
	:: up_epoch == down_epoch -> rewound()
	:: up_epoch != down_epoch
	fi;
#endif
	atomic { gate_tx = FINAL; tx_lock = 0 }
}

#define DUE	 (REWINDS && (want_rewind || taking))
#define UNREAD	 (tx_produced - START)
#define RESENT	 (written - up_at)
#define FITS	 (UNREAD - RESENT <= TCP_CAP - len(sendq))

/* Sends what is unread over TCP, when it surely fits; a dead owner's half is finished. */
inline answer()
{
#ifdef MUT_NO_REPAIR_REWIND
	taking = true;
#else
	atomic { begun = taking; taking = true };
#endif
#ifdef MUT_REWIND_ONE_LOOK
	atomic { asked = true; last = want_last };
#else
	atomic { asked = want_rewind; last = want_last }; /* one word */
#endif
#ifdef CARRY
#ifdef MUT_KEPT_SENT
	start = consumed;
#else
	start = (kept > consumed -> kept : consumed);
#endif
#endif
	if
	:: fin || shut || NO_READER || !(asked || (begun && RESENT > 0)) ||
	   (RESENT == 0 && !FITS) ->
#ifndef MUT_LAST_REFUSED
		broken = last && UNREAD > 0
#endif
	:: else ->
		do
		:: atomic { RESENT < UNREAD && nfull(sendq) ->
				sendq!ring[(START + RESENT) % RING_CAP]; written++ }
		:: RESENT < UNREAD && full(sendq) && begun -> broken = true; break
		:: RESENT == UNREAD -> end_at = START; break
		od
	fi;
#ifdef CARRY
	start = 0;
#endif
	begun = false;
	last = false;
	asked = false
}

/* The same, but the lock is kept. */
inline answer_down(to)
{
	end_at = tx_produced;
	if
	:: REWINDS -> answer() /* whether or not there is a request */
	:: !REWINDS
	fi;
	if
	:: broken -> gate_tx = to
	:: !broken ->
#ifdef MUT_REWIND_MARK_BEHIND
		end_at = tx_produced;
#endif
		atomic { down_at = end_at; down_epoch = up_epoch };
		gate_tx = to;
		rewound()
	fi;
	end_at = 0
}

/* After the mark down: the cursors go back, too. Also for an owner that died before it. */
inline rewound()
{
	if
	:: taking -> tx_produced = down_at; atomic { produced = tx_produced; taking = false }
	:: !taking
	fi
}

/* Under tx_lock; the first step has published what a dead owner had not. */
inline go_down(to)
{
#ifdef REWIND
	answer_down(to);
	tx_lock = 0
#elif defined(MUT_DOWN_GATE_FIRST)
	atomic { down_at = tx_produced; gate_tx = to };
	atomic { down_epoch = up_epoch; tx_lock = 0 }
#else
	atomic { down_at = tx_produced; down_epoch = up_epoch };
	atomic { gate_tx = to; tx_lock = 0 }
#endif
}

/* One entry into the ring: the first step takes the lock and looks around. */
inline ring_send()
{
	atomic {
		left > 0 && gate_tx == RING && TX_FREE -> tx_lock = me + 1;
		if
		:: HALF_DONE -> gate_tx = TCP; tx_lock = 0; goto sent_one
		:: !HALF_DONE && SHUT ->
			shut = true; /* again, when its owner died before it */
			left = 0;
			tx_lock = 0;
			goto sent_one
		:: !HALF_DONE && !SHUT && want_down -> produced = tx_produced; goto final
		:: !HALF_DONE && !SHUT && !want_down -> produced = tx_produced; goto down
		:: !HALF_DONE && !SHUT && !want_down && ROOM -> goto room
		:: !HALF_DONE && !SHUT && !want_down && !ROOM ->
			produced = tx_produced;
			tx_lock = 0;
			goto no_room
		fi
	};
final:
	go_down(FINAL);
	goto sent_one;
down:
	go_down(TCP);
	goto sent_one;
room:
#ifdef MUT_WIRE_CURSOR_FIRST
	atomic { ring[tx_produced % RING_CAP] = sent; produced = tx_produced + 1; sent++ };
	atomic { tx_produced = produced; left--; tx_lock = 0 };
#else
	atomic { ring[tx_produced % RING_CAP] = sent; tx_produced++; sent++ };
	atomic { produced = tx_produced; left--; tx_lock = 0 };
#endif
	goto sent_one;
no_room:
	sleep_until(ROOM || gate_tx != RING || SHUT || want_down); /* for credit */
sent_one:
	skip
}

/* Sends one message; leaves early (EPIPE) when the direction is shut. */
inline send_message()
{
	left = LEN;
	do
	:: left == 0 || broken -> break
	:: left > 0 && gate_tx == FINAL -> kernel_send(ok); left = (ok -> left - 1 : 0)
	:: try_up()
	:: leave()
	:: atomic { left > 0 && gate_tx == TCP -> count_tx++; ok = false };
		/* Inside the kernel with the rest of the message, blocking on the way. */
		do
		:: left > 0 -> kernel_send(ok); left = (ok -> left - 1 : 0)
		:: left == 0 || ok -> break /* done, or a partial write */
		od;
		count_tx--
	:: ring_send()
	od
}

/* Out of a sleep, or at another call. */
inline serve()
{
	atomic { want_down && gate_tx == RING && TX_FREE ->
		tx_lock = me + 1; produced = tx_produced };
	if
	:: HALF_DONE -> gate_tx = TCP; tx_lock = 0
	:: !HALF_DONE ->
#ifndef MUT_NO_REPAIR_SERVED
		shut = shut || fin; /* again, when its owner died before it */
#endif
		go_down(FINAL)
	fi
}

/* The last words of shutdown and close, under the lock. */
inline answer_at_end()
{
	if
	:: gate_tx == RING && !HALF_DONE && DUE -> answer_down(FINAL)
	:: !(gate_tx == RING && !HALF_DONE && DUE)
	fi
}

inline last_words()
{
	atomic { TX_FREE -> tx_lock = me + 1 };
#ifndef MUT_CLOSE_UNANSWERED
	answer_at_end();
#endif
	tx_lock = 0
}

/* shutdown(SHUT_WR): the mark, then the kernel's, under one lock. */
inline finish()
{
	atomic { TX_FREE -> tx_lock = me + 1; produced = tx_produced };
#ifdef REWIND
	answer_at_end();
#endif
	fin = true;
#ifdef MUT_SHUTDOWN_UNLOCKED
	tx_lock = 0;
	shut = true
#else
	atomic { shut = true; tx_lock = 0 }
#endif
}

proctype sender(byte me)
{
	byte left, n = 0, end_at = 0;
#ifdef CARRY
	byte start = 0;
#endif
	bool ok, begun = false, asked = false, last = false;
	{
		do
		:: n < MSGS && !broken -> send_message(); n++
#ifdef REWIND
		:: serve()
		:: n == MSGS || broken -> last_words(); break
#else
		:: n == MSGS -> break
#endif
		:: me == 0 && !broken -> finish(); break
		od
	} unless { dead[me] };
	/* Close, or death: the last holder's makes the kernel send FIN. */
	atomic { gone[me] = true; shut = shut || NO_WRITER }
}

/* The network: moves what was sent, then FIN. */
active proctype net()
{
	byte b;
end:
	do
	:: atomic { nempty(sendq) && nfull(recvq) -> sendq?b; recvq!b; b = 0 }
	:: atomic { shut && empty(sendq) && !fin_arrived -> fin_arrived = true }
	od
}

/* ---- the receiving end ---- */

inline take_tcp(n)
{
	do
	:: n > 0 && nempty(recvq) -> recvq?b; taken++; deliver(b); n--
	:: n == 0 || empty(recvq) -> break
	od;
	b = 0;
	n = 0
}

inline end_of_file()
{
	/* A byte that its writer's death left unpublished was never sent. */
	assert(got + (tx_produced > produced -> tx_produced - produced : 0) == sent);
	eof = true
}

inline kernel_recv()
{
	if
	:: atomic { nempty(recvq) -> q = 1; take_tcp(q) }
	:: atomic { len(recvq) > 1 -> q = TCP_CAP; take_tcp(q) }
	:: atomic { fin_arrived && empty(recvq) && !broken -> end_of_file() }
	:: broken -> skip
	fi
}

#ifdef MUT_COUNT_IGNORED_RX
#define RX_IDLE true
#else
#define RX_IDLE (count_rx == 0)
#endif
#ifdef MUT_REWIND_NOT_FROZEN
#define THAWED true
#else
#define THAWED false
#endif
#ifdef MUT_REWIND_TWO_LOOKS
#define FROZEN frozen
#else
#define FROZEN rewinding
#endif
#define MAY_OPEN (gate_rx == TCP && RX_IDLE && ready_epoch < EPOCHS && !want_down)

inline try_open()
{
	atomic { !eof && MAY_OPEN && RX_FREE ->
		rx_lock = me + 1;
		rx_epoch = ready_epoch + 1 };
	if
	:: atomic { MAY_OPEN -> gate_rx = READY }; /* the compare-and-swap */
		atomic { ready_epoch = rx_epoch; rx_lock = 0 }
	:: atomic { !MAY_OPEN -> rx_lock = 0 }
	fi
}

/* What ends a receiver's sleep. Whoever moves the gate wakes the others. */
#ifdef MUT_MOVE_NOT_RUNG
#define MOVED false
#else
#define MOVED (moves != moves_seen)
#endif
#define TCP_MORE                                                                         \
	(len(recvq) > 0 || fin_arrived || up_epoch == rx_epoch ||                        \
	 down_epoch == rx_epoch || MOVED)
#define MARK_MORE                                                                        \
	(len(recvq) > 0 || fin_arrived || up_epoch != rx_epoch || MOVED)
#define RING_MORE                                                                        \
	(produced != rx_consumed || down_epoch == rx_epoch || fin || fin_arrived ||      \
	 MOVED)

#define RING_END (fin || fin_arrived)

/* READY: reads TCP up to the mark. An end is believed by what is looked at after it. */
inline ready_recv()
{
	atomic {
		!eof && gate_rx == READY && RX_FREE -> rx_lock = me + 1;
		moves_seen = moves;
#ifndef MUT_NO_REPAIR_RX
		ready_epoch = rx_epoch; /* again, when its owner died before it */
#endif
#ifndef MUT_EOF_ONE_LOOK
		end_seen = fin_arrived
#endif
	};
	/* Passed over: down without up. In this order, since up is stored before down.
	 * Or left without a byte in the ring: all else is the kernel's. */
#ifdef MUT_UP_BEFORE_DOWN
	mark = (up_epoch != rx_epoch);
	mark = mark && (down_epoch == rx_epoch);
#else
	mark = (down_epoch == rx_epoch);
	mark = mark && (up_epoch != rx_epoch || (REWINDS && down_at == rx_consumed));
#endif
	if
	:: atomic { mark ->
			gate_rx = (want_down -> FINAL : TCP);
			moves++;
			rx_lock = 0;
			mark = false;
			end_seen = false };
		goto looked
	:: !mark
	fi;
#ifdef MUT_MARK_BEFORE_INQ
	mark = (up_epoch == rx_epoch);
	q = len(recvq);
#else
	q = len(recvq);
	mark = (up_epoch == rx_epoch);
#endif
#ifdef MUT_EOF_ONE_LOOK
	end_seen = fin_arrived;
#endif
	if
	:: atomic { mark ->
#ifdef MUT_MARK_NOT_CAPPED
			q = TCP_CAP;
#else
			q = up_at - taken;
#endif
			take_tcp(q) };
		if
		:: atomic { up_at == taken -> gate_rx = RING; moves++; rx_lock = 0; mark = false }
		:: atomic { up_at != taken -> rx_lock = 0; mark = false };
			sleep_until(MARK_MORE)
		fi
	:: !mark && q > 0 ->
		atomic {
#ifdef MUT_INQ_NOT_CAPPED
			q = TCP_CAP;
#endif
			take_tcp(q);
			rx_lock = 0
		}
	:: atomic { !mark && q == 0 && end_seen -> end_of_file(); rx_lock = 0 }
	:: atomic { !mark && q == 0 && !end_seen -> rx_lock = 0 };
		sleep_until(TCP_MORE)
	fi;
looked:
	atomic { q = 0; moves_seen = 0; mark = false; end_seen = false }
}

/* Asks for what is unread over TCP, and freezes it. */
inline ask()
{
	atomic { !eof && me == 2 && !has_asked && (gate_rx == READY || gate_rx == RING) &&
		RX_FREE -> rx_lock = me + 1; has_asked = true; rewinding = !THAWED };
	atomic { consumed = rx_consumed; want_down = true; want_rewind = true; rx_lock = 0 }
}

/* Time is over, and nothing is unread: another image takes over. The request stands. */
inline exec()
{
	atomic { !eof && me == 2 && RECEIVERS == 1 && DEATHS == 0 && rewinding && RX_FREE &&
		!tried && (gate_rx == READY || gate_rx == RING) ->
		rx_lock = me + 1; tried = true };
#ifdef MUT_LAST_AFTER_LOOK
	execed = (produced == rx_consumed);
	want_last = true;
#else
	want_last = true;
	execed = (produced == rx_consumed);
#endif
	atomic { want_last = want_last && execed; rx_lock = 0 }
}

inline await_answer()
{
	if
	:: !taking || down_epoch == rx_epoch
	:: taking && NO_WRITER && down_epoch != rx_epoch -> broken = true
	:: broken
	fi
}

/* Withdraws, before anything is taken from the ring. Under rx_lock, which it drops. */
inline settle()
{
	atomic { want_rewind = false; want_last = false };
#ifndef MUT_REWIND_NOT_AWAITED
	await_answer();
#endif
	atomic {
		rewinding = broken;
#ifdef CARRY
		kept = 0;
#ifndef MUT_END_PASSED
		rx_end = (down_epoch == rx_epoch -> down_at + 1 : 0);
#endif
#endif
		if
		:: down_epoch == rx_epoch && down_at == rx_consumed -> gate_rx = FINAL; moves++
		:: else
		fi;
		rx_lock = 0
	}
}

#ifdef CARRY
/* The same, but the next image is to get what lies in the ring: up to `carried`. */
inline keep()
{
	atomic { !eof && me == 2 && RECEIVERS == 1 && DEATHS == 0 && rewinding && RX_FREE &&
		!tried && (gate_rx == READY || gate_rx == RING) ->
		rx_lock = me + 1; tried = true };
again:
	atomic { want_rewind = false; want_last = false };
	await_answer();
	if
	:: broken
	:: !broken && down_epoch == rx_epoch && (up_epoch != rx_epoch || down_at == rx_consumed) ->
		kept = 0
	:: !broken && down_epoch == rx_epoch && up_epoch == rx_epoch && down_at != rx_consumed ->
		carried = down_at;
		execed = true
	:: !broken && down_epoch != rx_epoch ->
		carried = produced;
		kept = carried;
		atomic { want_rewind = true; want_last = true };
#ifndef MUT_KEPT_ONE_LOOK
		if
		:: produced != carried -> carried = 0; goto again
		:: produced == carried
		fi;
#endif
		execed = true
	fi;
	if
	:: execed && failures < FAILURES ->
		failures++;
		has_asked = false; /* maybe once more */
		tried = false;
		execed = false;
		carried = 0;
		settle()
	:: rx_lock = 0
	fi
}

/* In the new image: TCP up to the mark, the bytes that came along, then the kernel. */
inline read_carried()
{
	do
	:: atomic { rx_consumed < carried && up_epoch == rx_epoch && taken < up_at &&
			nempty(recvq) -> recvq?b; taken++; deliver(b); b = 0 }
	:: atomic { rx_consumed < carried && taken == up_at ->
			b = ring[rx_consumed % RING_CAP]; deliver(b); b = 0; rx_consumed++ }
	:: rx_consumed >= carried || broken -> break
	od;
	carried = 0
}
#endif

inline ring_recv()
{
	atomic {
		!eof && !broken && gate_rx == RING && RX_FREE -> rx_lock = me + 1;
		moves_seen = moves;
#ifdef MUT_FIN_AFTER_DOWN
		mark = (down_epoch == rx_epoch)
#else
		end_seen = RING_END
#endif
	};
#ifdef MUT_FIN_AFTER_DOWN
	end_seen = RING_END;
	q = produced;
#else
	q = produced;
	mark = (down_epoch == rx_epoch);
#endif
#ifdef CARRY
	q = (rx_end > 0 && q >= rx_end -> rx_end - 1 : q);
#endif
#ifdef MUT_REWIND_TWO_LOOKS
	frozen = (q != rx_consumed && rewinding);
	q = produced;
#endif
	if
#ifdef REWIND
	:: q != rx_consumed && FROZEN -> settle()
#endif
	:: atomic { q != rx_consumed && !FROZEN ->
			b = ring[rx_consumed % RING_CAP];
			deliver(b);
			b = 0;
			rx_consumed++ };
		atomic { consumed = rx_consumed; rx_lock = 0 }
	:: atomic { q == rx_consumed && mark && rx_consumed == down_at ->
			gate_rx = (want_down -> FINAL : TCP);
			moves++;
			rx_lock = 0 }
	:: atomic { q == rx_consumed && mark && rx_consumed != down_at ->
			rx_lock = 0 } /* published since */
	:: atomic { q == rx_consumed && !mark && end_seen -> end_of_file(); rx_lock = 0 }
	:: atomic { q == rx_consumed && !mark && !end_seen ->
#ifndef MUT_NO_REPAIR_RX
			consumed = rx_consumed; /* a dead owner's, not yet given back */
#endif
			rx_lock = 0 };
		sleep_until(RING_MORE)
	fi;
	atomic { q = 0; moves_seen = 0; mark = false; end_seen = false }
}

proctype receiver(byte me)
{
	byte b, q, moves_seen = 0;
	bool mark, end_seen, tried = false, execed = false;
#ifdef MUT_REWIND_TWO_LOOKS
	bool frozen;
#endif
#ifdef CARRY
	byte carried = 0;
#endif
	{
		do
		:: eof || broken -> break
#ifdef REWIND
		:: ask()
#ifdef CARRY
		:: keep(); read_carried();
#else
		:: exec();
#endif
			do
			:: execed && !eof && !broken -> kernel_recv()
			:: !execed || eof || broken -> break
			od
#endif
		:: !eof && me == 3 -> break /* busy elsewhere, for ever */
		:: !eof && gate_rx == FINAL -> kernel_recv()
		:: try_open()
		:: atomic { !eof && gate_rx == TCP -> count_rx++ };
			kernel_recv();
			count_rx--
		:: ready_recv()
		:: ring_recv()
#ifdef WANT_DOWN
		:: !eof && me == 2 && gate_rx != TCP && !want_down -> want_down = true
#endif
		od
	} unless { dead[me] };
	gone[me] = true
}

#if DEATHS
active proctype reaper()
{
	byte n = 0;
end:
	do
	:: atomic { n < DEATHS && !gone[0] && !dead[0] -> dead[0] = true; n++ }
	:: atomic { n < DEATHS && !gone[1] && !dead[1] -> dead[1] = true; n++ }
	:: atomic { n < DEATHS && !gone[2] && !dead[2] -> dead[2] = true; n++ }
	:: atomic { n < DEATHS && !gone[3] && !dead[3] -> dead[3] = true; n++ }
	od
}
#endif

init
{
	atomic {
		run sender(0);
		if
		:: SENDERS > 1 -> run sender(1)
		:: else -> gone[1] = true
		fi;
		run receiver(2);
		if
		:: RECEIVERS > 1 -> run receiver(3)
		:: else -> gone[3] = true
		fi
	}
}
