mod coverage;
mod delivery;
mod matching;
mod nat;
mod unshown;

use std::net::IpAddr;

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use crate::Direction::{Backward, Forward};
use crate::packet::Packet;
use crate::pair::{self, Arrival, Options};
use crate::script::{
    MS, Record, Script, analyse_both, carry, endpoint, established, one_message,
    repaired_by_a_bundle,
};
use crate::{Class, Readable, Side};

const ONE_WAY: i64 = 75 * MS;
const AHEAD: i64 = 3_600_000 * MS;

/// Packets 1 to 3 are the handshake, complete at 150 ms.
fn arrivals(record: &Record) -> Vec<bool> {
    let data = record
        .fates
        .iter()
        .filter(|fate| fate.class != Class::Control);
    data.map(|fate| matches!(fate.arrival, Arrival::Delivered { .. }))
        .collect()
}
