//! Senders and receivers of traffic, over loopback.

mod common;
mod faults;
mod kinds;
mod loopback;
mod sender;
