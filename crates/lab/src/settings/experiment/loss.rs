//! Which packets are lost, as files have it: per cent, `gilbert-elliott:TO_BAD:TO_GOOD:IN_BAD:IN_GOOD`
//! in per cent, or a list of packets.

use std::fmt;

use serde::de::{Error, SeqAccess, Visitor};
use serde::{Deserializer, Serialize, Serializer};

use super::{Loss, Share};

pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Loss>, D::Error> {
    from.deserialize_any(AsWritten)
}

pub(super) fn serialize<S: Serializer>(loss: &Option<Loss>, to: S) -> Result<S::Ok, S::Error> {
    match loss {
        None => to.serialize_none(),
        Some(Loss::Uniform(share)) => Share::of(*share).serialize(to),
        Some(Loss::Listed(packets)) => packets.serialize(to),
        Some(Loss::GilbertElliott {
            to_bad,
            to_good,
            in_bad,
            in_good,
        }) => {
            let shares = [to_bad, to_good, in_bad, in_good];
            let shares = shares.map(|share| Share::of(*share).to_string());
            to.serialize_str(&format!("{NAME}{}", shares.join(":")))
        }
    }
}

const NAME: &str = "gilbert-elliott:";

const EXPECTED: &str = "per cent, as in 2, or \"gilbert-elliott:TO_BAD:TO_GOOD[:IN_BAD[:IN_GOOD]]\" in \
                        per cent, or a list of packets, as in [10, 11]";

#[derive(Clone, Copy)]
struct AsWritten;

impl AsWritten {
    fn wrong<E: Error>(self) -> E {
        E::custom(format!("expected {EXPECTED}"))
    }
}

impl<'de> Visitor<'de> for AsWritten {
    type Value = Option<Loss>;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(EXPECTED)
    }

    fn visit_f64<E: Error>(self, percent: f64) -> Result<Option<Loss>, E> {
        let share = Share::try_from(percent).map_err(|_| self.wrong())?.get();
        Ok((share > 0.0).then_some(Loss::Uniform(share)))
    }

    fn visit_i64<E: Error>(self, percent: i64) -> Result<Option<Loss>, E> {
        self.visit_f64(percent as f64)
    }

    fn visit_u64<E: Error>(self, percent: u64) -> Result<Option<Loss>, E> {
        self.visit_f64(percent as f64)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Option<Loss>, E> {
        let shares = text.strip_prefix(NAME).into_iter();
        let shares = shares.flat_map(|text| text.split(':'));
        let shares = shares.map(|text| text.parse().map(Share::get));
        let shares: Vec<f64> = shares.collect::<Result<_, _>>().unwrap_or_default();
        let &[to_bad, to_good, ref rest @ ..] = &shares[..] else {
            return Err(self.wrong());
        };
        let (in_bad, in_good) = match rest {
            [] => (1.0, 0.0),
            [in_bad] => (*in_bad, 0.0),
            [in_bad, in_good] => (*in_bad, *in_good),
            _ => return Err(self.wrong()),
        };
        Ok(Some(Loss::GilbertElliott {
            to_bad,
            to_good,
            in_bad,
            in_good,
        }))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Option<Loss>, A::Error> {
        let mut packets = Vec::new();
        while let Some(packet) = list.next_element::<u32>()? {
            if packet == 0 {
                return Err(A::Error::custom("expected a packet's number, from 1"));
            }
            packets.push(u64::from(packet));
        }
        packets.sort_unstable();
        packets.dedup();
        Ok((!packets.is_empty()).then_some(Loss::Listed(packets)))
    }
}
