/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The state of a connection, and the contract with user space, which reads the
 * types from here (BTF).
 */
#ifndef PILLION_FLOW_H
#define PILLION_FLOW_H

/*
 * Payload bytes stored for each connection. The byte with sequence number s is
 * at s modulo HISTORY_BYTES, so this is a power of two. It also limits the
 * payload of a segment with its bundle.
 */
#define HISTORY_BYTES  2048
#define RECORD_SLOTS   128 /* one more than recorded segments; a power of two */
#define RUN_LENGTHS    8 /* the last one counts all longer runs */
#define LOSS_INTERVALS 8 /* remembered (RFC 5348, section 5.4) */

/* When is a stream thin? (LCN 2015, section III.B.2) */
enum thin_test {
	/*
	 * dynamic packets-in-flight limit: in_flight * itt_min_us < RTT, with
	 * the minimum inter-transmission time
	 */
	THIN_DPIFL,
	/* static packets-in-flight limit: in_flight <= spifl */
	THIN_SPIFL,
	THIN_ALWAYS,
};

/* The kernel's RTT that DPIFL uses. */
enum thin_rtt {
	THIN_RTT_MIN,
	THIN_RTT_SMOOTHED,
};

/* The RTT value of a connection without a sample. */
enum rtt_sample {
	NO_RTT_SAMPLE = ~0U,
};

/* Number of previous segments in a bundle. */
enum level {
	LEVEL_FIXED, /* max_packets */
	LEVEL_ADAPTIVE, /* as many as the runs of losses seen demand */
	LEVEL_NONE, /* none; for copies without bundles */
	LEVEL_AUTO, /* as adaptive, and copies where bundles do not suffice */
};

/* Segments that are copied (copies.h). */
enum copies_when {
	COPY_ALL,
	COPY_ISOLATED, /* nothing outstanding, or the next is an RTT away */
};

#define ITT_UNIT_BITS 6 /* egress.itt: 64 us, for 4.19 s */

/* Segments that level `auto` copies at present (auto.h). */
enum auto_copies {
	AUTO_COPIES_NONE,
	AUTO_COPIES_ISOLATED,
	AUTO_COPIES_ALL,
};

enum max_copies {
	MAX_COPIES = 2, /* of one segment */
};

/* Reaction to losses that bundles hid. */
enum reaction {
	REACT_CWR, /* the kernel reduces the window, once a window of data */
	REACT_NONE, /* nothing; for experiments */
	REACT_TFRC_SP, /* as CWR, if more is sent than TFRC-SP allows */
};

/*
 * How an ACK shows that a bundle hid a loss (LCN 2015, section III.B.1). The
 * first ACKs of bundles show whether the receiver reports duplicates (RFC
 * 2883). If it does not, nothing is bundled, unless the published rule is
 * configured.
 */
enum loss_rule {
	LOSS_RULE_LEARNING,
	LOSS_RULE_DSACK, /* redundant bytes that were no duplicates were lost */
	LOSS_RULE_ACK, /* an ACK of several segments means loss */
	LOSS_RULE_NONE, /* no ACK shows it: the receiver sends no reports */
};

enum holdback {
	HOLDBACK_BITS = 12,
	HOLDBACK_ALL = 1 << HOLDBACK_BITS, /* buckets of connections */
};

/* How a connection is bundled; set when it is added. */
struct options {
	enum thin_test thin_test;
	__u32 itt_min_us;
	__u16 spifl; /* packets in flight */
	__u8 copy_delay_ms; /* after the segment; 0: none (copies.h) */
	enum thin_rtt thin_rtt;
	__u32 target_ppm; /* adaptive, auto: late segments, of a million */
	__u32 max_packets; /* previous segments in a bundle; 0: no limit */
	__u32 max_bytes; /* payload of a segment with its bundle; 0: no limit */
	enum reaction reaction;
	enum loss_rule loss_rule; /* the initial rule */
	/*
	 * One byte each: a rule and these are on the stack together (policy.h).
	 */
	__u8 wait_for_loss; /* bundle only after the connection's first loss */
	__u8 without_sack; /* bundle even if the peer does not offer SACK */
	__u8 retransmissions; /* bundle into them as well (retransmission.h) */
	__u8 published; /* no size limits, reordering window or governor */
	__u8 copies; /* of each segment, 0 to MAX_COPIES (copies.h) */
	__u8 copies_when; /* an enum copies_when */
	__u8 level; /* an enum level */
	__u8 max_overhead; /* auto: bytes over plain bytes, 1/8; 0: no limit */
	__u16 deadline_ms; /* auto: extra delay of a late segment; 0: an ITT */
	__u16 holdback; /* plain buckets, of HOLDBACK_ALL (assignment.h) */
	/* For Rust, by BTF. */
	enum level level_type[0];
	enum copies_when copies_when_type[0];
	enum max_copies max_copies[0];
	enum holdback holdback_type[0];
};

