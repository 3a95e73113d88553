use std::collections::BTreeMap;

use super::*;
use crate::measure_ref::{JAIN_OF_ALL, MeasureRef, levels};
use crate::run_key::Selector;

mod figures;
mod measures;
mod numbers;
mod page;
mod sending;
mod verdict;

const P97: &str = "ack_latency_ms p97";

/// A run whose group `thin` has ACK latencies from 0 to 1000 ms times this, and lost this share.
fn run(name: &str, scale: f64) -> DigestedRun {
    let latencies = levels().map(|level| level * 1000.0 * scale).collect();
    let thin = GroupDigest {
        values: BTreeMap::from([("lost_data_packets_share".to_owned(), scale / 100.0)]),
        distributions: BTreeMap::from([("ack_latency_ms".to_owned(), latencies)]),
        streams: BTreeMap::from([("retransmitted_packets".to_owned(), vec![1.0, 2.0, 40.0])]),
        slices: BTreeMap::from([("received_goodput_bit_per_s".to_owned(), vec![2e6, 1e6, 3e6])]),
    };
    let greedy = GroupDigest {
        values: BTreeMap::from([("lost_data_packets_share".to_owned(), 0.02)]),
        ..GroupDigest::default()
    };
    let groups = [("thin".to_owned(), thin), ("greedy".to_owned(), greedy)];
    DigestedRun {
        name: name.into(),
        digest: Digest {
            groups: groups.into(),
            doubts: Vec::new(),
        },
    }
}

fn runs() -> Vec<DigestedRun> {
    vec![
        run("plain,kernel=today,seed=1", 1.0),
        run("plain,kernel=today,seed=2", 1.2),
        run("bundled,kernel=today,seed=1", 0.5),
        run("plain,kernel=then,seed=1", 2.0),
    ]
}

/// The same, of seeds that give nearly the same.
fn close_runs() -> Vec<DigestedRun> {
    vec![
        run("plain,kernel=today,seed=1", 1.099),
        run("plain,kernel=today,seed=2", 1.101),
        run("bundled,kernel=today,seed=1", 0.5495),
        run("plain,kernel=then,seed=1", 2.0),
    ]
}

fn parts(text: &str) -> Selector {
    text.into()
}

fn measure(name: &str) -> MeasureRef {
    name.parse().unwrap()
}

fn subject(runs: &str, group: &str) -> Subject {
    Subject {
        runs: parts(runs),
        group: group.to_owned(),
    }
}

fn claim(statement: Statement) -> Claim {
    Claim {
        what: "a number".to_owned(),
        source: "a paper".to_owned(),
        measure: measure(P97),
        subject: subject("plain", "thin"),
        over: None,
        over_measure: None,
        minus: None,
        statement,
    }
}

fn judged(claim: &Claim) -> Judged {
    claim.judge(
        &close_runs(),
        &parts("kernel=today"),
        &[parts("kernel=then")],
    )
}
