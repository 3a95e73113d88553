//! Advice in words, as tables and as a page.

use std::time::Duration;

use crate::trial::{Advice, Finding, Service};
use pillion_stats::measure::{Unit, share};
use pillion_stats::report::{Axis, Column, Fact, Figure, Line, Page, Table, number};
use serde_json::json;

use crate::observe::config::name;
use crate::observe::words::estimate;

pub fn title(advice: &Advice) -> String {
    let service = match advice.service {
        Service::Local(port) => format!("port {port} here"),
        Service::Remote(port) => format!("port {port} of the peer"),
    };
    let guess = if advice.guessed { " (a guess)" } else { "" };
    let peer = advice
        .peer
        .map(|peer| format!(", {peer}"))
        .unwrap_or_default();
    format!(
        "{}, {service}{guess}{peer}",
        name(advice.process.as_deref())
    )
}

/// What to do, in words, with what speaks for it.
pub fn recommendation(advice: &Advice) -> String {
    let all = &advice.summary;
    let losses = all.lost.saturating_sub(all.needless);
    match advice.finding {
        Finding::Bundle => format!(
            "bundle it. Of {losses} losses, bundles would have repaired {}; a segment would have \
             waited {} ms less on average, for {} more bytes{}",
            estimate(advice.repairable, Unit::Share),
            estimate(advice.saved_ms, Unit::Milliseconds),
            estimate(advice.added, Unit::Share),
            copies(advice),
        ),
        Finding::TooFewSegments => format!(
            "{} segments are too few to say anything; watch for longer",
            number::count(all.segments)
        ),
        Finding::TooFewLosses => format!(
            "too few losses to say ({losses} in {} segments); watch for longer, or try it: pillion \
             trial",
            number::count(all.segments)
        ),
        Finding::TooFewConnections => format!(
            "too few connections to say ({}); of their {losses} losses, bundles would have \
             repaired {}. Watch for longer, or try it: pillion trial",
            all.connections,
            estimate(advice.repairable, Unit::Share),
        ),
        Finding::NotThin => {
            "leave it alone: it has so much in flight that TCP repairs losses soon (not thin)"
                .to_owned()
        }
        Finding::Alone => format!(
            "leave it alone: each message was acknowledged before the next was sent, so that \
             nothing could have ridden along{}",
            copies(advice),
        ),
        Finding::NoRoom => {
            "leave it alone: its messages leave no room in a segment (the MSS) for one before"
                .to_owned()
        }
        Finding::NoSack => {
            "leave it alone: the peers offer no SACK, without which losses can only be guessed; \
             --without-sack watches and bundles all the same"
                .to_owned()
        }
        Finding::Ineligible => {
            "nothing learnt: none of its segments could have had a bundle, as where another pillion \
             bundles them; the outcomes in --stats FILE say why not"
                .to_owned()
        }
        Finding::LittleToRepair => format!(
            "leave it alone: of {losses} losses, bundles would have repaired {}{}",
            estimate(advice.repairable, Unit::Share),
            copies(advice),
        ),
    }
}

/// What a copy of each segment would have brought, for one who could send them: pillion does not.
fn copies(advice: &Advice) -> String {
    if advice.summary.copies_saved_us == 0 {
        return String::new();
    }
    format!(
        "; {} ms less at most with a copy of each segment, for twice the packets",
        estimate(advice.copies_saved_ms, Unit::Milliseconds)
    )
}

/// What was seen. What the model makes of it is too wide for a terminal, and in the advice.
pub fn seen(advice: &[Advice]) -> Table {
    let mut table = Table::new(
        "What was watched, those that waited longest first",
        [
            Column::left("process and service"),
            Column::right("connections"),
            Column::right("segments"),
            Column::right("p50").unit("ms"),
            Column::right("p99").unit("ms"),
            Column::right("late"),
            Column::right("lost"),
            Column::right("time-outs"),
            Column::right("probes"),
        ],
    );
    for it in advice {
        let all = &it.summary;
        table.row([
            title(it),
            number::count(all.connections),
            number::count(all.segments),
            number::millis(all.latencies.quantile_ms(0.5)),
            number::millis(all.latencies.quantile_ms(0.99)),
            number::percent(share(all.late, all.segments)),
            number::percent(it.loss.map(|loss| loss.value)),
            number::count(all.timeouts),
            number::count(all.probes),
        ]);
    }
    table
}

/// What bundles would have made of it, with intervals.
fn model(advice: &[Advice]) -> Table {
    let mut table = Table::new(
        "What bundling would have done, with intervals of 95 % confidence",
        [
            Column::left("process and service"),
            Column::right("lost"),
            Column::right("repairable"),
            Column::right("saved").unit("ms a segment"),
            Column::right("by copies at most").unit("ms a segment"),
            Column::right("bytes added"),
        ],
    );
    for it in advice {
        table.row([
            title(it),
            estimate(it.loss, Unit::Share),
            estimate(it.repairable, Unit::Share),
            estimate(it.saved_ms, Unit::Milliseconds),
            estimate(it.copies_saved_ms, Unit::Milliseconds),
            estimate(it.added, Unit::Share),
        ]);
    }
    table
}

/// Lines that a figure has room for.
const SHOWN: usize = 6;

pub fn page(advice: &[Advice], elapsed: Duration, config: Option<&str>) -> Page {
    let lines = advice.iter().take(SHOWN);
    let lines = lines.map(|it| Line::step(title(it), it.summary.latencies.cumulative()));
    let figure = Figure {
        title: "How long segments waited to be acknowledged".to_owned(),
        caption:
            "Of each process and service, the share of segments that were acknowledged within \
                  this time."
                .to_owned(),
        x: Axis::log("ACK latency", "ms"),
        y: Axis {
            min: Some(0.0),
            max: Some(1.0),
            ..Axis::linear("share of segments", "")
        },
        side: None,
        lines: lines.collect(),
    };
    let mut words = Table::new(
        "What to do",
        [Column::left("process and service"), Column::left("advice")],
    );
    for it in advice {
        words.row([title(it), recommendation(it)]);
    }
    let worth = advice
        .iter()
        .filter(|it| it.finding == Finding::Bundle)
        .count();
    let mut method = vec![Fact::new(
        "watched",
        format!(
            "{} s; nothing was bundled",
            number::count(elapsed.as_secs())
        ),
    )];
    method.extend(config.map(|text| Fact::verbatim("rules for `pillion attach --config`", text)));
    Page {
        title: "What bundling would bring".to_owned(),
        lead: format!(
            "Of {} services watched, bundling would help {worth}, as far as the data tell.",
            advice.len()
        ),
        parts: vec![
            words.into(),
            seen(advice).into(),
            model(advice).into(),
            figure.into(),
        ],
        method,
        data: json!({ "advice": advice }),
    }
}
