//! Standard output: a reader that wants no more of it, such as `head`, is no failure. And standard
//! error: whether anybody reads it changes nothing.

use std::io::{self, BufWriter, ErrorKind, Write};
use std::os::fd::AsFd;
use std::time::Duration;

use anyhow::{Context, Result};
use libc::PIPE_BUF;
use nix::poll::{PollFd, PollFlags};
use pillion_bpf::host::interruption::poll;
use serde::Serialize;

/// Prints a text as it is.
pub fn print(text: &str) -> Result<()> {
    print_if_read(text).map(|_| ())
}

/// Prints a text as it is; false if nobody reads any more.
pub fn print_if_read(text: &str) -> Result<bool> {
    let mut stdout = io::stdout().lock();
    let written = stdout
        .write_all(text.as_bytes())
        .and_then(|()| stdout.flush());
    is_read(written)
}

fn is_read(written: io::Result<()>) -> Result<bool> {
    match written {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(error).context("write to standard output"),
    }
}

/// Prints a value as JSON, indented.
pub fn print_json(value: &impl Serialize) -> Result<()> {
    is_read(write_json(io::stdout().lock(), value)).map(|_| ())
}

/// Piece by piece: as a whole, the results of many connections would take several times the memory
/// that they take themselves.
fn write_json(to: impl Write, value: &impl Serialize) -> io::Result<()> {
    let mut to = BufWriter::with_capacity(1 << 16, to);
    serde_json::to_writer_pretty(&mut to, value)?;
    to.write_all(b"\n")?;
    to.flush()
}

/// How long a line may wait for room: nobody may be reading any more.
const PATIENCE: Duration = Duration::from_millis(100);

/// A line on standard error, as far as that takes it: the terminal may be gone, the disk full, the
/// pipe full and nobody at its other end.
pub fn say(line: &str) {
    say_to(io::stderr().lock(), line);
}

fn say_to(mut stderr: impl Write + AsFd, line: &str) {
    // A pipe that has any room has it for so much, and would keep who writes more at once.
    for piece in format!("{line}\n").as_bytes().chunks(PIPE_BUF) {
        if !has_room(&stderr) || stderr.write_all(piece).is_err() {
            return;
        }
    }
}

fn has_room(file: impl AsFd) -> bool {
    let mut fds = [PollFd::new(file.as_fd(), PollFlags::POLLOUT)];
    poll(&mut fds, Some(PATIENCE)) != Ok(0)
}

/// Prints a line, as `println!` does.
#[macro_export]
macro_rules! print_line {
    ($($text:tt)*) => {
        $crate::print::print(&(format!($($text)*) + "\n"))
    };
}
pub use crate::print_line;

/// Says a line on standard error, as `eprintln!` does; see [`say`].
#[macro_export]
macro_rules! say_line {
    ($($text:tt)*) => {
        $crate::print::say(&format!($($text)*))
    };
}
pub use crate::say_line;

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::io::Read;
    use std::sync::mpsc;
    use std::thread;
    use std::time::Duration;

    use nix::fcntl::{FcntlArg, OFlag, fcntl};

    use super::*;

    #[test]
    fn a_line_that_is_longer_than_the_room_for_it_is_not_waited_with() {
        let (mut reader, mut writer) = io::pipe().unwrap();
        fcntl(&writer, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).unwrap();
        while writer.write(&[b'x'; PIPE_BUF]).is_ok() {}
        fcntl(&writer, FcntlArg::F_SETFL(OFlag::empty())).unwrap();
        reader.read_exact(&mut [0; PIPE_BUF]).unwrap();
        let (tells, told) = mpsc::channel();
        thread::spawn(move || {
            say_to(writer, &"y".repeat(3 * PIPE_BUF));
            tells.send(()).unwrap();
        });
        told.recv_timeout(Duration::from_secs(30)).expect("it ends");
        let held = io::read_to_string(reader).unwrap();
        assert_eq!(held.trim_start_matches('x'), "y".repeat(PIPE_BUF));
    }

    /// Asks, each time that it is written, whether something before it has left already.
    struct Told<'a>(&'a Cell<usize>, &'a Cell<bool>);

    impl Serialize for Told<'_> {
        fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
            self.1.set(self.0.get() > 0);
            to.serialize_str("some text")
        }
    }

    struct Counted<'a>(&'a Cell<usize>);

    impl Write for Counted<'_> {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.set(self.0.get() + bytes.len());
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn long_json_is_not_held_in_memory() {
        let (count, has_left) = (Cell::new(0), Cell::new(false));
        let all: Vec<_> = (0..10_000).map(|_| Told(&count, &has_left)).collect();
        write_json(Counted(&count), &all).unwrap();
        assert!(has_left.get());
        assert!(count.get() > 10_000 * 10);
    }

    #[test]
    fn a_long_line_that_is_read_is_whole() {
        let (reader, writer) = io::pipe().unwrap();
        let line = "y".repeat(1 << 20);
        let told = thread::scope(|scope| {
            scope.spawn(|| say_to(writer, &line));
            io::read_to_string(reader).unwrap()
        });
        assert!(told == line + "\n", "{} bytes", told.len());
    }
}
