//! Writes a page from synthetic data, as `pillion-lab demo` would: 20 plain and 20 bundled TCP
//! thin streams over a lossy path. `cargo run -p pillion-stats --example two_cdfs -- OUT.html`

use pillion_stats::report::{Axis, Column, Distribution, Fact, Figure, Line, Page, Table, number};
use rand::{RngExt, SeedableRng, rngs::SmallRng};
use serde_json::json;

const ONE_WAY_MS: f64 = 75.0;
const ITT_MS: f64 = 30.0;
const LOSS: f64 = 0.1;
const MESSAGES: usize = 24_000;

fn main() -> std::io::Result<()> {
    let mut rng = SmallRng::seed_from_u64(1);
    let plain = Distribution::new((0..MESSAGES).map(|_| plain(&mut rng)));
    let bundled = Distribution::new((0..MESSAGES).map(|_| bundled(&mut rng)));
    let table = table(&plain, &bundled);
    print!("{}", table.to_text());
    if let Some(path) = std::env::args().nth(1) {
        std::fs::write(path, page(&plain, &bundled, table).to_html())?;
    }
    Ok(())
}

/// Latency of a message with plain TCP, in ms: a lost one waits for a retransmission, and those
/// behind it wait with it.
fn plain(rng: &mut SmallRng) -> f64 {
    let jitter = rng.random::<f64>() * 0.4;
    if rng.random::<f64>() > 0.38 {
        return ONE_WAY_MS + jitter;
    }
    let mut repair = 180.0 + rng.random::<f64>() * 12.0;
    while rng.random::<f64>() < LOSS && repair < 1000.0 {
        repair *= 2.0;
    }
    let behind = (rng.random::<f64>() * 7.0).floor();
    ONE_WAY_MS + (repair - behind * ITT_MS).max(0.0) + jitter
}

/// Latency of a message with bundling, in ms: a lost one arrives with one of those that follow.
fn bundled(rng: &mut SmallRng) -> f64 {
    let mut latency = ONE_WAY_MS + rng.random::<f64>() * 0.4;
    while rng.random::<f64>() < LOSS && latency < ONE_WAY_MS + 2.5 * ITT_MS {
        latency += ITT_MS;
    }
    match rng.random::<f64>() < 0.0008 {
        true => latency + 170.0 * rng.random::<f64>(),
        false => latency,
    }
}

fn table(plain: &Distribution, bundled: &Distribution) -> Table {
    let columns = ["plain TCP", "pillion", "ratio"].map(Column::right);
    let columns = std::iter::once(Column::left("")).chain(columns);
    let mut table = Table::new("Plain TCP and pillion, side by side", columns);
    let messages = [plain, bundled].map(|d| number::count(d.len() as u64));
    table.row(["messages", &messages[0], &messages[1], ""]);
    table.section("delivery latency, ms");
    for (name, q) in [
        ("p50", 0.5),
        ("p90", 0.9),
        ("p97", 0.97),
        ("p99", 0.99),
        ("p99.9", 0.999),
        ("max", 1.0),
    ] {
        let (a, b) = (plain.quantile(q), bundled.quantile(q));
        let ratio = number::ratio(a.zip(b).map(|(a, b)| a / b));
        table.row([name.into(), number::millis(a), number::millis(b), ratio]);
    }
    table.section("cost");
    table.row(["retransmissions", "2 391", "168", "14x"]);
    table.row([
        "bytes on the wire".into(),
        number::bytes(3.9e6),
        number::bytes(6.3e6),
        number::ratio(3.9 / 6.3),
    ]);
    table
}

fn page(plain: &Distribution, bundled: &Distribution, table: Table) -> Page {
    let series = [("plain TCP", plain), ("pillion", bundled)];
    let latency = Axis {
        min: Some(0.0),
        ..Axis::linear("delivery latency", "ms")
    };
    let mut tail = Figure::ccdf(
        "Who waits, and how long",
        latency.clone(),
        "share of messages that took longer",
        &series,
    );
    tail.caption = "At each latency, the share of the messages that took longer, on a log scale: \
                    the lower and the further left a line, the fewer messages are late."
        .into();
    let steps = (1..6).map(|k| {
        let latency = ONE_WAY_MS + f64::from(k - 1) * ITT_MS;
        (latency, LOSS.powi(k))
    });
    let bound = Line::step("bound: loss^(k+1)", steps.collect()).reference();
    tail.lines.push(bound);
    tail.lines
        .push(Line::vertical("one-way delay 75 ms", ONE_WAY_MS));

    let mut body = Figure::cdf(
        "The same as an ordinary CDF",
        Axis {
            max: Some(400.0),
            ..latency
        },
        "share of messages that took no longer",
        &series,
    );
    body.caption = "Up to 400 ms, as published figures show it.".into();

    let p99 = [plain, bundled].map(|d| d.quantile(0.99));
    let p99 = p99.map(number::millis);
    let late = number::percent(plain.share_above(200.0));
    let late_bundled = number::percent(bundled.share_above(200.0));
    Page {
        title: "Twenty plain and twenty bundled TCP thin streams, side by side".into(),
        lead: format!(
            "One message in a hundred took longer than {} ms with plain TCP, and longer than {} ms \
             with pillion. Later than 200 ms: {late} with plain TCP, {late_bundled} with pillion.",
            p99[0], p99[1]
        ),
        parts: vec![tail.into(), table.into(), body.into()],
        method: vec![
            Fact::new(
                "data",
                "synthetic: an example of the page, not a measurement",
            ),
            Fact::new("streams", "20 plain and 20 bundled, 120 bytes every 30 ms"),
            Fact::new("path", "75 ms each way, 10 % loss each way, 10 Mbit/s"),
            Fact::new("kernel", "Linux 6.18.0, sysctls as shipped"),
            Fact::verbatim("command", "pillion-lab demo --seed 1 --out report.html"),
        ],
        data: json!({
            "unit": "ms",
            "series": series.map(|(name, d)| json!({"name": name, "ccdf": d.ccdf()})),
        }),
    }
}
