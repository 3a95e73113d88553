//! State that must not change: the kernel's log, devices, filters and pins.

use std::fs::File;
use std::io::{ErrorKind, Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;

use pillion_bpf::host::interruption::retry;
use pillion_tests::faults;

/// Kernel messages since its creation; `None` if they cannot be read.
#[derive(Debug)]
pub struct Messages(Option<File>);

impl Messages {
    pub fn from_now_on() -> Self {
        let mut options = File::options();
        options.read(true).custom_flags(libc::O_NONBLOCK);
        let opened = options.open("/dev/kmsg");
        let at_end = opened.and_then(|mut file| file.seek(SeekFrom::End(0)).map(|_| file));
        if let Err(error) = &at_end {
            println!("kernel messages are not checked: {error}");
        }
        Self(at_end.ok())
    }

    /// Returns an error with the first message that reports a fault.
    pub fn check(&mut self) -> Result<(), String> {
        let Some(file) = &mut self.0 else {
            return Ok(());
        };
        // Each read returns one message, and none is longer.
        let mut message = [0; 8192];
        loop {
            match retry(|| file.read(&mut message)) {
                Ok(length) => {
                    let text = String::from_utf8_lossy(&message[..length]);
                    if let Some(line) = faults(&text).first() {
                        return Err(format!("kernel message: {line}"));
                    }
                }
                // Some messages were overwritten before they were read.
                Err(error) if error.kind() == ErrorKind::BrokenPipe => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(format!("read kernel messages: {error}")),
            }
        }
    }
}
