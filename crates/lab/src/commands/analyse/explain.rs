use std::process::ExitCode;

use anyhow::Result;
use pillion_cli::print::{print, print_json};
use pillion_cli::settings::BadInput;
use pillion_lab::analysis::{Target, Trace, Traces, Witness};

use super::files::{exit_code, observe};
use super::tell;

/// Tells the story of one byte range.
pub fn explain(traces: Traces, target: Target, json: bool) -> Result<ExitCode> {
    let observed = observe(traces, Witness::new(target));
    let exit_code = exit_code(&observed);
    let clock = observed.finding.as_ref().map(|finding| finding.clock);
    let begin_ns: Vec<i64> = observed.traces.iter().map(Trace::begin_ns).collect();
    let story = observed.observer.story(clock.as_ref(), &begin_ns);
    let story = story.map_err(|error| BadInput(error.to_string()))?;
    if json {
        print_json(&story)?;
    } else {
        print(&tell::text(&story, &observed.traces))?;
    }
    Ok(exit_code)
}
