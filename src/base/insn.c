/* SPDX-License-Identifier: Apache-2.0 */
/* Takes instructions of x86-64 apart, as far as their lengths and their effects on rax go. */
#include "base/insn.h"

#include <string.h>

/*
 * What follows an opcode, sixteen a row.
 * .: nothing    m: ModRM          b: 1 byte         B: ModRM, 1 byte    z: 2 or 4 bytes
 * w: 2 bytes    Z: ModRM, 2 or 4  v: 2, 4 or 8      o: an address       e: 3 bytes (enter)
 * j: a distance of 1 byte         J: of 4           t, T: f6 and f7, where some have a number
 * p: it is a prefix               R: REX            E: more opcodes follow
 * V: VEX, EVEX or XOP             x: there is none in 64-bit mode, or none for programs
 */
static const char one_byte[] = "mmmmbzxxmmmmbzxE"
			       "mmmmbzxxmmmmbzxx"
			       "mmmmbzpxmmmmbzpx"
			       "mmmmbzpxmmmmbzpx"
			       "RRRRRRRRRRRRRRRR"
			       "................"
			       "xxVmppppzZbB...."
			       "jjjjjjjjjjjjjjjj"
			       "BZxBmmmmmmmmmmmV"
			       "..........x....."
			       "oooo....bz......"
			       "bbbbbbbbvvvvvvvv"
			       "BBw.VVBZe.w..bx."
			       "mmmmxxx.mmmmmmmm"
			       "jjjjbbbbJJxj...."
			       "p.pp..tT......mm";
static const char two_byte[] = "mmmmx.....x.xm.B"
			       "mmmmmmmmmmmmmmmm"
			       "xxxxxxxxmmmmmmmm"
			       "......x.ExExxxxx"
			       "mmmmmmmmmmmmmmmm"
			       "mmmmmmmmmmmmmmmm"
			       "mmmmmmmmmmmmmmmm"
			       "BBBBmmm.mmxxmmmm"
			       "JJJJJJJJJJJJJJJJ"
			       "mmmmmmmmmmmmmmmm"
			       "...mBmmm...mBmmm"
			       "mmmmmmmmmmBmmmmm"
			       "mmBmBBBm........"
			       "mmmmmmmmmmmmmmmm"
			       "mmmmmmmmmmmmmmmm"
			       "mmmmmmmmmmmmmmmm";

/* So many may be read. What goes on behind INSN_MOST of them is too long, whatever it is. */
enum { READ_MOST = INSN_MOST + 16 };

struct bytes {
	const uint8_t *b;
	unsigned at;
};

int64_t insn_number(const uint8_t *p, unsigned len)
{
	uint64_t n = 0;

	memcpy(&n, p, len);
	if (len < 8 && p[len - 1] & 0x80)
		n |= ~0ull << (8 * len);
	return (int64_t)n;
}

static void take_modrm(struct bytes *s, struct insn *x)
{
	unsigned modrm = s->b[s->at], mod = modrm >> 6, rm = modrm & 7;

	x->modrm_at = (uint8_t)s->at++;
	if (mod == 3)
		return;
	x->disp_len = mod == 1 ? 1 : mod == 2 ? 4 : 0;
	if (rm == 4 && (s->b[s->at++] & 7) == 5 && mod == 0)
		x->disp_len = 4;
	if (rm == 5 && mod == 0) {
		x->disp_len = 4;
		x->is_rip = true;
	}
	if (x->disp_len)
		x->disp_at = (uint8_t)s->at;
	s->at += x->disp_len;
}

static unsigned reg_of(const struct bytes *s, const struct insn *x)
{
	return s->b[x->modrm_at] >> 3 & 7;
}

