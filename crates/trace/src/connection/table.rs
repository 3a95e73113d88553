use std::collections::{HashMap, VecDeque};

use foldhash::fast::RandomState;
use smallvec::SmallVec;

use super::Connection;
use super::half::HalfConnection;
use crate::event::Direction;
use crate::event::Side;
use crate::packet::{Endpoint, Packet};
use crate::prefetch;

/// The connections that are not finished, by addresses and ports.
#[derive(Debug)]
pub(crate) struct Table {
    by_tuple: HashMap<(Endpoint, Endpoint), Uses, RandomState>,
    slots: Vec<Option<Box<Connection>>>,
    free: Vec<usize>,
    /// For each trace, connections that packets with ports and addresses like these belonged to
    /// last, so that most packets need no search: at least four times as many as there are
    /// connections, a power of two.
    recent: [Vec<Recent>; 2],
    closed: VecDeque<Closed>,
    opened: u64,
    has_receiver: bool,
}

/// The connections that used the same addresses and ports, one after the other.
#[derive(Debug, Default)]
struct Uses {
    slots: SmallVec<[usize; 2]>,
    /// The one that each trace has come to, as an index into `slots`.
    current: [Option<usize>; 2],
}

/// The connection that a packet belongs to.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) slot: usize,
    /// Which way the packet went.
    pub(crate) direction: Direction,
    /// The connection's packet before this one, which nothing had agreed with, and which way it went.
    pub(crate) earlier: Option<(Box<Packet>, Direction)>,
}

/// A connection, by its place and the last digits of its number.
#[derive(Debug, Clone, Copy, Default)]
struct Recent {
    slot: u32,
    number: u32,
}

impl Recent {
    fn of(slot: usize, number: u64) -> Self {
        Self {
            slot: slot as u32,
            number: number as u32,
        }
    }
}

const FEWEST_RECENT: usize = 256;

/// So many connections are in a cache without being fetched.
pub(crate) const CACHED: usize = 64;

#[derive(Debug)]
struct Closed {
    at_ns: i64,
    slot: usize,
    number: u64,
}

/// A closed connection is remembered this long, as its last packets may be sent again: twice
/// the maximum segment lifetime that kernels use.
const LINGER_NS: i64 = 60_000_000_000;

impl Table {
    pub(crate) fn new(has_receiver: bool) -> Self {
        Self {
            by_tuple: HashMap::default(),
            slots: Vec::new(),
            free: Vec::new(),
            recent: std::array::from_fn(|_| vec![Recent::default(); FEWEST_RECENT]),
            closed: VecDeque::new(),
            opened: 0,
            has_receiver,
        }
    }

    /// The slot of the connection that a packet belongs to and which way the packet went, if the
    /// last packet of the trace with its addresses and ports belonged to it as well.
    #[inline]
    pub(crate) fn current(&mut self, side: Side, packet: &Packet) -> Option<(usize, Direction)> {
        let Recent { slot, number } = *self.recent(side, packet);
        let slot = slot as usize;
        if let Some(Some(connection)) = self.slots.get(slot)
            && connection.number as u32 == number
            && let Some(direction) = connection.direction_of(packet)
        {
            let takes = connection.takes(side, direction, packet);
            return takes.then_some((slot, direction));
        }
        self.look_up(side, packet)
    }

    /// Has the processor fetch the connection that a packet probably belongs to.
    #[inline]
    pub(crate) fn fetch(&self, side: Side, packet: &Packet) {
        if let Some(connection) = self.probable(side, packet) {
            prefetch(connection);
        }
    }

    /// Has the processor fetch what that connection, which is there by now, keeps elsewhere.
    #[inline]
    pub(crate) fn fetch_kept(&self, side: Side, packet: &Packet) {
        if let Some(connection) = self.probable(side, packet) {
            connection
                .halves
                .iter()
                .for_each(HalfConnection::fetch_kept);
        }
    }

