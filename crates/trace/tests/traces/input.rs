//! File formats: times, byte orders, interfaces, compression, what is not a trace; and filters.

use std::io::Write;

use pillion_trace::input::{self, Compression, Filter, LinkType};

use crate::common::{ETHERNET, IPV6, ORDERS, Order, Pcap, PcapNg, ethernet, ipv6, segment, tcp};
use crate::common::{one, open, packets, read, warnings};

const AT: u64 = 1_700_000_000_123_456_789;

fn times(bytes: &[u8]) -> Vec<i64> {
    packets(bytes).iter().map(|packet| packet.at_ns).collect()
}

#[test]
fn pcap_is_read_in_both_byte_orders_and_resolutions() {
    for order in ORDERS {
        let file = Pcap::microseconds(order, ETHERNET).frame(AT, &segment(b"x"));
        assert_eq!(times(&file.bytes), [1_700_000_000_123_456_000]);
        let file = Pcap::nanoseconds(order, ETHERNET).frame(AT, &segment(b"x"));
        assert_eq!(times(&file.bytes), [1_700_000_000_123_456_789]);
    }
}

#[test]
fn the_long_record_headers_of_an_old_libpcap_are_read() {
    let mut file = Pcap::new(Order::Little, 0xa1b2_cd34, 1000, 1).bytes;
    let frame = segment(b"x");
    for field in [1, 2, frame.len() as u32, frame.len() as u32, 0, 0] {
        file.extend(Order::Little.u32(field));
    }
    file.extend(frame);
    assert_eq!(times(&file), [1_000_002_000]);
}

#[test]
fn the_length_of_check_sequences_is_no_part_of_the_link_type() {
    let file = Pcap::new(Order::Big, 0xa1b2_c3d4, 1000, 0x2400_0001);
    let file = file.frame(AT, &[&segment(b"xy")[..], &[0; 4]].concat());
    assert_eq!(packets(&file.bytes)[0].payload_len, 2);
}

#[test]
fn a_pcap_packet_may_be_longer_than_the_header_says() {
    let mut file = one(ETHERNET, &segment(&[0; 2000]));
    file[16..20].copy_from_slice(&Order::Little.u32(1500));
    assert_eq!(packets(&file)[0].payload_len, 2000);
}

#[test]
fn packets_keep_their_number_and_their_length_on_the_wire() {
    let whole = segment(&[7; 1000]);
    let file = Pcap::microseconds(Order::Little, ETHERNET)
        .frame(AT, &[0; 60])
        .cut(AT, &whole[..96], whole.len());
    let [packet] = packets(&file.bytes)[..] else {
        panic!("one packet is TCP");
    };
    assert_eq!(packet.number, 2);
    assert_eq!(packet.frame_len, 1054);
    assert_eq!(packet.header_len, 40);
    assert_eq!(packet.payload_len, 1000);
}

#[test]
fn each_interface_of_each_section_has_its_own_link_type_and_clock() {
    for [first, second] in [[Order::Big, Order::Little], [Order::Little, Order::Big]] {
        let frame = segment(b"x");
        let file = PcapNg::new(first);
        let offset = file.offset(100);
        let file = file
            .interface(ETHERNET, 0)
            .interface_with(101, 0, &[(2, b"wlan0"), (9, &[9]), (14, &offset)])
            .enhanced(1, 7, &frame[14..], frame.len() - 14)
            .enhanced(0, 7, &frame, frame.len())
            .section(second)
            .interface_with(ETHERNET, 0, &[(9, &[0x80 | 1])])
            .enhanced(0, 3, &frame, frame.len());
        let (packets, input) = read(&file.bytes);
        let times: Vec<_> = packets.iter().map(|packet| packet.at_ns).collect();
        assert_eq!(times, [100_000_000_007, 7000, 1_500_000_000]);
        assert_eq!(input.format().to_string(), "pcapng, raw IP, Ethernet");
        assert_eq!(input.span_ns(), Some((7000, 100_000_000_007)));
    }
}

#[test]
fn times_of_pcapng_use_all_64_bits() {
    let frame = segment(b"x");
    let file = PcapNg::new(Order::Little)
        .interface_with(ETHERNET, 0, &[(9, &[9])])
        .enhanced(0, AT, &frame, frame.len());
    assert_eq!(times(&file.bytes), [AT as i64]);
}

