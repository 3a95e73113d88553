use pillion_stats::measure::{Distribution, Percentile};
use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};

/// For `serialize_with`: a summary of times, in milliseconds.
pub(super) fn milliseconds<S: Serializer>(
    distribution: &Distribution,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    Summary(distribution, 1e6).serialize(serializer)
}

/// A distribution in short, with how much of its values' unit one of the output's is.
pub(super) struct Summary<'a>(pub(super) &'a Distribution, pub(super) f64);

impl Serialize for Summary<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(distribution, unit) = *self;
        let whole = |value: Option<u64>| value.map(|value| value as f64 / unit);
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("count", &distribution.len())?;
        map.serialize_entry("exact", &distribution.is_exact())?;
        map.serialize_entry("sample", &distribution.sample())?;
        map.serialize_entry("min", &whole(distribution.min()))?;
        map.serialize_entry("mean", &distribution.mean().map(|mean| mean / unit))?;
        map.serialize_entry("sd", &distribution.sd().map(|sd| sd / unit))?;
        for percentile in Percentile::ALL {
            let value = distribution.quantile(percentile.share);
            map.serialize_entry(percentile.name, &whole(value))?;
        }
        map.serialize_entry("max", &whole(distribution.max()))?;
        map.end()
    }
}