    /// Has the processor fetch what the links of that connection, which are there by now, keep
    /// elsewhere.
    #[inline]
    pub(crate) fn fetch_kept_by_links(&self, side: Side, packet: &Packet) {
        if let Some(connection) = self.probable(side, packet) {
            let links = connection
                .halves
                .iter()
                .filter_map(|half| half.link.as_ref());
            links.for_each(|link| link.fetch_kept());
        }
    }

    /// The connection that a packet probably belongs to, unless it is in a cache in any case.
    #[inline]
    fn probable(&self, side: Side, packet: &Packet) -> Option<&Connection> {
        if self.slots.len() <= CACHED {
            return None;
        }
        let recent = &self.recent[side as usize];
        let slot = recent[like(packet) & (recent.len() - 1)].slot;
        self.slots.get(slot as usize)?.as_deref()
    }

    #[inline]
    fn recent(&mut self, side: Side, packet: &Packet) -> &mut Recent {
        let recent = &mut self.recent[side as usize];
        let place = like(packet) & (recent.len() - 1);
        &mut recent[place]
    }

    /// Keeps as much room for recent connections as there are.
    fn make_room(&mut self) {
        for recent in &mut self.recent {
            if recent.len() < 4 * self.slots.len() {
                let more = 2 * recent.len();
                recent.clear();
                recent.resize(more, Recent::default());
            }
        }
    }

    fn look_up(&mut self, side: Side, packet: &Packet) -> Option<(usize, Direction)> {
        let uses = self.by_tuple.get(&tuple(packet.from, packet.to))?;
        let slot = *uses.slots.get(uses.current[side as usize]?)?;
        let connection = self.slots.get(slot)?.as_ref()?;
        let number = connection.number;
        let direction = connection.direction_of(packet)?;
        let takes = connection.takes(side, direction, packet);
        *self.recent(side, packet) = Recent::of(slot, number);
        takes.then_some((slot, direction))
    }

    /// The connection that a packet belongs to, opened if it is new. Those that it supersedes are
    /// added to `over`. The time is by the sender's clock. `None` if it can be of none that is open,
    /// and no other packet shows that there is another one.
    pub(crate) fn find(
        &mut self,
        side: Side,
        packet: &Packet,
        now_ns: i64,
        over: &mut Vec<Connection>,
    ) -> Option<Found> {
        if let Some((slot, direction)) = self.current(side, packet) {
            return Some(Found {
                slot,
                direction,
                earlier: None,
            });
        }
        let tuple = tuple(packet.from, packet.to);
        let uses = self.by_tuple.entry(tuple).or_default();
        let current = uses.current[side as usize];
        let from = current.map_or(0, |index| index + 1);
        let next = (from..uses.slots.len()).find(|&index| {
            let slot = uses.slots.get(index).and_then(|&slot| self.slots.get(slot));
            let connection = slot.and_then(Option::as_ref);
            connection.is_some_and(|connection| {
                let direction = connection.direction_of(packet);
                direction.is_some_and(|direction| connection.takes(side, direction, packet))
            })
        });
        let open = uses.slots.get(current.unwrap_or(0)).copied();
        let open = open.and_then(|slot| self.slots.get_mut(slot)?.as_deref_mut());
        let mut earlier = None;
        if let Some(open) = open {
            earlier = open.agreeing(side, packet);
            if earlier.is_none() && next.is_none() && !packet.flags.syn {
                open.keep_stray(side, packet);
                return None;
            }
        }
        let index = next.unwrap_or(uses.slots.len());
        uses.current[side as usize] = Some(index);
        let slot = match uses.slots.get(index) {
            Some(&slot) => slot,
            None => {
                self.opened += 1;
                let first = earlier.as_deref().unwrap_or(packet);
                let ago_ns = packet.at_ns.saturating_sub(first.at_ns);
                let first_ns = now_ns.saturating_sub(ago_ns);
                let connection = Connection::new(self.opened, first, first_ns, self.has_receiver);
                let slot = self.free.pop().unwrap_or(self.slots.len());
                match self.slots.get_mut(slot) {
                    Some(place) => *place = Some(Box::new(connection)),
                    None => self.slots.push(Some(Box::new(connection))),
                }
                uses.slots.push(slot);
                slot
            }
        };
        let behind = if self.has_receiver {
            uses.current[0].min(uses.current[1]).unwrap_or(0)
        } else {
            index
        };
        for slot in uses.slots.drain(..behind) {
            over.extend(self.slots[slot].take().map(|connection| *connection));
            self.free.push(slot);
        }
        for current in uses.current.iter_mut().flatten() {
            *current -= behind;
        }
        *self.recent(side, packet) = Recent::default();
        self.make_room();
        let connection = self.slots.get(slot)?.as_deref()?;
        Some(Found {
            slot,
            direction: connection.direction_of(packet)?,
            earlier: earlier.and_then(|earlier| {
                let direction = connection.direction_of(&earlier)?;
                Some((earlier, direction))
            }),
        })
    }

