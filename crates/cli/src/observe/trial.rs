use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Result;
use clap::ValueEnum;
use pillion_bundler::{DrawBy, Observing};
use pillion_measure::Unit;
use pillion_report::number::{self, counted};
use pillion_report::{Axis, Column, Fact, Figure, Line, Page, Stream, Table};
use pillion_settings::BadInput;
use pillion_settings::times::parse_s;
use pillion_trial::{
    ArmResults, ERROR_RATE, Estimate, MEASURES, Record, RecordError, RecordFile, Results,
    SHARES_PPM, Setting, Trial, Verdict,
};
use serde_json::json;

use super::words::estimate;
use super::{Next, ObserveArgs, Session};
use crate::bundling::BundlingArgs;
use crate::output_file::OutputFile;
use crate::print::{print, print_json, print_line, say};

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
    #[arg(long, value_name = "S", default_value = "60", value_parser = parse_s)]
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
        if trial.verdict() != Verdict::Undecided {
            self.tell(&trial, report.as_ref())?;
            let file = self.record.display();
            say(&format!(
                "pillion: this trial is over; remove {file} to begin anew"
            ));
            return Ok(ExitCode::SUCCESS);
        }
        // What cannot be written is said before anything is begun.
        file.save(&trial.record())?;
        if resumes {
            let file = self.record.display();
            say(&format!("pillion: going on with the trial of {file}"));
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
        let mut session = self
            .observe
            .begin(&self.bundling, observing, left, "trying")?;
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
                    say(&format!("pillion: {why}; the trial goes on, trying again"));
                }
                (unsaved, saved) = (why, Instant::now());
            }
            if is_over {
                return unsaved.map_or(Ok(()), |why| Err(why.into()));
            }
            if !self.quiet && said.elapsed() >= self.every {
                say(&format!("pillion: {}", standing(&trial.results())));
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
        let results = trial.results();
        let printed = self.print(&results);
        let reported = report.map_or(Ok(()), |file| file.write(&self.page(&results).to_html()));
        printed.and(reported)
    }

    fn print(&self, results: &Results) -> Result<()> {
        if self.observe.json {
            return print_json(results);
        }
        print(&table(results, self.unit()).to_text(false))?;
        print_line!("{}", verdict(results))
    }

    fn unit(&self) -> &'static str {
        match self.draw_by {
            DrawBy::Peer => "peers",
            DrawBy::Connection => "connections",
        }
    }

    fn page(&self, results: &Results) -> Page {
        let line = |name, arm: &ArmResults, stream: Stream| {
            let points = arm.summary.latencies.cumulative().into_iter();
            let longer = points.map(|(ms, share)| (ms, 1.0 - share));
            Line::step(name, longer.collect()).styled(Some(stream.style()))
        };
        let lines = [
            line("bundled", &results.bundled, Stream::Bundled),
            line("plain", &results.plain, Stream::Plain),
        ];
        let figure = Figure {
            title: "Who waits, and how long".to_owned(),
            caption:
                "At each latency, the share of segments that took longer to be acknowledged, on \
                      a log scale."
                    .to_owned(),
            x: Axis::log("ACK latency", "ms"),
            y: Axis::log("share of segments that took longer", ""),
            side: None,
            lines: lines.into(),
        };
        let looks = results.looks.iter().map(|look| {
            format!(
                "{} segments, {} {}: chance of better {:.4}, of worse {:.4}; threshold {:.5}",
                look.segments,
                look.units,
                self.unit(),
                look.chance_of_better,
                look.chance_of_worse,
                look.threshold
            )
        });
        let draw = self.draw_by.to_possible_value();
        Page {
            title: "Does bundling help?".to_owned(),
            lead: verdict(results),
            parts: vec![table(results, self.unit()).into(), figure.into()],
            method: vec![
                Fact::new("connections", self.observe.chosen()),
                Fact::new("bundled", number::percent(f64::from(self.share) / 1e6)),
                Fact::new(
                    "drawn by",
                    draw.map_or_else(String::new, |it| it.get_name().to_owned()),
                ),
                Fact::new(
                    "intervals",
                    format!("95 % confidence, by bootstrap over {}", self.unit()),
                ),
                Fact::verbatim("looks", looks.collect::<Vec<_>>().join("\n")),
            ],
            data: json!({ "results": results }),
        }
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

/// How it stands, in a line.
fn standing(results: &Results) -> String {
    let arm =
        |name: &str, of: fn(&pillion_trial::Comparison) -> Option<Estimate>, arm: &ArmResults| {
            let value = |name: &str| {
                let found = results.measures.iter().find(|it| it.measure.name == name);
                estimate(found.and_then(of), Unit::Milliseconds)
            };
            format!(
                "{name} {} units, {} segments, late by {} ms, p99 {} ms",
                arm.units,
                number::count(arm.summary.segments),
                value("late_ms"),
                value("ack_latency_ms_p99"),
            )
        };
    format!(
        "{}; {}; {} looks, not clear yet{}",
        arm("bundled", |it| it.bundled, &results.bundled),
        arm("plain", |it| it.plain, &results.plain),
        results.looks.len(),
        left_out(results),
    )
}

/// What has found no place among the units that are compared.
fn left_out(results: &Results) -> String {
    match results.left_out {
        0 => String::new(),
        connections => format!(
            "; {} left out, for so many units are compared at most",
            counted(connections, "connection")
        ),
    }
}

fn table(results: &Results, unit: &str) -> Table {
    let mut table = Table::new(
        "Both arms, with intervals of 95 % confidence",
        [
            Column::left(""),
            Column::right("bundled"),
            Column::right("plain"),
            Column::right("difference"),
        ],
    );
    let arms = [&results.bundled, &results.plain];
    for (name, counts) in [
        (unit, arms.map(|arm| arm.units)),
        ("segments", arms.map(|arm| arm.summary.segments)),
        (
            "losses repaired by bundles",
            arms.map(|arm| arm.summary.hidden_losses),
        ),
    ] {
        let [bundled, plain] = counts.map(number::count);
        table.row([name.to_owned(), bundled, plain, String::new()]);
    }
    for it in &results.measures {
        let unit = it.measure.unit;
        table.row([
            it.measure.heading(),
            estimate(it.bundled, unit),
            estimate(it.plain, unit),
            estimate(it.difference, unit),
        ]);
    }
    table
}

/// Why the numbers may say otherwise than the verdict.
const BY_RANK: &str = " The times are of all segments together, of which a single unit may have most \
                       of what is late; the verdict is by how units rank.";

/// The verdict in words, and how far it can be trusted.
fn verdict(results: &Results) -> String {
    let late = &results.measures[0];
    let by = |of: Option<Estimate>| estimate(of, Unit::Milliseconds);
    let sure = format!(
        "such a verdict comes about in at most {} of trials where there is no difference",
        number::percent(ERROR_RATE)
    );
    let waits = format!(
        "beyond the least RTT and the grace, a segment waits {} ms with it and {} ms without",
        by(late.bundled),
        by(late.plain)
    );
    let longer = late.difference.map_or(0.0, |it| it.value);
    let but = match results.verdict {
        Verdict::Helps if longer > 0.0 => BY_RANK,
        Verdict::Harms if longer < 0.0 => BY_RANK,
        _ => "",
    };
    match results.verdict {
        Verdict::Helps => format!("Bundling helps: {waits}; {sure}.{but}"),
        Verdict::Harms => format!("Bundling harms: {waits}; {sure}.{but}"),
        Verdict::Undecided => format!(
            "Not clear: the {} of the arms differs by {} ms, which may be chance ({} looks{}).",
            MEASURES[0].label,
            by(late.difference),
            results.looks.len(),
            left_out(results),
        ),
    }
}
