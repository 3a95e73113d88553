//! Byte-exact: what the bundler puts on the wire, segment by segment.
//!
//! Every test has a network namespace, a TAP device and a scripted peer of its own.

mod acks;
mod along;
mod cgroups;
mod companions;
mod congestion_control;
mod dsack;
mod flows;
mod governor;
mod headers;
mod hidden_loss;
mod history;
mod level;
mod misread;
mod observation;
mod path_size;
mod policy;
mod probed;
mod published;
mod random;
mod reaction;
mod renewal;
mod retransmission;
mod rules;
mod saved;
mod size;
mod socket_option;
mod tfrc_sp;
mod thin;
mod thinned;
mod two_bundlers;
mod undone;
mod untouched;
