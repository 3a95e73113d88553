use crate::connection::{Connection, Outcome};
use crate::event::Observer;

/// How many connections there were and what became of them: table 4.1 of the thesis, and its
/// `count3way` (section 3.4.5).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Tally {
    /// All of them.
    pub connections: u64,
    /// Those whose handshake the trace shows, completed or not.
    pub tried: u64,
    /// Those whose handshake was completed.
    pub completed: u64,
    /// Those that RST refused.
    pub refused: u64,
    /// Those that nobody answered, or where the handshake was never completed.
    pub unanswered: u64,
    /// Those that RST ended after the handshake.
    pub reset: u64,
    /// Those that needed more than one SYN.
    pub tried_again: u64,
    /// Those in which no payload went.
    pub without_data: u64,
    durations_ns: Vec<i64>,
}

impl Tally {
    /// Connections that were seen for less than a time; the thesis takes half of the test's
    /// duration and calls them dropped.
    #[must_use]
    pub fn shorter_than_ns(&self, limit_ns: i64) -> usize {
        let short = |duration: &&i64| **duration < limit_ns;
        self.durations_ns.iter().filter(short).count()
    }
}

impl Observer for Tally {
    fn finished(&mut self, connection: &Connection) {
        let outcome = connection.outcome();
        self.connections += 1;
        self.tried += u64::from(outcome != Outcome::NotSeen);
        self.completed += u64::from(matches!(outcome, Outcome::Completed | Outcome::Reset));
        self.refused += u64::from(outcome == Outcome::Refused);
        self.unanswered += u64::from(outcome == Outcome::Unanswered);
        self.reset += u64::from(outcome == Outcome::Reset);
        self.tried_again += u64::from(connection.handshake.syns > 1);
        self.without_data += u64::from(!connection.has_data());
        self.durations_ns.push(connection.duration_ns());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Analysis;
    use crate::Direction::Backward;
    use crate::script::{MS, Script, endpoint};

    #[test]
    fn connections_are_counted_by_what_became_of_them() {
        let mut script = Script::new();
        script.handshake().at(10).data(1, 101).at(900).ack(101);
        script.client = endpoint("192.0.2.1:2");
        script.handshake();
        script.packet(Backward, 1, 0).flags.rst = true;
        script.client = endpoint("192.0.2.1:3");
        script.syn();
        script.packet(Backward, 0, 0).flags.rst = true;
        script.client = endpoint("192.0.2.1:4");
        script.syn();
        script.at(2000).syn();
        script.client = endpoint("192.0.2.1:5");
        script.data(1, 2);
        let mut analysis = Analysis::new(Tally::default());
        for packet in &script.packets {
            analysis.packet(packet);
        }
        let tally = analysis.finish();
        assert_eq!((tally.connections, tally.tried, tally.completed), (5, 4, 2));
        assert_eq!((tally.refused, tally.unanswered, tally.reset), (1, 1, 1));
        assert_eq!((tally.tried_again, tally.without_data), (1, 3));
        assert_eq!(tally.shorter_than_ns(500 * MS), 3);
    }
}
