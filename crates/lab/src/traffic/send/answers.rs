use super::work::Measurements;
use crate::traffic::clock::now_ns;
use crate::traffic::wire::{Decoder, Preface};

/// Verifies what comes back on a connection: answers, or the very bytes that were sent.
pub(super) struct Answers {
    stream: u32,
    seed: u64,
    /// `None` until the first byte.
    decoder: Option<Box<Decoder>>,
}

impl Answers {
    pub(super) fn new(sent: &Preface) -> Self {
        Self {
            stream: sent.stream,
            seed: sent.seed,
            decoder: None,
        }
    }

    /// Takes bytes just read; `answered` hears of each answer that they complete, and when.
    pub(super) fn take(
        &mut self,
        bytes: &[u8],
        measured: &mut Measurements,
        mut answered: impl FnMut(u64),
    ) -> Result<(), String> {
        let now_ns = now_ns();
        let (stream, seed) = (self.stream, self.seed);
        let decoder = self.decoder.get_or_insert_default();
        let taken = decoder.take(bytes, now_ns, |_, answer| {
            measured.answer(stream, answer);
            answered(answer.received_ns);
        });
        taken.map_err(|wrong| format!("the answers' byte {}: {}", wrong.offset, wrong.what))?;
        match decoder.preface() {
            Some(preface) if (preface.stream, preface.seed) != (stream, seed) => Err(format!(
                "the answers are those of stream {} with seed {}",
                preface.stream, preface.seed
            )),
            _ => Ok(()),
        }
    }

    /// Answers that have come whole.
    pub(super) fn messages(&self) -> u64 {
        self.decoder
            .as_ref()
            .map_or(0, |decoder| decoder.messages())
    }

    /// Where, and why, answers that end here are incomplete; none if they are not, or none came.
    pub(super) fn missing(&self) -> Option<String> {
        self.decoder.as_ref()?.missing()
    }
}
