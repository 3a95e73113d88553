/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Ports whose payload NAT boxes rewrite: FTP, RTSP, H.323, PPTP, SCCP, SIP and
 * IRC. Such a box (an application helper, ALG) changes addresses within the
 * payload, and so its length and the sequence numbers of all that follows. It
 * changes two overlapping segments independently, so the receiver reads bytes
 * that were never sent. No sender can detect it.
 */
#ifndef PILLION_HELPER_PORT_H
#define PILLION_HELPER_PORT_H

#include "rule.h"

/*
 * Returns 1 if both 16-bit numbers are equal, without a branch: the verifier
 * would check a loop over rules once for each case.
 */
static __always_inline __u32 is_same(__u32 port, __u32 other)
{
	__u32 difference = port ^ other;

	barrier_var(difference);
	return (difference - 1) >> 31;
}

/* The port's bit, in the order of enum helper_port. */
static __always_inline __u32 helper_port(__u32 port)
{
	return is_same(port, HELPER_FTP) | is_same(port, HELPER_RTSP) << 1 |
	       is_same(port, HELPER_H323) << 2 |
	       is_same(port, HELPER_PPTP) << 3 |
	       is_same(port, HELPER_SCCP) << 4 |
	       is_same(port, HELPER_SIP) << 5 | is_same(port, HELPER_IRC) << 6;
}

/* The bits of both ports. */
static __always_inline __u32 helper_ports(__u32 local, __u32 remote)
{
	return helper_port(local) | helper_port(remote) << HELPER_PORT_BITS;
}

#endif /* PILLION_HELPER_PORT_H */
