use pillion_sockets::{Sampler, Sockets};

use super::folder::Folder;
use crate::Error;
use crate::experiment::Run;
use crate::testbed::Testbed;

/// Begins to sample the streams' sockets, on every host that they come from.
pub(super) fn sample(run: &Run, testbed: &Testbed, folder: &Folder) -> Result<Vec<Sampler>, Error> {
    let Some(interval) = run.measure.sockets else {
        return Ok(Vec::new());
    };
    let samplers = testbed.hosts.iter().map(|host| {
        let sockets = host.enter(Sockets::open)??;
        let file = folder.file(&format!("sockets-{}.csv.zst", host.name));
        Ok(Sampler::start(sockets, interval, &file)?)
    });
    samplers.collect()
}
