//! What the analyser finds in traces, against what is known of the packets from elsewhere.

mod account;
mod ledger;
mod scene;
mod tshark;
