//! What is kept of a run's traces, records and queue: read once, and from a file from then on.

use std::collections::BTreeMap;
use std::{fs, io};

use serde::{Deserialize, Serialize};

use super::fairness::due;
use crate::Error;
use crate::analysis::reproduction::{Datagrams, Digest, FirstSendings, Message, Messages};
use crate::analysis::{OpenError, Traces};
use crate::hash::hash_of;
use crate::queue::{Fate, Row};
use crate::run::{MANIFEST_FILE, QUEUE_FILE, digest_file};
use crate::settings::experiment::Planned;
use crate::store::{StoredRun, Traced};
use crate::traffic::Kind;

/// What is kept of a run's traces and records; read from them once, and from a file beside the run's
/// folder from then on. With what casts doubt on the run.
///
/// # Errors
/// [`Error::File`], [`Error::Trace`].
pub fn digest(run: &StoredRun, planned: &Planned) -> Result<Digest, Error> {
    let mut digest = Digest {
        doubts: run.summary()?.doubts,
        ..of_results(run, planned)?
    };
    digest.add_fairness(&due(&planned.plan));
    Ok(digest)
}

fn of_results(run: &StoredRun, planned: &Planned) -> Result<Digest, Error> {
    let file = digest_file(&run.path);
    let of = identity(run)?;
    if let Ok(text) = fs::read_to_string(&file)
        && let Ok(kept) = serde_json::from_str::<Kept>(&text)
        && kept.of == of
    {
        return Ok(kept.digest);
    }
    let (mut digest, sendings) = match run.traced()? {
        Some(traced) => of_traces(run, &traced, planned)?,
        None => Default::default(),
    };
    let ahead_ns = run.realtime_ahead_ns()?;
    let began_ns = run.sending_began_ns()?;
    let duration_s = planned.plan.duration.as_secs_f64();
    let mut groups: BTreeMap<String, Messages> = BTreeMap::new();
    let mut datagrams = datagrams(run, planned)?;
    run.messages(|origin, message| {
        let messages = match groups.get_mut(origin.group) {
            Some(messages) => messages,
            None => {
                let group = groups.entry(origin.group.to_owned());
                group.or_insert_with(|| Messages::new(began_ns, duration_s))
            }
        };
        let message = Message {
            stream: message.stream,
            sender: origin.sender,
            sequence: message.sequence.into(),
            size: message.size,
            written_ns: message.sent_ns as i64 + ahead_ns,
            latency_us: message.latency_us,
        };
        messages.add(&message, &sendings);
        if let Some(datagrams) = datagrams.get_mut(origin.group) {
            datagrams.add(&message);
        }
    })?;
    digest.add_messages(groups);
    digest.add_datagrams(datagrams);
    if digest.groups.is_empty() {
        let neither = io::Error::other("it has neither traces nor records");
        return Err(Error::file(&run.path)(neither));
    }
    let kept = Kept { of, digest };
    // It spares the next reading, and no more: a store may be one that can only be read.
    let _ = serde_json::to_string(&kept).map(|text| fs::write(&file, text));
    Ok(kept.digest)
}

/// What the file beside a run's folder holds.
#[derive(Serialize, Deserialize)]
struct Kept {
    /// What tells the run that it was made of: folders are moved and copied by hand.
    of: String,
    digest: Digest,
}

/// A hash of what the run is, and of what made it, when.
fn identity(run: &StoredRun) -> Result<String, Error> {
    let manifest = run.path.join(MANIFEST_FILE);
    let text = fs::read_to_string(&manifest).map_err(Error::file(&manifest))?;
    Ok(hash_of(&(run.text()? + &text)))
}

/// The groups of datagrams, of which nothing has come yet.
fn datagrams(run: &StoredRun, planned: &Planned) -> Result<BTreeMap<String, Datagrams>, Error> {
    let duration_s = planned.plan.duration.as_secs_f64();
    let streams = planned.plan.streams.iter();
    let groups = streams.filter(|it| matches!(it.traffic.kind, Kind::Datagrams { .. }));
    let groups = groups.map(|it| {
        let datagrams = Datagrams::new(run.sending_began_ns()?, duration_s);
        Ok((it.traffic.name.clone(), datagrams))
    });
    groups.collect()
}

fn of_traces(
    run: &StoredRun,
    traced: &Traced,
    planned: &Planned,
) -> Result<(Digest, FirstSendings), Error> {
    let duration_s = planned.plan.duration.as_secs_f64();
    let began_ns = run.sending_began_ns()?;
    let mut digest = Digest::read(
        &traced.sender,
        &traced.receiver,
        &traced.groups,
        began_ns,
        duration_s,
    )?;
    for (group, times_ns, itt_ns) in drops(run, traced, planned)? {
        digest.add_drops(&group, &times_ns, itt_ns);
    }
    let sender = Traces::one(&traced.sender).map_err(OpenError::from)?;
    let sendings = sender.observe(FirstSendings::default()).whole()?.observer;
    Ok((digest, sendings))
}

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
