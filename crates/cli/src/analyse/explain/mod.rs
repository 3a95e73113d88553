//! The story of one byte range.

mod event;
mod story;
mod target;
mod tell;

use std::process::ExitCode;

use anyhow::Result;

use super::traces::{Trace, Traces};
use crate::exit::BadInput;
use crate::print::{print, print_json};
use story::Witness;
pub use target::Target;

pub fn explain(traces: Traces, target: Target, json: bool) -> Result<ExitCode> {
    let observed = traces.observe(Witness::new(target));
    let exit_code = observed.exit_code();
    let clock = observed.finding.as_ref().map(|finding| finding.clock);
    let begin_ns: Vec<i64> = observed.traces.iter().map(Trace::begin_ns).collect();
    let story = observed.observer.story(clock.as_ref(), &begin_ns);
    let story = story.map_err(BadInput)?;
    if json {
        print_json(&story)?;
    } else {
        print(&tell::text(&story, &observed.traces))?;
    }
    Ok(exit_code)
}
