/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Limits the number of sockets with stored state, in total and per user. The
 * memory is charged to pillion. Without a limit, any user who opens connections
 * could exhaust it.
 *
 * No program is called when a socket is freed. The programs therefore count new
 * sockets, and user space counts the remaining ones from time to time.
 */
#ifndef PILLION_QUOTA_H
#define PILLION_QUOTA_H

#include "../maps.h"

#define MAX_USERS 4096

enum all_users {
	ALL_USERS = ~0U, /* the key of the sum over all users */
};

/* Set before the programs are loaded; a single user may take half. */
const volatile __u32 max_connections = 0;

/*
 * The slots of a socket, in sixteenths: a bundled connection takes one slot. A
 * request takes an eleventh of the memory.
 */
enum slot_share {
	REQUEST_SLOT_SHARE = 2,
	CONNECTION_SLOT_SHARE = 16,
};

/*
 * By user id: shares ever taken, written only by the programs while they run;
 * shares free again at the last count, written only by user space; and shares
 * of existing requests at the last count. User space clears the last map before
 * a count, except for ALL_USERS.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_USERS);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u32);
	__type(value, __u64);
} pillion_taken SEC(".maps"), pillion_freed SEC(".maps"),
	pillion_present SEC(".maps");

/*
 * The record of a socket with stored state, for user space. uid is the user
 * whose slot it takes. The socket's own user may differ, because an accepted
 * socket then belongs to the accepting process.
 */
struct socket_entry {
	__u64 cookie; /* the socket's */
	__u32 inode; /* inode of the open socket file; 0: not open */
	__u32 uid;
	__u32 packets_out; /* TCP's, not acknowledged yet */
	__u32 rtt_us; /* TCP's smoothed RTT; 0: no sample */
	__u32 rtt_min_us; /* TCP's recent minimum, if there is a sample */
	__u16 share; /* an enum slot_share */
	__u16 has_ended; /* 1: the connection has ended, but not the socket */
	enum all_users all_users[0]; /* puts the type into BTF, for Rust */
};

static __always_inline __u64 *taken(__u32 uid)
{
	__u64 *taken = bpf_map_lookup_elem(&pillion_taken, &uid), none = 0;

	if (taken)
		return taken;
	bpf_map_update_elem(&pillion_taken, &uid, &none, BPF_NOEXIST);
	return bpf_map_lookup_elem(&pillion_taken, &uid);
}

/*
 * Requests have a quarter more slots, so that a decline is stored even if
 * bundled connections fill the quota.
 */
static __always_inline bool has_free_slot(__u32 uid, const __u64 *taken,
					  enum slot_share share)
{
	__u64 max = (__u64)max_connections * CONNECTION_SLOT_SHARE;
	__u64 *freed = bpf_map_lookup_elem(&pillion_freed, &uid);

	if (uid != ALL_USERS)
		max /= 2;
	if (share == REQUEST_SLOT_SHARE)
		max += max / 4;
	return *taken - (freed ? *freed : 0) + share <= max;
}

/*
 * Takes a slot for a socket of this user. Users beyond MAX_USERS are limited
 * only in total. A refusal counts unless it repeats an earlier one (is_retry).
 * A global function, because it has several callers.
 */
__noinline int take_slot(__u32 uid, enum slot_share share, bool is_retry)
{
	__u64 *total = taken(ALL_USERS), *own = taken(uid);
	struct totals *all = totals();

	if (!total || !all)
		return 0;
	if (!has_free_slot(ALL_USERS, total, share) ||
	    (own && !has_free_slot(uid, own, share))) {
		ADD_TO(all->connection_limit_hits, !is_retry);
		return 0;
	}
	ADD_TO(*total, share);
	if (own)
		ADD_TO(*own, share);
	return 1;
}

#endif /* PILLION_QUOTA_H */
