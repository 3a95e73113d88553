//! The story of one byte range.

mod event;
mod story;
mod target;
mod tell;

use std::process::ExitCode;

use anyhow::Result;

use super::traces::Traces;
use crate::exit::BadInput;
use story::Witness;
pub use target::Target;

pub fn print(traces: Traces, target: Target, json: bool) -> Result<ExitCode> {
    let observed = traces.observe(Witness::new(target));
    let exit_code = observed.exit_code();
    let clock = observed.finding.as_ref().map(|finding| finding.clock);
    let story = observed.observer.story(clock.as_ref(), &observed.begin_ns);
    let story = story.map_err(BadInput)?;
    if json {
        println!("{}", serde_json::to_string_pretty(&story)?);
    } else {
        print!("{}", tell::text(&story, &observed.names));
    }
    Ok(exit_code)
}
