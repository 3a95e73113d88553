use std::fs;
use std::io::{self, Write};
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use crate::settings::experiment::{Engine, Run};

use super::host::{HOST_FILE, HostFacts};
use super::left::{Failed, Left};
use super::working::Working;
use super::{Ending, EngineError, Image, Job, Machine, RESULTS};
use crate::PROGRAM;

/// The path inside of the run's file.
const INSIDE: &str = "/etc/pillion/run.toml";
/// The name of the run's folder inside.
const NAME: &str = "run";

/// Makes one run of an experiment in a lab kernel, by `pillion-lab run-one` inside; `image` is one
/// whose init is pillion, of the version `pillion`. The run's files come into `folder`, which must
/// not be there, and is there only if all is well.
///
/// `reached` is told how far virtual time has come; the run ends without a trace when `stop` is
/// set.
///
/// # Errors
/// [`Failed`], for the reasons of [`super::Running::wait`], and [`EngineError::Inside`] with the
/// run's own words where it fails.
pub fn run_virtually(
    machine: &Machine,
    image: &Image,
    pillion: &str,
    run: &Run,
    folder: &Path,
    stop: &AtomicBool,
    mut reached: impl FnMut(Duration),
) -> Result<(), Failed> {
    let parent = folder.parent().unwrap_or(Path::new("."));
    let out =
        Working::begin(parent).map_err(EngineError::system("make a folder for the results"))?;
    let mut image = image.clone();
    image.add_text(INSIDE, &run.to_text());
    image.set_job(&job(machine));
    let (begun, clock) = (SystemTime::now(), Instant::now());
    let words = Words::default();
    let running = machine.start(
        &image,
        Some(out.path()),
        Box::new(words.clone()),
        Box::new(words.clone()),
    )?;
    let console = running.console();
    let mut virtual_time = Duration::ZERO;
    let ended = running.wait(stop, |time| {
        virtual_time = time;
        reached(time);
    });
    let error = match ended {
        Ok(Ending::Exited(0)) => {
            let whole = out.path().join(NAME);
            let facts = HostFacts::gather(machine, pillion, begun, clock.elapsed(), virtual_time);
            return fs::write(whole.join(HOST_FILE), facts.to_json())
                .and_then(|()| fs::rename(&whole, folder))
                .map_err(|error| EngineError::system("keep the run's folder")(error).into());
        }
        Err(EngineError::Stopped) => return Err(EngineError::Stopped.into()),
        Ok(ending) => EngineError::Inside(words.or(ending)),
        Err(error) => error,
    };
    let left = Left {
        inside: &out.path().join(NAME),
        run: &run.to_text(),
        error: &error.to_string(),
        console: &console.text(),
    };
    let left = Some(left.keep(folder));
    Err(Failed { error, left })
}

/// The job of pillion itself, to make the run.
fn job(machine: &Machine) -> Job {
    let folder = Path::new(RESULTS).join(NAME);
    let made_by = Engine::Virtual.to_string();
    let mut arguments = ["run-one", "--engine", &made_by].map(String::from).to_vec();
    if let Some(hash) = machine.kernel.hash() {
        arguments.extend(["--lab-kernel", hash].map(String::from));
    }
    arguments.extend([INSIDE.to_owned(), folder.to_string_lossy().into_owned()]);
    Job {
        program: "/init".to_owned(),
        arguments,
        ..Job::default()
    }
}

/// What a program wrote to one of its outputs.
#[derive(Debug, Clone, Default)]
struct Words(Arc<Mutex<Vec<u8>>>);

impl Words {
    /// The program's last words, or how it ended.
    fn or(&self, ending: Ending) -> String {
        let words = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let words = String::from_utf8_lossy(&words);
        let last = words.lines().rev().find(|line| !line.trim().is_empty());
        last.map_or_else(
            || ending.to_string(),
            |line| {
                let reason = line
                    .strip_prefix(PROGRAM)
                    .and_then(|it| it.strip_prefix(": "));
                reason.unwrap_or(line).to_owned()
            },
        )
    }
}

impl Write for Words {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut words = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        words.extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
