/* SPDX-License-Identifier: GPL-2.0-only */
/* TCP's state of a connection, and the time. */
#ifndef PILLION_TCP_STATE_H
#define PILLION_TCP_STATE_H

static __always_inline __u64 now_us(void)
{
	return bpf_ktime_get_ns() / 1000;
}

/* The state of congestion avoidance. */
static __always_inline __u8 ca_state(struct tcp_sock *tp)
{
	return BPF_CORE_READ_BITFIELD(&tp->inet_conn, icsk_ca_state);
}

/*
 * Returns true if the congestion control sets the window itself, as BBR does.
 * CWR then has no effect (tcp_cong_control()).
 */
static __always_inline bool ignores_cwr(const struct tcp_sock *tp)
{
	return tp->inet_conn.icsk_ca_ops->cong_control;
}

static __always_inline __u32 tcp_packets_in_flight(const struct tcp_sock *tp)
{
	return tp->packets_out - (tp->sacked_out + tp->lost_out) +
	       tp->retrans_out;
}

/*
 * Returns true if `unsent` bytes in the socket wait for the ACK of a small
 * segment, and not for the window (Nagle's algorithm, tcp_nagle_check()).
 */
static __always_inline bool waits_for_nagle(const struct tcp_sock *tp,
					    __u32 unsent)
{
	return unsent && unsent < tp->mss_cache &&
	       tcp_packets_in_flight(tp) < tp->snd_cwnd &&
	       (__s32)(tp->snd_sml - tp->snd_una) > 0 &&
	       !BPF_CORE_READ_BITFIELD(tp, nonagle);
}

/*
 * The RTT that TFRC-SP uses: smoothed, and not below the minimum, which is huge
 * without a sample.
 */
static __always_inline __u64 effective_rtt_us(struct bpf_tcp_sock *btp)
{
	__u32 smoothed = btp->srtt_us >> 3, least = btp->rtt_min;

	return smoothed > least ? smoothed : least;
}

#endif /* PILLION_TCP_STATE_H */
