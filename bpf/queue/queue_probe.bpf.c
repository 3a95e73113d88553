/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The queue probe records the disposition of each packet offered to the queue
 * of one device. A record is written when its disposition is known.
 *
 * It uses only raw tracepoints (no kprobe, no kfunc, no callback), so it runs
 * on kernels with CONFIG_BPF_EVENTS, in the BPF interpreter too.
 */
#include "../vmlinux.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "packet.h"

char LICENSE[] SEC("license") = "GPL";

#define BULK 64 /* maximum packets of one dequeue */

/* Set before the programs are loaded: the device, and where it is. */
const volatile __u32 device = 0;
const volatile __u32 netns = 0; /* 0: the kernel has only one */

struct missed missed = {};

/* The packets that are in the queue, by their address. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536);
	__type(key, __u64);
	__type(value, struct queued);
} queue_packets SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 8 << 20);
} queue_records SEC(".maps");

/*
 * The last packet that this processor offered to the queue. It offers one
 * packet at a time, so later events on this processor concern it.
 */
struct offered {
	__u64 skb; /* 0: none, or its disposition is known */
	bool accepted;
	bool consumed; /* freed, but not dropped */
	bool ran; /* a dequeue has happened since */
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct offered);
} queue_offered SEC(".maps");

static __always_inline struct offered *last_offered(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&queue_offered, &zero);
}

static __always_inline bool is_probed_device(struct net_device *dev)
{
	if (BPF_CORE_READ(dev, ifindex) != device)
		return false;
	if (!netns || !bpf_core_field_exists(dev->nd_net.net))
		return true;
	return BPF_CORE_READ(dev, nd_net.net, ns.inum) == netns;
}

/*
 * A separate function, so that the record's type is in the BTF for user space.
 */
static __noinline void write_packet(struct queued *packet)
{
	if (bpf_ringbuf_output(&queue_records, packet, sizeof(*packet),
			       BPF_RB_NO_WAKEUP))
		__sync_fetch_and_add(&missed.ring, 1);
}

static __always_inline void end(__u64 skb, struct queued *packet,
				enum disposition disposition, __u64 now)
{
	packet->disposition = disposition;
	packet->left = now;
	write_packet(packet);
	bpf_map_delete_elem(&queue_packets, &skb);
}

/*
 * Ends the packet offered last if it was replaced: its address may be another
 * packet's now.
 */
static __always_inline void finish_if_replaced(struct offered *offered)
{
	struct queued *packet;
	__u64 skb = offered->skb;

	if (!skb || !offered->consumed)
		return;
	offered->skb = 0;
	packet = bpf_map_lookup_elem(&queue_packets, &skb);
	if (packet)
		end(skb, packet, DISPOSITION_REPLACED, 0);
}

/* Records a packet that is offered to the queue of its device. */
SEC("raw_tp/net_dev_queue")
int queue_arrival(struct bpf_raw_tracepoint_args *ctx)
{
	struct sk_buff *skb = (void *)ctx->args[0];
	struct net_device *dev = BPF_CORE_READ(skb, dev);
	struct queued packet = {}, *replaced;
	__u64 key = (__u64)skb;
	struct offered *offered;

	if (!is_probed_device(dev))
		return 0;
	offered = last_offered();
	if (!offered)
		return 0;
	packet.arrived = bpf_ktime_get_ns();
	/* A discipline may split or copy packets; others leave instead. */
	replaced = bpf_map_lookup_elem(&queue_packets, &key);
	if (replaced)
		end(key, replaced, DISPOSITION_UNSEEN, 0);
	packet.counted = counted_bytes(skb);
	read_length(queue_of(skb, dev), &packet.found);
	packet.behind.packets = UNKNOWN_LENGTH;
	packet.behind.bytes = UNKNOWN_LENGTH;
	read_packet(skb, &packet);
	offered->accepted = false;
	offered->consumed = false;
	offered->ran = false;
	offered->skb = key;
	if (bpf_map_update_elem(&queue_packets, &key, &packet, 0)) {
		offered->skb = 0;
		__sync_fetch_and_add(&missed.table, 1);
	}
	return 0;
}

/* Notes that the queue accepted a packet, or reported so. */
SEC("raw_tp/qdisc_enqueue")
int queue_acceptance(struct bpf_raw_tracepoint_args *ctx)
{
	struct offered *offered = last_offered();

	if (!offered || offered->skb != ctx->args[2])
		return 0;
	offered->accepted = true;
	finish_if_replaced(offered);
	return 0;
}

/* Notes a freed packet that was not dropped. Runs for every packet. */
SEC("raw_tp/consume_skb")
int queue_consumption(struct bpf_raw_tracepoint_args *ctx)
{
	struct offered *offered = last_offered();

	if (offered && offered->skb == ctx->args[0] && !offered->accepted &&
	    !offered->ran)
		offered->consumed = true;
	return 0;
}

/*
 * Writes a packet whose arrival was not seen: it is older than the probe, or
 * the queue created it.
 */
static __always_inline void
write_unknown_packet(struct sk_buff *skb, struct queued *unknown, __u64 now)
{
	unknown->left = now;
	unknown->counted = counted_bytes(skb);
	unknown->found.packets = UNKNOWN_LENGTH;
	unknown->found.bytes = UNKNOWN_LENGTH;
	read_packet(skb, unknown);
	write_packet(unknown);
}

