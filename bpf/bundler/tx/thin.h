/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The thin-stream tests.
 *
 * SPIFL (static packets-in-flight limit) is a fixed limit. DPIFL (dynamic
 * limit) is the number of packets in flight at this RTT if the stream sends
 * once every minimum inter-transmission time, itt_min_us (LCN 2015, section
 * III.B.2).
 */
#ifndef PILLION_THIN_H
#define PILLION_THIN_H

#include "../flow.h"

/* Packets in flight, as the kernel's tcp_packets_in_flight() counts them. */
static __always_inline __u32 packets_in_flight(struct bpf_tcp_sock *btp)
{
	return btp->packets_out - (btp->sacked_out + btp->lost_out) +
	       btp->retrans_out;
}

/*
 * Stores the minimum RTT of the whole connection, as published; the kernel's
 * own expires after some minutes.
 */
static __always_inline void update_rtt_min(struct egress *egress,
					   struct bpf_tcp_sock *btp)
{
	if (btp->rtt_min < egress->rtt_min_us)
		egress->rtt_min_us = btp->rtt_min;
}

/*
 * ELIGIBLE if the stream is thin, otherwise the reason; after update_rtt_min().
 */
static __always_inline enum outcome check_thin(const struct options *options,
					       const struct egress *egress,
					       struct bpf_tcp_sock *btp)
{
	__u32 rtt;

	switch (options->thin_test) {
	case THIN_ALWAYS:
		return ELIGIBLE;
	case THIN_SPIFL:
		if (packets_in_flight(btp) <= options->spifl)
			return ELIGIBLE;
		return NOT_THIN;
	default:
		rtt = egress->rtt_min_us;
		if (rtt == NO_RTT_SAMPLE)
			return NO_RTT;
		if (options->thin_rtt == THIN_RTT_SMOOTHED)
			rtt = btp->srtt_us >> 3;
		if ((__u64)packets_in_flight(btp) * options->itt_min_us < rtt)
			return ELIGIBLE;
		return NOT_THIN;
	}
}

#endif /* PILLION_THIN_H */
