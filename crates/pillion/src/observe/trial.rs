//! `pillion trial`: some connections are bundled, the others watched, until it is clear which wait less.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Result;
use pillion_bpf::{DrawBy, Observing};
use pillion_cli::output_file::OutputFile;
use pillion_cli::print::{print, print_json, print_line, say_line};
use pillion_cli::settings::BadInput;
use pillion_cli::settings::times::parse_duration;

use super::{Next, ObserveArgs, Session, trial_report};
use crate::args::BundlingArgs;
use crate::trial::{Record, RecordError, RecordFile, SHARES_PPM, Setting, Trial, Verdict};

/// Bundle some connections, watch the others, and say whether it helps
///
/// Which ones are bundled is drawn at random, by peer: who connects anew is drawn alike. Both arms
/// are compared by how long their segments wait to be acknowledged. It ends by itself when it is
/// clear that bundling helps, or that it harms, and errs in at most one trial in twenty where it
/// does neither, however long it runs (docs/trial.md). What was found so far is kept in a file, from
/// which it goes on when it is begun again.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    observe: ObserveArgs,

    /// How many are bundled, in per cent
    #[arg(long, value_name = "PERCENT", default_value = "50%", value_parser = parse_share)]
    share: u32,

    /// What is drawn for: all connections of a peer alike, or each connection for itself, where
    /// many peers are behind one address
    #[arg(long, value_name = "WHAT", value_enum, default_value_t)]
    draw_by: DrawBy,

    /// Where the trial's record is kept
    #[arg(long, value_name = "FILE", default_value = "pillion-trial.json")]
    record: PathBuf,

    /// Seconds between two lines that say how it stands
    #[arg(long, value_name = "S", default_value = "60", value_parser = parse_duration)]
    every: Duration,

    /// Print no such lines
    #[arg(long, short)]
    quiet: bool,

    #[command(flatten)]
    bundling: BundlingArgs,
}

/// Millionths of a share in per cent, with or without the sign.
fn parse_share(text: &str) -> Result<u32, String> {
    let percent = text.strip_suffix('%').unwrap_or(text).trim().parse();
    let ppm = percent.map(|percent: f64| (percent * 1e4).round() as u32);
    match ppm {
        Ok(ppm) if SHARES_PPM.contains(&ppm) => Ok(ppm),
        _ => {
            let ends = [SHARES_PPM.start(), SHARES_PPM.end()];
            let [least, most] = ends.map(|ppm| f64::from(*ppm) / 1e4);
            Err(format!(
                "expected per cent, {least} to {most}: one arm would be too small to compare else"
            ))
        }
    }
}

/// How often the record is written, if nothing else is worth writing it.
const SAVE_EVERY: Duration = Duration::from_secs(10);

impl Args {
    pub fn execute(self) -> Result<ExitCode> {
        if self.every.is_zero() {
            let why = "--every 0 would print without end; say --quiet for no lines";
            return Err(BadInput(why.to_owned()).into());
        }
        let report = self.observe.report()?;
        let setting = self.setting()?;
        let (mut file, found) = RecordFile::open(&self.record, &setting)?;
        let resumes = found.is_some();
        let record = found.unwrap_or_else(|| Record::new(setting, rand::random()));
        let key = record.key;
        let mut trial = Trial::new(record);
        if trial.is_over() {
            self.tell(&trial, report.as_ref())?;
            let file = self.record.display();
            say_line!("pillion: this trial is over; remove {file} to begin anew");
            return Ok(ExitCode::SUCCESS);
        }
        // What cannot be written is said before anything is begun.
        file.save(&trial.record())?;
        if resumes {
            let file = self.record.display();
            say_line!("pillion: going on with the trial of {file}");
        }
        let observing = Observing {
            bundled_ppm: self.share,
            key,
            draw_by: self.draw_by,
            grace_us: self.observe.grace,
            stall_us: self.observe.stall,
        };
        let observed = Duration::from_millis(trial.observed_ms());
        let left = self.observe.duration.map(|it| it.saturating_sub(observed));
        let mut session = Session::begin(&self.observe, &self.bundling, observing, left, "trying")?;
        let ended = self.go_on(&mut session, &mut trial, &mut file);
        let accounted = session.finish();
        let told = self.tell(&trial, report.as_ref());
        // Whatever fails, what was found is told before.
        ended.and(accounted).and(told)?;
        Ok(ExitCode::SUCCESS)
    }

    /// Goes on until it is clear, or has to end.
    fn go_on(&self, session: &mut Session, trial: &mut Trial, file: &mut RecordFile) -> Result<()> {
        let (mut saved, mut said) = (Instant::now(), Instant::now());
        let mut unsaved = None;
        let (before, begun) = (trial.observed_ms(), Instant::now());
        loop {
            let (next, observations) = session.next()?;
            trial.take(&observations);
            trial.has_observed(before.saturating_add(whole_ms(begun.elapsed())));
            let looked = trial.look(next == Next::Over).is_some();
            let is_over = next != Next::GoOn || trial.verdict() != Verdict::Undecided;
            if looked || saved.elapsed() >= SAVE_EVERY || is_over {
                let why = refusal(file.save(&trial.record()))?;
                if let Some(why) = &why
                    && unsaved.is_none()
                    && !is_over
                {
                    say_line!("pillion: {why}; the trial goes on, trying again");
                }
                (unsaved, saved) = (why, Instant::now());
            }
            if is_over {
                return unsaved.map_or(Ok(()), |why| Err(why.into()));
            }
            if !self.quiet && said.elapsed() >= self.every {
                say_line!(
                    "pillion: {}",
                    trial_report::standing(&trial.results(), &trial.record().setting)
                );
                said = Instant::now();
            }
        }
    }

    fn setting(&self) -> Result<Setting> {
        let options = self.bundling.options()?;
        let companions = &self.bundling.how.companions;
        Ok(Setting {
            bundled_ppm: self.share,
            draw_by: self.draw_by,
            grace_us: self.observe.grace,
            stall_us: self.observe.stall,
            chosen: self.observe.chosen(),
            places: self.observe.places(&self.bundling),
            bundling: serde_json::to_string(&(options, companions))?,
            duration_ms: self.observe.duration.map(whole_ms),
        })
    }

    fn tell(&self, trial: &Trial, report: Option<&OutputFile>) -> Result<()> {
        let (results, setting) = (trial.results(), trial.record().setting);
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

/// Why the record could not be written, where that may be over the next time: a disk may be full for a
/// moment. That the file is another trial's by now is no such reason.
fn refusal(saved: Result<(), RecordError>) -> Result<Option<RecordError>, RecordError> {
    match saved {
        Err(why @ RecordError::File { .. }) => Ok(Some(why)),
        saved => saved.map(|()| None),
    }
}