/* Mechanisms of TCP's own that a rule may switch on (tcp_options.h). */
enum tcp_option {
	LINEAR_TIMEOUTS,
	NODELAY,
	RTO_MIN,
	DELACK_MAX,
	USER_TIMEOUT,
	CONGESTION,

	TCP_OPTION_COUNT
};

#define CONGESTION_NAME 16 /* bytes, with the zero at the end */

/* The TCP options of a rule; in a connection, the accepted ones. */
struct tcp_options {
	__u32 set; /* a bit for each enum tcp_option */
	__u32 rto_min_us;
	__u32 delack_max_us;
	__u32 user_timeout_ms;
	char congestion[CONGESTION_NAME];
};

/*
 * The outcome of a segment with data. Each segment of a connection in
 * pillion_flows gets exactly one.
 */
enum outcome {
	BUNDLED,

	/* There was nothing to do. */
	NOTHING_OUTSTANDING, /* all sent before is acknowledged */
	FULL_SIZE, /* the new data by itself reaches the limit */
	NO_ROOM, /* the previous segment and the new data exceed the limit */
	RETRANSMISSION, /* a retransmission, or a probe of old data */

	/* The rules forbid it. */
	NOT_THIN,
	NO_RTT, /* no RTT sample yet: thinness is unknown */
	NO_LOSS, /* none yet, and bundling waits for the first */
	NO_SACK, /* the peer does not offer it, so losses cannot be detected */

	/* It is not a plain segment. */
	GSO, /* several segments in one packet */
	FLAGS, /* SYN, RST or URG */
	TCP_OPTION, /* an option other than timestamps and SACK */
	UNPARSED_IP, /* fragment, extension header, unknown link header */

	/* The record of sent data is incomplete. */
	NO_HISTORY, /* left by another path, or in a form that is not stored */
	OVERLAP, /* old and new data in one segment: bundled already */
	BUSY, /* another processor is sending for this connection */

	/* The kernel refused. */
	UNREADABLE, /* the payload could not be read */
	NO_MEMORY, /* the packet could not grow; it was sent unchanged */
	DROPPED, /* it failed half-way and was dropped: TCP retransmits it */

	/* Where retransmissions are bundled as well. */
	RETRANSMISSION_BUNDLED, /* the segments after it are bundled */

	/* The segment did not reach a device directly from TCP. */
	UNATTACHED_DEVICE, /* it left by no device with pillion, or was dropped
			    * before
			    */
	STALE, /* on its way there; TCP went on meanwhile */

	/* Bundling would not be safe now. */
	/* hidden losses or TCP's cannot be detected */
	LOSS_DETECTION_UNAVAILABLE,
	EXCEEDS_PATH_SIZE, /* this size is not proved, or such bundles were lost
			    */

	/* Bundles are suppressed on purpose. */
	SUPPRESSED, /* the connection is of the plain arm (observation.h) */

	/* The receiver's ACKs do not show the losses that bundles hide. */
	NO_DSACK, /* it reports no duplicates */

	GOVERNED, /* not in the share that the governor allows (governor.h) */

	ACKS_THINNED, /* too few ACKs arrive to show losses (ack_thinning.h) */

	/* The stream sends as much as it may. */
	PACING_LIMIT, /* SO_MAX_PACING_RATE is reached */
	OVER_FAIR_SHARE, /* more than TFRC-SP allows, where CWR is ignored */

