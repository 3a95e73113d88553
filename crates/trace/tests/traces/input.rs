//! File formats: times, byte orders, interfaces, compression, invalid files; and filters.

use std::io::Write;

use pillion_trace::input::{self, Compression, Filter, LinkType};

use crate::common::{ETHERNET, IPV6, ORDERS, Order, Pcap, PcapNg, ethernet, ipv6, segment, tcp};
use crate::common::{one, open, packets, read, warnings};

const AT: u64 = 1_700_000_000_123_456_789;

fn times(bytes: &[u8]) -> Vec<i64> {
    packets(bytes).iter().map(|packet| packet.at_ns).collect()
}

#[test]
fn pcap_reads_both_byte_orders_and_resolutions() {
    for order in ORDERS {
        let file = Pcap::microseconds(order, ETHERNET).frame(AT, &segment(b"x"));
        assert_eq!(times(&file.bytes), [1_700_000_000_123_456_000]);
        let file = Pcap::nanoseconds(order, ETHERNET).frame(AT, &segment(b"x"));
        assert_eq!(times(&file.bytes), [1_700_000_000_123_456_789]);
    }
}

#[test]
fn pcap_reads_long_record_headers() {
    let mut file = Pcap::new(Order::Little, 0xa1b2_cd34, 1000, 1).bytes;
    let frame = segment(b"x");
    for field in [1, 2, frame.len() as u32, frame.len() as u32, 0, 0] {
        file.extend(Order::Little.u32(field));
    }
    file.extend(frame);
    assert_eq!(times(&file), [1_000_002_000]);
}

#[test]
fn pcap_link_type_excludes_check_sequence_length() {
    let file = Pcap::new(Order::Big, 0xa1b2_c3d4, 1000, 0x2400_0001);
    let file = file.frame(AT, &[&segment(b"xy")[..], &[0; 4]].concat());
    assert_eq!(packets(&file.bytes)[0].payload_len, 2);
}

#[test]
fn pcap_packet_may_exceed_snapshot_length() {
    let mut file = one(ETHERNET, &segment(&[0; 2000]));
    file[16..20].copy_from_slice(&Order::Little.u32(1500));
    assert_eq!(packets(&file)[0].payload_len, 2000);
}

