//! `pillion advise`: observes connections without bundling, and estimates what bundling would save.

use std::collections::HashMap;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Result;
use pillion_bpf::host::{Cache, SocketOwner, socket_owners};
use pillion_bpf::{AssignBy, Observation, Observing};
use pillion_cli::output_file::OutputFile;
use pillion_cli::print::{print, print_json, print_line};
use pillion_cli::settings::BadInput;
use pillion_stats::measure::{Unit, share};
use pillion_stats::report::{Axis, Column, Fact, Figure, Line, Page, Table, number};
use serde_json::json;

use super::rules_file::rules_file;
use super::{ObserveArgs, Progress, Session};
use crate::args::BundlingArgs;
use crate::observe::rules_file::process_name;
use crate::trial::{
    Advice, AdviceKind, ConnectionGroups, ObservedConnection, Service, estimate_text,
};

/// Estimate what bundling would save, without bundling
///
/// Observes connections of this network namespace (or --netns): how long segments waited for their
/// ACK, what was lost, how TCP repaired it, and which bundles would have repaired it. At the end
/// (Ctrl-C or --duration) it prints advice for each process and service, with the savings, the cost
/// and intervals of 95 % confidence. docs/evidence/advice-model.md describes the model and its
/// limits.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    observe: ObserveArgs,

    /// Report each peer separately
    #[arg(long)]
    by_peer: bool,

    /// Write rules for the worthwhile services to FILE, for `pillion attach --config`
    #[arg(long, value_name = "FILE")]
    write_config: Option<PathBuf>,

    #[command(flatten)]
    bundling: BundlingArgs,
}

impl Args {
    pub fn execute(self) -> Result<ExitCode> {
        if !self.bundling.how.tcp_options.is_empty() {
            let reason = "advise changes no connections: remove the TCP options, such as --nodelay";
            return Err(BadInput(reason.to_owned()).into());
        }
        self.bundling.options()?;
        let rules = self.write_config.as_deref();
        let rules = rules.map(|file| OutputFile::to("--write-config", file));
        let files = OutputFiles {
            report: self.observe.report()?,
            rules: rules.transpose()?,
        };
        let observing = Observing {
            bundled_ppm: Some(0),
            key: [0; 2],
            assign_by: AssignBy::Peer,
            grace_us: self.observe.grace,
            stall_us: self.observe.stall,
        };
        let duration = self.observe.duration;
        let mut session = Session::start(
            &self.observe,
            &self.bundling,
            observing,
            duration,
            "observing",
        )?;
        let started_at = Instant::now();
        let mut collector = Collector::new(self.by_peer);
        let session_result = loop {
            match session.wait() {
                Ok((progress, observations)) => {
                    collector.update(observations);
                    if progress != Progress::Continue {
                        break Ok(());
                    }
                }
                Err(reason) => break Err(reason),
            }
        };
        let elapsed = started_at.elapsed();
        let stats_written = session.finish();
        let reported = self.report_results(&collector.groups(), elapsed, &files);
        // Results are printed even if the session or its statistics failed.
        session_result.and(stats_written).and(reported)?;
        Ok(ExitCode::SUCCESS)
    }

    fn report_results(
        &self,
        groups: &ConnectionGroups,
        elapsed: Duration,
        files: &OutputFiles,
    ) -> Result<()> {
        let advice = groups.advise();
        let connections: u64 = advice.iter().map(|it| it.summary.connections).sum();
        let rules_file = rules_file(&advice, &self.bundling.how, &self.observe.conditions())?;
        let rules_file = rules_file.as_deref();
        let printed = match self.observe.json {
            true => print_json(&json!({
                "observed_s": elapsed.as_secs_f64(), "connections": connections,
                "left_out": groups.left_out(), "advice": advice, "config": rules_file,
            })),
            false => print_advice(&advice),
        };
        if groups.left_out() > 0 {
            log::warn!(
                "{} left out of the results: too many peers and services; select fewer with \
                 --port or --peer",
                number::counted(groups.left_out(), "connection")
            );
        }
        let report = files.report.as_ref();
        let reported = report.map_or(Ok(()), |file| {
            file.write(&page(&advice, elapsed, rules_file).to_html())
        });
        let rules_written = self.output_rules(rules_file, files.rules.as_ref(), advice.is_empty());
        printed.and(reported).and(rules_written)
    }