    /// Whether a packet's addresses and ports have been seen.
    pub(crate) fn knows(&self, packet: &Packet) -> bool {
        self.by_tuple.contains_key(&tuple(packet.from, packet.to))
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, slot: usize) -> Option<&mut Connection> {
        self.slots.get_mut(slot)?.as_deref_mut()
    }

    /// Remembers that a connection was closed.
    pub(crate) fn close(&mut self, slot: usize, at_ns: i64) {
        if let Some(connection) = self.get_mut(slot) {
            let number = connection.number;
            self.closed.push_back(Closed {
                at_ns,
                slot,
                number,
            });
        }
    }

    /// Takes out a connection that was closed long enough before `now_ns`.
    #[inline]
    pub(crate) fn expired(&mut self, now_ns: i64) -> Option<Connection> {
        while let Some(first) = self.closed.front()
            && first.at_ns.saturating_add(LINGER_NS) < now_ns
        {
            let Closed { slot, number, .. } = self.closed.pop_front()?;
            let is_it = |connection: &&mut Connection| connection.number == number;
            if let Some(connection) = self.get_mut(slot).filter(is_it) {
                let tuple = tuple(connection.originator, connection.responder);
                return self.remove(tuple, slot);
            }
        }
        None
    }

    fn remove(&mut self, tuple: (Endpoint, Endpoint), slot: usize) -> Option<Connection> {
        if let Some(uses) = self.by_tuple.get_mut(&tuple)
            && let Some(index) = uses.slots.iter().position(|&used| used == slot)
        {
            uses.slots.remove(index);
            for current in &mut uses.current {
                *current = match *current {
                    Some(at) if at == index => None,
                    Some(at) if at > index => Some(at - 1),
                    other => other,
                };
            }
            if uses.slots.is_empty() {
                self.by_tuple.remove(&tuple);
            }
        }
        self.free.push(slot);
        self.slots.get_mut(slot)?.take().map(|boxed| *boxed)
    }

    /// All that are left, in the order in which they appeared.
    pub(crate) fn into_rest(mut self) -> impl Iterator<Item = Connection> {
        self.slots
            .sort_by_key(|slot| slot.as_ref().map(|connection| connection.number));
        self.slots.into_iter().flatten().map(|boxed| *boxed)
    }
}

/// A number that is the same for both directions of a connection.
#[inline]
fn like(packet: &Packet) -> usize {
    const MIX: u64 = 0x9e37_79b9_7f4a_7c15;
    let number = |end: &Endpoint| {
        let address = u128::from_ne_bytes(end.address);
        let halves = (address >> 64) as u64 ^ (address as u64).rotate_left(32);
        (halves ^ u64::from(end.port)).wrapping_mul(MIX)
    };
    let both = number(&packet.from).wrapping_add(number(&packet.to));
    (both.wrapping_mul(MIX) >> 32) as usize
}

#[inline]
fn tuple(one: Endpoint, other: Endpoint) -> (Endpoint, Endpoint) {
    // Ports mostly differ, and are compared faster than addresses.
    if (one.port, one.address) <= (other.port, other.address) {
        (one, other)
    } else {
        (other, one)
    }
}
