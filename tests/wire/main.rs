//! Byte-exact tests of the segments that the bundler puts on the wire.
//!
//! Every test has its own network namespace, TAP device and scripted peer.

mod acks;
mod bundle_size;
mod bundled_retransmissions;
mod cgroups;
mod congestion_control;
mod copies;
mod dsack;
mod flows;
mod governor;
mod headers;
mod hidden_loss;
mod history;
mod level;
mod misleading_dsacks;
mod nat;
mod observation;
mod path_size;
mod policy;
mod program_renewal;
mod published;
mod random;
mod reaction;
mod redundancy_caps;
mod retransmission;
mod rules;
mod socket_option;
mod tail_loss_probes;
mod tcp_options;
mod tfrc_sp;
mod thin_streams;
mod thinned_acks;
mod time_saved;
mod two_bundlers;
mod undone_reductions;
mod untouched;
