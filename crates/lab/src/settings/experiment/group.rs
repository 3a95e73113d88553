use serde::{Deserialize, Serialize};

use super::{Mechanisms, OwnWay, RoundTrips};
use crate::settings::traffic;
use pillion_cli::settings::document::known::flattened;
use pillion_cli::settings::{Bundling, text};

/// Streams that are alike, as files describe them; their name is the table's.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(remote = "Self", default, rename_all = "kebab-case")]
pub struct Group {
    /// What they send, and how their sockets are set.
    #[serde(flatten)]
    pub traffic: traffic::Group,
    /// Whether they connect when the group is to start, all at once, and not before anything is sent;
    /// they start once all are connected or have failed to, or have waited long.
    pub connects_at_start: bool,
    /// The host that they come from; `None` for one of the group's own name.
    pub host: Option<String>,
    /// Round-trip times that differ from the path's.
    #[serde(with = "text::option")]
    pub rtt: Option<RoundTrips>,
    /// What their packets meet on the way to the receiver.
    #[serde(flatten)]
    pub forward: OwnWay,
    /// What packets meet on the way back to them.
    pub back: OwnWay,
    /// TCP's mechanisms on the group's host.
    pub mechanisms: Mechanisms,
    /// How pillion bundles them; `None` leaves them plain.
    #[serde(with = "bundle")]
    pub bundle: Option<Bundling>,
}

flattened!(Group);

/// `bundle`: whether, or how.
mod bundle {
    use std::fmt;

    use serde::de::value::MapAccessDeserializer;
    use serde::de::{Error, MapAccess, Visitor};
    use serde::{Deserialize, Deserializer, Serialize as _, Serializer};

    use pillion_cli::settings::Bundling;

    pub(super) fn deserialize<'de, D>(from: D) -> Result<Option<Bundling>, D::Error>
    where
        D: Deserializer<'de>,
    {
        from.deserialize_any(WhetherOrHow)
    }

    pub(super) fn serialize<S: Serializer>(
        bundle: &Option<Bundling>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        match bundle {
            Some(how) => how.serialize(to),
            None => to.serialize_bool(false),
        }
    }

    struct WhetherOrHow;

    impl<'de> Visitor<'de> for WhetherOrHow {
        type Value = Option<Bundling>;

        fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
            f.write_str("true, false, or how, as in { max-packets = 1 }")
        }

        fn visit_bool<E: Error>(self, whether: bool) -> Result<Option<Bundling>, E> {
            Ok(whether.then(Bundling::default))
        }

        fn visit_map<A: MapAccess<'de>>(self, how: A) -> Result<Option<Bundling>, A::Error> {
            // By the trait: the function of that name in Bundling lets unknown keys pass.
            Deserialize::deserialize(MapAccessDeserializer::new(how)).map(Some)
        }
    }
}
