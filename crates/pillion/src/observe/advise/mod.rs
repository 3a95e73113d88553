//! `pillion advise`: connections are watched, and what bundling would have brought them is told.

mod tell;
mod watch;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use crate::trial::{Advice, Gathered};
use anyhow::Result;
use pillion_bpf::{DrawBy, Observing};
use pillion_cli::output_file::OutputFile;
use pillion_cli::print::{print, print_json, print_line, say_line};
use pillion_cli::settings::BadInput;
use pillion_stats::report::number;
use serde_json::json;

use super::args::ObserveArgs;
use super::config::config;
use super::session::{Next, Session};
use crate::bundling::BundlingArgs;
use watch::Watch;

/// Watch connections, and say what bundling would have brought them
///
/// Nothing is bundled. Of each connection of this network namespace (or --netns) it is observed how
/// long its segments waited to be acknowledged, what was lost and how TCP repaired it, and which
/// bundles would have had what was lost; at the end (Ctrl-C or --duration), by process and
/// service: what bundling would have saved, at what cost, with intervals of 95 % confidence, and
/// what to do. docs/advise.md has the model, and what it leaves out.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    observe: ObserveArgs,

    /// Tell peers apart as well
    #[arg(long)]
    by_peer: bool,

    /// Write rules for what is worth while to FILE, for `pillion attach --config`
    #[arg(long, value_name = "FILE")]
    write_config: Option<PathBuf>,

    #[command(flatten)]
    bundling: BundlingArgs,
}

impl Args {
    pub fn execute(self) -> Result<ExitCode> {
        if !self.bundling.how.companions.is_empty() {
            let why = "nothing is changed while it is only watched: leave out the companions";
            return Err(BadInput(why.to_owned()).into());
        }
        self.bundling.options()?;
        let rules = self.write_config.as_deref();
        let rules = rules.map(|file| OutputFile::to("--write-config", file));
        let files = Files {
            report: self.observe.report()?,
            rules: rules.transpose()?,
        };
        let observing = Observing {
            bundled_ppm: 0,
            key: [0; 2],
            draw_by: DrawBy::Peer,
            grace_us: self.observe.grace,
            stall_us: self.observe.stall,
        };
        let duration = self.observe.duration;
        let mut session = Session::begin(
            &self.observe,
            &self.bundling,
            observing,
            duration,
            "watching",
        )?;
        let begun = Instant::now();
        let mut watch = Watch::new(self.by_peer);
        let ended = loop {
            match session.next() {
                Ok((next, observations)) => {
                    watch.take(observations);
                    if next != Next::GoOn {
                        break Ok(());
                    }
                }
                Err(why) => break Err(why),
            }
        };
        let elapsed = begun.elapsed();
        let accounted = session.finish();
        let told = self.tell(&watch.gathered(), elapsed, &files);
        // Whatever fails, what was seen is told before.
        ended.and(accounted).and(told)?;
        Ok(ExitCode::SUCCESS)
    }

    fn tell(&self, watched: &Gathered, elapsed: Duration, files: &Files) -> Result<()> {
        let advice = watched.advise();
        let connections: u64 = advice.iter().map(|it| it.summary.connections).sum();
        let config = config(&advice, &self.bundling.how, &self.observe.conditions())?;
        let config = config.as_deref();
        let printed = match self.observe.json {
            true => print_json(&json!({
                "watched_s": elapsed.as_secs_f64(), "connections": connections,
                "left_out": watched.left_out(), "advice": advice, "config": config,
            })),
            false => print_advice(&advice),
        };
        if watched.left_out() > 0 {
            say_line!(
                "pillion: {} of so many peers and services are left out; ask for fewer of them: \
                 --port, --peer",
                number::counted(watched.left_out(), "connection")
            );
        }
        let report = files.report.as_ref();
        let reported = report.map_or(Ok(()), |file| {
            file.write(&tell::page(&advice, elapsed, config).to_html())
        });
        let ruled = self.tell_rules(config, files.rules.as_ref(), advice.is_empty());
        printed.and(reported).and(ruled)
    }

    /// Writes the rules to their file, or prints them.
    fn tell_rules(
        &self,
        rules: Option<&str>,
        file: Option<&OutputFile>,
        is_empty: bool,
    ) -> Result<()> {
        if let (Some(file), Some(text)) = (file, rules)
            && let Err(error) = file.write(text)
        {
            if !self.observe.json {
                print_line!("\n{text}")?;
            }
            return Err(error);
        }
        if self.observe.json {
            return Ok(());
        }
        match (&self.write_config, rules) {
            (Some(file), Some(_)) => print_line!("rules: {}", file.display()),
            (None, Some(text)) => print_line!("\n{text}"),
            (file, None) => {
                if !is_empty {
                    print_line!("no rules: nothing is worth while as far as could be seen")?;
                }
                match file.as_ref().filter(|it| it.exists()) {
                    Some(file) => print_line!("{} is as it was", file.display()),
                    None => Ok(()),
                }
            }
        }
    }
}

fn print_advice(advice: &[Advice]) -> Result<()> {
    if advice.is_empty() {
        return print_line!("no connection sent anything");
    }
    print(&tell::seen(advice).to_text())?;
    for it in advice {
        print_line!("{}: {}", tell::title(it), tell::recommendation(it))?;
    }
    Ok(())
}

/// Where the results go, beside what is printed.
struct Files {
    report: Option<OutputFile>,
    rules: Option<OutputFile>,
}
