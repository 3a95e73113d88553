/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The queue probe's record of a packet, and the contract with user space, which
 * reads these types (BTF).
 */
#ifndef PILLION_QUEUE_H
#define PILLION_QUEUE_H

/* Disposition of a packet offered to the device's queue. */
enum disposition {
	DISPOSITION_UNSEEN, /* its end was not seen */
	DISPOSITION_SENT, /* it went on to the device */
	DISPOSITION_REFUSED, /* dropped when it arrived */
	DISPOSITION_DROPPED, /* dropped from the queue */
	/* split or copied: the queue has other packets instead */
	DISPOSITION_REPLACED,
} __attribute__((packed));

#define UNKNOWN_LENGTH 0xffffffff

/* The length of a queue, as its discipline counts it. */
struct length {
	__u32 packets;
	__u32 bytes;
};

struct queued {
	__u64 arrived; /* CLOCK_MONOTONIC in ns; 0: not seen */
	__u64 left; /* CLOCK_MONOTONIC in ns; 0: not seen */
	unsigned char source[16]; /* IPv4 addresses as ::ffff:a.b.c.d */
	unsigned char destination[16];
	__u16 source_port;
	__u16 destination_port;
	__u32 seq; /* TCP's, of the first byte of payload */
	__u32 payload; /* bytes of TCP payload */
	__u32 size; /* bytes, headers included */
	__u32 counted; /* bytes, as the queue's disciplines count them */
	__u32 reason; /* enum skb_drop_reason, if it was dropped */
	struct length found; /* queue length before its arrival */
	struct length behind; /* queue length after its departure */
	__u16 segments; /* more than one with segmentation offload */
	__u16 queue; /* number of the device's queue */
	enum disposition disposition;
	unsigned char protocol; /* IP protocol number; 0: not an IP packet */
	unsigned char ip; /* IP version */
	unsigned char flags; /* TCP flags */
};

/* Packets, or ends of packets, that could not be recorded. */
struct missed {
	__u64 ring; /* the ring was full */
	__u64 table; /* more packets in the queue than the table holds */
};

#endif /* PILLION_QUEUE_H */