    /// Writes the rules to the file of `--write-config`, or prints them.
    fn output_rules(
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
                    print_line!("no rules written: no connection would benefit")?;
                }
                match file.as_ref().filter(|it| it.exists()) {
                    Some(file) => print_line!("{} unchanged", file.display()),
                    None => Ok(()),
                }
            }
        }
    }
}

fn print_advice(advice: &[Advice]) -> Result<()> {
    if advice.is_empty() {
        return print_line!("no connection sent data");
    }
    print(&observations_table(advice).to_text())?;
    for it in advice {
        print_line!("{}: {}", title(it), advice_text(it))?;
    }
    Ok(())
}

/// Files of `--html` and `--write-config`.
struct OutputFiles {
    report: Option<OutputFile>,
    rules: Option<OutputFile>,
}

// Collected observations.

/// Observations so far, with the processes of the connections.
pub struct Collector {
    ended: ConnectionGroups,
    present: Vec<Observation>,
    owners: Cache<SocketOwner>,
    /// Process names by socket cookie, because the owner of a closed socket cannot be found.
    processes: HashMap<u64, String>,
}

impl Collector {
    pub fn new(by_peer: bool) -> Self {
        Self {
            ended: ConnectionGroups::new(by_peer),
            present: Vec::new(),
            owners: Cache::default(),
            processes: HashMap::new(),
        }
    }

    pub fn update(&mut self, observations: Vec<Observation>) {
        let (ended, present) = observations
            .into_iter()
            .partition(|observation| observation.has_ended);
        self.present = present;
        self.update_owners();
        let ended: Vec<Observation> = ended;
        for observation in &ended {
            self.ended.extend([self.observed(observation)]);
            self.processes.remove(&observation.cookie);
        }
    }

    fn update_owners(&mut self) {
        let inodes = self
            .present
            .iter()
            .filter_map(|observation| observation.inode);
        self.owners
            .refresh(&inodes.collect::<Vec<_>>(), socket_owners);
        for observation in &self.present {
            let owner = observation.inode.and_then(|inode| self.owners.get(inode));
            if let Some(owner) = owner {
                let process = self.processes.entry(observation.cookie);
                process.or_insert_with(|| owner.process.clone());
            }
        }
    }

    fn observed(&self, observation: &Observation) -> ObservedConnection {
        ObservedConnection {
            process: self.processes.get(&observation.cookie).cloned(),
            service: Service::of(observation),
            guessed: observation.direction.is_none(),
            peer: observation.peer.ip(),
            summary: observation.into(),
        }
    }

    /// Returns all connections, closed and open, in groups.
    pub fn groups(&self) -> ConnectionGroups {
        let mut all = self.ended.clone();
        all.extend(
            self.present
                .iter()
                .map(|observation| self.observed(observation)),
        );
        all
    }
}

// Advice as text, tables and page.

pub fn title(advice: &Advice) -> String {
    let service = match advice.service {
        Service::Local(port) => format!("port {port} here"),
        Service::Remote(port) => format!("port {port} of the peer"),
    };
    let guess = if advice.guessed { " (a guess)" } else { "" };
    let peer = advice
        .peer
        .map(|peer| format!(", {peer}"))
        .unwrap_or_default();
    format!(
        "{}, {service}{guess}{peer}",
        process_name(advice.process.as_deref())
    )
}

/// Returns the advice in words, TCP options included.
fn advice_text(advice: &Advice) -> String {
    recommendation(advice) + &nagle_clause(advice) + &rto_min_clause(advice)
}

