use super::report::{Fault, FaultKind};
use crate::wire::{Message, Mismatch, Preface};

/// Verifies the bytes of one connection, in whatever pieces they come.
#[derive(Default)]
pub(super) struct Verifier {
    preface: Option<Preface>,
    /// Messages verified, and so the sequence of the next one.
    messages: u32,
    /// Bytes verified: whole prefaces and messages.
    offset: u64,
    /// The beginning of a preface or message whose end has not come yet.
    partial: Vec<u8>,
}

impl Verifier {
    pub(super) fn preface(&self) -> Option<&Preface> {
        self.preface.as_ref()
    }

    pub(super) fn messages(&self) -> u32 {
        self.messages
    }

    /// Takes the next bytes, and hands each message that they complete, verified, to `deliver`,
    /// which may refuse it. After an error the verifier is of no more use.
    pub(super) fn take(
        &mut self,
        mut bytes: &[u8],
        mut deliver: impl FnMut(&Preface, Message) -> Result<(), Mismatch>,
    ) -> Result<(), Fault> {
        while !bytes.is_empty() {
            self.more_expected()?;
            let len = self.unit_len();
            if self.partial.is_empty() && bytes.len() >= len {
                let (unit, rest) = bytes.split_at(len);
                self.unit(unit, &mut deliver)?;
                bytes = rest;
                continue;
            }
            // Allocates for the first piece only: later ones find the room.
            self.partial.reserve_exact(len - self.partial.len());
            let (piece, rest) = bytes.split_at(bytes.len().min(len - self.partial.len()));
            self.partial.extend_from_slice(piece);
            bytes = rest;
            if self.partial.len() == len {
                let mut unit = std::mem::take(&mut self.partial);
                self.unit(&unit, &mut deliver)?;
                unit.clear();
                self.partial = unit;
            }
        }
        Ok(())
    }

    /// What is missing when the connection ends here, for the reason `end`; `None` when complete.
    pub(super) fn missing(&self, end: &str) -> Option<Fault> {
        let partial = self.partial.len();
        let what = match self.preface {
            None => format!("{end} after {partial} of {} bytes of preface", Preface::LEN),
            Some(preface) if partial == 0 && self.messages == preface.messages => return None,
            Some(preface) => format!(
                "{end} after {} of {} messages and {partial} bytes of the next",
                self.messages, preface.messages
            ),
        };
        Some(Fault {
            kind: FaultKind::Incomplete,
            offset: self.offset + partial as u64,
            what,
        })
    }

    fn unit_len(&self) -> usize {
        match self.preface {
            None => Preface::LEN,
            Some(preface) => preface.size as usize,
        }
    }

    fn more_expected(&self) -> Result<(), Fault> {
        match self.preface {
            Some(preface) if self.messages == preface.messages => Err(Fault {
                kind: FaultKind::Corrupt,
                offset: self.offset,
                what: format!("data after the last of {} messages", preface.messages),
            }),
            _ => Ok(()),
        }
    }

    fn unit(
        &mut self,
        unit: &[u8],
        deliver: &mut impl FnMut(&Preface, Message) -> Result<(), Mismatch>,
    ) -> Result<(), Fault> {
        let Some(preface) = &self.preface else {
            let bytes = unit.try_into().expect("a unit is as long as unit_len says");
            let preface = Preface::from_bytes(bytes).map_err(|mismatch| self.corrupt(mismatch))?;
            self.preface = Some(preface);
            self.offset = unit.len() as u64;
            return Ok(());
        };
        Message::verify(preface, self.messages, unit)
            .and_then(|message| deliver(preface, message))
            .map_err(|mismatch| self.corrupt(mismatch))?;
        self.messages += 1;
        self.offset += unit.len() as u64;
        Ok(())
    }

    fn corrupt(&self, mismatch: Mismatch) -> Fault {
        let what = match self.preface {
            None => format!("preface: {mismatch}"),
            Some(_) => format!("message {}: {mismatch}", self.messages),
        };
        Fault {
            kind: FaultKind::Corrupt,
            offset: self.offset + mismatch.offset as u64,
            what,
        }
    }
}
