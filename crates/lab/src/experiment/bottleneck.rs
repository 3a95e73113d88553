/// The router's way to the receiver: a rate, and the queue before it.
#[derive(Debug, Clone, PartialEq)]
pub struct Bottleneck {
    /// Bits of IP packets with their Ethernet headers per second; `None` sets no rate, and then
    /// nothing waits.
    pub rate_bps: Option<u64>,
    /// What keeps to the rate.
    pub shaper: Shaper,
    /// The bucket of tokens, in bytes: how much leaves at once after a pause. The papers have 1520.
    pub burst_bytes: u32,
    /// What waits, and what is dropped.
    pub queue: Queue,
}

/// A token bucket of the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shaper {
    /// `htb` with one class, as in LCN 2015, section IV.B.
    Htb,
    /// `tbf`.
    Tbf,
}

/// The queue of the bottleneck.
#[derive(Debug, Clone, PartialEq)]
pub struct Queue {
    /// Its discipline.
    pub discipline: Discipline,
    /// How much may wait; `None` as the discipline does by itself.
    pub limit: Option<Limit>,
    /// More of the discipline's own options, as words of `tc`.
    pub options: Vec<String>,
}

/// A queue discipline of the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Discipline {
    /// First in, first out; its limit is one of packets.
    Pfifo,
    /// First in, first out; its limit is one of bytes.
    Bfifo,
    /// Random early detection; its limit is one of bytes.
    Red,
    /// Controlled delay (RFC 8289).
    Codel,
    /// Flow queueing with controlled delay (RFC 8290).
    FqCodel,
    /// Stochastic fairness queueing.
    Sfq,
    /// Fair queueing with pacing.
    Fq,
    /// Common applications kept enhanced; it shapes by itself, and takes the place of the shaper.
    Cake,
}

/// How much may wait.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Limit {
    /// Packets, at least 1.
    Packets(u32),
    /// Bytes, at least 1.
    Bytes(u32),
    /// Products of the bottleneck's rate and the path's round-trip time, above 0. Where the
    /// discipline counts packets, of 1500 B each.
    BandwidthDelayProducts(f64),
}

impl Discipline {
    /// All of them, with the names that `tc` and experiment files have for them.
    pub const ALL: [(&str, Self); 8] = [
        ("pfifo", Self::Pfifo),
        ("bfifo", Self::Bfifo),
        ("red", Self::Red),
        ("codel", Self::Codel),
        ("fq_codel", Self::FqCodel),
        ("sfq", Self::Sfq),
        ("fq", Self::Fq),
        ("cake", Self::Cake),
    ];

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        let named = Self::ALL.iter().find(|(_, discipline)| *discipline == self);
        named.map_or("", |(name, _)| name)
    }

    /// Whether its limit is one of bytes.
    #[must_use]
    pub fn counts_bytes(self) -> bool {
        matches!(self, Self::Bfifo | Self::Red | Self::Cake)
    }
}
