/// What should have happened on the wire and what did, side by side.
#[derive(Debug, Default)]
pub(crate) struct Script {
    /// Which variant of a test it is, printed with a failure.
    about: String,
    expected: Vec<String>,
    seen: Vec<String>,
}

impl Script {
    pub fn new(about: String) -> Self {
        Self {
            about,
            ..Self::default()
        }
    }

    /// Notes something that the test itself did.
    pub fn note(&mut self, event: &str) {
        self.expected.push(event.to_owned());
        self.seen.push(event.to_owned());
    }

    /// Notes something that the kernel did, or did not.
    pub fn compare(&mut self, expected: &str, seen: &str) {
        self.expected.push(expected.to_owned());
        self.seen.push(seen.to_owned());
        if expected != seen {
            self.fail("the wire differs from the script");
        }
    }

    pub fn fail(&self, why: &str) -> ! {
        panic!(
            "{why}\n  expected  {}\n  seen      {}\n  {}",
            self.expected.join(" "),
            self.seen.join(" "),
            self.about
        )
    }
}

/// Reads `1:101` into its two numbers, each a position in the stream.
pub(crate) fn range(text: &str) -> (u32, u32) {
    text.split_once(':')
        .and_then(|(start, end)| Some((start.parse().ok()?, end.parse().ok()?)))
        .unwrap_or_else(|| panic!("a range like 1:101, not {text:?}"))
}

/// The stream's bytes from one position to another. No two stretches look alike, so
/// that a copy from the wrong place is found.
pub(crate) fn content(start: u32, end: u32) -> Vec<u8> {
    (start..end)
        .map(|position| (position.wrapping_mul(0x9e37_79b1) >> 24) as u8)
        .collect()
}
