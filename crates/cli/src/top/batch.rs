//! Rounds as text or JSON, one after the other.

use std::time::Duration;

use anyhow::Result;
use pillion_host::Ticks;

use super::Source;
use super::view::View;
use crate::flows::list;
use crate::print::{print, print_line};
use crate::stop;

/// Prints rounds until there were so many, or a signal ends it.
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
        view.take(source.read()?);
        let wanted = view.wanted();
        if json {
            print_line!("{}", serde_json::to_string(&wanted)?)?;
        } else {
            let blank = if round > 0 { "\n" } else { "" };
            match wanted.is_empty() {
                true => print_line!("{blank}{}", view.nothing())?,
                false => print(&format!("{blank}{}", list(&wanted, None)))?,
            }
        }
        round += 1;
    }
    Ok(())
}
