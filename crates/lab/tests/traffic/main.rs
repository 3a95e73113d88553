//! Senders and receivers of traffic, over loopback.

mod common;
mod datagrams;
mod faults;
mod kinds;
mod loopback;
mod sender;
