use std::collections::{HashMap, VecDeque};

use foldhash::fast::RandomState;
use smallvec::SmallVec;

use super::Connection;
use super::half::HalfConnection;
use crate::event::Direction;
use crate::event::Side;
use crate::packet::{Endpoint, Packet, flow_hash};
use crate::prefetch;
use crate::source::PacketSource;

/// Unfinished connections by addresses and ports.
#[derive(Debug)]
pub(crate) struct ConnectionTable {
    by_tuple: HashMap<(Endpoint, Endpoint), TupleConnections, RandomState>,
    slots: Vec<Option<Box<Connection>>>,
    free_slots: Vec<usize>,
    /// Per trace, a cache from the hash of addresses and ports to the last connection, so that most
    /// packets need no lookup. A power of two, at least four times the number of connections.
    recent: [Vec<RecentSlot>; 2],
    closed: VecDeque<ClosedConnection>,
    opened: u64,
    has_receiver: bool,
}

/// Connections that used the same addresses and ports, in order.
#[derive(Debug, Default)]
struct TupleConnections {
    slots: SmallVec<[usize; 2]>,
    /// Each trace's current connection, as an index into `slots`.
    current: [Option<usize>; 2],
}

/// The connection of a packet.
#[derive(Debug)]
pub(crate) struct Lookup {
    pub(crate) slot: usize,
    /// Direction of the packet.
    pub(crate) direction: Direction,
    /// The connection's previous packet, stored until this one matched, and its direction.
    pub(crate) earlier: Option<(Box<Packet>, Direction)>,
}

/// A connection by its slot and the low bits of its number.
#[derive(Debug, Clone, Copy, Default)]
struct RecentSlot {
    slot: u32,
    number: u32,
}

impl RecentSlot {
    fn new(slot: usize, number: u64) -> Self {
        Self {
            slot: slot as u32,
            number: number as u32,
        }
    }
}

const MIN_RECENT: usize = 256;

/// This many connections stay in the CPU cache without prefetching.
pub(crate) const CACHED_CONNECTIONS: usize = 64;

/// Distances in packets at which a connection is prefetched, then its state, then its links.
const PREFETCH_CONNECTION: usize = 5;
const PREFETCH_STATE: usize = 2;
const PREFETCH_LINKS: usize = 1;

#[derive(Debug)]
struct ClosedConnection {
    at_ns: i64,
    slot: usize,
    number: u64,
}

/// A closed connection stays this long, because its last packets may be retransmitted: twice the
/// maximum segment lifetime that kernels use.
const LINGER_NS: i64 = 60_000_000_000;

impl ConnectionTable {
    pub(crate) fn new(has_receiver: bool) -> Self {
        Self {
            by_tuple: HashMap::default(),
            slots: Vec::new(),
            free_slots: Vec::new(),
            recent: std::array::from_fn(|_| vec![RecentSlot::default(); MIN_RECENT]),
            closed: VecDeque::new(),
            opened: 0,
            has_receiver,
        }
    }

    /// The slot and direction of a packet, if the last packet with its addresses and ports in this
    /// trace belonged to the same connection.
    #[inline]
    pub(crate) fn current(
        &mut self,
        side: Side,
        packet: &Packet,
        flow_hash: u32,
    ) -> Option<(usize, Direction)> {
        let RecentSlot { slot, number } = *self.recent(side, flow_hash);
        let slot = slot as usize;
        if let Some(Some(connection)) = self.slots.get(slot)
            && connection.number as u32 == number
            && let Some(direction) = connection.direction_of(packet)
        {
            let accepts = connection.accepts(side, direction, packet);
            return accepts.then_some((slot, direction));
        }
        self.look_up(side, packet, flow_hash)
    }

    /// Prefetches what the next packets of a trace need: their connections, then the state of
    /// these, then that of their links.
    #[inline]
    pub(crate) fn prefetch(&self, side: Side, packets: &PacketSource) {
        let upcoming = |distance| {
            let entry = packets.peek(distance)?;
            self.probable(side, entry.flow_hash)
        };
        if let Some(connection) = upcoming(PREFETCH_CONNECTION) {
            prefetch(connection);
        }
        if let Some(connection) = upcoming(PREFETCH_STATE) {
            connection
                .halves
                .iter()
                .for_each(HalfConnection::prefetch_state);
        }
        if self.has_receiver
            && let Some(connection) = upcoming(PREFETCH_LINKS)
        {
            let links = connection
                .halves
                .iter()
                .filter_map(|half| half.link.as_ref());
            links.for_each(|link| link.prefetch_state());
        }
    }

