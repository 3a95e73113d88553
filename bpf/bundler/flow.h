/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What is remembered of a connection, and the contract with user space, which
 * reads what it needs of it by these definitions (through BTF).
 */
#ifndef PILLION_FLOW_H
#define PILLION_FLOW_H

/*
 * Payload kept of each connection. The byte with sequence number s lies at
 * s modulo HISTORY_BYTES, so this is a power of two; it also bounds the payload
 * of a segment with a bundle.
 */
#define HISTORY_BYTES  2048
#define RECORD	       128 /* segments recorded, and one; a power of two */
#define RUN_LENGTHS    8 /* the last stands for all that are longer */
#define LOSS_INTERVALS 8 /* remembered (RFC 5348, section 5.4) */

/* When is a stream thin? (LCN 2015, section III.B.2) */
enum thin_test {
	THIN_DPIFL, /* in_flight * itt_min_us < RTT */
	THIN_SPIFL, /* in_flight <= spifl */
	THIN_ALWAYS,
};

/* Of the RTTs that the kernel keeps, the one that DPIFL takes. */
enum thin_rtt {
	THIN_RTT_MIN,
	THIN_RTT_SMOOTHED,
};

/* Stands for the RTT of a connection without a sample. */
enum rtt_sample {
	NO_RTT_SAMPLE = ~0U,
};

/* How many previous segments ride along. */
enum level {
	LEVEL_FIXED, /* max_packets */
	LEVEL_ADAPTIVE, /* as many as the runs of losses seen demand */
};

/* What follows from losses that bundles hid. */
enum reaction {
	REACT_CWR, /* the kernel reduces the window, once a window of data */
	REACT_NONE, /* nothing; for experiments */
	REACT_TFRC_SP, /* as CWR, if more is sent than TFRC-SP allows */
};

/*
 * How an ACK shows that a bundle hid a loss (LCN 2015, section III.B.1). The
 * first ACKs of bundles show whether a receiver reports duplicates (RFC 2883).
 * To one that does not nothing is bundled, unless the published rule is asked
 * for.
 */
enum loss_rule {
	LOSS_RULE_LEARNING,
	LOSS_RULE_DSACK, /* redundant bytes that were no duplicates were lost */
	LOSS_RULE_ACK, /* an ACK of several segments means loss */
	LOSS_RULE_NONE, /* no ACK shows it: the receiver makes no reports */
};

/* How a connection is bundled; set when it is taken in. */
struct options {
	enum thin_test thin_test;
	__u32 itt_min_us;
	__u32 spifl;
	enum thin_rtt thin_rtt;
	enum level level;
	__u32 target_ppm; /* adaptive: segments left unrepaired, of a million */
	__u32 max_packets; /* previous segments in a bundle; 0: no limit */
	__u32 max_bytes; /* payload of a segment with its bundle; 0: no limit */
	enum reaction reaction;
	enum loss_rule loss_rule; /* the rule to begin with */
	/* In a byte each: a rule stands on the stack with them (policy.h). */
	__u8 wait_for_loss; /* bundle only after the connection's first loss */
	__u8 without_sack; /* bundle even if the peer does not offer SACK */
	__u8 retransmissions; /* bundle into them as well (retransmission.h) */
	__u8 published; /* no size limits, reordering window or governor */
};

/* Mechanisms of TCP's own that a rule may switch on (companions.h). */
enum companion {
	LINEAR_TIMEOUTS,
	NODELAY,
	RTO_MIN,
	DELACK_MAX,
	USER_TIMEOUT,
	CONGESTION,

	COMPANIONS
};

#define CONGESTION_NAME 16 /* bytes, with the zero at the end */

/* The companions of a rule; of a connection, those that the kernel took. */
struct companions {
	__u32 set; /* a bit for each enum companion */
	__u32 rto_min_us;
	__u32 delack_max_us;
	__u32 user_timeout_ms;
	char congestion[CONGESTION_NAME];
};

