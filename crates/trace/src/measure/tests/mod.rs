mod blocking;
mod delay;
mod loss;
mod part;
mod sent;
mod tables;
mod unshown;
mod whole;

use super::{Distribution, Group, Meter, Options, Results, jain_index, write_tables};
use crate::Direction::{Backward, Forward};
use crate::packet::Packet;
use crate::script::{MS, Script, carry, endpoint, established, one_message, repaired_by_a_bundle};
use crate::{Analysis, Outcome, Period, Side, When, pair};

const ONE_WAY: i64 = 75 * MS;
const AHEAD: i64 = 3_600_000 * MS;

fn measure(script: &Script, options: Options) -> Results {
    let mut analysis = Analysis::new(Meter::new(options));
    for packet in &script.packets {
        analysis.packet(packet);
    }
    analysis.finish().finish()
}

fn measure_both(here: &[Packet], there: &[Packet], options: Options) -> Results {
    measure_pair(here, there, &pair::Options::default(), options)
}

fn measure_by_one_clock(here: &[Packet], there: &[Packet]) -> Results {
    let pair = pair::Options {
        same_clock: true,
        ..pair::Options::default()
    };
    measure_pair(here, there, &pair, Options::default())
}

fn measure_pair(
    here: &[Packet],
    there: &[Packet],
    pair: &pair::Options,
    options: Options,
) -> Results {
    let (here, there) = (here.iter().copied(), there.iter().copied());
    let (meter, finding) = pair::analyse(here, there, pair, Meter::new(options));
    meter.finish_pair(&finding.clock)
}

/// Packets 1 to 3 are the handshake, complete at 150 ms.
fn ms(distribution: &Distribution) -> Vec<(u64, u64)> {
    let steps = distribution.steps().into_iter();
    steps
        .map(|(ns, times)| (ns / MS.unsigned_abs(), times))
        .collect()
}

/// Four messages, each 30 ms; the first is lost, and the bundle in the third comes too late for
/// it: it is sent again at 500 ms.
fn one_loss() -> Script {
    let mut script = established();
    script.at(200).data(1, 101).at(230).data(101, 201);
    script.at(260).data(101, 301).at(290).data(301, 401);
    script.at(380).ack(1).at(410).ack(1);
    script
        .at(500)
        .data(1, 101)
        .at(650)
        .ack(401)
        .at(700)
        .close(401);
    script
}
