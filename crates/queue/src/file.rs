//! The file of a queue's events, and its lines as CSV.
//!
//! All numbers little-endian. A heading: the magic `pillque` and a line feed, the version 1 (4
//! bytes), the length of a record (4 bytes, 96), the length of the description (4 bytes), and the
//! description, in JSON: device, kernel release, the kernel's names of the reasons to drop. Then
//! records, in the order in which packets left the queue:
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 8 | when it was offered to the queue, `CLOCK_MONOTONIC` in ns; 0: not seen |
//! | 8 | 8 | when it was sent or dropped, likewise |
//! | 16 | 16 | the sender's address; IPv4 as `::ffff:a.b.c.d` |
//! | 32 | 16 | the receiver's address |
//! | 48 | 2 + 2 | the sender's and the receiver's port |
//! | 52 | 4 | TCP's sequence number of the first byte of payload |
//! | 56 | 4 | bytes of TCP's payload |
//! | 60 | 4 | bytes of the packet, headers included |
//! | 64 | 4 | bytes, as the queueing disciplines count them |
//! | 68 | 4 | the reason why it was dropped, or 0 |
//! | 72 | 4 + 4 | packets and bytes in the queue that it found; 0xffffffff: not known |
//! | 80 | 4 + 4 | packets and bytes in the queue that it left behind, likewise |
//! | 88 | 2 | segments |
//! | 90 | 2 | which of the device's queues |
//! | 92 | 1 | its fate: 0 unseen, 1 sent, 2 refused, 3 dropped from the queue, 4 replaced |
//! | 93 | 1 | protocol, by IP's number |
//! | 94 | 1 | version of IP; 0: no IP packet |
//! | 95 | 1 | TCP's flags |
//!
//! A record with the fate 255 stands for packets that could not be noted; the first field is
//! their number, the others are 0.

use std::io::{self, BufRead, BufReader, BufWriter, Read, Write};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use serde::{Deserialize, Serialize};

use crate::packet::{Endpoints, Fate, Length, Packet};
use crate::{Event, Reasons};

/// What a file of events says of them as a whole.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Description {
    /// The name of the device whose queue was watched.
    pub device: String,
    /// The release of the kernel that it was watched on.
    pub kernel: String,
    /// The kernel's names for the reasons to drop.
    pub reasons: Reasons,
}

/// Why a file of events cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// The system's reason.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The file does not begin as one of events does.
    #[error("no file of queue events; `pillion queue DEV --events FILE` makes one")]
    Heading,
    /// A newer pillion made the file, in this version of the format.
    #[error("queue events of version {0}, and this pillion knows 1; use the one that made them")]
    Version(u32),
    /// A record says that something unknown became of a packet.
    #[error("record {record}: {found} is no fate of a packet (0 to 4, or 255)")]
    Fate {
        /// The record, counted from 1.
        record: u64,
        /// The number in the record that stands for no fate.
        found: u8,
    },
    /// The file ends within this record, counted from 1.
    #[error("cut off in record {0}; those before it are whole")]
    Cut(u64),
}

const MAGIC: &[u8; 8] = b"pillque\n";
const VERSION: u32 = 1;
const LEN: usize = 96;
const MISSED: u8 = 255;
/// Length of a description in bytes, at most; any real one is shorter.
const MOST_DESCRIPTION: u32 = 1 << 20;

/// Writes a file of events.
#[derive(Debug)]
pub struct EventWriter<W: Write>(BufWriter<W>);

impl<W: Write> EventWriter<W> {
    /// Begins a file of events: writes its heading.
    pub fn new(to: W, description: &Description) -> io::Result<Self> {
        let mut to = BufWriter::new(to);
        let description = serde_json::to_vec(description)?;
        to.write_all(MAGIC)?;
        for number in [VERSION, LEN as u32, description.len() as u32] {
            to.write_all(&number.to_le_bytes())?;
        }
        to.write_all(&description)?;
        Ok(Self(to))
    }

    /// Adds an event to the file.
    pub fn write(&mut self, event: &Event) -> io::Result<()> {
        self.0.write_all(&match event {
            Event::Packet(packet) => bytes(packet),
            Event::Missed(number) => {
                let mut record = [0; LEN];
                record[..8].copy_from_slice(&number.to_le_bytes());
                record[92] = MISSED;
                record
            }
        })
    }