/*
 * What became of a segment that carries data. Every one of a connection that is
 * ours gets exactly one of these, in the end.
 */
enum outcome {
	BUNDLED,

	/* There was nothing to do. */
	NOTHING_OUTSTANDING, /* all sent before is acknowledged */
	FULL_SIZE, /* the new data alone reaches the limit */
	NO_ROOM, /* the previous segment does not fit beside the new data */
	OLD_DATA, /* a retransmission, or a probe of old data */

	/* The rules forbid it. */
	NOT_THIN,
	NO_RTT, /* no RTT sample yet: not known to be thin */
	NO_LOSS, /* none yet, and bundling waits for the first */
	NO_SACK, /* the peer offers none, so that losses could not be told */

	/* It is not a plain segment. */
	GSO, /* several segments in one packet */
	FLAGS, /* SYN, RST or URG */
	TCP_OPTION, /* an option other than timestamps and SACK */
	NOT_PLAIN_IP, /* fragment, extension header, unknown link header */

	/* The record of what was sent before does not suffice. */
	NO_HISTORY, /* it was sent elsewhere, or in a form that is not kept */
	OVERLAP, /* old and new data in one segment: bundled already */
	BUSY, /* another processor is sending for this connection */

	/* The kernel refused. */
	UNREADABLE, /* the payload could not be read */
	NO_MEMORY, /* the packet could not be grown; it was sent as it was */
	DROPPED, /* it failed half-way and was dropped: TCP retransmits it */

	/* Where retransmissions are bundled as well. */
	RETRANSMISSION_BUNDLED, /* segments that follow it ride along */

	/* It did not come to a device from TCP's own hands. */
	ELSEWHERE, /* it left by no device with pillion, or was dropped before
		    */
	WAITED, /* on its way there; TCP went on meanwhile */

	/* Bundling would not be safe now. */
	UNWATCHED, /* losses, hidden or TCP's, could not be told */
	PATH_SIZE, /* this size is not proved, or such bundles were lost */

	/* Bundles are held back on purpose. */
	HELD_BACK, /* the connection is of the plain arm (observation.h) */

	/* The receiver's ACKs do not show the losses that bundles hide. */
	NO_DSACK, /* it reports no duplicates */

	GOVERNED, /* not in the share that the governor allows (governor.h) */

	ACKS_THINNED, /* too few ACKs arrive to show losses (density.h) */

	/* The stream sends as much as it may. */
	PACED, /* SO_MAX_PACING_RATE is reached */
	OVER_SHARE, /* more than TFRC-SP allows, where CWR is ignored */

	HELPER_PORT, /* this host's NAT gives it a port of helper_port.h */

	OUTCOMES,
	ELIGIBLE =
		OUTCOMES, /* none yet: nothing speaks against bundling so far */
};

/* Of one connection: its segments are counted in 32 bits, for want of room. */
struct counters {
	__u32 outcomes[OUTCOMES]; /* segments with data, by enum outcome */
	__u64 new_bytes; /* payload sent for the first time */
	__u64 redundant_bytes; /* payload that rode along */
	__u64 hidden_losses; /* segments lost, and repaired by a bundle */
	__u64 repaired_bytes; /* their payload */
	__u64 repaired_along; /* lost, and repaired by another's retransmission
			       */
	__u64 saved_us; /* at least, to wait for retransmissions of them */
	__u64 reactions; /* window reductions for them */
	__u64 reactions_spared; /* TFRC-SP found no reason for them */
	__u64 reordered; /* deemed lost, but came late */
	__u64 dsacks_hidden; /* DSACKs of bundles taken out of ACKs */
	__u64 acks_dropped; /* that failed half-way */
	__u64 acks_unread; /* options not understood, or met by another one */
};

/* The last time that TFRC-SP was asked about a reaction. */
struct decision {
	__u64 at; /* microseconds; 0: never */
	__u32 rate_allowed; /* bytes/s of payload: headers are taken from it */
	__u32 rate_sent; /* payload, redundant bytes included */
};

