//! `pillion top`: the connections that are bundled, as they are from moment to moment.

mod draw;
mod view;

use std::io::{self, IsTerminal};
use std::mem::ManuallyDrop;
use std::os::fd::AsFd;
use std::process::{self, ExitCode};
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use crossterm::event;
use nix::poll::{PollFd, PollFlags};
use pillion_bpf::FlowLister;
use pillion_bpf::host::interruption::poll;
use pillion_bpf::host::{Owners, Ticks};
use pillion_cli::print::print_if_read;
use pillion_cli::settings::BadInput;
use pillion_cli::settings::times::parse_interval;
use pillion_cli::stop;
use ratatui::DefaultTerminal;

use crate::flows::{Connection, columns, list, owned, owners};
use draw::draw;
use view::{Next, Order, View};

/// Watch the connections that running pillions bundle: what they lose, save and cost
///
/// Keys: arrows choose a connection and the column to sort by, `r` reverses, `/` filters, Enter shows
/// one connection, `?` helps, `q` ends. Where there is no terminal, --batch prints rounds as text.
#[derive(clap::Args)]
pub struct Args {
    /// Milliseconds between two rounds, 1 to 86400000
    #[arg(long, value_name = "MS", default_value = "1000", value_parser = parse_interval)]
    interval: Duration,

    /// Sort by this column, as in `saved` or `hidden-losses`; numbers fall, words rise
    #[arg(long, value_name = "COLUMN", default_value = "saved", value_parser = parse_column)]
    sort: usize,

    /// Only connections of which some column has this text
    #[arg(long, value_name = "TEXT", default_value = "")]
    filter: String,

    /// Print each round as text, for scripts and logs
    #[arg(long)]
    batch: bool,

    /// End after so many rounds
    #[arg(long, value_name = "N", requires = "batch", value_parser = clap::value_parser!(u64).range(1..))]
    rounds: Option<u64>,

    /// Print a line of JSON for each round: the connections as `flows --json` has them
    #[arg(long, requires = "batch")]
    json: bool,
}

/// The place of a column by its heading, with `-` for blanks.
fn parse_column(text: &str) -> Result<usize, String> {
    let names: Vec<_> = columns()
        .iter()
        .map(|it| it.column.header.to_lowercase().replace(' ', "-"))
        .collect();
    let place = names.iter().position(|name| *name == text.to_lowercase());
    place.ok_or_else(|| format!("no column is called so; there are {}", names.join(", ")))
}

impl Args {
    pub fn execute(self) -> Result<ExitCode> {
        let has_terminal = io::stdout().is_terminal() && io::stdin().is_terminal();
        if !self.batch && !has_terminal {
            let why = "`pillion top` needs a terminal; --batch prints rounds as text without one";
            return Err(BadInput(why.to_owned()).into());
        }
        let source = Source {
            lister: FlowLister::load()?,
            owners: owners(),
        };
        let view = View::new(Order::by(self.sort), self.filter);
        match self.batch {
            true => run_batch(source, view, self.interval, self.rounds, self.json)?,
            false => run_live(source, view, self.interval)?,
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Where the connections come from.
struct Source {
    lister: FlowLister,
    owners: Owners,
}

impl Source {
    fn read(&mut self) -> Result<Vec<Connection>> {
        Ok(owned(self.lister.list()?, &mut self.owners))
    }
}

// Rounds as text or JSON, one after the other.

/// Prints rounds until there were so many, nobody reads them any more, or a signal ends it.
fn run_batch(
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

// The terminal, until it is to be as it was.

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
fn run_live(source: Source, view: View, interval: Duration) -> Result<()> {
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