    /// Writes what of the file is still held back.
    pub fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

fn bytes(packet: &Packet) -> [u8; LEN] {
    let ends = packet.ends;
    let address = |end: Option<SocketAddr>| match end.map(|end| end.ip()) {
        None => [0; 16],
        Some(IpAddr::V4(v4)) => v4.to_ipv6_mapped().octets(),
        Some(IpAddr::V6(v6)) => v6.octets(),
    };
    let [source, destination] = [ends.map(|e| e.source), ends.map(|e| e.destination)];
    let port = |end: Option<SocketAddr>| end.map_or(0, |end| end.port());
    let length = |length: Option<Length>| {
        length.map_or([u32::MAX; 2], |length| [length.packets, length.bytes])
    };
    let version = ends.map_or(0, |ends| if ends.source.is_ipv4() { 4 } else { 6 });
    let mut record = [0; LEN];
    let mut rest = record.as_mut_slice();
    let mut put = |bytes: &[u8]| {
        let (here, behind) = std::mem::take(&mut rest).split_at_mut(bytes.len());
        here.copy_from_slice(bytes);
        rest = behind;
    };
    put(&packet.arrived_ns.unwrap_or(0).to_le_bytes());
    put(&packet.left_ns.unwrap_or(0).to_le_bytes());
    put(&address(source));
    put(&address(destination));
    put(&port(source).to_le_bytes());
    put(&port(destination).to_le_bytes());
    let numbers = [
        packet.seq,
        packet.payload,
        packet.size,
        packet.counted,
        packet.reason,
    ];
    let lengths = [length(packet.found), length(packet.behind)];
    for number in numbers.iter().chain(lengths.as_flattened()) {
        put(&number.to_le_bytes());
    }
    put(&packet.segments.to_le_bytes());
    put(&packet.queue.to_le_bytes());
    let protocol = ends.map_or(0, |ends| ends.protocol);
    put(&[packet.fate as u8, protocol, version, packet.flags]);
    record
}

/// Reads a file of events, one at a time.
///
/// # Errors
/// When it is no such file; each event may be an error as well, and is then the last one.
pub fn read_events(
    from: impl Read,
) -> Result<(Description, impl Iterator<Item = Result<Event, FileError>>), FileError> {
    let mut from = BufReader::with_capacity(1 << 16, from);
    let mut heading = [0; 20];
    from.read_exact(&mut heading).map_err(not_whole)?;
    let number = |offset: usize| number(&heading, offset);
    if !heading.starts_with(MAGIC) {
        return Err(FileError::Heading);
    }
    if number(8) != VERSION || number(12) as usize != LEN {
        return Err(FileError::Version(number(8)));
    }
    if number(16) > MOST_DESCRIPTION {
        return Err(FileError::Heading);
    }
    let mut description = vec![0; number(16) as usize];
    from.read_exact(&mut description).map_err(not_whole)?;
    let description = serde_json::from_slice(&description).map_err(|_| FileError::Heading)?;
    let mut record = 0;
    let mut ended = false;
    let events = std::iter::from_fn(move || {
        if ended {
            return None;
        }
        record += 1;
        let result = read_event(&mut from, record).transpose()?;
        ended = result.is_err();
        Some(result)
    });
    Ok((description, events))
}

fn not_whole(error: io::Error) -> FileError {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => FileError::Heading,
        _ => FileError::Io(error),
    }
}

fn read_event(from: &mut impl BufRead, record: u64) -> Result<Option<Event>, FileError> {
    if from.fill_buf()?.is_empty() {
        return Ok(None);
    }
    let mut bytes = [0; LEN];
    from.read_exact(&mut bytes)
        .map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => FileError::Cut(record),
            _ => FileError::Io(error),
        })?;
    let found = bytes[92];
    if found == MISSED {
        return Ok(Some(Event::Missed(long(&bytes, 0))));
    }
    let fate = Fate::ALL.into_iter().find(|fate| *fate as u8 == found);
    let fate = fate.ok_or(FileError::Fate { record, found })?;
    Ok(Some(Event::Packet(packet(&bytes, fate))))
}

