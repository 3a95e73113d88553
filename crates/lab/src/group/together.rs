use std::thread;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

use super::Group;
use crate::Error;

/// Lets all groups go once each of them is ready, and waits until all have ended. On a
/// terminal, a line shows how the time passes.
///
/// # Errors
/// [`Error::System`]; a group that fails says so at its own end.
pub fn run_together(groups: &mut [Group]) -> Result<(), Error> {
    groups.iter_mut().for_each(Group::await_ready);
    groups.iter_mut().for_each(Group::open);
    let expected = groups.iter().map(|group| group.duration).max();
    let expected = expected.unwrap_or_default();
    let template = "{msg} {wide_bar} {eta} left";
    let style =
        ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    let bar = ProgressBar::new(expected.as_millis() as u64).with_style(style);
    let begun = Instant::now();
    while !all_ended(groups)? {
        let elapsed = begun.elapsed();
        bar.set_message(if elapsed < expected {
            "sending"
        } else {
            "last bytes"
        });
        bar.set_position(elapsed.min(expected).as_millis() as u64);
        thread::sleep(Duration::from_millis(100));
    }
    bar.finish_and_clear();
    Ok(())
}

fn all_ended(groups: &mut [Group]) -> Result<bool, Error> {
    let mut all = true;
    for group in groups {
        all &= group.has_ended()?;
    }
    Ok(all)
}
