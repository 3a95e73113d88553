//! The terminal, until it is to be as it was.

use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::AsFd;
use std::process;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use crossterm::event;
use nix::poll::{PollFd, PollFlags};
use pillion_bpf::host::interruption::poll;
use pillion_cli::stop;
use ratatui::DefaultTerminal;

use super::Source;
use super::draw::draw;
use super::view::{Next, View};

/// How long a signal may wait for its effect.
const PATIENCE: Duration = Duration::from_millis(100);

/// The terminal, which is as it was before once this ends; also if the process panics.
struct Screen(ManuallyDrop<DefaultTerminal>);

impl Screen {
    fn take() -> Result<Self> {
        let terminal = ratatui::try_init().context("take the terminal")?;
        Ok(Self(ManuallyDrop::new(terminal)))
    }
}

impl Drop for Screen {
    /// A terminal that is gone cannot be restored, and there may be no standard error to say so on, as
    /// the terminal's own end would.
    fn drop(&mut self) {
        let _ = self.0.show_cursor();
        let _ = ratatui::try_restore();
    }
}

/// Waits for the terminal's end, if it does not come before; true if the terminal is gone.
fn is_gone(timeout: Option<Duration>) -> bool {
    let stdin = io::stdin();
    let mut fds = [PollFd::new(stdin.as_fd(), PollFlags::empty())];
    matches!(poll(&mut fds, timeout), Ok(1..))
}

/// Ends the process once the terminal is gone. That takes a thread: what reads keys would try again for
/// ever, and SIGHUP may be ignored, or not come where another process leads the session.
fn end_with_the_terminal() {
    thread::spawn(|| {
        if is_gone(None) {
            process::exit(0);
        }
    });
}

/// Shows rounds until a key or a signal ends it, or the terminal is gone.
pub fn run(source: Source, view: View, interval: Duration) -> Result<()> {
    let shown = show(source, view, interval);
    if is_gone(Some(Duration::ZERO)) {
        return Ok(());
    }
    shown
}

fn show(mut source: Source, mut view: View, interval: Duration) -> Result<()> {
    let stop = stop::on_any_signal()?;
    end_with_the_terminal();
    view.take(source.read()?);
    let mut due = Instant::now() + interval;
    let mut screen = Screen::take()?;
    let mut is_drawn = false;
    while !stop.load(Ordering::Relaxed) {
        if !is_drawn {
            let drawn = screen.0.draw(|frame| draw(frame, &mut view));
            drawn.context("draw on the terminal")?;
            is_drawn = true;
        }
        let left = due.saturating_duration_since(Instant::now());
        if event::poll(left.min(PATIENCE)).context("wait for a key")? {
            is_drawn = false;
            let event = event::read().context("read a key")?;
            let key = event.as_key_press_event();
            if key.is_some_and(|key| view.key(key) == Next::End) {
                break;
            }
        }
        if Instant::now() >= due {
            if !view.paused {
                view.take(source.read()?);
                is_drawn = false;
            }
            due = Instant::now() + interval;
        }
    }
    Ok(())
}
