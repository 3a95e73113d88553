//! Standard output: a reader that wants no more of it, such as `head`, is no failure. And standard
//! error: whether anybody reads it changes nothing.

use std::io::{self, ErrorKind, Write};
use std::os::fd::AsFd;

use anyhow::{Context, Result};
use nix::poll::{PollFd, PollFlags, poll};

/// Prints a text as it is.
pub fn print(text: &str) -> Result<()> {
    let mut stdout = io::stdout().lock();
    let written = stdout
        .write_all(text.as_bytes())
        .and_then(|()| stdout.flush());
    match written {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(error).context("write to standard output")
        }
        _ => Ok(()),
    }
}

/// Prints a value as JSON, indented.
pub fn print_json(value: &impl serde::Serialize) -> Result<()> {
    print(&(serde_json::to_string_pretty(value)? + "\n"))
}

/// How long a line may wait for room: nobody may be reading any more.
const PATIENCE_MS: u16 = 100;

/// A line on standard error, if that takes it: the terminal may be gone, the disk full, the pipe
/// full and nobody at its other end.
pub fn say(line: &str) {
    let mut stderr = io::stderr();
    let mut fds = [PollFd::new(stderr.as_fd(), PollFlags::POLLOUT)];
    if poll(&mut fds, PATIENCE_MS) == Ok(0) {
        return;
    }
    let _ = stderr.write_all(format!("{line}\n").as_bytes());
}

/// Prints a line, as `println!` does.
macro_rules! print_line {
    ($($text:tt)*) => {
        $crate::print::print(&(format!($($text)*) + "\n"))
    };
}
pub(crate) use print_line;