    /// The connection that a packet probably belongs to; `None` if all connections stay cached.
    #[inline]
    fn probable(&self, side: Side, flow_hash: u32) -> Option<&Connection> {
        if self.slots.len() <= CACHED_CONNECTIONS {
            return None;
        }
        let recent = &self.recent[side as usize];
        let slot = recent[flow_hash as usize & (recent.len() - 1)].slot;
        self.slots.get(slot as usize)?.as_deref()
    }

    #[inline]
    fn recent(&mut self, side: Side, flow_hash: u32) -> &mut RecentSlot {
        let recent = &mut self.recent[side as usize];
        let index = flow_hash as usize & (recent.len() - 1);
        &mut recent[index]
    }

    /// Grows the cache with the number of connections.
    fn grow_recent(&mut self) {
        for recent in &mut self.recent {
            if recent.len() < 4 * self.slots.len() {
                let more = 2 * recent.len();
                recent.clear();
                recent.resize(more, RecentSlot::default());
            }
        }
    }

    fn look_up(
        &mut self,
        side: Side,
        packet: &Packet,
        flow_hash: u32,
    ) -> Option<(usize, Direction)> {
        let tuple_connections = self.by_tuple.get(&tuple(packet.from, packet.to))?;
        let slot = *tuple_connections
            .slots
            .get(tuple_connections.current[side as usize]?)?;
        let connection = self.slots.get(slot)?.as_ref()?;
        let number = connection.number;
        let direction = connection.direction_of(packet)?;
        let accepts = connection.accepts(side, direction, packet);
        *self.recent(side, flow_hash) = RecentSlot::new(slot, number);
        accepts.then_some((slot, direction))
    }

    /// Finds or opens the connection of a packet. Earlier connections that it replaces are added to
    /// `superseded`. The time is by the sender's clock. `None` if it matches no open connection and
    /// no other packet confirms a new one.
    pub(crate) fn find(
        &mut self,
        side: Side,
        packet: &Packet,
        now_ns: i64,
        superseded: &mut Vec<Connection>,
    ) -> Option<Lookup> {
        let flow_hash = flow_hash(packet);
        if let Some((slot, direction)) = self.current(side, packet, flow_hash) {
            return Some(Lookup {
                slot,
                direction,
                earlier: None,
            });
        }
        let tuple = tuple(packet.from, packet.to);
        let tuple_connections = self.by_tuple.entry(tuple).or_default();
        let current = tuple_connections.current[side as usize];
        let from = current.map_or(0, |index| index + 1);
        let next = (from..tuple_connections.slots.len()).find(|&index| {
            let slot = tuple_connections
                .slots
                .get(index)
                .and_then(|&slot| self.slots.get(slot));
            let connection = slot.and_then(Option::as_ref);
            connection.is_some_and(|connection| {
                let direction = connection.direction_of(packet);
                direction.is_some_and(|direction| connection.accepts(side, direction, packet))
            })
        });
        let open = tuple_connections.slots.get(current.unwrap_or(0)).copied();
        let mut earlier = None;
        if let Some(slot) = open
            && let Some(Some(open)) = self.slots.get_mut(slot)
        {
            earlier = open.take_matching_stray(side, packet);
            if next.is_none()
                && let Some(first) = earlier.take_if(|first| open.continues_after_gap(first))
                && let Some((direction, earlier_direction)) =
                    open.direction_of(packet).zip(open.direction_of(&first))
            {
                open.skip_gap(&first);
                return Some(Lookup {
                    slot,
                    direction,
                    earlier: Some((first, earlier_direction)),
                });
            }
            if earlier.is_none() && next.is_none() && !packet.flags.syn {
                open.store_stray(side, packet);
                return None;
            }
        }
        let index = next.unwrap_or(tuple_connections.slots.len());
        tuple_connections.current[side as usize] = Some(index);
        let slot = match tuple_connections.slots.get(index) {
            Some(&slot) => slot,
            None => {
                self.opened += 1;
                let first = earlier.as_deref().unwrap_or(packet);
                let ago_ns = packet.at_ns.saturating_sub(first.at_ns);
                let first_ns = now_ns.saturating_sub(ago_ns);
                let connection = Connection::new(self.opened, first, first_ns, self.has_receiver);
                let slot = self.free_slots.pop().unwrap_or(self.slots.len());
                match self.slots.get_mut(slot) {
                    Some(entry) => *entry = Some(Box::new(connection)),
                    None => self.slots.push(Some(Box::new(connection))),
                }
                tuple_connections.slots.push(slot);
                slot
            }
        };
        let superseded_count = if self.has_receiver {
            tuple_connections.current[0]
                .min(tuple_connections.current[1])
                .unwrap_or(0)
        } else {
            index
        };
        for slot in tuple_connections.slots.drain(..superseded_count) {
            superseded.extend(self.slots[slot].take().map(|connection| *connection));
            self.free_slots.push(slot);
        }
        for current in tuple_connections.current.iter_mut().flatten() {
            *current -= superseded_count;
        }
        *self.recent(side, flow_hash) = RecentSlot::default();
        self.grow_recent();
        let connection = self.slots.get(slot)?.as_deref()?;
        Some(Lookup {
            slot,
            direction: connection.direction_of(packet)?,
            earlier: earlier.and_then(|earlier| {
                let direction = connection.direction_of(&earlier)?;
                Some((earlier, direction))
            }),
        })
    }

