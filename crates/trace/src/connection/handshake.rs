use serde::Serialize;

/// How a connection was opened, as the thesis' `count3way` counts it (section 3.4.5): several
/// attempts with one initial sequence number are one connection that was tried several times.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Handshake {
    /// SYNs of the originator.
    pub syns: u32,
    /// SYNs with ACK of the responder.
    pub syn_acks: u32,
    /// When the first SYN was seen.
    pub first_syn_ns: Option<i64>,
    /// When the last SYN was seen that came before the SYN with ACK.
    pub last_syn_ns: Option<i64>,
    /// When the first SYN with ACK was seen.
    pub syn_ack_ns: Option<i64>,
    /// When the packet was seen that completed it.
    pub completed_ns: Option<i64>,
    /// Both ends sent a SYN without ACK: a simultaneous open (RFC 9293, section 3.5).
    pub simultaneous: bool,
}

/// What became of an attempt to connect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The trace begins after the handshake.
    NotSeen,
    /// No SYN with ACK came, or it was not acknowledged.
    Unanswered,
    /// RST answered the SYN.
    Refused,
    /// Completed.
    Completed,
    /// Completed, and broken by RST later.
    Reset,
}