/* Packets with data, retransmissions included, and their bytes. */
struct sent {
	__u32 packets;
	__u32 payload;
	__u32 wire; /* payload, TCP and IP headers */
};

/* What was sent lately, for TFRC-SP; written by the sending side. */
struct sending {
	__u64 since; /* when the current window began, microseconds */
	__u32 packets; /* ever sent */
	struct sent current;
	struct sent before; /* in the window before */
};

/* Loss events, for TFRC-SP; written under the socket's lock. */
struct loss_events {
	__u64 start; /* of the last event, microseconds */
	__u32 packets; /* ever sent by then */
	__u32 losses; /* that belong to it */
	__u32 known; /* losses of all events */
	__u32 closed; /* how many of the following are known */
	__u32 intervals[LOSS_INTERVALS]; /* newest first, 1/256 packets */
};

/* On which side of a comparison is a connection? */
enum arm {
	ARM_NONE, /* nothing is compared, or it is not drawn yet */
	ARM_BUNDLED,
	ARM_PLAIN, /* all is done as for a bundled one, except bundling */
	ARM_UNOBSERVED, /* there was no place to observe it: as a plain one */
};

/* Who wants a connection to be bundled. */
enum wanted_by {
	WANTED_BY_RULE,
	WANTED_BY_APPLICATION,
};

/* Does the peer offer SACK? */
enum sack {
	SACK_MISSING,
	SACK_OFFERED,
	SACK_UNKNOWN, /* until the next packet leaves */
};

/*
 * A segment that TCP sent. It ends where the next one in the record begins.
 */
struct sent_segment {
	__u32 seq;
	__u16 sent; /* when its packet left (record.h); wraps */
	__u16 how; /* redundant bytes before it, and flags (record.h) */
};

/*
 * What TCP sent last, oldest first and without a gap: slot next - 1 has the
 * newest segment, and slot next begins where that one ends. Before there are so
 * many, the others have no length.
 */
struct record {
	__u32 next; /* counts on; a slot is this modulo RECORD */
	struct sent_segment segments[RECORD];
};

/* A segment on its way from TCP to a device (transmission.h). */
enum announced {
	NOTHING,
	NEW_DATA,
	RETRANSMISSION,
};

/* How large may a packet be to come through (path.h)? Sizes are of payload. */
struct path_size {
	__u32 probe_end; /* where the segment ends that tries it */
	__u32 suspect; /* the smallest that was lost, of late; 0: none */
	__u32 rounds; /* in which some were, one after the other */
	__u32 round_end; /* of the last one, a sequence number */
	__u32 epoch; /* what came through before it counts no more */
	__u32 limit; /* 0: none */
	__u32 pause_s; /* how long it holds */
	__u64 until_us; /* when it ends */
};

/* What TCP has retransmitted, until all of it is acknowledged. */
struct retrans {
	__u32 start; /* snd_una as the first packet left */
	__u32 end;
	__u32 next; /* snd_nxt as the first packet left */
	__u32 time; /* its timestamp; 0: none */
	__u32 newest_time; /* that of the newest segment by then */
};

/* What a governor's verdict is about (governor.h). */
enum verdict {
	VERDICT_UNKNOWN, /* no decision was met yet */
	VERDICT_NONE, /* no verdict yet */
	VERDICT_OURS, /* queue or losses went away without redundancy */
	VERDICT_NOT_OURS, /* they stayed, or came again, without it */
	VERDICT_STALE, /* user space has not decided in time */
};

/* What made a governor look. */
enum alarm {
	ALARM_NONE,
	ALARM_QUEUE, /* longer than it was without redundancy */
	ALARM_LOSS, /* more than it was without redundancy */
};

/* Eligible segments that carry redundancy, of FULL_SHARE. */
enum governor_share {
	FULL_SHARE = 256,
	LOW_SHARE = FULL_SHARE / 8, /* at most, if user space does not decide */
};

