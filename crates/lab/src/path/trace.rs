//! Recorded links: the times at which a link could deliver packets, in mahimahi's format.
//!
//! A file has one line per opportunity: whole milliseconds since the start, never decreasing. Each
//! opportunity delivers 1500 bytes of IP packets. The last time is also the length of the trace,
//! which then repeats (mahimahi, `src/frontend/link_queue.cc`).

use std::fmt::{self, Write};
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use pillion_cli::settings::BadInput;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};

use crate::traffic::{CsvList, ListError};

/// Bytes of IP packets that one opportunity delivers. mahimahi counts 1504 bytes, because each of
/// its packets has four more bytes of the TUN device.
pub const OPPORTUNITY_BYTES: usize = 1500;

/// Maximum opportunities of a trace. A run's file stores two traces and has at most 16 MiB.
const MAX_OPPORTUNITIES: usize = 2_000_000;

/// Delivery opportunities of a recorded link; at least one.
///
/// As text: `list:GAP,GAPxCOUNT,...`, milliseconds since the previous opportunity, and the number
/// of opportunities at that time if there are several. `list:1` is one per millisecond, 12 Mbit/s.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinkTrace {
    /// Times in milliseconds since the start, ascending; the last is the period and above 0.
    times_ms: Arc<[u32]>,
}

impl LinkTrace {
    /// Reads a file in mahimahi's format.
    ///
    /// # Errors
    /// The first invalid line, or the system's error.
    pub fn read(file: &Path) -> Result<Self, ListError> {
        let list = CsvList::read(file)?;
        let mut times: Vec<u32> = Vec::new();
        for (number, line) in list.lines() {
            let Ok(ms) = line.trim().parse() else {
                let what = format!(
                    "invalid time `{}`: expected whole milliseconds since the start of the trace",
                    line.chars().take(40).collect::<String>()
                );
                return Err(list.wrong(number, what));
            };
            if let Some(last) = times.last().filter(|last| **last > ms) {
                let what = format!("{ms} ms after {last} ms: sort the times in ascending order");
                return Err(list.wrong(number, what));
            }
            times.push(ms);
        }
        let lines = times.len().max(1);
        Self::new(times).map_err(|BadInput(what)| list.wrong(lines, what))
    }

    /// Checks the number of times and the period.
    fn new(times: Vec<u32>) -> Result<Self, BadInput> {
        if times.len() > MAX_OPPORTUNITIES {
            let what = format!("more than {MAX_OPPORTUNITIES} opportunities: shorten the trace");
            return Err(BadInput(what));
        }
        match times.last() {
            None => Err("empty trace: expected one time in milliseconds per line".into()),
            Some(0) => Err("trace of 0 ms: the last time has to be above 0".into()),
            Some(_) => Ok(Self {
                times_ms: times.into(),
            }),
        }
    }

    /// Returns the time after which the trace repeats.
    #[must_use]
    pub fn period(&self) -> Duration {
        Duration::from_millis(self.period_ms().into())
    }

    fn period_ms(&self) -> u32 {
        self.times_ms[self.times_ms.len() - 1]
    }

    /// Returns the mean rate in bits of IP packets per second, at least 1.
    #[must_use]
    pub fn mean_bps(&self) -> u64 {
        let bits = self.times_ms.len() as u64 * OPPORTUNITY_BYTES as u64 * 8;
        (bits * 1000 / u64::from(self.period_ms())).max(1)
    }

    /// Returns the time of an opportunity since the start, by its number from 0.
    pub(crate) fn opportunity(&self, number: u64) -> Duration {
        let count = self.times_ms.len() as u64;
        let ms = self.times_ms[(number % count) as usize];
        Duration::from_millis(number / count * u64::from(self.period_ms()) + u64::from(ms))
    }

    /// Returns the number of the first opportunity after a time since the start.
    pub(crate) fn first_after(&self, elapsed: Duration) -> u64 {
        let ms = elapsed.as_millis() as u64;
        let (periods, rest) = (
            ms / u64::from(self.period_ms()),
            ms % u64::from(self.period_ms()),
        );
        let passed = self
            .times_ms
            .partition_point(|time| u64::from(*time) <= rest);
        periods * self.times_ms.len() as u64 + passed as u64
    }
}

/// Prefixes of the textual form.
const LIST: &str = "list:";
const FILE: &str = "file:";

impl FromStr for LinkTrace {
    type Err = BadInput;

