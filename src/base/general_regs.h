/* SPDX-License-Identifier: Apache-2.0 */
/* Before all else, with GENERAL_REGS_ONLY: the compiler uses no vector register in what follows. */
#ifndef VD_BASE_GENERAL_REGS_H
#define VD_BASE_GENERAL_REGS_H

/* Clang has no such pragma. */
#if defined(__GNUC__) && !defined(__clang__) && __GNUC__ >= 11
#define GENERAL_REGS 1
#else
#define GENERAL_REGS 0
#endif

#if GENERAL_REGS && defined(GENERAL_REGS_ONLY)
#pragma GCC target("general-regs-only")
#endif

#endif
