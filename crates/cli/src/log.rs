//! Log lines on standard error: for people with the program's name, for journald with a priority.

use std::io;
use std::os::fd::AsFd;
use std::sync::OnceLock;

use log::{Level, LevelFilter, Log, Metadata, Record};
use nix::sys::stat::fstat;

use crate::print::say;

/// The least severe log lines that are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LogLevel {
    /// Failures that pillion cannot repair by itself.
    Error,
    /// Also failures that it retries, and connections that it does not cover.
    Warning,
    /// Also what it attaches to, reloads and reports at the end.
    #[default]
    Info,
    /// Also each step that it takes.
    Debug,
}

/// Starts logging, once for each process; `program` precedes lines for people.
pub fn start(program: &'static str, level: LogLevel) {
    static LOGGER: OnceLock<Logger> = OnceLock::new();
    let logger = LOGGER.get_or_init(|| Logger {
        program,
        journal: is_journal(),
    });
    // A second call changes the level only.
    let _ = log::set_logger(logger);
    log::set_max_level(match level {
        LogLevel::Error => LevelFilter::Error,
        LogLevel::Warning => LevelFilter::Warn,
        LogLevel::Info => LevelFilter::Info,
        LogLevel::Debug => LevelFilter::Debug,
    });
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
        say(&line);
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
