/* SPDX-License-Identifier: GPL-2.0-only */
/* The map with the state of each connection. */
#ifndef PILLION_FLOW_STORAGE_H
#define PILLION_FLOW_STORAGE_H

#include "flow.h"

/* A covered connection has an entry here; it is freed with the socket. */
struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct flow);
} pillion_flows SEC(".maps");

#endif /* PILLION_FLOW_STORAGE_H */