    fn from_str(text: &str) -> Result<Self, BadInput> {
        if let Some(file) = text.strip_prefix(FILE) {
            return Self::read(Path::new(file)).map_err(|error| BadInput(error.to_string()));
        }
        let invalid = || {
            let text: String = text.chars().take(40).collect();
            BadInput(format!(
                "invalid trace `{text}`: expected \"file:FILE\", or \"list:1,0x2\", the milliseconds since \
                 the previous opportunity, and how many there are at that time"
            ))
        };
        let mut times: Vec<u32> = Vec::new();
        for entry in text.strip_prefix(LIST).ok_or_else(invalid)?.split(',') {
            let (gap, count) = entry.split_once('x').unwrap_or((entry, "1"));
            let gap: u32 = gap.trim().parse().map_err(|_| invalid())?;
            let count: usize = count.trim().parse().map_err(|_| invalid())?;
            let last = times.last().copied().unwrap_or(0);
            let time = last.checked_add(gap).ok_or_else(invalid)?;
            if count == 0 || count > MAX_OPPORTUNITIES {
                return Err(invalid());
            }
            times.extend(std::iter::repeat_n(time, count));
        }
        Self::new(times)
    }
}

impl fmt::Display for LinkTrace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(LIST)?;
        let mut last = 0;
        for (number, same) in self.times_ms.chunk_by(|a, b| a == b).enumerate() {
            if number > 0 {
                f.write_char(',')?;
            }
            write!(f, "{}", same[0] - last)?;
            last = same[0];
            if same.len() > 1 {
                write!(f, "x{}", same.len())?;
            }
        }
        Ok(())
    }
}

impl Serialize for LinkTrace {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for LinkTrace {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        text.parse()
            .map_err(|BadInput(reason)| D::Error::custom(reason))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn read(text: &str) -> Result<LinkTrace, String> {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("x.down");
        std::fs::write(&file, text).unwrap();
        let name = file.display().to_string();
        LinkTrace::read(&file).map_err(|error| error.to_string().replace(&name, "x.down"))
    }

    #[test]
    fn trace_repeats_after_its_last_time() {
        let trace = read("0\n2\n2\n5\n").unwrap();
        let times: Vec<_> = (0..8).map(|it| trace.opportunity(it).as_millis()).collect();
        assert_eq!(times, [0, 2, 2, 5, 5, 7, 7, 10]);
        assert_eq!(trace.period(), 5 * MS);
        assert_eq!(trace.mean_bps(), 4 * 12_000 * 1000 / 5);
    }

    #[test]
    fn first_opportunity_after_a_time_excludes_that_time() {
        let trace = read("0\n2\n2\n5\n").unwrap();
        for (us, number) in [
            (0, 1),
            (1_999, 1),
            (2_000, 3),
            (4_999, 3),
            (5_000, 5),
            (7_000, 7),
        ] {
            let elapsed = Duration::from_micros(us);
            assert_eq!(trace.first_after(elapsed), number, "{us} us");
        }
    }

    #[test]
    fn trace_round_trips_through_text() {
        for (file, text) in [
            ("1", "list:1"),
            ("0\n2\n2\n5\n", "list:0,2x2,3"),
            ("7\n7\n7\n", "list:7x3"),
        ] {
            let trace = read(file).unwrap();
            assert_eq!(trace.to_string(), text);
            assert_eq!(text.parse::<LinkTrace>().unwrap(), trace);
        }
    }

    #[test]
    fn invalid_file_is_reported_with_its_line() {
        for (text, error) in [
            (
                "",
                "x.down:1: empty trace: expected one time in milliseconds per line",
            ),
            (
                "1\n2.5\n",
                "x.down:2: invalid time `2.5`: expected whole milliseconds",
            ),
            ("1\n\n2\n", "x.down:2: invalid time ``"),
            ("-1\n", "x.down:1: invalid time `-1`"),
            (
                "5\n7\n6\n",
                "x.down:3: 6 ms after 7 ms: sort the times in ascending",
            ),
            (
                "0\n0\n",
                "x.down:2: trace of 0 ms: the last time has to be above 0",
            ),
        ] {
            let found = read(text).unwrap_err();
            assert!(found.starts_with(error), "{found}");
        }
    }

    #[test]
    fn invalid_text_is_rejected() {
        for text in [
            "",
            "lte.down",
            "list:",
            "list:1x0",
            "list:1,-2",
            "list:4294967295,1",
        ] {
            let error = text.parse::<LinkTrace>().unwrap_err().0;
            assert!(error.starts_with("invalid trace"), "{text}: {error}");
        }
        let error = "list:0x3".parse::<LinkTrace>().unwrap_err().0;
        assert!(error.starts_with("trace of 0 ms"), "{error}");
    }
}
