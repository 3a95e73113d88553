//! `pillion top`: live view of the bundled connections.

mod draw;
mod view;

use std::env;
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

use crate::flows::{Connection, columns, list, owners, width, with_owners};
use crate::service::status_socket;
use draw::{ascii, draw};
use view::{KeyOutcome, Order, View};

/// Show bundled connections live: losses, savings and costs
///
/// Keys: arrows select a connection and the column to sort by, `r` reverses, `/` filters, Enter
/// shows details, `?` shows help, `q` quits. --batch prints text and needs no terminal. Without
/// UTF-8 in `LC_ALL`, `LC_CTYPE` or `LANG`, the text is ASCII.
#[derive(clap::Args)]
pub struct Args {
    /// Time between two iterations, 1ms to 1d
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = parse_interval)]
    interval: Duration,

    /// Sort by this column, as in `saved` or `hidden-losses`: numbers descending, text ascending
    #[arg(long, value_name = "COLUMN", default_value = "saved", value_parser = parse_column)]
    sort: usize,

    /// Show only connections with this text in any column
    #[arg(long, value_name = "TEXT", default_value = "")]
    filter: String,

    /// Print each iteration as text, for scripts and logs; the default if `TERM` is `dumb`
    #[arg(long)]
    batch: bool,

    /// Exit after N iterations
    #[arg(long, value_name = "N", requires = "batch", value_parser = clap::value_parser!(u64).range(1..))]
    iterations: Option<u64>,

    /// Print one line of JSON per iteration, in the format of `flows --json`
    #[arg(long, requires = "batch")]
    json: bool,
}

/// Returns the index of a column by its heading, with `-` for spaces.
fn parse_column(text: &str) -> Result<usize, String> {
    let names: Vec<_> = columns()
        .iter()
        .map(|it| it.column.header.to_lowercase().replace(' ', "-"))
        .collect();
    let index = names.iter().position(|name| *name == text.to_lowercase());
    index.ok_or_else(|| {
        format!(
            "invalid column `{text}`: expected one of {}",
            names.join(", ")
        )
    })
}

