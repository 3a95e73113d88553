//! Receivers that acknowledge in different ways.

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use crate::sender::MESSAGE;

/// What a receiving application does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Receiver {
    /// The application reads at once, and never answers.
    Reads,
    /// The application sends back all that comes.
    Echoes,
    /// The application answers every tenth message.
    AnswersOneInTen,
    /// The application reads five times a second.
    ReadsLate,
}

const PAUSE: Duration = Duration::from_millis(200);

impl Receiver {
    pub const ALL: [Self; 4] = [
        Self::Reads,
        Self::Echoes,
        Self::AnswersOneInTen,
        Self::ReadsLate,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::Reads => "only reads",
            Self::Echoes => "echoes",
            Self::AnswersOneInTen => "answers 1 in 10",
            Self::ReadsLate => "reads each 200 ms",
        }
    }

    /// Accepts so many connections, and serves each on a thread of its own until it ends.
    pub fn listen(self, listener: TcpListener, connections: u32) {
        thread::spawn(move || {
            for _ in 0..connections {
                let Ok((stream, _)) = listener.accept() else {
                    return;
                };
                // A connection that breaks shows in the numbers.
                thread::spawn(move || self.serve(stream));
            }
        });
    }

    fn serve(self, mut stream: TcpStream) -> io::Result<()> {
        stream.set_nodelay(true)?;
        let mut buffer = [0; 64 << 10];
        let mut unanswered = 0;
        loop {
            if self == Self::ReadsLate {
                thread::sleep(PAUSE);
            }
            let bytes = stream.read(&mut buffer)?;
            if bytes == 0 {
                return Ok(());
            }
            match self {
                Self::Echoes => stream.write_all(&buffer[..bytes])?,
                Self::AnswersOneInTen => {
                    unanswered += bytes;
                    if unanswered >= 10 * MESSAGE.len() {
                        unanswered -= 10 * MESSAGE.len();
                        stream.write_all(&MESSAGE)?;
                    }
                }
                Self::Reads | Self::ReadsLate => {}
            }
        }
    }
}
