use serde::{Deserialize, Serialize};

use crate::contract::types::outcome as raw;

macro_rules! outcomes {
    ($($(#[$doc:meta])* $name:ident = $raw:ident, $label:literal;)*) => {
        /// The outcome of a segment with data; each segment gets exactly one.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        #[repr(u32)]
        pub enum Outcome {
            $($(#[$doc])* $name = raw::$raw.0,)*
        }

        impl Outcome {
            /// All outcomes, in the order in which they are reported.
            pub const ALL: &[Self] = &[$(Self::$name),*];

            /// The outcome in a few words for people.
            #[must_use]
            pub fn label(self) -> &'static str {
                match self {
                    $(Self::$name => $label,)*
                }
            }
        }
    };
}

outcomes! {
    /// The segment carries previous segments.
    Bundled = BUNDLED, "bundled";
    /// A retransmission that carries following segments.
    RetransmissionBundled = RETRANSMISSION_BUNDLED, "retransmission with a bundle";
    /// All that was sent before is acknowledged.
    NothingOutstanding = NOTHING_OUTSTANDING, "nothing outstanding";
    /// The new data by itself reaches the MSS or `max_bytes`.
    FullSize = FULL_SIZE, "full size";
    /// The previous segment and the new data exceed the limit.
    NoRoom = NO_ROOM, "no room";
    /// A retransmission, or a probe of old data.
    Retransmission = RETRANSMISSION, "retransmission";
    /// The stream is not thin at this moment.
    NotThin = NOT_THIN, "not thin";
    /// No RTT sample yet, so the stream is not known to be thin.
    NoRtt = NO_RTT, "no RTT yet";
    /// No loss yet, and bundling waits for the first loss.
    NoLoss = NO_LOSS, "no loss yet";
    /// The peer does not offer SACK, so hidden losses cannot be detected.
    NoSack = NO_SACK, "no SACK";
    /// Several segments in one packet, to be split by the device.
    Gso = GSO, "GSO";
    /// The segment has SYN, RST or URG.
    Flags = FLAGS, "SYN, RST or URG";
    /// The segment has a TCP option other than timestamps and SACK.
    TcpOption = TCP_OPTION, "TCP option";
    /// A fragment, IPv6 extension headers, padding, or an unknown link header. The only outcome
    /// that packets without data get as well, because their content is unknown.
    UnparsedIp = UNPARSED_IP, "unparsed IP header";
    /// The data before it left by another path, or in a form that is not stored.
    NoHistory = NO_HISTORY, "no history";
    /// Old and new data in one segment: bundled already.
    Overlap = OVERLAP, "overlaps sent data";
    /// Another processor was sending for the same connection.
    Busy = BUSY, "busy";
    /// The payload could not be read.
    Unreadable = UNREADABLE, "unreadable";
    /// The packet could not grow; it was sent unchanged.
    NoMemory = NO_MEMORY, "no memory";
    /// Bundling failed half-way; the packet was dropped and TCP retransmits it.
    Dropped = DROPPED, "dropped";
    /// The segment left by no device with pillion, or was dropped before it came to one.
    UnattachedDevice = UNATTACHED_DEVICE, "left by another device";
    /// The segment waited between TCP and the device, and TCP has gone on meanwhile.
    Stale = STALE, "overtaken in the queue";
    /// Hidden losses cannot be detected now: too much data is outstanding, or the receiver's ACKs
    /// cannot be parsed. Or TCP checks whether a time-out was spurious, and a bundle would make it
    /// look so.
    LossDetectionUnavailable = LOSS_DETECTION_UNAVAILABLE, "loss detection unavailable";
    /// No packet as large came through yet, or bundles as large did not lately.
    ExceedsPathSize = EXCEEDS_PATH_SIZE, "exceeds the path's size";
    /// The segment would have had a bundle, but its connection is of the plain arm
    /// ([`Observing`](crate::Observing)).
    Suppressed = SUPPRESSED, "suppressed (plain arm)";
    /// The receiver reports no duplicates (DSACK), so that hidden losses cannot be found.
    NoDsack = NO_DSACK, "no DSACK";
    /// The governor lets fewer segments carry redundancy at present.
    Governed = GOVERNED, "governed";
    /// Too few of the receiver's ACKs arrive to show which losses bundles hide.
    AcksThinned = ACKS_THINNED, "ACKs thinned";
    /// The connection sends as much as `SO_MAX_PACING_RATE` allows.
    PacingLimit = PACING_LIMIT, "pacing limit reached";
    /// The congestion control ignores CWR, as BBR does, and the connection sends more than TFRC-SP
    /// allows.
    OverFairShare = OVER_FAIR_SHARE, "over its fair share";
    /// This host's NAT translates the connection's port to one whose payload NAT boxes rewrite.
    HelperPort = HELPER_PORT, "helper port";
    /// The level is `none`: segments are copied only.
    NoBundles = NO_BUNDLES, "no bundles at this level";
    /// The administrator's caps on the redundancy of all connections are reached.
    Capped = CAPPED, "capped";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kernel_outcome_has_rust_name() {
        assert_eq!(Outcome::ALL.len(), raw::OUTCOMES.0 as usize);
        let mut values: Vec<_> = Outcome::ALL.iter().map(|outcome| *outcome as u32).collect();
        values.sort_unstable();
        assert_eq!(values, (0..raw::OUTCOMES.0).collect::<Vec<_>>());
    }
}
