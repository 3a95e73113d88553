//! The terminal, until it is to be as it was.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use ratatui::DefaultTerminal;
use ratatui::crossterm::event;

use super::Source;
use super::draw::draw;
use super::view::{Next, View};
use crate::stop;

/// How long a signal may wait for its effect.
const PATIENCE: Duration = Duration::from_millis(100);

/// The terminal, which is as it was before once this ends; also if the process panics.
struct Screen(DefaultTerminal);

impl Screen {
    fn take() -> Result<Self> {
        ratatui::try_init().map(Self).context("take the terminal")
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        ratatui::restore();
    }
}

/// Shows rounds until a key or a signal ends it.
pub fn run(mut source: Source, mut view: View, interval: Duration) -> Result<()> {
    let stop = stop::on_signal()?;
    view.take(source.read()?);
    let mut due = Instant::now() + interval;
    let mut screen = Screen::take()?;
    while !stop.load(Ordering::Relaxed) {
        let drawn = screen.0.draw(|frame| draw(frame, &mut view));
        drawn.context("draw on the terminal")?;
        let left = due.saturating_duration_since(Instant::now());
        if event::poll(left.min(PATIENCE)).context("wait for a key")? {
            let event = event::read().context("read a key")?;
            let key = event.as_key_press_event();
            if key.is_some_and(|key| view.key(key) == Next::End) {
                break;
            }
        }
        if Instant::now() >= due {
            if !view.paused {
                view.take(source.read()?);
            }
            due = Instant::now() + interval;
        }
    }
    Ok(())
}
