use rand::SeedableRng;
use rand_pcg::Pcg64;

use crate::traffic::distribution::Distribution;
use crate::traffic::latency::ns;
use crate::traffic::plan::{Group, Kind, MAX_MESSAGES, gap_ns};
use crate::traffic::wire::{END_LEN, MAX_SIZE, mix};

/// Decides when one stream sends, and how much. Times are in nanoseconds since the barrier opened.
///
/// If the times do not depend on the network, the first message is due at the stream's start. Each
/// further one follows the previous due time (not the actual write). Equal arguments give equal
/// times and sizes.
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

/// The next action of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    /// Send a message at this time.
    At(u64),
    /// Send a message once the kernel has accepted all data, or the response has arrived.
    Waiting,
    /// No more messages.
    Over,
}

impl<'a> Source<'a> {
    /// Creates the source of `stream`, which starts at `start_ns`. No message is due at `end_ns` or
    /// later.
    pub(super) fn new(
        group: &'a Group,
        seed: u64,
        stream: u32,
        (start_ns, end_ns): (u64, u64),
    ) -> Self {
        const SIZES: u64 = 0x7369_7a65;
        let messages = group.messages.unwrap_or(MAX_MESSAGES).min(MAX_MESSAGES);
        let rng = |seed: u64| Pcg64::seed_from_u64(mix(seed ^ mix(stream.into())));
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
            times: rng(seed),
            sizes: rng(seed ^ SIZES),
        };
        if let Kind::Replay { .. } = source.kind {
            source.due_ns += source.gap();
        }
        source
    }

    /// Returns the next action. `idle` is true if the kernel has accepted all data.
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

    /// Returns the size of the message to write now.
    pub(super) fn take(&mut self) -> u32 {
        let size = match self.kind {
            Kind::Thin { size, .. }
            | Kind::Burst { size, .. }
            | Kind::RequestResponse { size, .. } => sample_size(size, &mut self.sizes),
            Kind::Flow { size, .. } => {
                let size = sample_size(size, &mut self.sizes);
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

    /// Delays the stream's start.
    pub(super) fn delay(&mut self, by_ns: u64) {
        self.due_ns += by_ns as f64;
    }

    /// Handles a response.
    pub(super) fn answered(&mut self, now_ns: u64) {
        if let (Kind::RequestResponse { think, .. }, true) = (self.kind, self.awaits_answer) {
            self.due_ns = now_ns as f64 + think.sample(&mut self.times) * 1e6;
            self.awaits_answer = false;
        }
    }

    /// Returns the number of messages until the end; `None` if it depends on the network.
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

    /// Returns the size of the responses that it requests to every message, if any.
    pub(super) fn wants_answers(&self) -> Option<u32> {
        match self.kind {
            Kind::RequestResponse { answer, .. } => Some(*answer),
            _ => None,
        }
    }

    /// Returns whether messages can be late; a message that is due as soon as there is room never
    /// is.
    pub(super) fn can_be_late(&self) -> bool {
        !matches!(self.kind, Kind::Greedy { .. })
    }

    /// Returns the time from the last written message to the next one.
    fn gap(&mut self) -> f64 {
        match self.kind {
            Kind::Thin { itt, .. } => itt.sample(&mut self.times) * 1e6,
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

/// Samples a size as an integer within the format's range.
fn sample_size(size: &Distribution, rng: &mut Pcg64) -> u32 {
    size.sample(rng).round().clamp(1.0, MAX_SIZE.into()) as u32
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::traffic::distribution::Distribution;
    use crate::traffic::list::Write;

    const MS: u64 = 1_000_000;

    fn thin(itt: &str, size: &str) -> Group {
        let [itt, size] = [itt, size].map(|text| Distribution::parse(text).unwrap());
        Group::new("thin", Kind::Thin { itt, size })
    }

    /// Returns times and sizes of all messages of a source that does not depend on the network.
    fn all(mut source: Source) -> Vec<(u64, u32)> {
        let planned = source.planned();
        let mut all = Vec::new();
        while let Next::At(due) = source.next(0, true) {
            all.push((due, source.take()));
        }
        assert_eq!(source.next(0, true), Next::Over);
        assert_eq!(planned, Some(all.len() as u64));
        all
    }

    #[test]
    fn messages_depend_only_on_seed_and_stream() {
        let group = thin("30:3", "exponential:100");
        let of = |seed, stream| all(Source::new(&group, seed, stream, (MS, 3000 * MS)));
        assert_eq!(of(1, 2), of(1, 2));
        assert_ne!(of(1, 2), of(1, 3));
        assert_ne!(of(1, 2), of(2, 2));
    }

    #[test]
    fn constant_times_run_from_start_until_before_end() {
        let beat = [(10 * MS, 120), (40 * MS, 120), (70 * MS, 120)];
        let group = thin("30", "120");
        assert_eq!(all(Source::new(&group, 1, 0, (10 * MS, 100 * MS))), beat);
        let itt = Duration::from_millis(30);
        let isochronous = Group::new("beat", Kind::Isochronous { itt, size: 120 });
        assert_eq!(
            all(Source::new(&isochronous, 1, 0, (10 * MS, 100 * MS))),
            beat
        );
    }

    #[test]
    fn message_count_ends_stream_without_duration() {
        let group = Group {
            messages: Some(5),
            ..thin("30:3", "120")
        };
        assert_eq!(all(Source::new(&group, 1, 0, (0, u64::MAX))).len(), 5);
    }

    #[test]
    fn sampled_sizes_stay_within_format() {
        let group = thin("1", "pareto:1000:1.01");
        let sizes = all(Source::new(&group, 1, 0, (0, 20_000 * MS)));
        assert!(sizes.iter().all(|(_, size)| (1..=MAX_SIZE).contains(size)));
        let small = thin("1", "1:5");
        let sizes = all(Source::new(&small, 1, 0, (0, 1_000 * MS)));
        assert!(sizes.iter().all(|(_, size)| *size >= 1));
    }

    #[test]
    fn replay_keeps_sizes_and_scales_gaps_by_speed() {
        let write = |ms, size| Write {
            gap: Duration::from_millis(ms),
            size,
        };
        let group = |speed| {
            let writes = [write(4, 10), write(20, 1000), write(0, 7)].into();
            Group::new("replay", Kind::Replay { writes, speed })
        };
        let (original, doubled) = (group(1.0), group(2.0));
        let of = |group| all(Source::new(group, 1, 0, (MS, u64::MAX)));
        assert_eq!(of(&original), [(5 * MS, 10), (25 * MS, 1000), (25 * MS, 7)]);
        assert_eq!(of(&doubled), [(3 * MS, 10), (13 * MS, 1000), (13 * MS, 7)]);
    }

    #[test]
    fn greedy_stream_sends_when_queue_is_empty() {
        let group = Group::new("greedy", Kind::Greedy { write: 65_536 });
        let mut source = Source::new(&group, 1, 0, (5 * MS, 100 * MS));
        assert_eq!(source.next(0, true), Next::At(5 * MS));
        assert_eq!(source.next(50 * MS, true), Next::At(50 * MS));
        assert_eq!(source.take(), 65_536);
        assert_eq!(source.next(50 * MS, false), Next::Waiting);
        assert_eq!(source.next(100 * MS, true), Next::Over);
        assert_eq!(source.planned(), None);
    }

    #[test]
    fn request_waits_for_response_and_think_time() {
        let [think, size] = ["50", "120"].map(|text| Distribution::parse(text).unwrap());
        let kind = Kind::RequestResponse {
            think,
            size,
            answer: 400,
        };
        let group = Group::new("requests", kind);
        let mut source = Source::new(&group, 1, 0, (0, 1000 * MS));
        assert_eq!(source.wants_answers(), Some(400));
        assert_eq!(source.next(0, true), Next::At(0));
        source.take();
        assert_eq!(source.next(10 * MS, true), Next::Waiting);
        source.answered(170 * MS);
        assert_eq!(source.next(170 * MS, true), Next::At(220 * MS));
        source.take();
        assert_eq!(source.next(1000 * MS, true), Next::Over);
    }
}