/* Opcodes of which some forms only exist. xbegin is one of c7, with a distance. */
static bool is_form(const struct bytes *s, struct insn *x)
{
	unsigned reg = x->modrm_at ? reg_of(s, x) : 0;

	if (x->map != 0)
		return true;
	switch (x->op) {
	case 0xc6:
		return reg == 0 || s->b[x->modrm_at] == 0xf8;
	case 0xc7:
		x->is_branch = s->b[x->modrm_at] == 0xf8;
		return reg == 0 || (x->is_branch && !x->opsize);
	case 0x8f:
		return reg == 0;
	case 0xfe:
		return reg <= 1;
	case 0xff:
		return reg != 7;
	default:
		return true;
	}
}

static bool take_operands(struct bytes *s, struct insn *x, char what)
{
	bool wide = x->rex & 8;
	unsigned z = x->opsize && !wide ? 2 : 4;

	if (what == 'm' || what == 'B' || what == 'Z' || what == 'W' || what == 't' ||
	    what == 'T')
		take_modrm(s, x);
	switch (what) {
	case '.':
	case 'm':
		break;
	case 'b':
	case 'B':
		x->imm_len = 1;
		break;
	case 'w':
	case 'W':
		x->imm_len = 2;
		break;
	case 'e':
		x->imm_len = 3;
		break;
	case 'z':
	case 'Z':
		x->imm_len = (uint8_t)z;
		break;
	case 'v':
		x->imm_len = wide ? 8 : (uint8_t)z;
		break;
	case 'o':
		x->imm_len = x->short_addr ? 4 : 8;
		break;
	case 't':
	case 'T':
		if (reg_of(s, x) <= 1)
			x->imm_len = what == 't' ? 1 : (uint8_t)z;
		break;
	case 'J':
		/* Processors differ about the length of the distance then. */
		if (z != 4)
			return false;
		/* fallthrough */
	case 'j':
		x->is_branch = true;
		x->imm_len = what == 'j' ? 1 : 4;
		break;
	default:
		return false;
	}
	if (x->imm_len)
		x->imm_at = (uint8_t)s->at;
	s->at += x->imm_len;
	return is_form(s, x);
}

/* AMD's XOP: three maps. */
static bool take_xop(struct bytes *s, struct insn *x)
{
	x->map = s->b[s->at + 1] & 0x1f;
	x->op = s->b[s->at + 3];
	x->vex = true;
	s->at += 4;
	x->opsize = false;
	return x->map <= 10 && take_operands(s, x,
					     x->map == 8   ? 'B'
					     : x->map == 9 ? 'm'
							   : 'Z');
}

static bool take_vex(struct bytes *s, struct insn *x)
{
	const uint8_t *p = s->b + s->at;
	bool evex = *p == 0x62;
	char what = 'm';

	if (x->opsize || x->rep || x->rex)
		return false; /* it is invalid then */
	x->vex = true;
	x->map = *p == 0xc5 ? 1 : evex ? p[1] & 7 : p[1] & 0x1f;
	if (evex && (p[1] & 8 || !(p[2] & 4)))
		return false; /* of APX */
	s->at += *p == 0xc5 ? 2 : evex ? 4 : 3;
	x->op = s->b[s->at++];
	if (x->map == 0 || x->map == 4 || x->map > (evex ? 6 : 3))
		return false;
	if (x->map == 3)
		what = 'B';
	else if (x->map == 1 && !evex && x->op == 0x77)
		what = '.';
	else if (x->map == 1 && !(evex && (x->op == 0x7a || x->op == 0x7b)))
		what = two_byte[x->op];
	return (what == '.' && x->op == 0x77) || what == 'm' || what == 'B'
		       ? take_operands(s, x, what)
		       : false;
}

static bool take_two(struct bytes *s, struct insn *x)
{
	x->map = 1;
	x->op = s->b[s->at++];
	if (x->op == 0x78 && (x->opsize || x->rep)) /* extrq, insertq of SSE4a */
		return take_operands(s, x, 'W');
	if (two_byte[x->op] != 'E')
		return take_operands(s, x, two_byte[x->op]);
	x->map = x->op == 0x38 ? 2 : 3;
	x->op = s->b[s->at++];
	return take_operands(s, x, x->map == 2 ? 'm' : 'B');
}

