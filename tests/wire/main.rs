//! Byte-exact: what the bundler puts on the wire, segment by segment.
//!
//! Every test has a network namespace, a TAP device and a scripted peer of its own.

mod acknowledged;
mod along;
mod cgroups;
mod checksums;
mod companions;
mod compared;
mod control;
mod crowded;
mod dsack;
mod flows;
mod governor;
mod hidden_loss;
mod history;
mod ignored_cwr;
mod ip_headers;
mod level;
mod limits;
mod link_headers;
mod misread;
mod observation;
mod path_size;
mod policy;
mod probed;
mod published;
mod random;
mod reaction;
mod refused;
mod renewal;
mod report_place;
mod retransmission;
mod rules;
mod sacked;
mod saved;
mod size;
mod socket_option;
mod tfrc_sp;
mod thin;
mod thinned;
mod truesize;
mod two_bundlers;
mod undone;
mod unsent;
mod untouched;
