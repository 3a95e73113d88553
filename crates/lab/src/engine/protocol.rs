//! The agreement of host and inside: the job, its end, and the connections between them.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The folder where a program inside leaves what is to be copied out.
pub const RESULTS: &str = "/results";

/// The path of the job in the image.
pub(super) const JOB_FILE: &str = "/etc/pillion/job.json";

/// A program to be run inside.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Job {
    /// The program's name in the image's `/bin`, or its path.
    pub program: String,
    /// The program's arguments.
    pub arguments: Vec<String>,
    /// The program's environment, beside `PATH`, `HOME` and `LANG`.
    pub environment: BTreeMap<String, String>,
    /// The virtual time after which the program is stopped.
    pub time_limit: Option<Duration>,
}

/// How a program ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ending {
    /// The program ended by itself, with this exit status.
    Exited(i32),
    /// The program was killed by this signal.
    Killed(i32),
    /// The program was stopped, its virtual time being over.
    TimeLimit,
}

impl Ending {
    /// The program's exit status, as a shell gives it: 128 + n if signal n ended it, 124 (as
    /// timeout(1)) where its time was over.
    #[must_use]
    pub fn status(self) -> u8 {
        match self {
            Self::Exited(status) => status.to_le_bytes()[0],
            Self::Killed(signal) => signal.to_le_bytes()[0].wrapping_add(128),
            Self::TimeLimit => 124,
        }
    }
}

impl fmt::Display for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exited(status) => write!(f, "exit status {status}"),
            Self::Killed(signal) => write!(f, "signal {signal}"),
            Self::TimeLimit => f.write_str("its limit of virtual time"),
        }
    }
}

/// A line from inside to the host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Report {
    /// Virtual time since the kernel's start.
    Reached(Duration),
    /// The program ended, and its results are outside.
    Ended(Ending),
    /// Something other than the program failed, in these words.
    Failed(String),
}

// The kernel's connections to the host. Outside, each is an open file with a fixed number, so
// that nothing of the host's paths shows inside.

/// A console that carries data in one direction, from inside to the host. The kernel waits for the
/// host to take what is written, and no virtual time passes meanwhile.
#[derive(Debug, Clone, Copy)]
pub(super) enum Line {
    /// [`Report`]s, one a line, as JSON.
    Reports,
    /// What the program writes to its standard output.
    Output,
    /// What the program writes to its standard error.
    Errors,
}

impl Line {
    /// All lines, in the order of their devices.
    pub const ALL: [Self; 3] = [Self::Reports, Self::Output, Self::Errors];

    /// The line's device inside.
    pub const fn device(self) -> &'static str {
        match self {
            Self::Reports => "/dev/tty1",
            Self::Output => "/dev/tty2",
            Self::Errors => "/dev/tty3",
        }
    }

    /// The kernel's option that joins the line's device to the host's open file.
    pub fn option(self) -> String {
        format!("con{}=null,fd:{}", self as i32 + 1, self.descriptor())
    }

    /// The number of the host's open file for the line.
    pub const fn descriptor(self) -> i32 {
        FIRST + self as i32
    }
}

const FIRST: i32 = 100;
/// The open file that is the image, by number.
pub(super) const IMAGE: i32 = FIRST + 10;
/// The open folder that the kernel wants for its control socket, by number.
pub(super) const CONTROL: i32 = FIRST + 11;
/// The host's open folder for results, by number.
pub(super) const RESULTS_FOLDER: i32 = FIRST + 12;
/// The first number of open files that is beyond all of these.
pub(super) const BEYOND: i32 = FIRST + 20;

/// The host's path of an open file of the kernel's process.
pub(super) fn path(descriptor: i32) -> String {
    format!("/proc/self/fd/{descriptor}")
}

/// Word on the kernel's command line that says that results are to be brought out.
pub(super) const WANTED: &str = "pillion.results";