/* A REX that another prefix follows counts for nothing. */
static void take_prefixes(struct bytes *s, struct insn *x)
{
	for (; s->at < INSN_MOST; s->at++) {
		uint8_t b = s->b[s->at];

		if (one_byte[b] == 'R') {
			x->rex = b;
			continue;
		}
		if (one_byte[b] != 'p')
			return;
		x->rex = 0;
		x->opsize |= b == 0x66;
		x->rep |= b == 0xf2 || b == 0xf3;
		x->segment |= b == 0x64 || b == 0x65;
		x->short_addr |= b == 0x67;
	}
}

static bool decode(const uint8_t *p, size_t left, struct insn *out)
{
	struct bytes s = {.b = p};
	struct insn x = {0};
	bool known;

	take_prefixes(&s, &x);
	/* A second REX, or none before the opcode that it belongs to, is nothing a compiler makes. */
	if (s.at >= INSN_MOST || (x.rex && s.at > 1 && one_byte[s.b[s.at - 2]] == 'R'))
		return false;
	x.op = s.b[s.at];
	if (one_byte[x.op] == 'V' && x.op == 0x8f && (s.b[s.at + 1] & 0x1f) < 8) {
		s.at++;
		known = take_operands(&s, &x, 'm');
	} else if (one_byte[x.op] == 'V') {
		known = x.op == 0x8f ? take_xop(&s, &x) : take_vex(&s, &x);
	} else {
		s.at++;
		known = x.op == 0x0f ? take_two(&s, &x)
				     : take_operands(&s, &x, one_byte[x.op]);
	}
	x.len = (uint8_t)s.at;
	if (!known || s.at > INSN_MOST || s.at > left)
		return false;
	*out = x;
	return true;
}

bool insn_decode(const uint8_t *p, size_t left, struct insn *out)
{
	uint8_t last[READ_MOST];

	if (left >= READ_MOST)
		return decode(p, left, out);
	memset(last, 0, sizeof(last));
	memcpy(last, p, left);
	return decode(last, left, out);
}

static unsigned modrm_reg(const uint8_t *p, const struct insn *x)
{
	return p[x->modrm_at] >> 3 & 7;
}

bool insn_leads_away(const uint8_t *p, const struct insn *x)
{
	if (x->is_branch)
		return true;
	if (x->vex)
		return false;
	if (x->map == 1) /* syscall, sysret, ud2, sysenter, sysexit, ud1, ud0, rsm */
		return x->op == 0x05 || x->op == 0x07 || x->op == 0x0b || x->op == 0x34 ||
		       x->op == 0x35 || x->op == 0xb9 || x->op == 0xff || x->op == 0xaa;
	if (x->map != 0)
		return false;
	return x->op == 0xc2 || x->op == 0xc3 || (x->op >= 0xca && x->op <= 0xcf) ||
	       x->op == 0xf1 || x->op == 0xf4 ||
	       (x->op == 0xff && modrm_reg(p, x) >= 2 && modrm_reg(p, x) <= 5);
}

bool insn_is_call(const uint8_t *p, const struct insn *x)
{
	return !x->vex && x->map == 0 &&
	       (x->op == 0xe8 || (x->op == 0xff && modrm_reg(p, x) == 2));
}

bool insn_is_nop(const uint8_t *p, const struct insn *x)
{
	if (x->vex || x->rep)
		return false;
	if (x->map == 1)
		return x->op == 0x1f && modrm_reg(p, x) == 0;
	return x->map == 0 && x->op == 0x90 && !x->rex;
}

/* rax as the register that the `reg` or `rm` of ModRM names. */
static bool reg_is_rax(const uint8_t *p, const struct insn *x)
{
	return modrm_reg(p, x) == 0 && !(x->rex & 4);
}

static bool is_reg(const uint8_t *p, const struct insn *x)
{
	return p[x->modrm_at] >> 6 == 3;
}

/* Byte operations without REX have ah in the place of number 4. */
static bool rm_is_rax(const uint8_t *p, const struct insn *x)
{
	return is_reg(p, x) && (p[x->modrm_at] & 3) == 0 && !(x->rex & 1);
}

