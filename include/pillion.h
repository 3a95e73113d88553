/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * pillion's socket options: a program turns bundling on or off for its own TCP
 * socket, and reads the result.
 *
 *	int on = 1;
 *	setsockopt(fd, IPPROTO_TCP, PILLION_BUNDLE, &on, sizeof(on));
 *
 * A running pillion handles them for the sockets of its cgroup, by eBPF
 * programs. They require no privilege. Without pillion the kernel returns
 * ENOPROTOOPT, as for every unknown option, and the socket works as usual. A
 * program may ignore that error. The guide is docs/guides/socket-api.md.
 *
 * This header needs no other; IPPROTO_TCP is in <netinet/in.h>.
 */
#ifndef PILLION_H
#define PILLION_H

/*
 * Option numbers, at level IPPROTO_TCP: "pil" in ASCII and a number. Linux's
 * own numbers count up from 1 and have not reached 50; its TCP_BPF_ numbers
 * start at 1001. The prefix is easy to find in the output of strace.
 */
#define PILLION_OPTION(n) (0x70696c00 + (n))

/*
 * int. Set: 1 requests bundling, 0 declines it. Get: 1 if the connection is
 * bundled; before the connection exists, 1 if bundling was requested.
 *
 * It may be set at any time. On a connection it takes effect immediately.
 * Before connect() and on a listening socket it is a request, stored as long
 * as the socket exists. Sockets that accept() returns later inherit it. It
 * takes effect at establishment, as far as the administrator's rules allow.
 *
 * EPERM	1: the administrator's rules refuse this connection, or all;
 *	or its peer opened it with MPTCP; or no rule names its port, and
 *	NAT boxes rewrite payload there (docs/reference/bundling.md).
 * EINVAL	Neither 0 nor 1, or shorter than an int.
 * ENOMEM	No memory (net.core.optmem_max) or no free slot for the socket.
 */
#define PILLION_BUNDLE PILLION_OPTION(1)

/*
 * int: maximum number of previous segments in a bundle; 0: as many as the
 * rules allow. The rules' own limit applies as well. Set at any time, before or
 * after PILLION_BUNDLE. Get: the effective limit while the connection is
 * bundled (0: none), otherwise the limit set.
 *
 * EINVAL	Negative, or shorter than an int.
 * ENOMEM	No memory or no free slot, as for PILLION_BUNDLE.
 */
#define PILLION_MAX_PACKETS PILLION_OPTION(2)

/*
 * int: maximum payload of a segment with its bundle, in bytes; otherwise like
 * PILLION_MAX_PACKETS.
 */
#define PILLION_MAX_BYTES PILLION_OPTION(3)

/*
 * int: a set of the bits below; each makes bundling more cautious than the
 * rules. 0: as the rules configure it. Get: the effective bits while the
 * connection is bundled, the rules' own included, otherwise the bits set.
 *
 * EINVAL	Another bit, or shorter than an int.
 * ENOMEM	No memory or no free slot, as for PILLION_BUNDLE.
 */
#define PILLION_MODE	      PILLION_OPTION(4)
#define PILLION_ADAPTIVE      1 /* as many segments as losses demand, no more */
#define PILLION_WAIT_FOR_LOSS 2 /* not before the first retransmission */
#define PILLION_REACT_CWR     4 /* each hidden loss reduces the window */

/*
 * struct pillion_stats; getsockopt() only. Writes as much as fits into the
 * buffer, a multiple of 8 bytes, and returns that length, as TCP_INFO does.
 * Later versions may append fields, and change none. Bytes after the returned
 * length are undefined. Never fails while a connection exists, bundled or not.
 *
 * EINVAL	Buffer smaller than 8 bytes.
 * ENOTCONN	There is no connection (yet).
 * ENOPROTOOPT	With setsockopt().
 */
#define PILLION_STATS PILLION_OPTION(5)

/* State of a connection. */
enum pillion_state {
	PILLION_OFF = 0, /* not bundled: switched off, or never switched on */
	PILLION_BY_RULE = 1, /* bundled by the rules */
	PILLION_BY_APPLICATION = 2, /* bundled: switched on, and allowed */
	PILLION_REFUSED = 3 /* not bundled: the rules refuse it */
};

/* Outcome of the last segment with data, see docs/reference/bundling.md. */
enum pillion_last {
	PILLION_LAST_NONE = 0, /* there was none yet */
	PILLION_LAST_BUNDLED = 1,
	PILLION_LAST_NOTHING_OUTSTANDING = 2,
	PILLION_LAST_FULL_SIZE = 3,
	PILLION_LAST_NO_ROOM = 4,
	PILLION_LAST_RETRANSMISSION = 5,
	PILLION_LAST_NOT_THIN = 6,
	PILLION_LAST_NO_RTT = 7,
	PILLION_LAST_NO_LOSS = 8,
	PILLION_LAST_NO_SACK = 9,
	PILLION_LAST_GSO = 10,
	PILLION_LAST_FLAGS = 11,
	PILLION_LAST_TCP_OPTION = 12,
	PILLION_LAST_UNPARSED_IP = 13,
	PILLION_LAST_NO_HISTORY = 14,
	PILLION_LAST_OVERLAP = 15,
	PILLION_LAST_BUSY = 16,
	PILLION_LAST_UNREADABLE = 17,
	PILLION_LAST_NO_MEMORY = 18,
	PILLION_LAST_DROPPED = 19,
	PILLION_LAST_RETRANSMISSION_BUNDLED = 20,
	PILLION_LAST_UNATTACHED_DEVICE = 21,
	PILLION_LAST_STALE = 22,
	PILLION_LAST_LOSS_DETECTION_UNAVAILABLE = 23,
	PILLION_LAST_EXCEEDS_PATH_SIZE = 24,
	PILLION_LAST_SUPPRESSED = 25,
	PILLION_LAST_NO_DSACK = 26,
	PILLION_LAST_GOVERNED = 27,
	PILLION_LAST_ACKS_THINNED = 28,
	PILLION_LAST_PACING_LIMIT = 29,
	PILLION_LAST_OVER_FAIR_SHARE = 30,
	PILLION_LAST_HELPER_PORT = 31,
	PILLION_LAST_NO_BUNDLES = 32,
	PILLION_LAST_CAPPED = 33
};

/* Counts of this connection since pillion added it. */
struct pillion_stats {
	unsigned long long segments; /* with data sent for the first time */
	unsigned long long bundled; /* that carried a bundle */
	unsigned long long new_bytes; /* payload sent for the first time */
	unsigned long long redundant_bytes; /* bundled payload */
	unsigned long long hidden_losses; /* segments lost, and repaired */
	unsigned long long repaired_bytes; /* their payload */
	unsigned long long reactions; /* window reductions for them */
	unsigned long long time_saved_us; /* lower bound, in microseconds */
	unsigned int state; /* enum pillion_state */
	unsigned int last; /* enum pillion_last */
	unsigned int
		rule; /* number of the rule that decided, from 1; 0: none */
	unsigned int in_flight; /* packets, at this moment */
	unsigned int level; /* adaptive: segments that losses demand */
	unsigned int max_packets; /* effective limit; 0: none */
	unsigned int max_bytes; /* effective limit; 0: none */
	unsigned int mode; /* effective bits of PILLION_MODE */
};

#endif /* PILLION_H */