/* The governor's decision about the connections to one network. */
struct allowance {
	enum governor_share share;
	enum verdict verdict; /* the last one */
	enum alarm alarm; /* the last one */
};

/* The decision that a connection met last. */
struct governed {
	struct allowance allowance;
	__u32 credit; /* of FULL_SHARE for a segment with redundancy */
};

/* Measurements for the governor, in the current window. */
struct load_window {
	__u32 start_us;
	__u32 rtt_us; /* the least; 0: none */
	__u32 sampled; /* when the segment left of the last sample */
	__u32 packets; /* at its start, so are the next */
	__u32 losses;
	__u32 redundant;
};

/*
 * The hand-over from the program at the cgroup, which sees TCP's state, to the
 * one at the device, which sees the packet: what TCP has just sent. Its kind is
 * NOTHING again once the program at the device has used it.
 */
struct announcement {
	enum announced kind;
	__u32 seq;
	__u32 end; /* the first byte behind the segment */
	__u32 kept; /* bytes right before seq that history[] has */
	__u32 room; /* maximum payload, by the socket's memory (truesize.h) */
	__u16 varying; /* bytes of TCP options that not every segment has */
	/* Of new data alone: */
	__u8 in_doubt; /* TCP doubts its time-out (reaction.h) */
	__u8 excess; /* PACED, OVER_SHARE, or 0 */
};

/*
 * The newest loss of each kind. The upper 32 bits count, so that the same end
 * is a new loss; the lower ones are the sequence number where it ends. One
 * word, so that no reader sees a mixture (next_call()). The program on the way
 * out reads it with the next packet (reaction.h).
 */
struct loss_notice {
	__u64 hidden; /* a bundle repaired it; TCP does not know */
	__u64 known; /* TCP retransmitted some of it */
};

/*
 * Written by what stands on the way out alone: with the socket locked, as long
 * as its packets do not wait on their way, and by one processor at a time
 * (try_enter() in lock.h).
 */
struct egress {
	struct sending sending;
	struct loss_events loss_events;
	struct decision decision;
	struct path_size path;
	struct record record;
	__u64 translated; /* the socket's cookie, if it is (translation.h) */
	__u32 busy;
	enum outcome last; /* of the last segment */
	__u32 kept; /* payload before the record's end that history[] has */
	__u32 longest; /* segments that rode along with one, at most so far */
	__u32 retransmissions; /* tp->total_retrans, when last looked at */
	__u32 retransmitted; /* packets with old data that left */
	__u32 rtt_min_us; /* the connection's own minimum, or NO_RTT_SAMPLE */
	__u32 overhead; /* memory that a segment takes beside its payload */

	struct announcement announced;

	/* Up to where a window reduction answers for losses (reaction.h). */
	__u32 reduced_at; /* as it stands */
	__u32 firm_at; /* even if TCP takes back the last one of its own */
	__u32 undone_at; /* one did, until TCP took it back */
	__u32 undo_marker; /* tells TCP's own from the next; 0: it is firm */
	__u32 prior_cwnd; /* TCP's, of its last one */
	__u32 trusted_end; /* of losses left to TCP's own */
	struct loss_notice answered; /* the part of ingress.found */
	__u16 asked; /* for one, with the last packet */
	__u16 unread; /* a packet has left that shows no sequence number */
	__u32 asked_high_seq; /* TCP's, as that left */
	__u32 asked_after; /* reduced_at before */
	__u32 asked_trusted; /* trusted_end before */

	/* What TCP retransmitted while some of that was not acknowledged. */
	struct retrans retrans;
	__u32 newest_time; /* that of the new data announced last */

	/* What rode along with a retransmission last. */
	__u32 along_count; /* 0: nothing ever did */
	__u32 along_seq; /* where the retransmitted segment begins */
	__u32 along_start; /* where it ends */
	__u32 along_end;

