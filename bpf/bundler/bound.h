/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef PILLION_BOUND_H
#define PILLION_BOUND_H

/*
 * Keeps n below limit, a power of two, in the very register that the verifier
 * checks.
 */
#define BOUND(n, limit) asm volatile("%0 &= %1" : "+r"(n) : "i"((limit)-1))

#endif /* PILLION_BOUND_H */
