use serde::Serialize;

use super::Direction;

/// One of two traces, or the end at which it was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Side {
    /// The one at the sender, or the only one.
    Sender,
    /// The one at the receiver.
    Receiver,
}

impl Side {
    pub(crate) fn other(self) -> Self {
        match self {
            Self::Sender => Self::Receiver,
            Self::Receiver => Self::Sender,
        }
    }
}

/// What of a connection each of two traces has shown so far.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Seen {
    /// By trace and direction.
    shown: [[bool; 2]; 2],
    /// Its ends are the hosts at both traces, as other connections tell.
    pub(crate) between_traces: bool,
}

impl Seen {
    #[inline]
    pub(crate) fn add(&mut self, side: Side, direction: Direction) {
        self.shown[side as usize][direction as usize] = true;
    }

    /// The only trace that shows it, as a filter or another path lets only one. What nobody answers
    /// between the hosts at both traces is shown by one because it was lost.
    pub(crate) fn only(&self) -> Option<Side> {
        let [sender, receiver] = self.shown.map(|ways| ways.contains(&true));
        let side = match (sender, receiver) {
            (true, false) => Side::Sender,
            (false, true) => Side::Receiver,
            _ => return None,
        };
        let answered = !self.shown[side as usize].contains(&false);
        (answered || !self.between_traces).then_some(side)
    }
}
