//! The companions that a connection has, as JSON tells of them: times in microseconds.

use std::time::Duration;

use serde::{Serialize, Serializer};

use super::{Companions, CongestionControl};

#[derive(Serialize)]
struct Told {
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    linear_timeouts: bool,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    nodelay: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    rto_min_us: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    delack_max_us: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    user_timeout_us: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    congestion: Option<CongestionControl>,
}

pub(crate) fn serialize<S: Serializer>(has: &Companions, to: S) -> Result<S::Ok, S::Error> {
    let micros = |time: Option<Duration>| time.map(|time| time.as_micros() as u64);
    let told = Told {
        linear_timeouts: has.linear_timeouts,
        nodelay: has.nodelay,
        rto_min_us: micros(has.rto_min),
        delack_max_us: micros(has.delack_max),
        user_timeout_us: micros(has.user_timeout),
        congestion: has.congestion,
    };
    told.serialize(to)
}