#[test]
fn packets_have_file_number_and_wire_length() {
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
fn pcapng_interfaces_have_own_link_type_and_clock() {
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
fn pcapng_times_use_all_64_bits() {
    let frame = segment(b"x");
    let file = PcapNg::new(Order::Little)
        .interface_with(ETHERNET, 0, &[(9, &[9])])
        .enhanced(0, AT, &frame, frame.len());
    assert_eq!(times(&file.bytes), [AT as i64]);
}

/// A record of a pcap file with these fields for its time.
fn record(seconds: u32, ticks: u32) -> Vec<u8> {
    let frame = segment(b"");
    let len = frame.len() as u32;
    let fields = [seconds, ticks, len, len].map(u32::to_le_bytes);
    [fields.concat(), frame].concat()
}

fn pcap_with(mut file: Pcap, times: &[(u32, u32)]) -> Vec<u8> {
    let records = times.iter().map(|&(seconds, ticks)| record(seconds, ticks));
    file.bytes.extend(records.flatten());
    file.bytes
}

#[test]
fn nanoseconds_under_microsecond_magic_are_read_as_such() {
    let times = [(7, 0), (7, 50_000_000), (7, 999_999_999), (8, 0), (8, 400)];
    let file = pcap_with(Pcap::microseconds(Order::Little, ETHERNET), &times);
    let (packets, input) = read(&file);
    let expected = times.map(|(s, ns)| i64::from(s) * 1_000_000_000 + i64::from(ns));
    assert_eq!(
        packets.iter().map(|it| it.at_ns).collect::<Vec<_>>(),
        expected
    );
    let warnings = warnings(&input);
    assert!(
        matches!(&warnings[..], [only] if only.contains("nanoseconds were used")),
        "{warnings:?}"
    );
    assert!(!input.warnings()[0].problem.is_damage());
}

#[test]
fn fraction_beyond_its_second_counts_as_its_end() {
    let file = Pcap::microseconds(Order::Little, ETHERNET);
    let file = pcap_with(file, &[(7, 1), (7, 20), (7, 1_000_000), (7, u32::MAX)]);
    let (packets, input) = read(&file);
    assert_eq!(
        packets[2..].iter().map(|it| it.at_ns).min(),
        Some(7_999_999_000)
    );
    assert_eq!(packets[2].at_ns, packets[3].at_ns);
    let [only] = &warnings(&input)[..] else {
        panic!("{:?}", input.warnings());
    };
    assert!(only.contains("exceeds its unit"), "{only}");
}

#[test]
fn times_before_1970_are_read_and_counted() {
    let file = PcapNg::new(Order::Little).interface(ETHERNET, 0);
    let file = file.enhanced(0, (-3_i64).cast_unsigned(), &segment(b""), 54);
    let (packets, input) = read(&file.enhanced(0, 5, &segment(b""), 54).bytes);
    assert_eq!(
        packets.iter().map(|it| it.at_ns).collect::<Vec<_>>(),
        [-3000, 5000]
    );
    assert_eq!((input.counts().before_1970, input.warnings().len()), (1, 0));
}

#[test]
fn times_beyond_64_bits_are_skipped_counted_and_reported() {
    let file = PcapNg::new(Order::Little).interface(ETHERNET, 0);
    let file = file.enhanced(0, 5, &segment(b""), 54);
    // Nanoseconds, although the unit is microseconds.
    let file = file.enhanced(0, 1_700_000_000_000_000_000, &segment(b""), 54);
    let file = file.obsolete(0, i64::MIN.cast_unsigned(), &segment(b""), 54);
    let (packets, input) = read(&file.bytes);
    assert_eq!(packets.len(), 1);
    let counts = input.counts();
    assert_eq!(
        (counts.packets, counts.time_out_of_range, counts.damaged),
        (3, 2, 0)
    );
    let warnings = warnings(&input);
    assert!(
        matches!(&warnings[..], [only] if only.contains("if_tsresol")),
        "{warnings:?}"
    );
    assert!(input.warnings()[0].problem.is_damage());
}

#[test]
fn pcapng_reads_obsolete_and_simple_packet_blocks() {
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
                "at byte {simple_at}: packets were recorded without times: 1970 was used"
            )]
        );
        assert_eq!(input.span_ns(), Some((5000, 5000)));
    }
}

#[test]
fn pcapng_skips_other_blocks_of_any_length() {
    let frame = segment(b"x");
    let file = PcapNg::new(Order::Big)
        .block(4, &[1; 20])
        .interface(ETHERNET, 0)
        .block(0x8000_0001, &vec![0xff; 20 << 20])
        .enhanced(0, 1, &frame, frame.len());
    assert_eq!(times(&file.bytes), [1000]);
}

#[test]
fn packets_of_unsupported_link_type_are_counted() {
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
            "at byte 28: an interface has link type 105 (IEEE802_11), which is not supported: its packets were skipped"
        ]
    );
}

