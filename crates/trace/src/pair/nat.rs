use std::collections::{HashMap, VecDeque};

use foldhash::fast::RandomState;

use crate::packet::{Endpoint, Packet};

/// What the trace at the sender calls the addresses and ports that the trace at the receiver
/// shows.
#[derive(Debug, Default)]
pub(crate) struct Nat {
    /// Changed addresses that were given: the one at the receiver, the one at the sender.
    addresses: Vec<([u8; 16], [u8; 16])>,
    /// Changed ends that were found: both at the receiver, both at the sender.
    found: HashMap<Endpoints, Endpoints, RandomState>,
    /// The last packets at the sender of connections that were new there.
    announced: HashMap<u64, Endpoints, RandomState>,
    order: VecDeque<u64>,
}

type Endpoints = (Endpoint, Endpoint);

/// New connections that may wait at one time for the trace at the receiver to show them.
const MOST_ANNOUNCED: usize = 16_384;

impl Nat {
    pub(crate) fn new(addresses: Vec<([u8; 16], [u8; 16])>) -> Self {
        Self {
            addresses,
            ..Self::default()
        }
    }

    /// Whether any addresses or ports are known to differ.
    #[inline]
    pub(crate) fn translates(&self) -> bool {
        !(self.found.is_empty() && self.addresses.is_empty())
    }

    /// A packet of the receiver's trace with the addresses and ports that it has in the
    /// sender's, as far as is known.
    pub(crate) fn translate(&self, packet: &Packet) -> Packet {
        let (mut from, mut to) = (packet.from, packet.to);
        if let Some(&found) = self.found.get(&(from, to)) {
            (from, to) = found;
        } else {
            for end in [&mut from, &mut to] {
                let given = self
                    .addresses
                    .iter()
                    .find(|(there, _)| end.address == *there);
                end.address = given.map_or(end.address, |&(_, here)| here);
            }
        }
        Packet {
            from,
            to,
            ..*packet
        }
    }

    /// Remembers a packet of the sender's trace, by its fingerprint, to know it again under
    /// other addresses.
    pub(crate) fn announce(&mut self, print: u64, packet: &Packet) {
        if self
            .announced
            .insert(print, (packet.from, packet.to))
            .is_none()
        {
            self.order.push_back(print);
        }
        if self.order.len() > MOST_ANNOUNCED
            && let Some(oldest) = self.order.pop_front()
        {
            self.announced.remove(&oldest);
        }
    }

    /// Whether a packet of the receiver's trace, one that is unknown there, was announced under
    /// other addresses; they are taken for its own from then on.
    pub(crate) fn recognise(&mut self, print: u64, packet: &Packet) -> bool {
        let there = (packet.from, packet.to);
        match self.announced.get(&print) {
            Some(&here) if here != there => {
                self.link(there, here);
                true
            }
            _ => false,
        }
    }

    /// Says that these ends at the receiver are those at the sender.
    pub(crate) fn link(&mut self, there: Endpoints, here: Endpoints) {
        self.found.insert(there, here);
        self.found.insert((there.1, there.0), (here.1, here.0));
    }

    /// Pairs of ends that were found to differ.
    pub(crate) fn translations(&self) -> usize {
        self.found
            .iter()
            .filter(|(there, here)| there != here)
            .count()
            / 2
    }
}
