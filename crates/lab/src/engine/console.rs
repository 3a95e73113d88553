use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::sync::{Arc, Mutex, PoisonError};

use pillion_bpf::host::interruption::retry;

/// All that a kernel says, from its start on.
#[derive(Debug, Clone, Default)]
pub struct Console(Arc<Mutex<VecDeque<u8>>>);

/// Bytes of the kernel's messages that are kept, the last ones: a kernel that warns without end is
/// not to fill the host's memory.
const KEPT: usize = 1 << 24;

impl Console {
    /// Takes messages in until they end. `PILLION_LOG=kernel` in the environment shows them as
    /// well.
    pub(super) fn take_in(&self, mut messages: impl Read) {
        let shown = std::env::var_os("PILLION_LOG").is_some_and(|wanted| wanted == "kernel");
        let mut buffer = [0; 4096];
        while let Ok(read @ 1..) = retry(|| messages.read(&mut buffer)) {
            if shown {
                let _ = io::stderr().write_all(&buffer[..read]);
            }
            let mut said = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            said.extend(&buffer[..read]);
            let excess = said.len().saturating_sub(KEPT);
            said.drain(..excess);
        }
    }

    /// What the kernel has said so far.
    #[must_use]
    pub fn text(&self) -> String {
        let mut said = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(said.make_contiguous()).into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_too_much_the_end_is_kept() {
        let console = Console::default();
        console.take_in(&b"first "[..]);
        assert_eq!(console.text(), "first ");
        console.take_in(io::repeat(b'.').take(KEPT as u64));
        console.take_in(&b"last"[..]);
        let text = console.text();
        assert_eq!(text.len(), KEPT);
        assert!(text.starts_with("..") && text.ends_with(".last"));
    }
}