	HELPER_PORT, /* this host's NAT gives it a port of helper_port.h */

	NO_BUNDLES, /* the level is none: copies only */

	CAPPED, /* the caps of all connections are reached (caps.h) */

	OUTCOMES,
	/* Internal, never counted: no reason against bundling so far. */
	ELIGIBLE = OUTCOMES,
};

/* Counters of one connection. Outcomes have 32 bits to save space. */
struct counters {
	__u32 outcomes[OUTCOMES]; /* segments with data, by enum outcome */
	__u64 new_bytes; /* payload sent for the first time */
	__u64 redundant_bytes; /* bundled payload */
	__u64 hidden_losses; /* segments lost, and repaired by a bundle */
	__u64 repaired_bytes; /* their payload */
	__u64 piggyback_repaired_segments; /* lost, and repaired by another's
					    * retransmission
					    */
	/* time saved against retransmission (lower bound) */
	__u64 time_saved_us;
	__u64 reactions; /* window reductions for them */
	__u64 reactions_suppressed; /* TFRC-SP found no reason for them */
	__u64 reordered; /* counted as lost, but arrived later */
	__u64 dsacks_removed; /* DSACKs of bundles relabelled (dsack.h) */
	__u64 acks_dropped; /* half rewritten, as relabelling failed */
	/* invalid options, unparsed IP header, or another processor's lock */
	__u64 acks_unparsed;
	__u64 copies; /* packets sent again at once (copies.h) */
	/* packets lost of which another copy arrived: an estimate */
	__u64 copy_losses;
};

/* The last TFRC-SP decision about a reaction. */
struct tfrc_decision {
	__u64 at; /* microseconds; 0: never */
	__u32 tfrc_allowed_bytes_per_s; /* payload, after subtracting headers */
	__u32 tfrc_sent_bytes_per_s; /* payload, redundant bytes included */
};

/* Packets with data, retransmissions included, and their bytes. */
struct sent {
	__u32 packets;
	__u32 payload;
	__u32 wire; /* payload, TCP and IP headers */
};

/* What was sent recently, for TFRC-SP; written by the sending side. */
struct sending {
	__u64 start_us; /* start of the current window, microseconds */
	__u32 packets; /* ever sent */
	__u32 messages; /* small new segments ever sent, without copies */
	struct sent current;
	struct sent before; /* in the previous window */
};

/* Loss events, for TFRC-SP; written under the socket's lock. */
struct loss_events {
	__u64 start; /* of the last event, microseconds */
	__u32 packets; /* sending.packets at start */
	__u32 losses; /* that belong to it */
	__u32 total_losses; /* losses of all events */
	__u32 closed; /* number of valid intervals below */
	__u32 intervals[LOSS_INTERVALS]; /* newest first, 1/256 packets */
};

/* On which side of a comparison is a connection? */
enum arm {
	ARM_NONE, /* no comparison, or not assigned yet */
	ARM_BUNDLED,
	ARM_PLAIN, /* handled like a bundled one, but never bundled */
	ARM_UNOBSERVED, /* no slot to observe it: treated as plain */
};

/* Who requested bundling of a connection. */
enum requested_by {
	REQUESTED_BY_RULE,
	REQUESTED_BY_APPLICATION,
};

/* Does the peer offer SACK? */
enum sack {
	SACK_MISSING,
	SACK_OFFERED,
	SACK_UNKNOWN, /* until the next packet leaves */
};

/* A segment that TCP sent. It ends where the next one in the record starts. */
struct sent_segment {
	__u32 seq;
	__u16 sent; /* when its packet left (record.h); wraps */
	__u16 flags; /* redundant bytes before it, and flags (record.h) */
};

/*
 * The last segments that TCP sent, oldest first and without gaps. Slot next - 1
 * has the newest segment; slot next starts where that one ends. Unused slots
 * have length 0.
 */
struct record {
	__u32 next; /* the next slot to fill, before modulo RECORD_SLOTS */
	struct sent_segment segments[RECORD_SLOTS];
};

/* A segment on its way from TCP to a device (cgroup_egress.h). */
enum announcement_kind {
	ANNOUNCED_NOTHING,
	ANNOUNCED_NEW_DATA,
	ANNOUNCED_RETRANSMISSION,
};

