/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The policy's form in the kernel, and the contract with user space about it.
 */
#ifndef PILLION_RULE_H
#define PILLION_RULE_H

#include "../flow.h"

#define MAX_RULES 65 /* in one table, the last without conditions */

enum any_uid {
	ANY_UID = ~0U, /* matches every user; no user has this id */
};

/* Who opened a connection; a rule has a set of them. */
enum open_kind {
	ACTIVE_OPEN = 1, /* by this host, connect() */
	PASSIVE_OPEN = 2, /* by the peer, accept() */
	PREEXISTING = 4, /* opened before pillion covered it: unknown */
};

/* Ports whose payload NAT boxes rewrite (helper_port.h). */
enum helper_port {
	HELPER_FTP = 21,
	HELPER_RTSP = 554,
	HELPER_H323 = 1720,
	HELPER_PPTP = 1723,
	HELPER_SCCP = 2000,
	HELPER_SIP = 5060,
	HELPER_IRC = 6667,
};

/* Number of bits for the local port; the remote port's bits follow. */
enum helper_port_bits {
	HELPER_PORT_BITS = 8,
};

/* Ports in host order, both ends included. */
struct port_range {
	__u16 first;
	__u16 last;
};

/* Mode of the connections that a rule matches. */
enum rule_mode {
	RULE_NEVER, /* never bundled */
	RULE_ON_REQUEST, /* bundled after its application requests it */
	RULE_BUNDLE, /* bundled unless its application declines */
};

/* The decision of a rule for a connection. */
struct rule_decision {
	enum rule_mode mode;
	__u32 rule; /* number of the matching rule, from 1; 0: none */
	__u32 open_kind; /* the connection's, an enum open_kind */
	struct options options;
};

/* Matches a connection that meets all conditions. */
struct rule {
	__u64 peer[2]; /* IPv4 as ::ffff:a.b.c.d */
	__u64 peer_mask[2];
	__u64 cgroups; /* the rule's bit if it names cgroups; 0: any cgroup */
	struct port_range ports; /* of the local or the remote port */
	struct port_range local_ports;
	struct port_range remote_ports;
	__u32 ipv6; /* 1: no IPv4 peer matches, even if peer_mask covers it */
	__u32 uid; /* or ANY_UID */
	__u32 open_kinds; /* a set of enum open_kind */
	enum rule_mode mode;
	__u32 number; /* one rule may take several rows */
	__u32 helper_ports; /* bits of ports that it names (helper_port.h) */
	enum any_uid any_uid[0]; /* puts the types into BTF, for Rust */
	enum helper_port helper_port[0];
	enum helper_port_bits helper_port_bits[0];
	struct options options;
	struct tcp_options tcp_options;
};

/* A cgroup that rules of a table name; its value has the bits of these rules.
 */
struct rule_cgroup {
	__u64 id;
	__u32 table;
	__u32 unused;
};

/* The first matching rule decides; the last one has no conditions. */
struct rules {
	__u32 count;
	__u32 refuse_all; /* 1: every rule is "never" */
	__u32 uses_open_kind; /* 1: a rule depends on who opened a connection */
	__u32 uses_cgroups; /* 1: a rule names cgroups */
	struct rule rules[MAX_RULES];
};

_Static_assert(MAX_RULES - 1 <= 64, "a bit for each rule in rule.cgroups");

#endif /* PILLION_RULE_H */
