use rand::SeedableRng;
use rand_pcg::Pcg64;

use crate::traffic::clock::ns;
use crate::traffic::distribution::Distribution;
use crate::traffic::plan::{Group, Kind, MAX_MESSAGES, gap_ns};
use crate::traffic::wire::content::mix;
use crate::traffic::wire::{END_LEN, MAX_SIZE};

/// Decides when one stream sends, and how much. Times are nanoseconds since the barrier opened.
///
/// Where they do not depend on the network, the first message is due when the stream starts, and
/// each next one follows the due time (not the sending) of the one before. Equal arguments give
/// equal times and sizes.
#[derive(Debug, Clone)]
pub(super) struct Source<'a> {
    kind: &'a Kind,
    due_ns: f64,
    end_ns: u64,
    sent: u64,
    messages: u64,
    awaits_answer: bool,
    times: Pcg64,
    sizes: Pcg64,
}

/// What comes next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    /// A message at this time.
    At(u64),
    /// A message once the kernel has taken all, or the answer has come.
    Waiting,
    /// None any more.
    Over,
}

impl<'a> Source<'a> {
    /// For `stream`, which starts at `start_ns`; no message is due at `end_ns` or later.
    pub(super) fn new(
        group: &'a Group,
        seed: u64,
        stream: u32,
        (start_ns, end_ns): (u64, u64),
    ) -> Self {
        const SIZES: u64 = 0x7369_7a65;
        let messages = group.messages.unwrap_or(MAX_MESSAGES).min(MAX_MESSAGES);
        let draws = |seed: u64| Pcg64::seed_from_u64(mix(seed ^ mix(stream.into())));
        let mut source = Self {
            kind: &group.kind,
            due_ns: start_ns as f64,
            end_ns,
            sent: 0,
            messages: match &group.kind {
                Kind::Replay { writes, .. } => messages.min(writes.len() as u64),
                Kind::Flow { .. } => group.messages.map_or(1, |_| messages),
                _ => messages,
            },
            awaits_answer: false,
            times: draws(seed),
            sizes: draws(seed ^ SIZES),
        };
        if let Kind::Replay { .. } = source.kind {
            source.due_ns += source.gap();
        }
        source
    }

    /// `idle` says that the kernel has taken all there was.
    pub(super) fn next(&self, now_ns: u64, idle: bool) -> Next {
        if self.sent >= self.messages {
            return Next::Over;
        }
        let due_ns = match self.kind {
            Kind::Greedy { .. } => now_ns.max(self.due_ns as u64),
            _ => self.due_ns as u64,
        };
        let blocked = matches!(self.kind, Kind::Greedy { .. }) && !idle;
        match (due_ns < self.end_ns, blocked || self.awaits_answer) {
            (false, _) => Next::Over,
            (true, true) if now_ns >= self.end_ns => Next::Over,
            (true, true) => Next::Waiting,
            (true, false) => Next::At(due_ns),
        }
    }

    /// The size of the message that is handed over now.
    pub(super) fn take(&mut self) -> u32 {
        let size = match self.kind {
            Kind::Thin { size, .. }
            | Kind::Burst { size, .. }
            | Kind::RequestResponse { size, .. } => drawn(size, &mut self.sizes),
            Kind::Flow { size, .. } => {
                let size = drawn(size, &mut self.sizes);
                let is_last = self.sent + 1 == self.messages;
                let end = if is_last { END_LEN } else { 0 };
                size.saturating_sub(end).max(1)
            }
            Kind::Isochronous { size, .. } | Kind::Datagrams { size, .. } => *size,
            Kind::Greedy { write } => *write,
            Kind::Replay { writes, .. } => {
                writes.get(self.sent as usize).map_or(1, |write| write.size)
            }
        };
        self.sent += 1;
        self.awaits_answer = matches!(self.kind, Kind::RequestResponse { .. });
        self.due_ns += self.gap();
        size
    }

    /// The stream starts so much later.
    pub(super) fn delay(&mut self, by_ns: u64) {
        self.due_ns += by_ns as f64;
    }

    /// An answer has come.
    pub(super) fn answered(&mut self, now_ns: u64) {
        if let (Kind::RequestResponse { think, .. }, true) = (self.kind, self.awaits_answer) {
            self.due_ns = now_ns as f64 + think.draw(&mut self.times) * 1e6;
            self.awaits_answer = false;
        }
    }

    /// Messages until the end, where that does not depend on the network.
    pub(super) fn planned(&self) -> Option<u64> {
        let mut source = self.clone();
        match self.kind {
            Kind::Greedy { .. } | Kind::RequestResponse { .. } => return None,
            _ if self.end_ns == u64::MAX => return Some(self.messages),
            _ => {}
        }
        while let Next::At(_) = source.next(0, true) {
            source.sent += 1;
            source.due_ns += source.gap();
        }
        Some(source.sent)
    }

    /// The bytes of the answers that it wants to every message, if it does.
    pub(super) fn wants_answers(&self) -> Option<u32> {
        match self.kind {
            Kind::RequestResponse { answer, .. } => Some(*answer),
            _ => None,
        }
    }

    /// Whether a message may be late: one that is due as soon as there is room never is.
    pub(super) fn can_be_late(&self) -> bool {
        !matches!(self.kind, Kind::Greedy { .. })
    }

    /// The time from the last message handed over to the next one.
    fn gap(&mut self) -> f64 {
        match self.kind {
            Kind::Thin { itt, .. } => itt.draw(&mut self.times) * 1e6,
            Kind::Isochronous { itt, .. } => ns(*itt) as f64,
            Kind::Datagrams { size, rate } => gap_ns(*size, *rate),
            Kind::Burst { tick, .. } => ns(*tick) as f64,
            Kind::Replay { writes, speed } => writes
                .get(self.sent as usize)
                .map_or(0.0, |write| ns(write.gap) as f64 / speed),
            Kind::Greedy { .. } | Kind::RequestResponse { .. } | Kind::Flow { .. } => 0.0,
        }
    }
}

/// As a number without fraction, and in the format's range.
fn drawn(size: &Distribution, draws: &mut Pcg64) -> u32 {
    size.draw(draws).round().clamp(1.0, MAX_SIZE.into()) as u32
}

#[cfg(test)]
mod tests;
