/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The governor reduces redundancy when redundancy fills a queue.
 *
 * It decides which share of the eligible segments carries redundancy, for all
 * connections to one peer network together, because a single stream cannot see
 * the total effect. User space reads the measurements and decides four times a
 * second (crates/bpf/src/governor); the programs apply the share.
 */
#ifndef PILLION_GOVERNOR_H
#define PILLION_GOVERNOR_H

#include "../endpoints.h"
#include "../maps.h"
#include "../tcp_state.h"
#include "../segment.h"

/* Length of the prefix of a peer's network. */
#define NETWORK_BITS_IPV4 24
#define NETWORK_BITS_IPV6 48

/* Age at which user space's decision is stale. */
#define STALE_NS 1000000000ULL

#define GOVERNOR_WINDOW_US 250000U

/* Queueing delay that level `auto` ignores. */
#define ALLOWED_DELAY_US 5000U

/* A queue delays at least this many messages in a row. */
#define QUEUE_MESSAGES 4

/* It is expected to come back for this many times as long. */
#define EXPECTED_QUEUE 16

/*
 * Isolated segments that level `auto` copies to one network between two
 * readings of its load, four times a second. Many streams with few messages
 * are a large load together, and none of them can see that.
 */
#define MAX_ISOLATED_COPIES 8

/*
 * Logarithmic histogram of queueing delays: bucket 0 is below 256 us, then 4
 * buckets per power of two. The last one holds 12.6 s and more.
 */
enum queue_scale {
	QUEUE_FIRST_BIT = 8,
	QUEUE_STEP_BITS = 2,
	QUEUE_BUCKETS = 64,
};

/* The governor is enabled; set before the programs are loaded. */
const volatile bool governing = false;

/* A peer's network: its first bits, IPv4 as ::ffff:a.b.c.0. */
struct network {
	__u32 prefix[4]; /* in network order */
};

/*
 * Measurements of the connections to one network since the last read. Each
 * connection adds its own once a window.
 */
struct network_load {
	__u64 windows;
	__u64 window_us; /* durations, sum over all windows */
	__u64 srtt_us; /* smoothed RTTs, sum over all windows */
	__u64 packets; /* packets with data, sum over all windows */
	__u64 losses; /* repaired or retransmitted, sum over all windows */
	/* Each window's modulo 64 KiB, sum: 0 if none were sent. */
	__u64 redundant_bytes;
	__u64 retransmitted; /* of the losses; sum over all windows */
	__u64 messages; /* small new segments, sum over all windows */
	__u64 isolated_copies; /* segments, of level `auto` */
	/* number of windows by their minimum queueing delay */
	__u32 queue[QUEUE_BUCKETS];
	enum queue_scale scale[0]; /* puts the type into BTF, for Rust */
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1); /* set before loading, where governing */
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct network);
	__type(value, struct network_load);
} pillion_network_load SEC(".maps");

/* A load of zeros, which is too large for the stack. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct network_load);
} pillion_no_load SEC(".maps");

/* Networks that do not have the initial share. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1); /* set before loading, where governing */
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct network);
	__type(value, struct allowance);
} pillion_allowances SEC(".maps");

/* The initial share of a network, and when user space decided last. */
struct governor {
	__u64 decided_ns; /* CLOCK_MONOTONIC */
	struct allowance initial;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct governor);
} pillion_governor SEC(".maps");

static __always_inline void read_network(const struct bpf_sock *sk,
					 struct network *network)
{
	__u32 mask = bpf_htonl(~0U << (32 - NETWORK_BITS_IPV4));

	if (sk->family == AF_INET) {
		network->prefix[0] = 0;
		network->prefix[1] = 0;
		network->prefix[2] = bpf_htonl(0xffff);
		network->prefix[3] = sk->dst_ip4 & mask;
		return;
	}
	network->prefix[0] = sk->dst_ip6[0];
	network->prefix[1] = sk->dst_ip6[1];
	network->prefix[2] = sk->dst_ip6[2];
	network->prefix[3] = sk->dst_ip6[3];
	/* An IPv4 peer of a dual-stack socket, or via NAT64 (RFC 6052). */
	if ((!network->prefix[0] && !network->prefix[1] &&
	     network->prefix[2] == bpf_htonl(0xffff)) ||
	    (network->prefix[0] == bpf_htonl(0x64ff9b) && !network->prefix[1] &&
	     !network->prefix[2])) {
		network->prefix[3] &= mask;
		return;
	}
	network->prefix[1] &= bpf_htonl(~0U << (64 - NETWORK_BITS_IPV6));
	network->prefix[2] = 0;
	network->prefix[3] = 0;
}

