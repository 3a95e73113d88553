//! The protocol between host and lab kernel: the job, its result, and the connections between them.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The folder for a program's results; the host receives a copy.
pub const RESULTS: &str = "/results";

/// Path of the job in the image.
pub(super) const JOB_FILE: &str = "/etc/pillion/job.json";

/// A program to run inside the kernel.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Job {
    /// The program's name in the image's `/bin`, or its path.
    pub program: String,
    /// The program's arguments.
    pub arguments: Vec<String>,
    /// Environment variables in addition to `PATH`, `HOME` and `LANG`.
    pub environment: BTreeMap<String, String>,
    /// Virtual time after which the program is killed.
    pub time_limit: Option<Duration>,
}

/// How a program exited.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProgramExit {
    /// The program exited with this status.
    Exited(i32),
    /// This signal killed the program.
    Killed(i32),
    /// The program exceeded its virtual time and was killed.
    TimeLimit,
}

impl ProgramExit {
    /// Returns the program's exit status as a shell does: 128 + n after signal n, 124 (as
    /// timeout(1)) after the time limit.
    #[must_use]
    pub fn status(self) -> u8 {
        match self {
            Self::Exited(status) => status.to_le_bytes()[0],
            Self::Killed(signal) => signal.to_le_bytes()[0].wrapping_add(128),
            Self::TimeLimit => 124,
        }
    }
}

impl fmt::Display for ProgramExit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exited(status) => write!(f, "exit status {status}"),
            Self::Killed(signal) => write!(f, "signal {signal}"),
            Self::TimeLimit => f.write_str("its limit of virtual time was exceeded"),
        }
    }
}

/// A message from inside the kernel to the host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Report {
    /// Virtual time since the kernel's start.
    VirtualTime(Duration),
    /// The program exited, and its results are on the host.
    Exited(ProgramExit),
    /// Something other than the program failed; the text is the error message.
    Failed(String),
}

// The kernel's connections to the host. On the host, each is an open file with a fixed number, so
// that the host's paths are invisible inside.

/// A console that carries data from inside to the host. The kernel waits until the host has read
/// the data, and no virtual time passes meanwhile.
#[derive(Debug, Clone, Copy)]
pub(super) enum ConsoleLine {
    /// [`Report`]s as JSON, one per line.
    Reports,
    /// The program's standard output.
    Output,
    /// The program's standard error.
    Errors,
}

impl ConsoleLine {
    /// All consoles, in the order of their devices.
    pub const ALL: [Self; 3] = [Self::Reports, Self::Output, Self::Errors];

    /// Returns the console's device in the lab kernel.
    pub const fn device(self) -> &'static str {
        match self {
            Self::Reports => "/dev/tty1",
            Self::Output => "/dev/tty2",
            Self::Errors => "/dev/tty3",
        }
    }

    /// Returns the kernel option that connects the console's device with the host's open file.
    pub fn option(self) -> String {
        format!("con{}=null,fd:{}", self as i32 + 1, self.descriptor())
    }

    /// Returns the number of the host's open file for the console.
    pub const fn descriptor(self) -> i32 {
        FIRST_FD + self as i32
    }
}

const FIRST_FD: i32 = 100;
/// Number of the image's open file.
pub(super) const IMAGE_FD: i32 = FIRST_FD + 10;
/// Number of the open folder for the kernel's control socket.
pub(super) const CONTROL_FD: i32 = FIRST_FD + 11;
/// Number of the host's open folder for results.
pub(super) const RESULTS_FD: i32 = FIRST_FD + 12;
/// First number after all of these.
pub(super) const FIRST_FREE_FD: i32 = FIRST_FD + 20;

/// Returns the host's path of an open file of the kernel's process.
pub(super) fn path(descriptor: i32) -> String {
    format!("/proc/self/fd/{descriptor}")
}

/// Word on the kernel's command line that enables the copying of results.
pub(super) const COPY_RESULTS_FLAG: &str = "pillion.results";
