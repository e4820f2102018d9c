/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The end of a connection: two ends, one process each, both directions in the ring. Each
 * writes, reads, shuts down and closes when it likes, and KILLS of them die at any step.
 * The kernel's FIN and RST travel on their own. What the survivor reports is checked
 * against what the other end really did.
 */
#ifndef WRITES
#define WRITES 2 /* by each end */
#endif
#define RING_CAP 1
#ifndef KILLS
#define KILLS 1
#endif

#define RING  0
#define FINAL 1
#define OTHER (1 - me)

/* The segment, each direction by its producing end; and the gates of the two ends. */
byte produced[2], consumed[2];
bool fin[2], down[2];
bit gate_tx[2], gate_rx[2];

/* Verdicts of the kernel that an end has taken note of; own shutdown. */
bool seen_fin[2], seen_err[2], shut[2];

/* The kernel: segments under way by their sender, and what has arrived, by receiver. */
mtype = { DATA, FIN, RST };
chan wire_of[2] = [4] of { mtype };
byte queued[2];
bool fin_in[2], rst_in[2], linger[2], fin_out[2];
bool gone[2]; /* closed or dead: the kernel's socket has no holder */
bool dead[2];

/* What really happened. */
byte sent[2];	    /* bytes accepted from this end */
byte got[2];	    /* bytes read by this end */
bool left_unread[2]; /* closed or died over bytes that it could have read */
bool reads[2], writes[2]; /* asleep in a read, in a write */

#define UNREAD(e) (produced[1 - e] != consumed[1 - e] || queued[e] > 0)

active proctype net()
{
	byte me = 0;
end:
	do
	:: atomic { nempty(wire_of[0]) -> me = 0; goto move }
	:: atomic { nempty(wire_of[1]) -> me = 1; goto move }
	od;
move:
	atomic {
		if
		:: wire_of[me]?DATA ->
			if
			:: gone[OTHER] -> rst_in[me] = !gone[me] /* nobody there any more */
			:: !gone[OTHER] -> queued[OTHER]++
			fi
		:: wire_of[me]?FIN -> fin_in[OTHER] = true
		:: wire_of[me]?RST -> rst_in[OTHER] = true
		fi;
		me = 0;
		goto end
	}
}

/* What poll reports is noted. */
inline note()
{
	d_step {
#ifndef MUT_FIN_NOT_NOTED
		seen_fin[me] = seen_fin[me] || fin_in[me];
#endif
		seen_err[me] = seen_err[me] || rst_in[me]
	}
}

inline kernel_fin()
{
	atomic {
		if
		:: fin_out[me] || rst_in[me]
		:: !fin_out[me] && !rst_in[me] -> wire_of[me]!FIN; fin_out[me] = true
		fi
	}
}

#ifdef MUT_WRITER_IGNORES_END
#define ATTENTION false
#else
#define ATTENTION (fin[OTHER] || seen_fin[me] || seen_err[me] || shut[me])
#endif

#ifdef MUT_WRITER_SLEEPS_DEAF
#define CREDIT (produced[me] - consumed[me] < RING_CAP)
#else
#define CREDIT                                                                           \
	(produced[me] - consumed[me] < RING_CAP || fin[OTHER] ||                         \
	 (fin_in[me] && !seen_fin[me]) || (rst_in[me] && !seen_err[me]))
#endif

/* One byte; false when the direction is over. */
inline write_one()
{
	do
	:: gate_tx[me] == FINAL ->
		atomic {
			if
			:: !shut[me] && !rst_in[me] -> wire_of[me]!DATA; sent[me]++
			:: shut[me] || rst_in[me] -> n = WRITES /* EPIPE */
			fi
		};
		break
	:: gate_tx[me] == RING && ATTENTION ->
		/* Nobody is known to read on: the kernel alone can tell. */
#ifndef MUT_DOWN_NOT_MARKED
		down[me] = true;
#endif
		gate_tx[me] = FINAL
	:: gate_tx[me] == RING && !ATTENTION ->
		if
		:: atomic { produced[me] - consumed[me] < RING_CAP -> produced[me]++; sent[me]++ };
			break
		:: atomic { produced[me] - consumed[me] == RING_CAP -> writes[me] = true };
end_credit:
			atomic { CREDIT -> writes[me] = false };
			note()
		fi
	od
}

/* The verdict that the program gets; it reads no more. */
inline end_of_file()
{
	atomic {
		/* Everything that was sent comes before it, and the sender has ended. */
		assert(got[me] == sent[OTHER]);
		assert(shut[OTHER] || gone[OTHER] || fin[OTHER]);
		/* A full close over unread bytes is a reset, unless the stream had ended before. */
		assert(shut[OTHER] || !left_unread[OTHER]);
		over = true
	}
}

inline reset()
{
	atomic {
		assert(got[me] == sent[OTHER]);
		assert(gone[OTHER] && got[OTHER] != sent[me]);
		over = true
	}
}

/* A FIN without a mark: a full close or a death. One over unread bytes is a reset. */
inline full_close()
{
#ifdef MUT_NO_RESET_VERDICT
	end_of_file()
#else
	if
	:: consumed[me] == produced[me] || fin[OTHER] -> end_of_file()
	:: consumed[me] != produced[me] && !fin[OTHER] -> reset()
	fi
#endif
}

