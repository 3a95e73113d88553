//! A cache of the measures of a run's traces, records and queue.

use std::collections::BTreeMap;
use std::{fs, io};

use serde::{Deserialize, Serialize};

use super::fairness::optimum;
use crate::Error;
use crate::analysis::reproduction::{
    Datagrams, FirstTransmissions, Message, Messages, RunMeasures,
};
use crate::analysis::{OpenError, Traces};
use crate::hash::hash_of;
use crate::queue::{Disposition, Row};
use crate::run::{MANIFEST_FILE, QUEUE_FILE, summary_cache_file};
use crate::settings::experiment::PlannedRun;
use crate::store::{StoredRun, TracePair};
use crate::traffic::Kind;

/// Returns a run's measures and warnings. They are read from the cache file next to the run's
/// folder if possible, otherwise from traces and records, and then cached.
///
/// # Errors
///
/// [`Error::File`], [`Error::Trace`].
pub fn load_measures(run: &StoredRun, planned: &PlannedRun) -> Result<RunMeasures, Error> {
    let mut measures = RunMeasures {
        warnings: run.summary()?.warnings,
        ..load_results(run, planned)?
    };
    measures.add_fairness(&optimum(&planned.plan));
    Ok(measures)
}

fn load_results(run: &StoredRun, planned: &PlannedRun) -> Result<RunMeasures, Error> {
    let file = summary_cache_file(&run.path);
    let identity = identity(run)?;
    if let Ok(text) = fs::read_to_string(&file)
        && let Ok(cache) = serde_json::from_str::<SummaryCache>(&text)
        && cache.identity == identity
    {
        return Ok(cache.measures);
    }
    let (mut measures, transmissions) = match run.trace_pair()? {
        Some(trace_pair) => measures_from_traces(run, &trace_pair, planned)?,
        None => Default::default(),
    };
    let ahead_ns = run.realtime_offset_ns()?;
    let started_ns = run.sending_started_ns()?;
    let duration_s = planned.plan.duration.as_secs_f64();
    let mut groups: BTreeMap<String, Messages> = BTreeMap::new();
    let mut datagrams = datagrams(run, planned)?;
    run.messages(|origin, message| {
        let messages = match groups.get_mut(origin.group) {
            Some(messages) => messages,
            None => {
                let group = groups.entry(origin.group.to_owned());
                group.or_insert_with(|| Messages::new(started_ns, duration_s))
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
        messages.add(&message, &transmissions);
        if let Some(datagrams) = datagrams.get_mut(origin.group) {
            datagrams.add(&message);
        }
    })?;
    measures.add_messages(groups);
    measures.add_datagrams(datagrams);
    if measures.groups.is_empty() {
        let neither = io::Error::other("the run has neither traces nor records");
        return Err(Error::file(&run.path)(neither));
    }
    let cache = SummaryCache { identity, measures };
    // The cache is optional: the store may be read-only.
    let _ = serde_json::to_string(&cache).map(|text| fs::write(&file, text));
    Ok(cache.measures)
}

/// The content of a cache file.
#[derive(Serialize, Deserialize)]
struct SummaryCache {
    /// A hash that identifies the run, because folders are moved and copied by hand.
    identity: String,
    measures: RunMeasures,
}

/// Returns a hash of the run's file and of its manifest.
fn identity(run: &StoredRun) -> Result<String, Error> {
    let manifest = run.path.join(MANIFEST_FILE);
    let text = fs::read_to_string(&manifest).map_err(Error::file(&manifest))?;
    Ok(hash_of(&(run.text()? + &text)))
}

/// Returns an empty collection for each group of datagrams.
fn datagrams(run: &StoredRun, planned: &PlannedRun) -> Result<BTreeMap<String, Datagrams>, Error> {
    let duration_s = planned.plan.duration.as_secs_f64();
    let streams = planned.plan.streams.iter();
    let groups = streams.filter(|it| matches!(it.traffic.kind, Kind::Datagrams { .. }));
    let groups = groups.map(|it| {
        let datagrams = Datagrams::new(run.sending_started_ns()?, duration_s);
        Ok((it.traffic.name.clone(), datagrams))
    });
    groups.collect()
}

fn measures_from_traces(
    run: &StoredRun,
    trace_pair: &TracePair,
    planned: &PlannedRun,
) -> Result<(RunMeasures, FirstTransmissions), Error> {
    let duration_s = planned.plan.duration.as_secs_f64();
    let started_ns = run.sending_started_ns()?;
    let mut measures = RunMeasures::read(
        &trace_pair.sender,
        &trace_pair.receiver,
        &trace_pair.groups,
        started_ns,
        duration_s,
    )?;
    for (group, times_ns, itt_ns) in drops(run, trace_pair, planned)? {
        measures.add_drops(&group, &times_ns, itt_ns);
    }
    let sender = Traces::open_single(&trace_pair.sender).map_err(OpenError::from)?;
    let transmissions = sender
        .observe(FirstTransmissions::default())
        .require_undamaged()?
        .observer;
    Ok((measures, transmissions))
}

/// Returns the drops of the bottleneck's queue for each group of periodic streams: the group's
/// name, the times, and the mean inter-transmission time, both in nanoseconds. Empty if the queue
/// was not recorded.
///
/// # Errors
///
/// [`Error::File`].
pub(super) fn drops(
    run: &StoredRun,
    trace_pair: &TracePair,
    planned: &PlannedRun,
) -> Result<Vec<(String, Vec<u64>, u64)>, Error> {
    let path = run.path.join(QUEUE_FILE);
    if !path.exists() {
        return Ok(Vec::new());
    }
    let invalid = |error| Error::file(&path)(io::Error::other(error));
    let mut times = BTreeMap::new();
    for row in crate::records::read::<Row>(&path).map_err(invalid)? {
        let row = row.map_err(invalid)?;
        if let (Some(Disposition::Refused | Disposition::Dropped), Some(to), Some(left_ns)) =
            (row.disposition, row.destination, row.left_ns)
        {
            times.entry(to).or_insert_with(Vec::new).push(left_ns);
        }
    }
    let groups = trace_pair.groups.iter().filter_map(|(name, to)| {
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