/// Returns the advice on bundling in words, with its reasons.
fn recommendation(advice: &Advice) -> String {
    let all = &advice.summary;
    let losses = all.lost.saturating_sub(all.spurious);
    match advice.kind {
        AdviceKind::Bundle => format!(
            "bundle it: bundles and copies would have repaired {} of {losses} losses; a message would have \
             waited {} ms less on average, for {} more bytes{}",
            estimate_text(advice.repairable, Unit::Share),
            estimate_text(advice.time_saved_ms, Unit::Milliseconds),
            estimate_text(advice.added, Unit::Share),
            copies_clause(advice),
        ),
        AdviceKind::TooFewSegments => format!(
            "too few segments ({}); observe for longer",
            number::count(all.segments)
        ),
        AdviceKind::TooFewLosses => format!(
            "too few losses ({losses} in {} segments); observe for longer, or run `pillion trial`",
            number::count(all.segments)
        ),
        AdviceKind::TooFewConnections => format!(
            "too few connections ({}): bundles and copies would have repaired {} of their {losses} losses; \
             observe for longer, or run `pillion trial`",
            all.connections,
            estimate_text(advice.repairable, Unit::Share),
        ),
        AdviceKind::NotThin => {
            "do not bundle it: too much is in flight, so TCP repairs losses soon (not thin)"
                .to_owned()
        }
        AdviceKind::NothingOutstanding => format!(
            "do not bundle it: each message was acknowledged before the next was sent, so nothing \
             could have been bundled; level auto, the default, copies such messages more than 105 ms apart{}",
            copies_clause(advice),
        ),
        AdviceKind::NoRoom => {
            "do not bundle it: its messages leave no room in a segment (the MSS) for a previous one"
                .to_owned()
        }
        AdviceKind::NoSack => {
            "do not bundle it: the peers do not offer SACK, so losses can only be guessed; \
             --without-sack observes and bundles anyway"
                .to_owned()
        }
        AdviceKind::Ineligible => {
            "no result: none of its segments was eligible, for example because another pillion \
             bundles them; see the outcomes in the file of --stats"
                .to_owned()
        }
        AdviceKind::LittleToRepair => format!(
            "do not bundle it: bundles and copies would have repaired only {} of {losses} losses{}",
            estimate_text(advice.repairable, Unit::Share),
            copies_clause(advice),
        ),
    }
}

/// Returns the waits for Nagle's algorithm as a clause, with the remedy.
fn nagle_clause(advice: &Advice) -> String {
    if !advice.nodelay {
        return String::new();
    }
    format!(
        "; messages waited {} ms on average for Nagle's algorithm: give `pillion attach` --nodelay",
        estimate_text(advice.nagle_ms, Unit::Milliseconds)
    )
}

/// Returns the waits for the retransmission timer as a clause, with the remedy.
fn rto_min_clause(advice: &Advice) -> String {
    let Some(rto_min) = advice.rto_min else {
        return String::new();
    };
    format!(
        "; messages waited {} ms on average for the retransmission timer: `pillion attach` \
         --rto-min {}ms would have saved {} ms, and retransmitted {} of the segments needlessly",
        estimate_text(Some(rto_min.timer_ms), Unit::Milliseconds),
        rto_min.min_ms,
        estimate_text(Some(rto_min.saved_ms), Unit::Milliseconds),
        estimate_text(Some(rto_min.needless), Unit::Share),
    )
}

/// Returns the savings of a copy of each segment as a clause, if these are larger.
fn copies_clause(advice: &Advice) -> String {
    let [copies_ms, saved_ms] =
        [advice.copies_time_saved_ms, advice.time_saved_ms].map(|it| it.map_or(0.0, |it| it.value));
    if copies_ms <= saved_ms {
        return String::new();
    }
    format!(
        "; {} ms less at most with a copy of each segment, for twice the packets",
        estimate_text(advice.copies_time_saved_ms, Unit::Milliseconds)
    )
}

