//! Log lines on standard error: for people with the program's name, for journald with a priority.

use std::io;
use std::os::fd::AsFd;
use std::sync::OnceLock;

use log::{Level, LevelFilter, Log, Metadata, Record};
use nix::sys::stat::fstat;

use crate::print::print_error;

/// Lowest severity of log lines that are written.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    Default,
    clap::ValueEnum,
    serde::Serialize,
    serde::Deserialize,
)]
#[serde(rename_all = "kebab-case")]
pub enum LogLevel {
    /// Failures only
    Error,
    /// Also retried failures and rules that cover nothing
    Warning,
    /// Also attached devices, reloads and totals
    #[default]
    Info,
    /// Also each step
    Debug,
}

/// Starts logging at this level; `program` is the prefix of lines outside the journal. Later calls
/// change only the level.
pub fn start(program: &'static str, level: LogLevel) {
    static LOGGER: OnceLock<Logger> = OnceLock::new();
    let logger = LOGGER.get_or_init(|| Logger {
        program,
        journal: is_journal(),
    });
    let _ = log::set_logger(logger);
    log::set_max_level(match level {
        LogLevel::Error => LevelFilter::Error,
        LogLevel::Warning => LevelFilter::Warn,
        LogLevel::Info => LevelFilter::Info,
        LogLevel::Debug => LevelFilter::Debug,
    });
}

/// Logs each line as an error, without the program's name: a compiler's `FILE:LINE:COLUMN: ...`.
pub fn mistakes(text: &str) {
    let priority = if is_journal() { "<3>" } else { "" };
    text.lines()
        .for_each(|line| print_error(&format!("{priority}{line}")));
}

struct Logger {
    program: &'static str,
    journal: bool,
}

impl Log for Logger {
    fn enabled(&self, _: &Metadata) -> bool {
        true
    }

    fn log(&self, record: &Record) {
        let text = record.args();
        // sd-daemon(3): journald takes the priority from the start of the line.
        let line = match (self.journal, record.level()) {
            (true, Level::Error) => format!("<3>{text}"),
            (true, Level::Warn) => format!("<4>{text}"),
            (true, Level::Info) => format!("<6>{text}"),
            (true, _) => format!("<7>{text}"),
            (false, Level::Error) => format!("{}: error: {text}", self.program),
            (false, Level::Warn) => format!("{}: warning: {text}", self.program),
            (false, Level::Info) => format!("{}: {text}", self.program),
            (false, _) => format!("{}: debug: {text}", self.program),
        };
        print_error(&line);
    }

    fn flush(&self) {}
}

/// Whether standard error leads to journald: `JOURNAL_STREAM` names its device and inode
/// (systemd.exec(5)).
fn is_journal() -> bool {
    let Ok(stream) = std::env::var("JOURNAL_STREAM") else {
        return false;
    };
    let stat = fstat(io::stderr().as_fd());
    stat.is_ok_and(|it| stream == format!("{}:{}", it.st_dev, it.st_ino))
}