fn packet(bytes: &[u8; LEN], fate: Fate) -> Packet {
    let time = |offset| Some(long(bytes, offset)).filter(|ns| *ns > 0);
    let length = |offset| {
        let [packets, bytes] = [number(bytes, offset), number(bytes, offset + 4)];
        (packets != u32::MAX).then_some(Length { packets, bytes })
    };
    let end = |address: usize, port: usize| {
        let octets: [u8; 16] = std::array::from_fn(|i| bytes[address + i]);
        SocketAddr::new(
            IpAddr::V6(Ipv6Addr::from(octets)).to_canonical(),
            short(bytes, port),
        )
    };
    Packet {
        arrived_ns: time(0),
        left_ns: time(8),
        fate,
        reason: number(bytes, 68),
        ends: (bytes[94] > 0).then(|| Endpoints {
            protocol: bytes[93],
            source: end(16, 48),
            destination: end(32, 50),
        }),
        seq: number(bytes, 52),
        payload: number(bytes, 56),
        flags: bytes[95],
        size: number(bytes, 60),
        counted: number(bytes, 64),
        segments: short(bytes, 88),
        queue: short(bytes, 90),
        found: length(72),
        behind: length(80),
    }
}

fn short<const N: usize>(bytes: &[u8; N], offset: usize) -> u16 {
    u16::from_le_bytes(std::array::from_fn(|i| bytes[offset + i]))
}

fn number<const N: usize>(bytes: &[u8; N], offset: usize) -> u32 {
    u32::from_le_bytes(std::array::from_fn(|i| bytes[offset + i]))
}

fn long<const N: usize>(bytes: &[u8; N], offset: usize) -> u64 {
    u64::from_le_bytes(std::array::from_fn(|i| bytes[offset + i]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn description() -> Description {
        Description {
            device: "v0".to_owned(),
            kernel: "6.18.0".to_owned(),
            reasons: Reasons::default(),
        }
    }

    fn packet() -> Packet {
        Packet {
            arrived_ns: Some(1_000),
            left_ns: Some(2_000),
            fate: Fate::Refused,
            reason: 64,
            ends: Some(Endpoints {
                protocol: 6,
                source: "10.0.0.1:1234".parse().unwrap(),
                destination: "[fd00::2]:80".parse().unwrap(),
            }),
            seq: u32::MAX,
            payload: 120,
            flags: 24,
            size: 186,
            counted: 190,
            segments: 1,
            queue: 3,
            found: Some(Length {
                packets: 20,
                bytes: 20_000,
            }),
            behind: None,
        }
    }

    fn file(events: &[Event]) -> Vec<u8> {
        let mut file = Vec::new();
        let mut writer = EventWriter::new(&mut file, &description()).unwrap();
        events.iter().for_each(|event| writer.write(event).unwrap());
        writer.flush().unwrap();
        drop(writer);
        file
    }

    fn read(file: &[u8]) -> Result<Vec<Event>, FileError> {
        read_events(file)?.1.collect()
    }

    #[test]
    fn events_survive_a_file() {
        let nothing_known = Packet {
            arrived_ns: None,
            ends: None,
            found: None,
            fate: Fate::Sent,
            ..packet()
        };
        let events = [
            Event::Packet(packet()),
            Event::Missed(7),
            Event::Packet(nothing_known),
        ];
        let file = file(&events);
        assert_eq!(read(&file).unwrap(), events);
        assert_eq!(read_events(&file[..]).unwrap().0, description());
    }

    #[test]
    fn what_is_no_file_of_events_is_refused() {
        for wrong in [&b""[..], b"pillque\n", b"time,size\n1,2\n3,4\n5,6\n"] {
            assert!(matches!(read(wrong), Err(FileError::Heading)));
        }
        let mut newer = file(&[]);
        newer[8] = 2;
        assert!(matches!(read(&newer), Err(FileError::Version(2))));
        let mut unknown = file(&[Event::Packet(packet())]);
        let fate = unknown.len() - 4;
        unknown[fate] = 9;
        let expected = FileError::Fate {
            record: 1,
            found: 9,
        };
        assert_eq!(
            read(&unknown).unwrap_err().to_string(),
            expected.to_string()
        );
    }

    #[test]
    fn of_a_file_cut_off_the_whole_events_are_read() {
        let file = file(&[Event::Packet(packet()); 2]);
        let (_, events) = read_events(&file[..file.len() - 1]).unwrap();
        let events: Vec<_> = events.collect();
        assert!(matches!(
            events[..],
            [Ok(Event::Packet(_)), Err(FileError::Cut(2))]
        ));
    }
}