	struct governed governed;
};

/* Losses that bundles hid. */
struct hidden {
	__u32 segments;
	__u32 bytes : 31;
	__u32 retransmitted : 1; /* others beside, which TCP has */
	__u32 saved_us;
};

/*
 * Segments deemed lost since somebody answered for such last (reordering.h).
 * Those that come late after all are none any more.
 */
struct pending {
	__u64 bits[RECORD / 64]; /* a bit for each slot of theirs */
	__u32 since; /* when the first was deemed so, microseconds */
	__u32 segments;
	__u32 saved_us; /* counted for all of them */
};

/* Segments lost one after the other, the last such run (level.h). */
struct run {
	__u32 start;
	__u32 end;
	__u32 segments;
	__u32 noted; /* it has ended, and is counted */
};

/*
 * Segments that were acknowledged selectively (sacked.h): a bit for each slot
 * of the record, from the oldest on that is not acknowledged.
 */
struct sacked {
	__u32 from; /* its slot, as record.next counts */
	__u32 answered; /* the last ACK's first block tells something new */
	__u32 block_start; /* of the last ACK's first block */
	__u32 block_end;
	__u64 bits[RECORD / 64];
};

/*
 * Written by what stands on the way in alone, by one processor at a time. ACKs
 * come here before TCP has looked at them, and while it sends.
 */
struct ingress {
	__u32 busy;
	__u32 acked; /* the highest acknowledgement that came */
	__u32 peer_end; /* up to where the peer's data came, if with gaps */
	__u32 unread; /* the last ACK could not be read */

	struct loss_notice found;
	struct pending pending;
	__u32 late_us; /* after which lost ones came after all, fading */
	__u32 lost_by; /* the acknowledgement that told of the last one */
	enum loss_rule rule;
	enum loss_rule
		asked_rule; /* that of the options, when last looked at */
	__u16 silent; /* points for ACKs without a report, while learning */
	__u8 reports_a_byte; /* duplicates of no more, too */
	__u8 peer_known; /* peer_end is */
	struct hidden doubts; /* found so far, if it reports duplicates */
	__u32 doubts_end; /* where the last of them ends */

	struct sacked sacked;

	__u32 along_judged; /* of egress.along_count */

	__u32 epoch; /* of egress.path */
	__u32 largest; /* packet that ever arrived, payload */
	__u32 through; /* the largest since the epoch, of those with bundles */
	__u32 bundle_end; /* of the newest bundle that has arrived */
	__u32 bundle_size; /* payload of its packet */

	__u64 ends_passed; /* small segments, by a bit (density.h) */
	__u32 level; /* previous segments that ride along */
	__u32 run_segments; /* segments sent, fading */
	__u16 runs[RUN_LENGTHS]; /* runs of lost ones, by length, fading */
	struct run run;

	struct load_window load;
};

struct flow {
	/*
	 * It comes first, for the verifier checks offset and length apart, and
	 * so wants room for a whole piece behind the last offset (history.h).
	 */
	__u8 history[HISTORY_BYTES];

	struct counters counters;
	struct egress egress;
	struct ingress ingress;

	/* What the rules and the application have it be (policy.h). */
	struct options options;
	struct companions companions;
	__u32 companions_refused; /* as companions.set, when last tried */
	__u32 opening; /* an enum opening */
	__u32 rule; /* that decided; 0: none matches */
	enum wanted_by wanted_by;
	__u16 off; /* the application declined: no more bundles */
	__u16 note; /* of its SYN: an enum note */
	__u32 handshake_retransmissions; /* as far as known */
	enum sack sack;
	__u32 uid; /* whose place it takes (quota.h) */
	enum arm arm;
};

/* With the kernel's 72 bytes before it (Linux 6.18) it fits into 4 KiB. */
_Static_assert(sizeof(struct flow) <= 4096 - 72, "a page for each connection");

#endif /* PILLION_FLOW_H */
