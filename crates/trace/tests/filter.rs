//! What a filter leaves out.

mod common;

use common::frame::{IPV6, ethernet, ipv6, segment, tcp};
use common::{ETHERNET, Order, Pcap, open};
use pillion_trace::input::Filter;

/// Numbers of the packets that `filter` takes of an IPv4 packet at 1 s and an IPv6 one at 2 s.
fn taken(filter: Filter) -> Vec<u64> {
    let file = Pcap::nanoseconds(Order::Big, ETHERNET)
        .frame(1_000_000_000, &segment(b"x"))
        .frame(2_000_000_000, &ethernet(IPV6, &ipv6(&tcp(b"x"))));
    let mut input = open(&file.bytes).unwrap().filtered(filter);
    let numbers: Vec<_> = input.by_ref().map(|packet| packet.number).collect();
    assert_eq!(input.counts().filtered, 2 - numbers.len() as u64);
    numbers
}

fn filter() -> Filter {
    Filter::default()
}

#[test]
fn an_empty_filter_takes_everything() {
    assert_eq!(taken(filter()), [1, 2]);
}

#[test]
fn either_end_may_match() {
    for address in ["192.0.2.1", "192.0.2.2"] {
        assert_eq!(taken(filter().address(address.parse().unwrap())), [1]);
    }
    let both = filter().address("192.0.2.1".parse().unwrap());
    let both = both.address("2001:db8::2".parse().unwrap());
    assert_eq!(taken(both), [1, 2]);
    assert_eq!(taken(filter().port(4000)), [1, 2]);
    assert_eq!(taken(filter().port(80)), [1, 2]);
    assert_eq!(taken(filter().port(81)), [0; 0]);
}

#[test]
fn every_condition_has_to_hold() {
    let address = filter().address("192.0.2.1".parse().unwrap());
    assert_eq!(taken(address.clone().port(80)), [1]);
    assert_eq!(taken(address.port(81)), [0; 0]);
}

#[test]
fn a_time_window_includes_its_start_and_not_its_end() {
    assert_eq!(taken(filter().from(2_000_000_000)), [2]);
    assert_eq!(taken(filter().until(2_000_000_000)), [1]);
}