/*
 * Writes a packet that left the queue. A global function, so that the verifier
 * checks it once.
 */
__noinline int record_departure(__u64 skb, __u64 qdisc, __u64 now)
{
	struct queued unknown = {}, *packet;

	packet = bpf_map_lookup_elem(&queue_packets, &skb);
	if (packet) {
		packet->counted = counted_bytes((void *)skb);
		read_length((void *)qdisc, &packet->behind);
		end(skb, packet, DISPOSITION_SENT, now);
		return 0;
	}
	unknown.disposition = DISPOSITION_SENT;
	read_length((void *)qdisc, &unknown.behind);
	write_unknown_packet((void *)skb, &unknown, now);
	return 0;
}

/* Records dequeued packets. */
SEC("raw_tp/qdisc_dequeue")
int queue_departure(struct bpf_raw_tracepoint_args *ctx)
{
	struct netdev_queue *queue = (void *)ctx->args[1];
	struct sk_buff *skb = (void *)ctx->args[3];
	__s32 packets = ctx->args[2], i;
	struct offered *offered;
	__u64 now;

	if (!skb || !is_probed_device(BPF_CORE_READ(queue, dev)))
		return 0;
	offered = last_offered();
	if (offered) {
		offered->ran = true;
		finish_if_replaced(offered);
	}
	now = bpf_ktime_get_ns();
	for (i = 0; i < BULK && i < packets && skb; i++) {
		record_departure((__u64)skb, ctx->args[0], now);
		skb = BPF_CORE_READ(skb, next);
	}
	return 0;
}

#define IS_REASON(reason, name)                                                \
	(bpf_core_enum_value_exists(enum skb_drop_reason, name) &&             \
	 (reason) == bpf_core_enum_value(enum skb_drop_reason, name))

/*
 * Returns true for a drop reason that only queueing disciplines give, mostly
 * when full.
 */
static __always_inline bool is_of_queue(__u32 reason)
{
	return IS_REASON(reason, SKB_DROP_REASON_QDISC_DROP) ||
	       IS_REASON(reason, SKB_DROP_REASON_QDISC_OVERLIMIT) ||
	       IS_REASON(reason, SKB_DROP_REASON_QDISC_CONGESTED);
}

/*
 * Returns true if this is the packet that arrived. If its departure was not
 * seen, its address may belong to another packet of any device now.
 */
static __always_inline bool is_same(struct sk_buff *skb, struct queued *packet)
{
	struct queued found = {};

	read_packet(skb, &found);
	return found.size == packet->size && found.seq == packet->seq &&
	       found.source_port == packet->source_port &&
	       found.destination_port == packet->destination_port;
}

/*
 * Records a dropped packet. Runs for every packet. Netem reports acceptance of
 * packets that it drops; they are freed as if they had been refused.
 */
SEC("raw_tp/kfree_skb")
int queue_drop(struct bpf_raw_tracepoint_args *ctx)
{
	struct queued unknown = {}, *packet;
	enum disposition disposition = DISPOSITION_DROPPED;
	__u64 skb = ctx->args[0];
	__u32 reason = ctx->args[2];
	struct offered *offered;

	packet = bpf_map_lookup_elem(&queue_packets, &skb);
	if (packet && !is_same((struct sk_buff *)skb, packet)) {
		end(skb, packet, DISPOSITION_UNSEEN, 0);
		packet = NULL;
	}
	if (!packet) {
		if (!is_of_queue(reason) ||
		    !is_probed_device(
			    BPF_CORE_READ((struct sk_buff *)skb, dev)))
			return 0;
		unknown.disposition = DISPOSITION_REFUSED;
		unknown.reason = reason;
		unknown.behind.packets = UNKNOWN_LENGTH;
		unknown.behind.bytes = UNKNOWN_LENGTH;
		write_unknown_packet((void *)skb, &unknown, bpf_ktime_get_ns());
		return 0;
	}
	offered = last_offered();
	if (offered && offered->skb == skb) {
		if (!offered->accepted ||
		    IS_REASON(reason, SKB_DROP_REASON_QDISC_DROP))
			disposition = DISPOSITION_REFUSED;
		offered->skb = 0;
	}
	packet->reason = reason;
	end(skb, packet, disposition, bpf_ktime_get_ns());
	return 0;
}

/* Records a packet that bypasses an empty queue. */
SEC("raw_tp/net_dev_start_xmit")
int queue_bypass(struct bpf_raw_tracepoint_args *ctx)
{
	struct offered *offered = last_offered();
	struct queued *packet;
	__u64 skb;

	if (!offered || !offered->skb || offered->accepted || offered->ran ||
	    !is_probed_device((void *)ctx->args[1]))
		return 0;
	skb = offered->skb;
	offered->skb = 0;
	packet = bpf_map_lookup_elem(&queue_packets, &skb);
	if (!packet)
		return 0;
	packet->behind = packet->found;
	end(skb, packet, DISPOSITION_SENT, bpf_ktime_get_ns());
	return 0;
}
