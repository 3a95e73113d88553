//! Whether the machine kept up.

use std::process::ExitCode;

use pillion_path::Counts;
use pillion_report::number;

/// Lateness in microseconds above which a measurement tells more about the machine than about TCP.
const MAX_LATE_US: f64 = 3000.0;

/// How late messages were handed over, and packets left the path: 99th percentiles in
/// microseconds.
#[derive(Debug, Clone, Copy)]
pub struct Lateness {
    send_us: f64,
    path_us: f64,
}

impl Lateness {
    /// The lateness of a sender and of a path; `path` is its account of the data's direction.
    pub fn new(send_us: f64, path: &Counts) -> Self {
        Self {
            send_us,
            path_us: path.delay_error.p99_us as f64,
        }
    }

    pub fn is_too_large(self) -> bool {
        self.send_us > MAX_LATE_US || self.path_us > MAX_LATE_US
    }

    /// The lateness of sending and of the path, in milliseconds.
    pub fn cells(self) -> [String; 2] {
        [self.send_us, self.path_us].map(|us| number::millis(us / 1e3))
    }
}

/// Says how many rows have no numbers, if any, and makes it the program's exit status.
pub fn conclude(untrusted: usize) -> ExitCode {
    if untrusted == 0 {
        return ExitCode::SUCCESS;
    }
    println!(
        "{untrusted} rows are without numbers: the run failed, or the machine was later than {} ms",
        MAX_LATE_US / 1e3
    );
    ExitCode::FAILURE
}
