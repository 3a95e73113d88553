use pillion_bpf::{Companions, Counters, Flow, LossRule, WantedBy};

use super::Connection;

/// A connection of this port for tests.
pub fn example(port: u16) -> Connection {
    let flow = Flow {
        cookie: Some(port.into()),
        inode: None,
        closed_at: None,
        cgroup: None,
        srtt_us: None,
        data_packets: 0,
        retransmitted: 0,
        local: ([192, 0, 2, 1], port).into(),
        peer: ([198, 51, 100, 1], 443).into(),
        netns: Some(1),
        in_flight: 0,
        rtt_min_us: None,
        snd_cwnd: 10,
        mss: 1460,
        wanted_by: WantedBy::Rule,
        rule: Some(1),
        off: false,
        loss_rule: LossRule::Auto,
        governor: None,
        level: 1,
        path_size: None,
        ignores_cwr: false,
        companions: Companions::default(),
        companions_refused: Vec::new(),
        last: None,
        counters: Counters::default(),
        decision: None,
    };
    Connection {
        process: None,
        pid: None,
        unit: None,
        namespace: "game".to_owned(),
        flow,
    }
}
