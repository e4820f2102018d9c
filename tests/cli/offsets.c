/* SPDX-License-Identifier: Apache-2.0 */
/* Where things are in the table that a process shows, for tests that forge one. */
#include <stddef.h>
#include <stdio.h>

#include "conn/table.h"

int main(void)
{
	printf("{\"fresh\": %zu, \"processes\": %zu, \"counts\": %zu, "
	       "\"tx_direct_bytes\": %zu, "
	       "\"tx_rdma_bytes\": %zu, \"slots\": %zu, \"across\": %zu, \"gate_tx\": "
	       "%zu, "
	       "\"gate_rx\": %zu, \"produced\": %zu, \"consumed\": %zu, \"ring\": %u}\n",
	       offsetof(struct slot_table, fresh), offsetof(struct slot_table, processes),
	       offsetof(struct table_process, counts),
	       offsetof(struct report, tx_direct_bytes),
	       offsetof(struct report, tx_rdma_bytes), sizeof(struct slot_table),
	       offsetof(struct slot, across), offsetof(struct slot, gate_tx),
	       offsetof(struct slot, gate_rx), offsetof(struct slot, tx.produced),
	       offsetof(struct slot, rx.consumed), gate_word(GATE_RING));
	return 0;
}
