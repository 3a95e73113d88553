//! What the application does, and others.

use std::time::Instant;

use pillion_bpf::{Counters, Options};

use super::super::judge::{Ends, Rule};
use super::super::scenario::{Act, How};
use super::Game;
use crate::{Bundler, Ip};

impl Game {
    pub(super) fn act(&mut self, act: Act, now: Instant) {
        self.note(format!("{act:?}"));
        match act {
            Act::Write(bytes, how) => self.write(bytes, how),
            Act::PeerSends(bytes) => {
                let ack = self.receiver.acknowledge();
                self.deliver(ack, Some(&vec![0; bytes + 1]));
            }
            Act::Window(bytes) => {
                self.wire.peer.set_window(bytes);
                let ack = self.receiver.acknowledge();
                self.sends_ack(ack, now);
            }
            Act::Largest(bytes) => self.scenario.forward.largest = bytes,
            Act::Refuse(refuse) => {
                self.is_uncertain = true;
                self.wire.refuse_data(refuse);
            }
            Act::Rules(options) => self.change(options),
            Act::Exchange(options) => self.exchange(options),
            Act::Switch(on) => self.switch(on),
            Act::Mtu(bytes) => {
                let headers = if self.wire.setup.ip == Ip::V6 { 60 } else { 40 };
                self.wire.set_mtu(bytes.min(self.wire.setup.mss + headers));
            }
            Act::Congestion(name) => self
                .wire
                .set_option((libc::IPPROTO_TCP, libc::TCP_CONGESTION), name.as_bytes()),
            Act::Cork(on) => {
                let on = i32::from(on).to_ne_bytes();
                self.wire
                    .set_option((libc::IPPROTO_TCP, libc::TCP_CORK), &on);
            }
        }
    }

    pub(super) fn write(&mut self, bytes: u32, how: How) {
        let flags = match how {
            How::Plain => 0,
            How::More => libc::MSG_MORE,
            How::Urgent => libc::MSG_OOB,
            How::EndOfRecord => libc::MSG_EOR,
            How::OwnPages => libc::MSG_ZEROCOPY,
            How::File => {
                self.wire.send_file(bytes);
                return;
            }
        };
        self.wire.offer(bytes, flags);
    }

    pub(super) fn change(&mut self, options: Options) {
        if self.wire.attachments.is_empty() {
            return;
        }
        let options = Options {
            retransmissions: self.options.retransmissions,
            without_sack: self.options.without_sack,
            ..options
        };
        self.wire.replace_rules(&Bundler::with(options));
        self.options = options;
        self.answered = self.sent();
    }

    fn switch(&mut self, on: bool) {
        /// `PILLION_BUNDLE` of `include/pillion.h`.
        const BUNDLE: libc::c_int = 0x7069_6c01;
        if self.wire.attachments.is_empty() {
            return;
        }
        let value = i32::from(on).to_ne_bytes();
        self.wire.set_option((libc::IPPROTO_TCP, BUNDLE), &value);
        self.off = !on;
    }

    pub(super) fn exchange(&mut self, options: Options) {
        self.wire.detach();
        self.wire.attachments.clear();
        let options = Options {
            retransmissions: self.options.retransmissions,
            without_sack: self.options.without_sack,
            ..options
        };
        self.wire.attach(&Bundler::with(options));
        self.wire.adopt();
        self.off = false;
        self.options = options;
        self.rule = Rule::new(&options, self.scenario.setup.sack);
        self.ends = Ends::default();
        self.recorded_from = self.ledger.end();
        self.answered = self.sent();
        self.counters = Counters::default();
    }
}