#[test]
fn obsolete_and_simple_packet_blocks_are_read() {
    for order in ORDERS {
        let frame = segment(&[7; 100]);
        let file = PcapNg::new(order)
            .interface(ETHERNET, 64)
            .obsolete(0, 5, &frame, frame.len())
            .simple(&frame[..64], frame.len())
            .simple(&frame[..64], frame.len());
        let (packets, input) = read(&file.bytes);
        let seen: Vec<_> = packets.iter().map(|p| (p.at_ns, p.payload_len)).collect();
        assert_eq!(seen, [(5000, 100), (0, 100), (0, 100)]);
        let simple_at = 28 + 20 + 12 + 20 + frame.len().next_multiple_of(4);
        assert_eq!(
            warnings(&input),
            [format!(
                "at byte {simple_at}: packets were recorded without their time; 1970 was taken"
            )]
        );
        assert_eq!(input.span_ns(), Some((5000, 5000)));
    }
}

#[test]
fn blocks_that_do_not_matter_are_passed_over_whatever_their_length() {
    let frame = segment(b"x");
    let file = PcapNg::new(Order::Big)
        .block(4, &[1; 20])
        .interface(ETHERNET, 0)
        .block(0x8000_0001, &vec![0xff; 20 << 20])
        .enhanced(0, 1, &frame, frame.len());
    assert_eq!(times(&file.bytes), [1000]);
}

#[test]
fn packets_of_a_link_type_that_is_not_read_are_counted_beside_the_others() {
    let frame = segment(b"x");
    let file = PcapNg::new(Order::Little)
        .interface(105, 0)
        .interface(ETHERNET, 0)
        .enhanced(0, 1, &frame, frame.len())
        .enhanced(1, 1, &frame, frame.len());
    let (packets, input) = read(&file.bytes);
    assert_eq!(packets.len(), 1);
    assert_eq!(input.counts().other_link, 1);
    assert_eq!(input.format().link_types(), [LinkType(105), LinkType(1)]);
    assert_eq!(
        warnings(&input),
        [
            "at byte 28: an interface has link type 105, which is not read; its packets were left out"
        ]
    );
}

#[test]
fn compression_is_recognised_by_content() {
    let plain = one(ETHERNET, &segment(b"x"));
    let gzip = |bytes: &[u8]| {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    };
    let (head, tail) = plain.split_at(30);
    let members = [gzip(head), gzip(tail)].concat();
    let zstd = |bytes| zstd::encode_all(bytes, 1).unwrap();
    let skippable = [0x53, 0x2a, 0x4d, 0x18, 3, 0, 0, 0, 9, 9, 9];
    let frames = [&skippable[..], &zstd(head), &zstd(tail)].concat();
    for (file, compression) in [
        (&plain, None),
        (&gzip(&plain), Some(Compression::Gzip)),
        (&members, Some(Compression::Gzip)),
        (&zstd(&plain), Some(Compression::Zstd)),
        (&frames, Some(Compression::Zstd)),
    ] {
        assert_eq!(packets(file).len(), 1);
        let (_, input) = read(file);
        assert_eq!(input.format().compression(), compression);
        assert_eq!(input.progress().read(), file.len() as u64);
    }
}

#[test]
fn what_is_no_trace_is_refused_with_the_reason() {
    let pcap = one(ETHERNET, &[]);
    let mut version = pcap.clone();
    version[4] = 1;
    for (bytes, message) in [
        (
            &b""[..],
            "test: is empty; check that the capture ran, and wrote here",
        ),
        (
            b"\x7fELF\x02",
            "test: is not a packet trace: it begins with 7f 45 4c 46; expected pcap or pcapng, plain or compressed with gzip or zstd, as `tcpdump -w FILE` writes it",
        ),
        (
            &pcap[..23],
            "test: ends after 23 bytes, within its header; copy or capture it again",
        ),
        (
            &version,
            "test: is pcap of version 1.4, and only 2.x is read; convert it with `editcap -F pcap`",
        ),
        (
            &one(127, &[]),
            "test: has link type 127, which is not read; capture at the Ethernet or IP layer, such as with `tcpdump -i any`",
        ),
    ] {
        let error = open(bytes).err().expect("an error");
        assert_eq!(error.to_string(), message);
    }
}

#[test]
fn a_missing_file_is_named() {
    let error = input::open("/nonexistent/trace.pcap".as_ref())
        .err()
        .unwrap();
    assert_eq!(
        error.to_string(),
        "/nonexistent/trace.pcap: cannot be opened: No such file or directory (os error 2)"
    );
}

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
