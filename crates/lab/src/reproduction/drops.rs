use std::collections::BTreeMap;
use std::io;

use crate::queue::{Fate, Row};
use crate::settings::experiment::Planned;
use crate::traffic::Kind;

use crate::Error;
use crate::run::QUEUE_FILE;
use crate::store::{StoredRun, Traced};

/// What the bottleneck's queue dropped of each group of periodic streams: the group's name, the
/// times in nanoseconds, and the mean inter-transmission time in nanoseconds. None where the queue was
/// not watched.
///
/// # Errors
/// [`Error::File`].
pub(super) fn drops(
    run: &StoredRun,
    traced: &Traced,
    planned: &Planned,
) -> Result<Vec<(String, Vec<u64>, u64)>, Error> {
    let path = run.path.join(QUEUE_FILE);
    if !path.exists() {
        return Ok(Vec::new());
    }
    let invalid = |error| Error::file(&path)(io::Error::other(error));
    let mut times = BTreeMap::new();
    for row in crate::records::read::<Row>(&path).map_err(invalid)? {
        let row = row.map_err(invalid)?;
        if let (Some(Fate::Refused | Fate::Dropped), Some(to), Some(left_ns)) =
            (row.fate, row.destination, row.left_ns)
        {
            times.entry(to).or_insert_with(Vec::new).push(left_ns);
        }
    }
    let groups = traced.groups.iter().filter_map(|(name, to)| {
        let streams = planned.plan.streams.iter();
        let mut traffic = streams.map(|it| &it.traffic);
        let itt_ns = itt_ns(&traffic.find(|it| it.name == *name)?.kind)?;
        Some((name.clone(), times.remove(to)?, itt_ns))
    });
    Ok(groups.collect())
}

fn itt_ns(kind: &Kind) -> Option<u64> {
    match kind {
        Kind::Thin { itt, .. } => Some((itt.mean() * 1e6) as u64),
        Kind::Isochronous { itt, .. } => u64::try_from(itt.as_nanos()).ok(),
        _ => None,
    }
}
