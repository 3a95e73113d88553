//! What is told apart by the port of a frame.

use std::collections::HashMap;

use crate::path::packet::ports;

/// Something of each of some ports.
pub(crate) struct ByPort<T>(HashMap<u16, T>);

impl<T> ByPort<T> {
    /// That of the port that a TCP or UDP frame goes to; or else of that it comes from.
    pub fn of(&mut self, frame: &[u8]) -> Option<&mut T> {
        if self.0.is_empty() {
            return None;
        }
        let ports = ports(frame)?;
        let known = ports.iter().rev().find(|port| self.0.contains_key(port));
        known.and_then(|port| self.0.get_mut(port))
    }
}

impl<T> FromIterator<(u16, T)> for ByPort<T> {
    fn from_iter<I: IntoIterator<Item = (u16, T)>>(all: I) -> Self {
        Self(all.into_iter().collect())
    }
}