static bool writes_rax_one(const uint8_t *p, const struct insn *x)
{
	uint8_t op = x->op;

	if (op < 0x40 && (op & 7) < 2) /* arithmetic: to r/m */
		return rm_is_rax(p, x);
	if (op < 0x40 && (op & 7) < 4)
		return modrm_reg(p, x) % 4 == 0 && !(x->rex & 4);
	if (op >= 0x50 && op <= 0x57) /* push */
		return false;
	if (op >= 0x58 && op <= 0x5f)
		return op == 0x58 && !(x->rex & 1);
	if (op >= 0xb8 && op <= 0xbf)
		return op == 0xb8 && !(x->rex & 1);
	switch (op) {
	case 0x63: /* movslq */
	case 0x8b: /* mov from r/m */
	case 0x8d: /* lea */
	case 0x69: /* imul */
	case 0x6b:
		return reg_is_rax(p, x);
	case 0x80: /* arithmetic with a number; shifts */
	case 0x81:
	case 0x83:
	case 0x88: /* mov to r/m */
	case 0x89:
	case 0xc0:
	case 0xc1:
	case 0xc6:
	case 0xc7:
	case 0xd1:
		return rm_is_rax(p, x);
	case 0x84: /* test */
	case 0x85:
	case 0x68: /* push */
	case 0x6a:
	case 0x90: /* nop; with REX.B xchg with r8 */
		return op == 0x90 && x->rex & 1;
	default:
		return true;
	}
}

bool insn_may_write_rax(const uint8_t *p, const struct insn *x)
{
	if (x->vex || x->map > 1)
		return true;
	if (x->map == 0)
		return writes_rax_one(p, x);
	if ((x->op >= 0x40 && x->op <= 0x4f) || x->op == 0xb6 || x->op == 0xb7 ||
	    x->op == 0xbe || x->op == 0xbf) /* cmov, movzx, movsx */
		return reg_is_rax(p, x);
	/* Vector registers: loads, stores and moves between them; NOPs. */
	return x->op != 0x10 && x->op != 0x11 && x->op != 0x28 && x->op != 0x29 &&
	       x->op != 0x6f && x->op != 0x7f && x->op != 0xef && x->op != 0x57 &&
	       x->op != 0x1f;
}

bool insn_sets_rax(const uint8_t *p, const struct insn *x, int64_t *number)
{
	if (x->vex || x->map || x->opsize || x->rep)
		return false;
	if (x->op == 0xb8 && !(x->rex & 1)) {
		*number = insn_number(p + x->imm_at, x->imm_len);
		if (x->imm_len == 4)
			*number = (int64_t)(uint32_t)*number;
		return true;
	}
	if (x->op == 0xc7 && !x->is_branch && p[x->modrm_at] == 0xc0 && !(x->rex & 1)) {
		*number = insn_number(p + x->imm_at, x->imm_len);
		if (!(x->rex & 8))
			*number = (int64_t)(uint32_t)*number;
		return true;
	}
	/* xor, or sub, of eax with itself */
	if ((x->op == 0x31 || x->op == 0x33 || x->op == 0x29 || x->op == 0x2b) &&
	    p[x->modrm_at] == 0xc0 && !(x->rex & 5)) {
		*number = 0;
		return true;
	}
	return false;
}

bool insn_moves_to_rax(const uint8_t *p, const struct insn *x)
{
	int64_t number;

	if (x->vex || x->map > 1 || x->opsize || !insn_may_write_rax(p, x))
		return false;
	if (x->map == 1) /* cmov, movzx, movsx */
		return (x->op & 0xf0) == 0x40 || (x->op & 0xf6) == 0xb6;
	switch (x->op) {
	case 0x58: /* pop */
	case 0x63:
	case 0x89:
	case 0x8b:
	case 0x8d:
	case 0xb8:
		return true;
	default:
		return insn_sets_rax(p, x, &number);
	}
}
