/* SPDX-License-Identifier: Apache-2.0 */
/* Instructions of x86-64 taken apart: how long they are, where they lead, what they need. */
#ifndef VD_BASE_INSN_H
#define VD_BASE_INSN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { INSN_MOST = 15 };

/* The first part of Intel's manual, volume 2, chapter 2 and appendix A. Offsets count from the first
 * byte; 0: there is none. */
struct insn {
	uint8_t len;
	uint8_t map; /* 0: one byte; 1: 0f; 2: 0f 38; 3: 0f 3a; others: of VEX, EVEX and XOP */
	uint8_t op;
	uint8_t rex; /* 0: none */
	uint8_t modrm_at, disp_at, disp_len, imm_at, imm_len;
	bool vex;	 /* VEX, EVEX or XOP */
	bool opsize;	 /* 66 */
	bool rep;	 /* f2 or f3 */
	bool segment;	 /* fs or gs */
	bool short_addr; /* 67 */
	bool is_branch;	 /* by a distance in its last bytes (`imm`), be it a call */
	bool is_rip;	 /* its memory operand is relative to its end */
};

/* False: `p` begins with no instruction that is known, or it does not end within `left` bytes. */
bool insn_decode(const uint8_t *p, size_t left, struct insn *out);

/* The signed number in `len` (1, 2, 4 or 8) bytes. */
int64_t insn_number(const uint8_t *p, unsigned len);

/* Whether what follows it in memory is not what follows it in time: a branch, call, return or trap. */
bool insn_leads_away(const uint8_t *p, const struct insn *x);

bool insn_is_call(const uint8_t *p, const struct insn *x);

/* Whether it is a NOP, of one or more bytes. */
bool insn_is_nop(const uint8_t *p, const struct insn *x);

/* Whether rax, as a whole or a part, may be another after it. True when that is not known. */
bool insn_may_write_rax(const uint8_t *p, const struct insn *x);

/* Whether it sets rax to a number that it names: mov or xor. Then the number is in *number. */
bool insn_sets_rax(const uint8_t *p, const struct insn *x, int64_t *number);

/* Whether it is one of the few by which a compiler puts a value into rax: known or not, as a whole. */
bool insn_moves_to_rax(const uint8_t *p, const struct insn *x);

#endif
