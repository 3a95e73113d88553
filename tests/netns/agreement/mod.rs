//! What the analyser finds in traces, against what is known of the packets from elsewhere.

mod account;
mod fate;
mod ledger;
mod packet_socket;
mod scene;
mod truth;
mod tshark;
mod watch;
