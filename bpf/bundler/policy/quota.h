/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * How many sockets the programs keep something for, in all and for each user.
 * The memory is charged to pillion: without a bound, anybody who opens
 * connections could have it killed for want of memory.
 *
 * That a socket is freed no program hears. So they count those that come,
 * and user space looks now and then how many are there still.
 */
#ifndef PILLION_QUOTA_H
#define PILLION_QUOTA_H

#include "../maps.h"

#define MAX_USERS 4096

enum all_users {
	ALL_USERS = ~0U, /* the key for all together */
};

/* Set before the programs are loaded; a single user has half of them. */
const volatile __u32 max_connections = 0;

/*
 * What a socket takes of the places: a bundled connection one, of which these
 * are the sixteenths; what is remembered of a socket has an eleventh of the
 * memory.
 */
enum share {
	REQUEST_SHARE = 2,
	CONNECTION_SHARE = 16,
};

/*
 * By the user's id: shares that were ever taken, written by the programs alone
 * once they are at work; those of them that were free again by the last look,
 * written by user space alone; and those of the requests that are there, as
 * counted last, which user space empties before, but for all users' count.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_USERS);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u32);
	__type(value, __u64);
} pillion_come SEC(".maps"), pillion_gone SEC(".maps"),
	pillion_there SEC(".maps");

/*
 * What user space is told of a socket for which something is kept. The user is
 * the one whose place it takes, not the socket's own, who may be another by
 * now: an accepted socket becomes that of the process which accepts it.
 */
struct kept {
	__u64 cookie; /* the socket's */
	__u32 inode; /* by which processes have it open, of sockfs; 0: none */
	__u32 uid;
	__u32 packets_out; /* TCP's, not acknowledged yet */
	__u16 share; /* of enum share */
	__u16 is_over; /* its connection has ended, though it is open */
	enum all_users all_users[0]; /* has the type reach user space */
};

static __always_inline __u64 *come(__u32 uid)
{
	__u64 *come = bpf_map_lookup_elem(&pillion_come, &uid), none = 0;

	if (come)
		return come;
	bpf_map_update_elem(&pillion_come, &uid, &none, BPF_NOEXIST);
	return bpf_map_lookup_elem(&pillion_come, &uid);
}

/*
 * What an application declines is not to be forgotten where bundled connections
 * have taken all places: requests have a quarter more.
 */
static __always_inline bool has_place(__u32 uid, const __u64 *come,
				      enum share share)
{
	__u64 most = (__u64)max_connections * CONNECTION_SHARE;
	__u64 *gone = bpf_map_lookup_elem(&pillion_gone, &uid);

	if (uid != ALL_USERS)
		most /= 2;
	if (share == REQUEST_SHARE)
		most += most / 4;
	return *come - (gone ? *gone : 0) + share <= most;
}

/*
 * May something be kept for one more socket of the user's? Of users beyond
 * those that can be told apart, all together are bounded alone. A global
 * function, for it is called in several places.
 */
__noinline int take_place(__u32 uid, enum share share)
{
	__u64 *in_all = come(ALL_USERS), *own = come(uid);
	struct totals *all = totals();

	if (!in_all || !all)
		return 0;
	if (!has_place(ALL_USERS, in_all, share) ||
	    (own && !has_place(uid, own, share))) {
		ADD_TO(all->over_limit, 1);
		return 0;
	}
	ADD_TO(*in_all, share);
	if (own)
		ADD_TO(*own, share);
	return 1;
}

#endif /* PILLION_QUOTA_H */