#[test]
fn compression_is_detected_by_content() {
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
fn invalid_trace_gives_specific_error() {
    let pcap = one(ETHERNET, &[]);
    let mut version = pcap.clone();
    version[4] = 1;
    for (bytes, message) in [
        (
            &b""[..],
            "test: is empty: check that the capture ran and wrote to this file",
        ),
        (
            b"\x7fELF\x02",
            "test: is not a packet trace: starts with 7f 45 4c 46; expected pcap or pcapng, plain or compressed with gzip or zstd, as from `tcpdump -w FILE`",
        ),
        (
            b"\xfd7zXZ\0\0\x04",
            "test: is compressed with xz, which is not supported: decompress it, as with `xz -d FILE`",
        ),
        (
            b"\x04\x22\x4d\x18\x64",
            "test: is compressed with lz4, which is not supported: decompress it, as with `lz4 -d FILE`",
        ),
        (
            b"BZh91AY&SY",
            "test: is compressed with bzip2, which is not supported: decompress it, as with `bzip2 -d FILE`",
        ),
        (
            &pcap[..23],
            "test: ends after 23 bytes, within its header: copy or capture it again",
        ),
        (
            &version,
            "test: is pcap version 1.4, but only 2.x is supported: convert it with `editcap -F pcap`",
        ),
        (
            &one(127, &[]),
            "test: has link type 127 (IEEE802_11_RADIO), which is not supported: capture at the Ethernet or IP layer, as with `tcpdump -i any`",
        ),
    ] {
        let error = open(bytes).err().expect("an error");
        assert_eq!(error.to_string(), message);
    }
}

#[test]
fn missing_file_is_named_in_error() {
    let error = input::open("/nonexistent/trace.pcap".as_ref())
        .err()
        .unwrap();
    assert_eq!(
        error.to_string(),
        "/nonexistent/trace.pcap: cannot be opened: No such file or directory (os error 2)"
    );
}

/// Numbers of the packets that `filter` accepts, of an IPv4 packet at 1 s and an IPv6 one at 2 s.
/// Files of a capture, in this order on the command line, with these times and names.
fn parts(files: &[(&str, &[u64])]) -> (tempfile::TempDir, Vec<std::path::PathBuf>) {
    let folder = tempfile::tempdir().unwrap();
    let paths = files.iter().map(|(name, times)| {
        let path = folder.path().join(name);
        let file = Pcap::microseconds(Order::Little, ETHERNET);
        let file = times.iter().fold(file, |file, ms| {
            file.frame(AT + ms * 1_000_000, &segment(b"x"))
        });
        std::fs::write(&path, file.bytes).unwrap();
        path
    });
    let paths = paths.collect();
    (folder, paths)
}

#[test]
fn ring_buffer_files_are_one_capture_in_order_of_time() {
    let (_folder, paths) = parts(&[
        ("a.pcap0", &[5_000, 6_000]),
        ("a.pcap1", &[1_000, 2_000]),
        ("a.pcap2", &[]),
        ("a.pcap3", &[3_000, 4_500]),
    ]);
    let mut input = input::open_parts(&paths).unwrap();
    let packets: Vec<_> = input.by_ref().collect();
    let since = |at_ns: i64| (at_ns - AT as i64 / 1000 * 1000) / 1_000_000;
    let times: Vec<_> = packets.iter().map(|it| since(it.at_ns)).collect();
    assert_eq!(times, [1_000, 2_000, 3_000, 4_500, 5_000, 6_000]);
    assert!((1..).zip(&packets).all(|(number, it)| it.number == number));
    assert_eq!((input.counts().tcp, input.overlap()), (6, None));
    let progress = input.progress();
    assert_eq!(Some(progress.read()), progress.total());
}

#[test]
fn damage_in_one_file_names_it_and_ends_only_this_file() {
    let (_folder, paths) = parts(&[("a.pcap0", &[1, 2]), ("a.pcap1", &[3, 4])]);
    let whole = std::fs::read(&paths[0]).unwrap();
    std::fs::write(&paths[0], &whole[..whole.len() - 1]).unwrap();
    let mut input = input::open_parts(&paths).unwrap();
    assert_eq!(input.by_ref().count(), 3);
    let warnings = warnings(&input);
    assert!(
        matches!(&warnings[..], [only] if only.contains("a.pcap0, at byte")),
        "{warnings:?}"
    );
}

#[test]
fn files_with_overlapping_times_are_not_one_capture() {
    let (_folder, paths) = parts(&[("r.pcap", &[20, 4_000]), ("s.pcap", &[0, 5_000])]);
    let mut input = input::open_parts(&paths).unwrap();
    assert_eq!(input.by_ref().count(), 2);
    let overlap = input.overlap().unwrap();
    let expected = input::Overlap {
        earlier: paths[1].clone(),
        later: paths[0].clone(),
    };
    assert_eq!(*overlap, expected);
}

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
fn empty_filter_accepts_all_packets() {
    assert_eq!(taken(filter()), [1, 2]);
}

#[test]
fn filter_matches_either_end() {
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
fn filter_requires_all_conditions() {
    let address = filter().address("192.0.2.1".parse().unwrap());
    assert_eq!(taken(address.clone().port(80)), [1]);
    assert_eq!(taken(address.port(81)), [0; 0]);
}

#[test]
fn filter_window_includes_start_and_excludes_end() {
    assert_eq!(taken(filter().from(2_000_000_000)), [2]);
    assert_eq!(taken(filter().until(2_000_000_000)), [1]);
}
