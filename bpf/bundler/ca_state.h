/* SPDX-License-Identifier: GPL-2.0-only */
/* In which state of congestion avoidance a connection is. */
#ifndef PILLION_CA_STATE_H
#define PILLION_CA_STATE_H

static __always_inline __u8 ca_state(struct tcp_sock *tp)
{
	return BPF_CORE_READ_BITFIELD(&tp->inet_conn, icsk_ca_state);
}

/*
 * Does the congestion control set the window itself? Then the kernel enters CWR
 * in vain (tcp_cong_control()): so does BBR.
 */
static __always_inline bool ignores_cwr(const struct tcp_sock *tp)
{
	return tp->inet_conn.icsk_ca_ops->cong_control;
}

#endif /* PILLION_CA_STATE_H */
