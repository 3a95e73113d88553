use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use pillion_analysis::reproduction::Digest;
use pillion_settings::experiment::Planned;

use crate::Error;
use crate::store::StoredRun;

/// What is kept of a run's traces; read from them once, and from a file beside the run's folder
/// from then on.
///
/// # Errors
/// [`Error::File`], [`Error::Trace`].
pub fn digest(run: &StoredRun, planned: &Planned) -> Result<Digest, Error> {
    let file = digest_file(&run.path);
    if let Ok(text) = fs::read_to_string(&file)
        && let Ok(digest) = serde_json::from_str(&text)
    {
        return Ok(digest);
    }
    let Some(traced) = run.traced()? else {
        return Err(Error::file(&run.path)(io::Error::other("it has no traces")));
    };
    let duration_s = planned.plan.duration.as_secs_f64();
    let began_ns = run.sending_began_ns()?;
    let digest = Digest::read(
        &traced.sender,
        &traced.receiver,
        &traced.groups,
        began_ns,
        duration_s,
    )?;
    let text = serde_json::to_string(&digest).map_err(io::Error::from);
    text.and_then(|text| fs::write(&file, text))
        .map_err(Error::file(&file))?;
    Ok(digest)
}

/// The end of the file's name; another one whenever what is kept of a run changes.
const KEPT: &str = ".digest-4.json";

/// The file with the digest of a run in this folder.
#[must_use]
pub fn digest_file(run: &Path) -> PathBuf {
    let mut file = run.to_owned().into_os_string();
    file.push(KEPT);
    file.into()
}