#define MORE_TCP  (queued[me] > 0 || rst_in[me] || fin_in[me])
#ifdef MUT_READER_SLEEPS_DEAF
#define MORE_RING (produced[OTHER] != consumed[OTHER] || down[OTHER] || fin[OTHER])
#else
#define MORE_RING                                                                        \
	(produced[OTHER] != consumed[OTHER] || down[OTHER] || fin[OTHER] ||              \
	 (fin_in[me] && !seen_fin[me]) || (rst_in[me] && !seen_err[me]))
#endif

inline read_kernel()
{
	if
	:: atomic { queued[me] > 0 -> queued[me]--; got[me]++ }
	:: atomic { queued[me] == 0 && rst_in[me] -> skip }; reset()
	:: atomic { queued[me] == 0 && !rst_in[me] && fin_in[me] -> skip };
		full_close()
	:: atomic { queued[me] == 0 && !rst_in[me] && !fin_in[me] -> reads[me] = true };
end_tcp:
		atomic { MORE_TCP -> reads[me] = false }
	fi
}

/* The ring is drained, and so was it after the end was seen: which end is it? */
inline verdict()
{
	if
	:: mark -> end_of_file()
	:: !mark ->
		assert(queued[me] == 0); /* bytes past the mark: would be called a bypass */
		if
		:: rst_in[me] -> reset()
		:: !rst_in[me] && !fin_in[me]
		:: !rst_in[me] && fin_in[me] -> full_close()
		fi
	fi
}

inline read_ring()
{
#if defined(MUT_FIN_ONE_LOOK)
	drained = (produced[OTHER] == consumed[OTHER] && !down[OTHER]);
	mark = fin[OTHER];
	ended = seen_fin[me] || seen_err[me];
#elif defined(MUT_DOWN_ONE_LOOK)
	drained = !down[OTHER];
	mark = fin[OTHER];
	ended = seen_fin[me] || seen_err[me];
	drained = drained && produced[OTHER] == consumed[OTHER];
#else
	ended = seen_fin[me] || seen_err[me];
	mark = fin[OTHER];
	drained = (produced[OTHER] == consumed[OTHER]);
	drained = drained && !down[OTHER];
#endif
	if
	:: !drained ->
		if
		:: produced[OTHER] != consumed[OTHER] -> atomic { consumed[OTHER]++; got[me]++ }
		:: produced[OTHER] == consumed[OTHER] ->
			if
			:: down[OTHER] && produced[OTHER] == consumed[OTHER] -> gate_rx[me] = FINAL
			:: else
			fi
		fi
	:: drained && (mark || ended) -> verdict()
	:: drained && !mark && !ended ->
		reads[me] = true;
end_ring:
		atomic { MORE_RING -> reads[me] = false };
		note()
	fi;
	d_step { ended = false; mark = false; drained = false }
}

inline finish()
{
	shut[me] = true;
	fin[me] = true; /* on TCP too: it tells a shutdown from a full close */
	kernel_fin()
}

/*
 * close(): over unread ring bytes the kernel is told to reset; else nothing is said, since
 * a FIN without a mark is what tells the survivor that this was not half a close.
 */
inline close_it()
{
	if
	:: atomic { gate_rx[me] == RING && produced[OTHER] != consumed[OTHER] ->
		left_unread[me] = true };
		linger[me] = true
	:: atomic { gate_rx[me] == FINAL || produced[OTHER] == consumed[OTHER] -> skip }
	fi;
#ifdef MUT_CLOSE_SETS_FIN
	if
	:: gate_tx[me] == RING && !linger[me] -> fin[me] = true
	:: gate_tx[me] == FINAL || linger[me]
	fi;
#endif
	break
}

proctype party(byte me)
{
	byte n = 0;
	bool ended, mark, drained, over = false;
	{
		do
		:: n < WRITES -> n++; write_one()
		:: !over && gate_rx[me] == FINAL -> read_kernel()
		:: !over && gate_rx[me] == RING -> read_ring()
		:: atomic { !shut[me] -> n = WRITES }; finish()
		:: close_it()
		od
	} unless { dead[me] };
	atomic {
		/* Of a death: no last words. What came between them and here is a race that TCP
		 * has too. */
		left_unread[me] = left_unread[me] || (dead[me] && UNREAD(me));
		gone[me] = true;
		reads[me] = false;
		writes[me] = false;
		if
		:: rst_in[me]
		:: !rst_in[me] && (linger[me] || queued[me] > 0) ->
			left_unread[me] = true;
			wire_of[me]!RST
		:: !rst_in[me] && !linger[me] && queued[me] == 0 && !fin_out[me] ->
			wire_of[me]!FIN
		:: !rst_in[me] && !linger[me] && queued[me] == 0 && fin_out[me]
		fi
	}
}

#if KILLS
active proctype reaper()
{
	byte n = 0;
end:
	do
	:: atomic { n < KILLS && !gone[0] && !dead[0] -> dead[0] = true; n++ }
	:: atomic { n < KILLS && !gone[1] && !dead[1] -> dead[1] = true; n++ }
	od
}
#endif

/* Nothing moves any more: a sleeper must have a partner who could still wake it. */
#define STUCK(e)                                                                         \
	((reads[e] && (gone[1 - e] || shut[1 - e] || UNREAD(e))) ||                      \
	 (writes[e] && (gone[1 - e] || produced[e] - consumed[e] < RING_CAP)))

active proctype monitor()
{
end:
	do
	:: timeout ->
		assert(!STUCK(0));
		assert(!STUCK(1));
		break
	od
}

init
{
	atomic { run party(0); run party(1) }
}
