//! Standard output, where a closed pipe (`head`) is not a failure, and standard error, whose failures are
//! ignored.

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

/// Prints a text as it is; returns false if the pipe is closed.
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

/// Writes JSON in pieces. As one string, results of many connections would need several times their
/// memory.
fn write_json(to: impl Write, value: &impl Serialize) -> io::Result<()> {
    let mut to = BufWriter::with_capacity(1 << 16, to);
    serde_json::to_writer_pretty(&mut to, value)?;
    to.write_all(b"\n")?;
    to.flush()
}

/// Time-out of a line if standard error is a full pipe.
const TIMEOUT: Duration = Duration::from_millis(100);

/// Prints a line on standard error. Ignores failures: a closed terminal, a full disk, or a pipe that
/// nothing reads.
pub fn print_error(line: &str) {
    write_line(io::stderr().lock(), line);
}

fn write_line(mut stderr: impl Write + AsFd, line: &str) {
    // A pipe with room accepts at least PIPE_BUF bytes; longer writes could block.
    for piece in format!("{line}\n").as_bytes().chunks(PIPE_BUF) {
        if !has_room(&stderr) || stderr.write_all(piece).is_err() {
            return;
        }
    }
}

fn has_room(file: impl AsFd) -> bool {
    let mut fds = [PollFd::new(file.as_fd(), PollFlags::POLLOUT)];
    poll(&mut fds, Some(TIMEOUT)) != Ok(0)
}

/// Prints a line, as `println!` does.
#[macro_export]
macro_rules! print_line {
    ($($text:tt)*) => {
        $crate::print::print(&(format!($($text)*) + "\n"))
    };
}
pub use crate::print_line;

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
    fn long_line_does_not_block_on_a_full_pipe() {
        let (mut reader, mut writer) = io::pipe().unwrap();
        fcntl(&writer, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).unwrap();
        while writer.write(&[b'x'; PIPE_BUF]).is_ok() {}
        fcntl(&writer, FcntlArg::F_SETFL(OFlag::empty())).unwrap();
        reader.read_exact(&mut [0; PIPE_BUF]).unwrap();
        let (sender, receiver) = mpsc::channel();
        thread::spawn(move || {
            write_line(writer, &"y".repeat(3 * PIPE_BUF));
            sender.send(()).unwrap();
        });
        receiver
            .recv_timeout(Duration::from_secs(30))
            .expect("it returns");
        let text = io::read_to_string(reader).unwrap();
        assert_eq!(text.trim_start_matches('x'), "y".repeat(PIPE_BUF));
    }

    /// Records, when serialized, whether earlier output has been written.
    struct Probe<'a>(&'a Cell<usize>, &'a Cell<bool>);

    impl Serialize for Probe<'_> {
        fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
            self.1.set(self.0.get() > 0);
            to.serialize_str("some text")
        }
    }

    struct CountingWriter<'a>(&'a Cell<usize>);

    impl Write for CountingWriter<'_> {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.set(self.0.get() + bytes.len());
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn long_json_is_written_in_pieces() {
        let (count, has_written) = (Cell::new(0), Cell::new(false));
        let all: Vec<_> = (0..10_000).map(|_| Probe(&count, &has_written)).collect();
        write_json(CountingWriter(&count), &all).unwrap();
        assert!(has_written.get());
        assert!(count.get() > 10_000 * 10);
    }

    #[test]
    fn long_line_is_complete() {
        let (reader, writer) = io::pipe().unwrap();
        let line = "y".repeat(1 << 20);
        let text = thread::scope(|scope| {
            scope.spawn(|| write_line(writer, &line));
            io::read_to_string(reader).unwrap()
        });
        assert!(text == line + "\n", "{} bytes", text.len());
    }
}