    /// Whether a connection has these addresses and ports.
    pub(crate) fn contains(&self, packet: &Packet) -> bool {
        self.by_tuple.contains_key(&tuple(packet.from, packet.to))
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, slot: usize) -> Option<&mut Connection> {
        self.slots.get_mut(slot)?.as_deref_mut()
    }

    /// Records that a connection was closed.
    pub(crate) fn close(&mut self, slot: usize, at_ns: i64) {
        if let Some(connection) = self.get_mut(slot) {
            let number = connection.number;
            self.closed.push_back(ClosedConnection {
                at_ns,
                slot,
                number,
            });
        }
    }

    /// Removes a connection that was closed long enough before `now_ns`.
    #[inline]
    pub(crate) fn take_expired(&mut self, now_ns: i64) -> Option<Connection> {
        while let Some(first) = self.closed.front()
            && first.at_ns.saturating_add(LINGER_NS) < now_ns
        {
            let ClosedConnection { slot, number, .. } = self.closed.pop_front()?;
            let is_it = |connection: &&mut Connection| connection.number == number;
            if let Some(connection) = self.get_mut(slot).filter(is_it) {
                let tuple = tuple(connection.originator, connection.responder);
                return self.remove(tuple, slot);
            }
        }
        None
    }

    fn remove(&mut self, tuple: (Endpoint, Endpoint), slot: usize) -> Option<Connection> {
        if let Some(tuple_connections) = self.by_tuple.get_mut(&tuple)
            && let Some(index) = tuple_connections
                .slots
                .iter()
                .position(|&used| used == slot)
        {
            tuple_connections.slots.remove(index);
            for current in &mut tuple_connections.current {
                *current = match *current {
                    Some(at) if at == index => None,
                    Some(at) if at > index => Some(at - 1),
                    other => other,
                };
            }
            if tuple_connections.slots.is_empty() {
                self.by_tuple.remove(&tuple);
            }
        }
        self.free_slots.push(slot);
        self.slots.get_mut(slot)?.take().map(|boxed| *boxed)
    }

    /// The remaining connections in order of appearance.
    pub(crate) fn into_remaining(mut self) -> impl Iterator<Item = Connection> {
        self.slots
            .sort_by_key(|slot| slot.as_ref().map(|connection| connection.number));
        self.slots.into_iter().flatten().map(|boxed| *boxed)
    }
}

#[inline]
fn tuple(one: Endpoint, other: Endpoint) -> (Endpoint, Endpoint) {
    // Ports usually differ, and compare faster than addresses.
    if (one.port, one.address) <= (other.port, other.address) {
        (one, other)
    } else {
        (other, one)
    }
}
