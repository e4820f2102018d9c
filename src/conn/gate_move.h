/* SPDX-License-Identifier: Apache-2.0 */
/* How a gate moves. For the two that decide it, switch_tx.c and switch_rx.c, and for tests. */
#ifndef VD_CONN_GATE_MOVE_H
#define VD_CONN_GATE_MOVE_H

#include "conn/conn.h"

/* From GATE_TCP with nobody inside to `to`, in one step. */
static inline bool gate_close(_Atomic uint32_t *gate, enum gate_state to)
{
	uint32_t empty = gate_word(GATE_TCP);
	return atomic_compare_exchange_strong_explicit(
		gate, &empty, gate_word(to), memory_order_acq_rel, memory_order_relaxed);
}

/* To `to`, keeping the count. */
static inline void gate_set(_Atomic uint32_t *gate, enum gate_state to)
{
	uint32_t now = load_relaxed(gate);
	while (!atomic_compare_exchange_weak_explicit(
		gate, &now, gate_word(to) | (now & GATE_COUNT_MASK), memory_order_acq_rel,
		memory_order_relaxed))
		;
}

#endif