/* The payload size that the path accepts (plpmtu.h). */
struct path_size {
	__u32 probe_end; /* end of the last probe's segment */
	/* payload of the smallest recent lost bundle's packet; 0: none */
	__u32 black_hole_size;
	__u32 probe_count; /* consecutive rounds with a lost bundle */
	__u32 round_end; /* snd_nxt when the last round started */
	__u32 epoch; /* deliveries of earlier epochs prove nothing */
	__u32 limit; /* bytes of payload; 0: none */
	__u32 pause_s; /* duration of limit; doubles each time */
	__u64 until_us; /* end of limit */
};

/* TCP's retransmissions, until all of them are acknowledged. */
struct retrans {
	__u32 snd_una_at_start; /* snd_una when the first retransmission left */
	__u32 end; /* end of the retransmitted data */
	__u32 snd_nxt_at_start; /* snd_nxt when the first retransmission left */
	__u32 first_tsval; /* TSval of the first retransmission; 0: none */
	__u32 newest_tsval; /* TSval of the last announced data before it */
};

/* The governor's verdict about redundancy on a network (governor.h). */
enum verdict {
	VERDICT_UNKNOWN, /* the connection has not read a decision yet */
	VERDICT_NONE, /* user space has not reached a verdict yet */
	/* redundancy caused them: queue or losses vanished without it */
	VERDICT_OURS,
	VERDICT_NOT_OURS, /* they remained, or returned, without redundancy */
	VERDICT_STALE, /* user space has not decided in time */
};

/* Cause of the governor's alarm. */
enum alarm {
	ALARM_NONE,
	ALARM_QUEUE, /* longer than it was without redundancy */
	ALARM_LOSS, /* more than it was without redundancy */
};

/* Shares of eligible segments that carry redundancy. */
enum governor_share {
	FULL_SHARE = 256,
	LOW_SHARE = FULL_SHARE / 8, /* maximum, if user space does not decide */
};

/* The governor's decision about the connections to one network. */
struct allowance {
	__u16 share; /* in 1/FULL_SHARE */
	__u8 is_busy; /* 1: many messages to the network, auto holds back */
	enum verdict verdict; /* the last verdict */
	enum alarm alarm; /* the last alarm */
	enum governor_share shares[0]; /* puts the type into BTF, for Rust */
};

/* The last decision that the connection has read. */
struct governor_state {
	struct allowance allowance;
	__u32 credit; /* a segment with redundancy costs FULL_SHARE */
};

/* Measurements for the governor, in the current window. */
struct load_window {
	__u32 start_us;
	__u32 rtt_us; /* minimum in this window; 0: no sample */
	__u32 sampled; /* rack.mstamp of the last RTT sample */
	__u32 packets; /* packets ever sent, at start_us */
	__u32 losses; /* losses ever found, at start_us */
	/* The low 16 bits, at start_us, of redundant bytes and messages. */
	__u16 redundant;
	__u16 messages;
	__u32 retransmitted; /* packets with old data ever sent, at start_us */
};

/*
 * The hand-over of the segment that TCP has just sent: from the cgroup program,
 * which sees TCP's state, to the device program, which sees the packet. The
 * device program sets kind back to ANNOUNCED_NOTHING.
 */
struct announcement {
	enum announcement_kind kind;
	__u32 seq;
	__u32 end; /* the first byte after the segment */
	__u32 ifindex; /* the device that TCP sent it to; 0: counted already */
	__u32 stored_bytes; /* bytes right before seq that history[] has */
	__u32 room; /* maximum payload, by the socket's memory (truesize.h) */
	/* bytes of TCP options that tp->mss_cache does not include */
	__u16 varying;
	/* Only for new data: */
	__u8 timeout_in_doubt; /* F-RTO is running (reaction.h) */
	__u8 excess; /* PACING_LIMIT, OVER_FAIR_SHARE, or 0 */
};

/*
 * The newest loss of each kind. The upper 32 bits are a counter, so that an
 * equal end is a new loss. The lower 32 bits are the sequence number where the
 * loss ends. One word, so that readers never see a mixture (next_notice()). The
 * egress program reads it with the next packet (reaction.h).
 */