impl Args {
    pub fn execute(self) -> Result<ExitCode> {
        let has_terminal = io::stdout().is_terminal() && io::stdin().is_terminal();
        if !self.batch && !has_terminal {
            let reason = "top needs a terminal; use --batch to print text without one";
            return Err(BadInput(reason.to_owned()).into());
        }
        let source = Source {
            lister: FlowLister::load()?,
            owners: owners(),
            holdbacks: Vec::new(),
            holdbacks_read_at: None,
        };
        let mut view = View::new(Order::by_column(self.sort), self.filter);
        let is_dumb = env::var_os("TERM").is_some_and(|it| it == "dumb");
        view.is_ascii_only = is_dumb || !is_utf8_locale(|name| env::var(name).ok());
        match self.batch || is_dumb {
            true => run_batch(source, view, self.interval, self.iterations, self.json)?,
            false => run_live(source, view, self.interval)?,
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Returns true if the locale's character set is UTF-8. The first of the three variables that is
/// not empty decides (POSIX); the locale is C without any.
fn is_utf8_locale(variable: impl Fn(&str) -> Option<String>) -> bool {
    let names = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter();
    let locale = names.filter_map(variable).find(|it| !it.is_empty());
    let locale = locale.unwrap_or_default().to_lowercase();
    locale.contains("utf-8") || locale.contains("utf8")
}

/// Source of the connections and their owners.
struct Source {
    lister: FlowLister,
    owners: Owners,
    /// Comparisons of rules with a holdback, as `status` prints them.
    holdbacks: Vec<String>,
    holdbacks_read_at: Option<Instant>,
}

/// Time between two queries of the comparisons, which change with each window.
const HOLDBACKS_INTERVAL: Duration = Duration::from_secs(10);

impl Source {
    fn read(&mut self) -> Result<Vec<Connection>> {
        Ok(with_owners(self.lister.list()?, &mut self.owners))
    }

    /// Returns a line for each rule with a holdback in this network namespace.
    fn holdbacks(&mut self) -> Vec<String> {
        let read_at = self.holdbacks_read_at;
        if read_at.is_none_or(|at| at.elapsed() >= HOLDBACKS_INTERVAL) {
            let running = status_socket::query().unwrap_or_default().healths;
            let all = running.iter().flat_map(|it| &it.holdbacks);
            self.holdbacks = all.map(ToString::to_string).collect();
            self.holdbacks_read_at = Some(Instant::now());
        }
        self.holdbacks.clone()
    }
}

// Batch mode.

/// Prints iterations until the limit, the end of the reader, or a signal.
fn run_batch(
    mut source: Source,
    mut view: View,
    interval: Duration,
    iterations: Option<u64>,
    json: bool,
) -> Result<()> {
    let stop = stop::on_signal()?;
    let mut ticks = Ticks::every(interval);
    let mut iteration = 0;
    while iterations.is_none_or(|limit| iteration < limit)
        && stop::sleep_until(ticks.next_ns(), &stop)
    {
        view.show(source.read()?);
        let visible = view.visible();
        let text = if json {
            serde_json::to_string(&visible)? + "\n"
        } else {
            let blank = if iteration > 0 { "\n" } else { "" };
            let mut text = match visible.is_empty() {
                true => format!("{blank}{}\n", view.empty_message()),
                false => {
                    blank.to_owned() + &list(&visible, columns(), width(), 0..visible.len()).text
                }
            };
            for line in source.holdbacks() {
                text += &format!("{line}\n");
            }
            match view.is_ascii_only {
                true => text.chars().map(ascii).collect(),
                false => text,
            }
        };
        if !print_if_read(&text)? {
            break;
        }
        iteration += 1;
    }
    Ok(())
}

// Interactive mode.

/// Maximum delay before a signal takes effect.
const POLL_TIMEOUT: Duration = Duration::from_millis(250);

/// Terminal in raw mode, restored when dropped, also after a panic.
struct TerminalGuard(ManuallyDrop<DefaultTerminal>);

impl TerminalGuard {
    fn open() -> Result<Self> {
        let terminal = ratatui::try_init().context("open the terminal")?;
        Ok(Self(ManuallyDrop::new(terminal)))
    }
}

impl Drop for TerminalGuard {
    /// Ignores errors: a closed terminal cannot be restored, and ratatui's own drop would panic
    /// when it prints the error.
    fn drop(&mut self) {
        let _ = self.0.show_cursor();
        let _ = ratatui::try_restore();
    }
}

/// Waits until the terminal hangs up, or for `timeout`; returns true if it has.
fn is_hung_up(timeout: Option<Duration>) -> bool {
    let stdin = io::stdin();
    let mut fds = [PollFd::new(stdin.as_fd(), PollFlags::empty())];
    matches!(poll(&mut fds, timeout), Ok(1..))
}

/// Exits the process when the terminal hangs up. This needs a thread, because crossterm retries
/// reads forever. SIGHUP is no substitute: it may be ignored, or go to another process that leads
/// the session.
fn exit_on_hangup() {
    thread::spawn(|| {
        if is_hung_up(None) {
            process::exit(0);
        }
    });
}

/// Shows iterations until a key, a signal or a hangup.
fn run_live(source: Source, view: View, interval: Duration) -> Result<()> {
    let result = show(source, view, interval);
    if is_hung_up(Some(Duration::ZERO)) {
        return Ok(());
    }
    result
}

fn show(mut source: Source, mut view: View, interval: Duration) -> Result<()> {
    let stop = stop::on_any_signal()?;
    exit_on_hangup();
    view.update(source.read()?);
    view.holdbacks = source.holdbacks();
    let mut due = Instant::now() + interval;
    let mut terminal = TerminalGuard::open()?;
    let mut is_current = false;
    while !stop.load(Ordering::Relaxed) {
        if !is_current {
            let drawn = terminal.0.draw(|frame| draw(frame, &mut view));
            drawn.context("draw on the terminal")?;
            is_current = true;
        }
        let remaining = due.saturating_duration_since(Instant::now());
        if event::poll(remaining.min(POLL_TIMEOUT)).context("wait for a key")? {
            is_current = false;
            let event = event::read().context("read a key")?;
            let key = event.as_key_press_event();
            if key.is_some_and(|key| view.handle_key(key) == KeyOutcome::Quit) {
                break;
            }
        }
        if Instant::now() >= due {
            if !view.paused {
                view.update(source.read()?);
                view.holdbacks = source.holdbacks();
                is_current = false;
            }
            due = Instant::now() + interval;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_locale_variable_decides_character_set() {
        for (values, is_utf8) in [
            (["C", "en_GB.UTF-8", "en_GB.UTF-8"], false),
            (["", "", "en_GB.utf8"], true),
            (["C.UTF-8", "C", "C"], true),
            (["", "POSIX", "C.UTF-8"], false),
            (["", "", ""], false),
        ] {
            let names = ["LC_ALL", "LC_CTYPE", "LANG"];
            let of = |name: &str| names.iter().position(|it| *it == name);
            let value = |name: &str| of(name).map(|it| values[it].to_owned());
            assert_eq!(is_utf8_locale(value), is_utf8, "{values:?}");
        }
    }
}
