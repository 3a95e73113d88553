/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * pillion's socket options: a program switches bundling on or off for its own
 * TCP socket, and reads what became of it.
 *
 *	int on = 1;
 *	setsockopt(fd, IPPROTO_TCP, PILLION_BUNDLE, &on, sizeof(on));
 *
 * They are answered for the sockets that a running pillion stands over, by eBPF
 * programs at their cgroup, and need no privilege. Without it the kernel
 * answers ENOPROTOOPT, as for every option that it does not know, and the
 * socket works as ever: a program may ignore that. The guide is
 * docs/socket-option.md.
 *
 * This header needs no other; IPPROTO_TCP is in <netinet/in.h>.
 */
#ifndef PILLION_H
#define PILLION_H

/*
 * Option numbers, at level IPPROTO_TCP. "pil" in ASCII and a number: far from
 * Linux's own, which count up from 1 and have not reached 50, and from its
 * TCP_BPF_ ones, from 1001 on; and easy to find in the output of strace.
 */
#define PILLION_OPTION(n) (0x70696c00 + (n))

/*
 * int. Set: 1 asks for bundling, 0 declines it. Get: 1 if the connection is
 * bundled; before there is one, if it was asked for.
 *
 * It may be set at any time. Before connect() and on a listening socket it is a
 * request, which is kept as long as the socket, is inherited by the sockets
 * that accept() returns from then on, and is fulfilled at establishment, as far
 * as the administrator's rules allow. On a connection it acts at once.
 *
 * EPERM	1: the administrator's rules refuse this connection, or all;
 *	or its peer opened it with MPTCP; or no rule names its port, and
 *	NAT boxes rewrite payload there (docs/bundling.md).
 * EINVAL	Neither 0 nor 1, or shorter than an int.
 * ENOMEM	No memory (net.core.optmem_max) or place is left for the socket.
 */
#define PILLION_BUNDLE PILLION_OPTION(1)

/*
 * int: previous segments that ride along at most; 0: as many as the rules
 * allow. The rules' own limit holds as well. Set before or after
 * PILLION_BUNDLE, at any time. Get: the limit in force while the connection is
 * bundled (0: none), else the one set.
 *
 * EINVAL	Negative, or shorter than an int.
 * ENOMEM	As above.
 */
#define PILLION_MAX_PACKETS PILLION_OPTION(2)

/*
 * int: payload of a segment with its bundle at most, in bytes; else as above.
 */
#define PILLION_MAX_BYTES PILLION_OPTION(3)

/*
 * int: a set of the bits below, each of which makes bundling more cautious than
 * the rules do; 0: as they have it. Get: those in force while the connection is
 * bundled, the rules' own included, else those set.
 *
 * EINVAL	Another bit, or shorter than an int.
 * ENOMEM	As above.
 */
#define PILLION_MODE	      PILLION_OPTION(4)
#define PILLION_ADAPTIVE      1 /* as many segments as losses demand, no more */
#define PILLION_WAIT_FOR_LOSS 2 /* not before the first retransmission */
#define PILLION_REACT_CWR     4 /* each hidden loss reduces the window */

/*
 * struct pillion_stats; getsockopt() only. It writes as much of it as fits into
 * the buffer, a multiple of 8 bytes, and says so in the length, as TCP_INFO
 * does. A later pillion may add fields at the end and changes none: what lies
 * behind the length returned is not known. Never fails while there is a
 * connection, bundled or not.
 *
 * EINVAL	A buffer of less than 8 bytes.
 * ENOTCONN	There is no connection (yet).
 * ENOPROTOOPT	With setsockopt().
 */
#define PILLION_STATS PILLION_OPTION(5)

/* How a connection stands. */
enum pillion_standing {
	PILLION_OFF = 0, /* not bundled: switched off, or never switched on */
	PILLION_BY_RULE = 1, /* bundled: the rules have it so */
	PILLION_BY_APPLICATION = 2, /* bundled: switched on, and allowed */
	PILLION_REFUSED = 3 /* not bundled: the rules refuse it */
};

/* What became of the last segment with data; docs/bundling.md explains each. */
enum pillion_last {
	PILLION_LAST_NONE = 0, /* there was none yet */
	PILLION_LAST_BUNDLED = 1,
	PILLION_LAST_NOTHING_OUTSTANDING = 2,
	PILLION_LAST_FULL_SIZE = 3,
	PILLION_LAST_NO_ROOM = 4,
	PILLION_LAST_OLD_DATA = 5,
	PILLION_LAST_NOT_THIN = 6,
	PILLION_LAST_NO_RTT = 7,
	PILLION_LAST_NO_LOSS = 8,
	PILLION_LAST_NO_SACK = 9,
	PILLION_LAST_GSO = 10,
	PILLION_LAST_FLAGS = 11,
	PILLION_LAST_TCP_OPTION = 12,
	PILLION_LAST_NOT_PLAIN_IP = 13,
	PILLION_LAST_NO_HISTORY = 14,
	PILLION_LAST_OVERLAP = 15,
	PILLION_LAST_BUSY = 16,
	PILLION_LAST_UNREADABLE = 17,
	PILLION_LAST_NO_MEMORY = 18,
	PILLION_LAST_DROPPED = 19,
	PILLION_LAST_RETRANSMISSION_BUNDLED = 20,
	PILLION_LAST_ELSEWHERE = 21,
	PILLION_LAST_WAITED = 22,
	PILLION_LAST_UNWATCHED = 23,
	PILLION_LAST_PATH_SIZE = 24,
	PILLION_LAST_HELD_BACK = 25,
	PILLION_LAST_NO_DSACK = 26,
	PILLION_LAST_GOVERNED = 27,
	PILLION_LAST_ACKS_THINNED = 28,
	PILLION_LAST_PACED = 29,
	PILLION_LAST_OVER_SHARE = 30,
	PILLION_LAST_HELPER_PORT = 31
};

/* Counts are those of this connection since pillion bundles it. */
struct pillion_stats {
	unsigned long long segments; /* with data sent for the first time */
	unsigned long long bundled; /* that carried a bundle */
	unsigned long long new_bytes; /* payload sent for the first time */
	unsigned long long redundant_bytes; /* that rode along */
	unsigned long long hidden_losses; /* segments lost, and repaired */
	unsigned long long repaired_bytes; /* their payload */
	unsigned long long reactions; /* window reductions for them */
	unsigned long long saved_us; /* at least (docs/bundling.md) */
	unsigned int standing; /* enum pillion_standing */
	unsigned int last; /* enum pillion_last */
	unsigned int rule; /* that decided, the first is 1; 0: none */
	unsigned int in_flight; /* packets, at this moment */
	unsigned int level; /* adaptive: segments that losses demand */
	unsigned int max_packets; /* these three as granted; 0: no limit */
	unsigned int max_bytes;
	unsigned int mode; /* a set, as PILLION_MODE */
};

#endif /* PILLION_H */