struct loss_notice {
	__u64 hidden; /* a bundle repaired it; TCP does not see it */
	__u64 retransmitted; /* TCP retransmitted at least a part of it */
};

/*
 * Written only on the egress side, by one processor at a time (try_lock() in
 * lock.h). The socket is locked, unless packets are queued on the way.
 */
struct egress {
	struct sending sending;
	struct loss_events loss_events;
	struct tfrc_decision tfrc_decision;
	struct path_size path;
	struct record record;
	__u32 counted_end; /* new_bytes counts data from here on */
	/* the socket's cookie if its addresses are translated; 0: none */
	__u64 translated;
	__u32 busy;
	enum outcome last; /* of the last segment */
	/* payload before the record's end that history[] has */
	__u32 stored_bytes;
	/* maximum number of segments in a bundle up to now */
	__u32 max_bundled;
	__u32 retransmissions; /* tp->total_retrans after the last packet */
	__u32 retransmitted; /* packets with old data that left */
	__u32 rtt_min_us; /* the connection's own minimum, or NO_RTT_SAMPLE */
	__u32 new_data_us; /* when the last new data left TCP; 0: unknown */
	__u16 itt; /* smoothed time between new data (copies.h) */
	__u8 copies_paused; /* segments until copies may leave again */
	/* since when TFRC-SP allows no copies (reaction.h); 0: it does */
	__u32 copies_limited_us;
	__u32 overhead; /* skb->truesize without payload, minimum seen */

	struct announcement announced;

	/* Window reductions and the losses that they cover (reaction.h). */
	__u32 reduction_end; /* the last reduction covers losses before it */
	/* losses before it are covered even if TCP undoes its last reduction */
	__u32 final_reduction_end;
	__u32 undone_reduction_end; /* end of the last one that TCP undid */
	/* identifies TCP's last reduction while TCP may undo it; otherwise 0 */
	__u32 last_undoable_reduction;
	__u32 prior_cwnd; /* tp->prior_cwnd at the last packet */
	/* losses before it count as handled by TCP's own reduction */
	__u32 left_to_tcp_end;
	struct loss_notice
		handled; /* ingress.notice, as far as it is handled */
	__u16 cwr_requested; /* the last packet returned EGRESS_KEEP_CN */
	/* the record may lack a packet: unparsed IP header, or lock taken */
	__u16 missed_packet;
	__u32 cwr_high_seq; /* tp->high_seq at the request */
	__u32 prior_reduction_end; /* reduction_end before the request */
	__u32 prior_left_to_tcp_end; /* left_to_tcp_end before the request */

	/* TCP's retransmissions while some are unacknowledged. */
	struct retrans retrans;
	__u32 newest_tsval; /* TSval of the new data announced last */

	/* The last retransmission with a bundle. */
	__u32 piggyback_count; /* counts them; 0: none yet */
	__u32 piggyback_seq; /* start of the retransmitted segment */
	__u32 piggyback_start; /* its end, where the bundle starts */
	__u32 piggyback_end; /* end of the bundle */

	struct governor_state governor_state;
};

/* Losses that bundles hid. */
struct hidden_losses {
	__u32 segments;
	__u32 bytes : 31;
	__u32 retransmitted : 1; /* further losses, which TCP detected */
	__u32 time_saved_us;
};

/*
 * Segments counted as lost since the last reaction to losses (reordering.h).
 * Segments that arrive later after all are removed.
 */
struct pending_losses {
	__u64 bits[RECORD_SLOTS / 64]; /* by slot: 1 if it counts as lost */
	__u32 start_us; /* when the first one was counted as lost */
	__u32 segments;
	__u32 time_saved_us; /* counted for all of them */
};

/* The last run of consecutive lost segments (level.h). */
struct loss_run {
	__u32 start;
	__u32 end;
	__u16 segments;
	__u16 counted; /* 1: it has ended, and is in ingress.runs */
};

/*
 * Reports of duplicates that copies caused, and those expected if no packet is
 * lost (copy_loss.h). Units are 1/64 report; all fade together.
 */