static __always_inline void look_up_allowance(struct bpf_sock *sk,
					      struct allowance *allowance)
{
	struct allowance *found;
	struct network network;
	struct governor *governor;
	__u32 zero = 0;

	read_network(sk, &network);
	governor = bpf_map_lookup_elem(&pillion_governor, &zero);
	found = bpf_map_lookup_elem(&pillion_allowances, &network);
	if (!governor)
		return;
	*allowance = found ? *found : governor->initial;
	if (bpf_ktime_get_ns() - governor->decided_ns > STALE_NS &&
	    allowance->share > LOW_SHARE) {
		allowance->share = LOW_SHARE;
		allowance->verdict = VERDICT_STALE;
	}
}

/*
 * Returns true if this eligible segment may carry redundancy, and spends the
 * connection's credit for it. The share is spread evenly over the segments.
 */
static __always_inline bool take_governor_credit(struct bpf_sock *sk,
						 struct flow *flow)
{
	struct governor_state *governor_state = &flow->egress.governor_state;
	struct allowance allowance = {};

	if (!governing || flow->options.published)
		return true;
	look_up_allowance(sk, &allowance);
	governor_state->allowance = allowance;
	governor_state->credit += allowance.share;
	if (governor_state->credit < FULL_SHARE)
		return false;
	governor_state->credit -= FULL_SHARE;
	return true;
}

static __always_inline __u32 queue_bucket(__u32 delay_us)
{
	__u32 bit = QUEUE_FIRST_BIT, bucket;

	if (delay_us >> QUEUE_FIRST_BIT == 0)
		return 0;
	for (int step = 16; step; step /= 2)
		if (delay_us >> bit >> step)
			bit += step;
	bucket = 1 + ((bit - QUEUE_FIRST_BIT) << QUEUE_STEP_BITS) +
		 (delay_us >> (bit - QUEUE_STEP_BITS) &
		  ((1 << QUEUE_STEP_BITS) - 1));
	return bucket < QUEUE_BUCKETS ? bucket : QUEUE_BUCKETS - 1;
}

static __always_inline struct network_load *
look_up_load(const struct network *network)
{
	struct network_load *load, *none;
	struct network key = *network; /* Linux 6.1 takes it from the stack */
	__u32 zero = 0;

	load = bpf_map_lookup_elem(&pillion_network_load, &key);
	if (load)
		return load;
	none = bpf_map_lookup_elem(&pillion_no_load, &zero);
	if (none)
		bpf_map_update_elem(&pillion_network_load, &key, none,
				    BPF_NOEXIST);
	return bpf_map_lookup_elem(&pillion_network_load, &key);
}

/*
 * Counts an isolated segment; returns 1 if it may be copied. User space removes
 * the load at each reading, so the count starts again. If the map is full, no
 * isolated segment is copied. A global function, so that the verifier checks it
 * once.
 */
__noinline int count_isolated_copy(const struct network *network)
{
	struct network_load *load;

	if (!network)
		return 0;
	load = look_up_load(network);
	return load && __sync_fetch_and_add(&load->isolated_copies, 1) <
			       MAX_ISOLATED_COPIES;
}

/* Returns true if level `auto` may copy one more isolated segment. */
static __always_inline bool take_isolated_copy(struct bpf_sock *sk)
{
	struct network network;

	if (!governing)
		return true;
	read_network(sk, &network);
	return count_isolated_copy(&network);
}

/*
 * Finds out whether packets wait on the path, by the minimum queueing delay of
 * a window. `needed` windows have QUEUE_MESSAGES messages. A queue is expected
 * to come back for EXPECTED_QUEUE times as long. Meanwhile, delays of isolated
 * segments show nothing: a receiver may delay their ACKs (RFC 9293, section
 * 3.8.6.3), but answers copies at once.
 */
static __always_inline void note_queue(struct ingress *ingress, __u32 delay_us,
				       __u32 needed, bool isolated)
{
	__u32 left = ingress->has_queue, windows = ingress->queue_windows;

	if (delay_us > ALLOWED_DELAY_US && !(left && isolated))
		windows++;
	else
		windows = 0;
	if (left)
		left--;
	if (windows >= needed) {
		windows = needed;
		left = EXPECTED_QUEUE * needed;
	}
	ingress->queue_windows = windows;
	WRITE_ONCE(ingress->has_queue, left);
}

