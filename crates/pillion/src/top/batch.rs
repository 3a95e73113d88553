//! Rounds as text or JSON, one after the other.

use std::time::Duration;

use anyhow::Result;
use pillion_bpf::host::Ticks;
use pillion_cli::print::print_if_read;
use pillion_cli::stop;

use super::Source;
use super::view::View;
use crate::flows::{columns, list};

/// Prints rounds until there were so many, nobody reads them any more, or a signal ends it.
pub fn run(
    mut source: Source,
    mut view: View,
    interval: Duration,
    rounds: Option<u64>,
    json: bool,
) -> Result<()> {
    let stop = stop::on_signal()?;
    let mut ticks = Ticks::every(interval);
    let mut round = 0;
    while rounds.is_none_or(|rounds| round < rounds) && stop::sleep_until(ticks.next_ns(), &stop) {
        view.list(source.read()?);
        let wanted = view.wanted();
        let text = if json {
            serde_json::to_string(&wanted)? + "\n"
        } else {
            let blank = if round > 0 { "\n" } else { "" };
            match wanted.is_empty() {
                true => format!("{blank}{}\n", view.nothing()),
                false => format!("{blank}{}", list(&wanted, columns(), None).text),
            }
        };
        if !print_if_read(&text)? {
            break;
        }
        round += 1;
    }
    Ok(())
}
