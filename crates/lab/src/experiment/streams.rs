use pillion_bundler::{Companions, Options};
use pillion_traffic::Group;

use super::RoundTrips;

/// Streams that are alike.
#[derive(Debug, Clone, PartialEq)]
pub struct Streams {
    /// What they send, and how their sockets are set; its name is the group's.
    pub traffic: Group,
    /// The host that they come from: a place in [`Run::hosts`](super::Run::hosts).
    pub host: usize,
    /// Round-trip times of their own.
    pub round_trips: Option<RoundTrips>,
    /// How pillion bundles them; `None` leaves them plain.
    pub bundling: Option<(Options, Companions)>,
}
