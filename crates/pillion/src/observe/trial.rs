//! `pillion trial`: bundles some connections and compares them with others until the result is
//! clear.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Result;
use pillion_bpf::{AssignBy, Observing};
use pillion_cli::log as logging;
use pillion_cli::output_file::OutputFile;
use pillion_cli::print::{print, print_json, print_line};
use pillion_cli::settings::BadInput;
use pillion_cli::settings::times::{parse_duration, parse_percent};

use super::{ObserveArgs, Progress, Session, trial_report};
use crate::args::BundlingArgs;
use crate::trial::{SHARE_RANGE_PPM, Setting, StateError, StateFile, Trial, TrialState, Verdict};

/// Bundle some connections, observe the others, and test whether bundling helps
///
/// Peers are assigned to an arm at random, and keep their arm when they reconnect. The arms are
/// compared by how long segments wait for their ACK. The trial ends when it is clear that bundling
/// helps or harms. Without a true difference, at most one trial in twenty gives a verdict, however
/// long it runs (docs/evidence/trial-model.md). The state is stored in a file, from which a
/// restarted trial continues.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    observe: ObserveArgs,

    /// Share of the bundled arm
    #[arg(long, value_name = "PERCENT", default_value = "50%", value_parser = parse_share)]
    share: u32,

    /// Unit of assignment: all connections of a peer together, or each connection, if many peers
    /// share an address
    #[arg(long, value_name = "UNIT", value_enum, default_value_t)]
    assign_by: AssignBy,

    /// File of the trial state, created if missing
    #[arg(long, value_name = "FILE", default_value = "pillion-trial.json")]
    state: PathBuf,

    /// Time between two progress lines
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = parse_duration)]
    progress_interval: Duration,

    /// Print no progress lines
    #[arg(long, short)]
    quiet: bool,

    #[command(flatten)]
    bundling: BundlingArgs,
}

/// Parses a percentage, and returns parts per million.
fn parse_share(text: &str) -> Result<u32, BadInput> {
    match (parse_percent(text)? * 1e4).round() as u32 {
        ppm if SHARE_RANGE_PPM.contains(&ppm) => Ok(ppm),
        _ => {
            let ends = [SHARE_RANGE_PPM.start(), SHARE_RANGE_PPM.end()];
            let [min, max] = ends.map(|ppm| f64::from(*ppm) / 1e4);
            Err(BadInput(format!(
                "invalid share `{text}`: expected {min}% to {max}%, so that both arms can be \
                 compared"
            )))
        }
    }
}

/// Maximum time between two writes of the state.
const SAVE_INTERVAL: Duration = Duration::from_secs(10);

impl Args {
    pub fn execute(self) -> Result<ExitCode> {
        if self.progress_interval.is_zero() {
            let reason =
                "invalid --progress-interval 0s: expected more than 0s; use --quiet for no lines";
            return Err(BadInput(reason.to_owned()).into());
        }
        logging::start("pillion", self.observe.log_level);
        let report = self.observe.report()?;
        let setting = self.setting()?;
        let (mut file, stored) = StateFile::open(&self.state, &setting)?;
        let is_resumed = stored.is_some();
        let state = stored.unwrap_or_else(|| TrialState::new(setting, rand::random()));
        let key = state.key;
        let mut trial = Trial::new(state);
        if trial.is_finished() {
            self.report_results(&trial, report.as_ref())?;
            let file = self.state.display();
            log::info!("this trial has ended; remove {file} to start a new one");
            return Ok(ExitCode::SUCCESS);
        }
        // Fails early if the file cannot be written.
        file.save(&trial.state())?;
        if is_resumed {
            let file = self.state.display();
            log::info!("continuing the trial of {file}");
        }
        let observing = Observing {
            bundled_ppm: Some(self.share),
            key,
            assign_by: self.assign_by,
            grace_us: self.observe.grace,
            stall_us: self.observe.stall,
        };
        let observed = Duration::from_millis(trial.observed_ms());
        let left = self.observe.duration.map(|it| it.saturating_sub(observed));
        let mut session = Session::start(
            &self.observe,
            &self.bundling,
            observing,
            left,
            "running a trial on",
        )?;
        let run_result = self.run(&mut session, &mut trial, &mut file);
        let stats_written = session.finish();
        let reported = self.report_results(&trial, report.as_ref());
        // Results are printed even if the session or its statistics failed.
        run_result.and(stats_written).and(reported)?;
        Ok(ExitCode::SUCCESS)
    }

    /// Runs until a verdict, the end of the duration, or a signal.
    fn run(&self, session: &mut Session, trial: &mut Trial, file: &mut StateFile) -> Result<()> {
        let (mut saved_at, mut logged_at) = (Instant::now(), Instant::now());
        let mut save_error = None;
        let (observed_before_ms, started_at) = (trial.observed_ms(), Instant::now());
        loop {
            let (progress, observations) = session.wait()?;
            trial.update(&observations);
            trial
                .set_observed_ms(observed_before_ms.saturating_add(whole_ms(started_at.elapsed())));
            let analysed = trial.analyse_if_due(progress == Progress::TimeUp).is_some();
            let is_finished =
                progress != Progress::Continue || trial.verdict() != Verdict::Undecided;
            if is_finished && progress != Progress::Stopped {
                trial.update(&session.drain(observations)?);
            }
            if analysed || saved_at.elapsed() >= SAVE_INTERVAL || is_finished {
                let reason = transient_error(file.save(&trial.state()))?;
                if let Some(reason) = &reason
                    && save_error.is_none()
                    && !is_finished
                {
                    log::warn!("{reason}; the trial continues and retries");
                }
                (save_error, saved_at) = (reason, Instant::now());
            }
            if is_finished {
                return save_error.map_or(Ok(()), |reason| Err(reason.into()));
            }
            if !self.quiet && logged_at.elapsed() >= self.progress_interval {
                log::info!(
                    "{}",
                    trial_report::progress_line(&trial.results(), &trial.state().setting)
                );
                logged_at = Instant::now();
            }
        }
    }

    fn setting(&self) -> Result<Setting> {
        let options = self.bundling.options()?;
        let tcp_options = &self.bundling.how.tcp_options;
        Ok(Setting {
            bundled_ppm: self.share,
            assign_by: self.assign_by,
            grace_us: self.observe.grace,
            stall_us: self.observe.stall,
            connections_text: self.observe.connections_text(),
            location: self.observe.location(&self.bundling),
            bundling: serde_json::to_string(&(options, tcp_options))?,
            duration_ms: self.observe.duration.map(whole_ms),
        })
    }

    fn report_results(&self, trial: &Trial, report: Option<&OutputFile>) -> Result<()> {
        let (results, setting) = (trial.results(), trial.state().setting);
        let printed = match self.observe.json {
            true => print_json(&results),
            false => print(&trial_report::table(&results, &setting).to_text())
                .and_then(|()| print_line!("{}", trial_report::verdict(&results, &setting))),
        };
        let reported = report.map_or(Ok(()), |file| {
            file.write(&trial_report::page(&results, &setting).to_html())
        });
        printed.and(reported)
    }
}

fn whole_ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Returns the error if a later attempt may succeed, as with a full disk. If another trial has
/// taken the file, retrying cannot help.
fn transient_error(saved: Result<(), StateError>) -> Result<Option<StateError>, StateError> {
    match saved {
        Err(reason @ StateError::File { .. }) => Ok(Some(reason)),
        saved => saved.map(|()| None),
    }
}
