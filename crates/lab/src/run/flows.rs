use pillion_bundler::{Counters, Flow, Outcome};
use serde::Serialize;

/// The heading of pillion's records of connections as CSV, with the units.
pub(super) fn flows_heading() -> String {
    format!(
        "at_ns,local,local_port,peer,peer_port,loss_rule,level_segments,last,segments,bundled,{},\
         rate_allowed_bytes_per_s,rate_sent_bytes_per_s",
        Counters::NAMES.join(",")
    )
}

/// A record of a connection as a line of CSV, without its end; what is not known is left empty.
pub(super) fn flow_line(at_ns: u64, flow: &Flow) -> String {
    let (local, peer, counters) = (flow.local, flow.peer, &flow.counters);
    let mut line = format!(
        "{at_ns},{},{},{},{},{},{},{}",
        local.ip(),
        local.port(),
        peer.ip(),
        peer.port(),
        word(&flow.loss_rule),
        flow.level,
        word(&flow.last),
    );
    let rates = flow.decision;
    let counted = [counters.segments(), counters.of(Outcome::Bundled)];
    let counted = counted.into_iter().chain(counters.values()).map(Some);
    let rates = [
        rates.map(|rates| rates.rate_allowed.into()),
        rates.map(|rates| rates.rate_sent.into()),
    ];
    for number in counted.chain(rates) {
        line.push(',');
        line.extend(number.map(|number| number.to_string()));
    }
    line
}

/// A value as in JSON, without quotes.
fn word(value: &impl Serialize) -> String {
    let value = serde_json::to_value(value).unwrap_or_default();
    value.as_str().unwrap_or_default().to_owned()
}
