//! Behaviour of both ends of a connection, derived only from the connection's number, and content
//! of its streams.

use std::ops::RangeInclusive;
use std::time::Duration;

use rand::{Rng, RngExt, SeedableRng};
use rand_pcg::Pcg64;

/// Kinds of connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Thin in both directions, for some seconds.
    Thin,
    /// Thin, with a large write now and then.
    Mixed,
    /// Writes of many segments, which leave as GSO packets.
    Large,
    /// A few messages.
    Short,
    /// One end closes its half early, and the other continues.
    HalfClosed,
    /// One end resets the connection in the middle.
    Reset,
    /// Thin in both directions, until its client is stopped.
    Long,
}

impl Kind {
    pub const ALL: [Self; 7] = [
        Self::Thin,
        Self::Mixed,
        Self::Large,
        Self::Short,
        Self::HalfClosed,
        Self::Reset,
        Self::Long,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::Thin => "thin",
            Self::Mixed => "mixed",
            Self::Large => "large writes",
            Self::Short => "short-lived",
            Self::HalfClosed => "half-closed",
            Self::Reset => "reset",
            Self::Long => "long-lived",
        }
    }

    /// Chooses any kind but [`Kind::Long`].
    pub fn choose(random: &mut impl Rng) -> Self {
        const WEIGHTS: [(Kind, u32); 6] = [
            (Kind::Thin, 6),
            (Kind::Mixed, 3),
            (Kind::Large, 3),
            (Kind::Short, 4),
            (Kind::HalfClosed, 2),
            (Kind::Reset, 2),
        ];
        let mut roll = random.random_range(0..20);
        for (kind, share) in WEIGHTS {
            if roll < share {
                return kind;
            }
            roll -= share;
        }
        unreachable!("the shares add up to twenty")
    }

    /// Returns the kind of a connection by its number.
    pub fn of(connection: u64) -> Self {
        Self::ALL[(connection % Self::ALL.len() as u64) as usize]
    }

    /// Chooses a number for a connection of this kind.
    pub fn number(self, random: &mut impl Rng) -> u64 {
        let kinds = Self::ALL.len() as u64;
        random.random_range(0..1 << 48) * kinds + self as u64
    }
}

/// End of a connection: its opener, or the accepting side.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Side {
    Client,
    Server,
}

impl Side {
    pub fn other(self) -> Self {
        match self {
            Self::Client => Self::Server,
            Self::Server => Self::Client,
        }
    }
}

/// Messages that one end sends.
#[derive(Debug, Clone)]
pub struct SendPlan {
    /// Number of messages; `None` until the connection is stopped.
    pub messages: Option<u32>,
    /// Mean gap between messages in milliseconds.
    gap_ms: u64,
    bytes: RangeInclusive<usize>,
    /// Share of large messages, and their size in bytes.
    large: (f64, RangeInclusive<usize>),
}

impl SendPlan {
    fn thin(random: &mut impl Rng, messages: RangeInclusive<u32>) -> Self {
        Self {
            messages: Some(random.random_range(messages)),
            gap_ms: random.random_range(5..40),
            bytes: 1..=random.random_range(20..450),
            large: (0.0, 1..=1),
        }
    }

    fn endless(self) -> Self {
        Self {
            messages: None,
            ..self
        }
    }

    fn with_large(self, share: f64, bytes: RangeInclusive<usize>) -> Self {
        Self {
            large: (share, bytes),
            ..self
        }
    }

    /// Returns the gap before the next message, and its bytes.
    pub fn next(&self, random: &mut impl Rng) -> (Duration, usize) {
        let gap = Duration::from_millis(random.random_range(0..=2 * self.gap_ms));
        let (share, large) = &self.large;
        let bytes = match random.random_bool(*share) {
            true => large.clone(),
            false => self.bytes.clone(),
        };
        (gap, random.random_range(bytes))
    }
}

/// Plan for both ends of a connection.
#[derive(Debug, Clone)]
pub struct Plan {
    pub client: SendPlan,
    pub server: SendPlan,
    /// Side that resets the connection once all its data is sent.
    pub resets: Option<Side>,
}

impl Plan {
    pub fn of(connection: u64) -> Self {
        let kind = Kind::of(connection);
        let random = &mut Pcg64::seed_from_u64(connection);
        let messages = match kind {
            Kind::Short => 1..=3,
            Kind::Large => 5..=40,
            _ => 30..=150,
        };
        let mut plan = Self {
            client: SendPlan::thin(random, messages.clone()),
            server: SendPlan::thin(random, messages),
            resets: None,
        };
        let side = match random.random() {
            true => Side::Client,
            false => Side::Server,
        };
        match kind {
            Kind::Thin | Kind::Short => {}
            Kind::Mixed => plan.change(side, |it| it.with_large(0.05, 2_000..=40_000)),
            Kind::Large => plan.change(side, |it| it.with_large(0.5, 10_000..=100_000)),
            Kind::HalfClosed => plan.change(side, |it| SendPlan {
                messages: Some(3),
                ..it
            }),
            Kind::Reset => {
                plan.resets = Some(side);
                // If the first reset is lost, these segments trigger another one.
                plan.change(side.other(), SendPlan::endless);
            }
            Kind::Long => {
                plan.change(Side::Client, SendPlan::endless);
                plan.change(Side::Server, SendPlan::endless);
            }
        }
        plan
    }

    pub fn for_side(&self, side: Side) -> &SendPlan {
        match side {
            Side::Client => &self.client,
            Side::Server => &self.server,
        }
    }

    fn change(&mut self, side: Side, change: impl FnOnce(SendPlan) -> SendPlan) {
        let send_plan = match side {
            Side::Client => &mut self.client,
            Side::Server => &mut self.server,
        };
        *send_plan = change(send_plan.clone());
    }
}

/// Returns the id of one direction: the seed of its sizes, and of its content.
pub fn direction_id(connection: u64, side: Side) -> u64 {
    connection * 2 + side as u64
}

/// Fills a buffer with the bytes of a stream from a position.
pub fn fill(stream: u64, position: u64, bytes: &mut [u8]) {
    for (byte, at) in bytes.iter_mut().zip(position..) {
        *byte = byte_at(stream, at);
    }
}

/// Describes the first wrong byte.
pub fn first_mismatch(stream: u64, position: u64, bytes: &[u8]) -> Option<String> {
    let mut all = bytes.iter().zip(position..);
    let (byte, at) = all.find(|(byte, at)| **byte != byte_at(stream, *at))?;
    let expected = byte_at(stream, at);
    Some(format!("byte {at} is {byte:#04x}, not {expected:#04x}"))
}

fn byte_at(stream: u64, position: u64) -> u8 {
    let word = mix(stream ^ mix(position / 8));
    word.to_le_bytes()[(position % 8) as usize]
}

/// Final steps of SplitMix64: adjacent values differ completely.
fn mix(value: u64) -> u64 {
    let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

#[test]
fn misplaced_byte_is_detected() {
    let mut bytes = [0; 100];
    fill(7, 1000, &mut bytes);
    assert_eq!(first_mismatch(7, 1000, &bytes), None);
    assert!(first_mismatch(7, 1001, &bytes).is_some());
    assert!(first_mismatch(8, 1000, &bytes).is_some());
    bytes[50] ^= 1;
    let event = first_mismatch(7, 1000, &bytes).unwrap();
    assert!(event.starts_with("byte 1050 is "), "{event}");
}