/*
 * Handles an RTT sample of TCP. The first sample after the end of a window adds
 * the connection's measurements to those of its network, and starts the next
 * window. A global function, so that the verifier checks it once.
 */
__noinline int measure_load(struct flow *flow, const struct network *network,
			    __u32 rtt_us, __u32 srtt_us, __u32 rtt_min_us)
{
	struct load_window *window;
	__u32 now, length, itt_us, needed, delay_us, packets, messages, losses,
		redundant, bucket, retransmitted;
	struct network_load *load;

	if (!flow || !network)
		return 0;
	window = &flow->ingress.load;
	now = now_us() | 1; /* never 0, which means no window */
	length = srtt_us > GOVERNOR_WINDOW_US ? srtt_us : GOVERNOR_WINDOW_US;
	/* The first window starts with the first sample. */
	if (!window->start_us)
		window->start_us = now;
	if (now - window->start_us < length) {
		if (rtt_us < window->rtt_us || !window->rtt_us)
			window->rtt_us = rtt_us;
		return 0;
	}
	itt_us = (__u32)READ_ONCE(flow->egress.itt) << ITT_UNIT_BITS;
	/* Each window has at least one message. */
	needed = (QUEUE_MESSAGES * itt_us + length - 1) / length ?: 1;
	if (needed > QUEUE_MESSAGES)
		needed = QUEUE_MESSAGES;
	length = now - window->start_us;
	if (flow->egress.rtt_min_us < rtt_min_us)
		rtt_min_us = flow->egress.rtt_min_us;
	delay_us = window->rtt_us > rtt_min_us ? window->rtt_us - rtt_min_us
					       : 0;
	note_queue(&flow->ingress, delay_us, needed, itt_us > srtt_us);
	bucket = queue_bucket(delay_us);
	packets = READ_ONCE(flow->egress.sending.packets);
	messages = READ_ONCE(flow->egress.sending.messages);
	retransmitted = READ_ONCE(flow->egress.retransmitted);
	losses = flow->counters.hidden_losses + flow->counters.copy_losses +
		 flow->counters.piggyback_repaired_segments + retransmitted -
		 flow->counters.reordered;
	redundant = flow->counters.redundant_bytes;
	load = look_up_load(network);
	if (load) {
		ADD_TO(load->windows, 1);
		ADD_TO(load->window_us, length);
		ADD_TO(load->srtt_us, srtt_us);
		ADD_TO(load->packets, packets - window->packets);
		ADD_TO(load->messages, (__u16)(messages - window->messages));
		/* Reordered segments are subtracted from later losses. */
		if ((__s32)(losses - window->losses) > 0) {
			ADD_TO(load->losses, losses - window->losses);
			window->losses = losses;
		}
		ADD_TO(load->redundant_bytes,
		       (__u16)(redundant - window->redundant));
		ADD_TO(load->retransmitted,
		       retransmitted - window->retransmitted);
		if (bucket < QUEUE_BUCKETS)
			ADD_TO(load->queue[bucket], 1);
	}
	window->start_us = now;
	window->rtt_us = rtt_us;
	window->packets = packets;
	window->redundant = redundant;
	window->messages = messages;
	window->retransmitted = retransmitted;
	return 0;
}

/*
 * Takes TCP's RACK sample on each ACK. TCP has not processed this ACK yet, so
 * the sample is from the previous one, for the most recently sent acknowledged
 * segment (RFC 8985, section 5.2). No sample is counted twice.
 */
static __always_inline void sample_rtt(struct flow *flow,
				       const struct bpf_sock *sk,
				       const struct bpf_tcp_sock *btp,
				       const struct tcp_sock *tp)
{
	__u32 sent_us = tp->rack.mstamp, rtt_us = tp->rack.rtt_us;
	struct load_window *window = &flow->ingress.load;
	struct network network;

	if (!governing || flow->options.published ||
	    sent_us == window->sampled || !rtt_us)
		return;
	window->sampled = sent_us;
	read_network(sk, &network);
	measure_load(flow, &network, rtt_us, btp->srtt_us >> 3, btp->rtt_min);
}

#endif /* PILLION_GOVERNOR_H */
