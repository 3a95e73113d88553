//! Cross-check: the analyser's results on traces against independent knowledge of the packets.

mod account;
mod fate;
mod ledger;
mod packet_socket;
mod scene;
mod truth;
mod tshark;
mod watch;