/// Returns the table of observations. The model's results are too wide for a terminal, so they are
/// part of the advice.
pub fn observations_table(advice: &[Advice]) -> Table {
    let mut table = Table::new(
        "Observations, longest waiting first",
        [
            Column::left("process and service"),
            Column::right("connections"),
            Column::right("segments"),
            Column::right("p50").unit("ms"),
            Column::right("p99").unit("ms"),
            Column::right("late"),
            Column::right("lost"),
            Column::right("time-outs"),
            Column::right("probes"),
        ],
    );
    for it in advice {
        let all = &it.summary;
        table.row([
            title(it),
            number::count(all.connections),
            number::count(all.segments),
            number::millis(all.latencies.quantile_ms(0.5)),
            number::millis(all.latencies.quantile_ms(0.99)),
            number::percent(share(all.late, all.segments)),
            number::percent(it.loss.map(|loss| loss.value)),
            number::count(all.timeouts),
            number::count(all.probes),
        ]);
    }
    table
}

/// Returns the table of the model's results, with intervals.
fn model_table(advice: &[Advice]) -> Table {
    let mut table = Table::new(
        "Estimated effect of bundling, with intervals of 95 % confidence",
        [
            Column::left("process and service"),
            Column::right("lost"),
            Column::right("repairable"),
            Column::right("saved").unit("ms per message"),
            Column::right("saved by copies, at most").unit("ms per message"),
            Column::right("bytes added"),
        ],
    );
    for it in advice {
        table.row([
            title(it),
            estimate_text(it.loss, Unit::Share),
            estimate_text(it.repairable, Unit::Share),
            estimate_text(it.time_saved_ms, Unit::Milliseconds),
            estimate_text(it.copies_time_saved_ms, Unit::Milliseconds),
            estimate_text(it.added, Unit::Share),
        ]);
    }
    table
}

/// Maximum number of lines in the figure.
const MAX_FIGURE_LINES: usize = 6;

pub fn page(advice: &[Advice], elapsed: Duration, rules_file: Option<&str>) -> Page {
    let lines = advice.iter().take(MAX_FIGURE_LINES);
    let lines = lines.map(|it| Line::step(title(it), it.summary.latencies.cumulative()));
    let figure = Figure {
        title: "ACK latency".to_owned(),
        caption:
            "Share of segments that were acknowledged within this time, by process and service."
                .to_owned(),
        x: Axis::log("ACK latency", "ms"),
        y: Axis {
            min: Some(0.0),
            max: Some(1.0),
            ..Axis::linear("share of segments", "")
        },
        side: None,
        lines: lines.collect(),
    };
    let mut advice_table = Table::new(
        "Advice",
        [
            Column::left("process and service").wrapped(30),
            Column::left("advice").wrapped(80),
        ],
    );
    for it in advice {
        advice_table.row([title(it), advice_text(it)]);
    }
    let count = |of: fn(&&Advice) -> bool| advice.iter().filter(of).count();
    let mut method = vec![Fact::new(
        "observed",
        format!(
            "{} s; nothing was bundled",
            number::count(elapsed.as_secs())
        ),
    )];
    method
        .extend(rules_file.map(|text| Fact::verbatim("rules for `pillion attach --config`", text)));
    Page {
        title: "Estimated benefit of bundling".to_owned(),
        lead: format!(
            "Of {}, bundling would help {}, and TCP options {}.",
            number::counted(advice.len() as u64, "observed service"),
            count(|it| it.kind == AdviceKind::Bundle),
            count(|it| !it.tcp_options().is_empty()),
        ),
        parts: vec![
            advice_table.into(),
            observations_table(advice).into(),
            model_table(advice).into(),
            figure.into(),
        ],
        method,
        data: json!({ "advice": advice }),
    }
}