struct copy_reports {
	__u16 expected;
	__u16 received;
	__u16 counted; /* missing reports counted as losses */
	__u32 variance; /* of `expected`, from lost ACKs; 1/4096 */
};

/*
 * Segments that were acknowledged selectively (sacked.h): a bit for each slot
 * of the record, from the first unacknowledged one.
 */
struct sacked {
	__u32 first_slot; /* slot of the first unacknowledged segment */
	__u32 first_block_is_new; /* the last ACK's first block is new */
	__u32 block_start; /* of the last ACK's first block */
	__u32 block_end;
	__u64 bits[RECORD_SLOTS / 64];
};

/*
 * Written only on the ingress side, by one processor at a time. ACKs arrive
 * here before TCP processes them, and while it sends.
 */
struct ingress {
	__u32 busy;
	__u32 acked; /* the highest acknowledgement that arrived */
	__u32 peer_end; /* end of the peer's data that arrived, gaps included */
	__u8 last_ack_unread; /* 1: its report is unknown */
	/* windows for which a queue is expected; 0: no queue (governor.h) */
	__u8 has_queue;
	__u8 queue_windows; /* consecutive windows with a queue */
	/* share of copied segments whose first ACK is no report, in 1/255 */
	__u8 plain_acks;

	struct loss_notice notice;
	struct pending_losses pending;
	/* how late reordered segments arrived, fading */
	__u32 reorder_window_us;
	__u32 loss_ack; /* number of the ACK that showed the last loss */
	enum loss_rule loss_rule; /* in force: configured or learned */
	enum loss_rule configured_loss_rule; /* at the last ACK */
	__u16 missing_report_points; /* while learning (hidden_loss.h) */
	__u8 reports_single_bytes; /* the peer reports 1-byte duplicates */
	__u8 peer_end_valid; /* peer_end is valid */
	/* while learning: losses, if the receiver reports duplicates */
	struct hidden_losses suspected_losses;
	__u32 suspected_losses_end; /* end of the last suspected loss */

	__u32 piggyback_checked; /* egress.piggyback_count when last checked */

	struct sacked sacked;

	__u32 epoch; /* egress.path.epoch at the last ACK */
	__u32 largest; /* payload of the largest packet that ever arrived */
	/* payload of the largest packet with a bundle since that epoch */
	__u32 largest_bundle;
	__u32 bundle_end; /* end of the newest bundle that has arrived */
	__u32 bundle_size; /* payload of that bundle's packet */

	struct copy_reports copy_reports;

	/* 1 for each small segment at which no ACK ended (ack_thinning.h) */
	__u64 unacked_ends;
	__u8 level; /* previous segments in a bundle */
	__u8 copies; /* an enum auto_copies */
	__u8 hold_bits; /* copies last at least 1 << hold_bits decisions */
	__u8 decisions; /* since copies started or ended (auto.h) */
	__u32 run_segments; /* segments sent, fading */
	__u16 runs[RUN_LENGTHS]; /* runs of lost ones, by length, fading */
	struct loss_run run;

	struct load_window load;
};

struct flow {
	/*
	 * The first field, because the verifier checks offset and length
	 * separately and requires space for a whole piece after the last offset
	 * (history.h).
	 */
	__u8 history[HISTORY_BYTES];

	struct counters counters;
	struct egress egress;
	struct ingress ingress;

	/* As configured by the rules and the application (policy.h). */
	struct options options;
	struct tcp_options tcp_options;
	__u32 tcp_options_refused; /* bits as in tcp_options.set */
	__u32 open_kind; /* an enum open_kind */
	__u32 rule; /* number of the rule that decided; 0: none matches */
	__u8 requested_by; /* an enum requested_by */
	__u8 sack; /* an enum sack */
	__u8 arm; /* an enum arm */
	__u16 disabled_by_application; /* no more bundles */
	__u16 syn_state; /* an enum syn_state */
	__u32 handshake_retransmissions; /* 0 if data had already been sent */
	__u32 uid; /* the user whose slot it takes (quota.h) */
};

/* With the kernel's header of 72 bytes (Linux 6.18) it fits into 4 KiB. */
_Static_assert(sizeof(struct flow) <= 4096 - 72, "a page for each connection");

#endif /* PILLION_FLOW_H */
