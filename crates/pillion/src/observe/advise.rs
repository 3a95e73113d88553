//! `pillion advise`: connections are watched, and what bundling would have brought them is told.

use std::collections::HashMap;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Result;
use pillion_bpf::host::{Known, SocketOwner, socket_owners};
use pillion_bpf::{DrawBy, Observation, Observing};
use pillion_cli::output_file::OutputFile;
use pillion_cli::print::{print, print_json, print_line, say_line};
use pillion_cli::settings::BadInput;
use pillion_stats::measure::{Unit, share};
use pillion_stats::report::{Axis, Column, Fact, Figure, Line, Page, Table, number};
use serde_json::json;

use super::config::config;
use super::{Next, ObserveArgs, Session};
use crate::args::BundlingArgs;
use crate::observe::config::name;
use crate::observe::estimate;
use crate::trial::{Advice, Finding, Gathered, Service, Watched};

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
            file.write(&page(&advice, elapsed, config).to_html())
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
    print(&seen(advice).to_text())?;
    for it in advice {
        print_line!("{}: {}", title(it), recommendation(it))?;
    }
    Ok(())
}

/// Where the results go, beside what is printed.
struct Files {
    report: Option<OutputFile>,
    rules: Option<OutputFile>,
}

// Observations so far, and the owners of the connections.

/// What was observed so far, and whose the connections are.
pub struct Watch {
    ended: Gathered,
    present: Vec<Observation>,
    owners: Known<SocketOwner>,
    /// The processes' names, by the sockets' cookies: who had one that has ended is not to be found.
    processes: HashMap<u64, String>,
}

impl Watch {
    pub fn new(by_peer: bool) -> Self {
        Self {
            ended: Gathered::new(by_peer),
            present: Vec::new(),
            owners: Known::default(),
            processes: HashMap::new(),
        }
    }

    pub fn take(&mut self, observations: Vec<Observation>) {
        let (ended, present) = observations.into_iter().partition(|seen| seen.has_ended);
        self.present = present;
        self.find_owners();
        let ended: Vec<Observation> = ended;
        for seen in &ended {
            self.ended.extend([self.watched_of(seen)]);
            self.processes.remove(&seen.cookie);
        }
    }

    fn find_owners(&mut self) {
        let inodes = self.present.iter().filter_map(|seen| seen.inode);
        self.owners.look(&inodes.collect::<Vec<_>>(), socket_owners);
        for seen in &self.present {
            let owner = seen.inode.and_then(|inode| self.owners.of(inode));
            if let Some(owner) = owner {
                let process = self.processes.entry(seen.cookie);
                process.or_insert_with(|| owner.process.clone());
            }
        }
    }

    fn watched_of(&self, seen: &Observation) -> Watched {
        Watched {
            process: self.processes.get(&seen.cookie).cloned(),
            service: Service::of(seen),
            guessed: seen.direction.is_none(),
            peer: seen.peer.ip(),
            summary: seen.into(),
        }
    }

    /// All that was watched.
    pub fn gathered(&self) -> Gathered {
        let mut all = self.ended.clone();
        all.extend(self.present.iter().map(|seen| self.watched_of(seen)));
        all
    }
}

// Advice in words, as tables and as a page.

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
        name(advice.process.as_deref())
    )
}

/// What to do, in words, with what speaks for it.
fn recommendation(advice: &Advice) -> String {
    let all = &advice.summary;
    let losses = all.lost.saturating_sub(all.needless);
    match advice.finding {
        Finding::Bundle => format!(
            "bundle it. Of {losses} losses, bundles would have repaired {}; a segment would have \
             waited {} ms less on average, for {} more bytes{}",
            estimate(advice.repairable, Unit::Share),
            estimate(advice.saved_ms, Unit::Milliseconds),
            estimate(advice.added, Unit::Share),
            copies(advice),
        ),
        Finding::TooFewSegments => format!(
            "{} segments are too few to say anything; watch for longer",
            number::count(all.segments)
        ),
        Finding::TooFewLosses => format!(
            "too few losses to say ({losses} in {} segments); watch for longer, or try it: pillion \
             trial",
            number::count(all.segments)
        ),
        Finding::TooFewConnections => format!(
            "too few connections to say ({}); of their {losses} losses, bundles would have \
             repaired {}. Watch for longer, or try it: pillion trial",
            all.connections,
            estimate(advice.repairable, Unit::Share),
        ),
        Finding::NotThin => {
            "leave it alone: it has so much in flight that TCP repairs losses soon (not thin)"
                .to_owned()
        }
        Finding::Alone => format!(
            "leave it alone: each message was acknowledged before the next was sent, so that \
             nothing could have ridden along{}",
            copies(advice),
        ),
        Finding::NoRoom => {
            "leave it alone: its messages leave no room in a segment (the MSS) for one before"
                .to_owned()
        }
        Finding::NoSack => {
            "leave it alone: the peers offer no SACK, without which losses can only be guessed; \
             --without-sack watches and bundles all the same"
                .to_owned()
        }
        Finding::Ineligible => {
            "nothing learnt: none of its segments could have had a bundle, as where another pillion \
             bundles them; the outcomes in --stats FILE say why not"
                .to_owned()
        }
        Finding::LittleToRepair => format!(
            "leave it alone: of {losses} losses, bundles would have repaired {}{}",
            estimate(advice.repairable, Unit::Share),
            copies(advice),
        ),
    }
}

/// What a copy of each segment would have brought, for one who could send them: pillion does not.
fn copies(advice: &Advice) -> String {
    if advice.summary.copies_saved_us == 0 {
        return String::new();
    }
    format!(
        "; {} ms less at most with a copy of each segment, for twice the packets",
        estimate(advice.copies_saved_ms, Unit::Milliseconds)
    )
}

/// What was seen. What the model makes of it is too wide for a terminal, and in the advice.
pub fn seen(advice: &[Advice]) -> Table {
    let mut table = Table::new(
        "What was watched, those that waited longest first",
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

/// What bundles would have made of it, with intervals.
fn model(advice: &[Advice]) -> Table {
    let mut table = Table::new(
        "What bundling would have done, with intervals of 95 % confidence",
        [
            Column::left("process and service"),
            Column::right("lost"),
            Column::right("repairable"),
            Column::right("saved").unit("ms a segment"),
            Column::right("by copies at most").unit("ms a segment"),
            Column::right("bytes added"),
        ],
    );
    for it in advice {
        table.row([
            title(it),
            estimate(it.loss, Unit::Share),
            estimate(it.repairable, Unit::Share),
            estimate(it.saved_ms, Unit::Milliseconds),
            estimate(it.copies_saved_ms, Unit::Milliseconds),
            estimate(it.added, Unit::Share),
        ]);
    }
    table
}

/// Lines that a figure has room for.
const SHOWN: usize = 6;

pub fn page(advice: &[Advice], elapsed: Duration, config: Option<&str>) -> Page {
    let lines = advice.iter().take(SHOWN);
    let lines = lines.map(|it| Line::step(title(it), it.summary.latencies.cumulative()));
    let figure = Figure {
        title: "How long segments waited to be acknowledged".to_owned(),
        caption:
            "Of each process and service, the share of segments that were acknowledged within \
                  this time."
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
    let mut words = Table::new(
        "What to do",
        [Column::left("process and service"), Column::left("advice")],
    );
    for it in advice {
        words.row([title(it), recommendation(it)]);
    }
    let worth = advice
        .iter()
        .filter(|it| it.finding == Finding::Bundle)
        .count();
    let mut method = vec![Fact::new(
        "watched",
        format!(
            "{} s; nothing was bundled",
            number::count(elapsed.as_secs())
        ),
    )];
    method.extend(config.map(|text| Fact::verbatim("rules for `pillion attach --config`", text)));
    Page {
        title: "What bundling would bring".to_owned(),
        lead: format!(
            "Of {} services watched, bundling would help {worth}, as far as the data tell.",
            advice.len()
        ),
        parts: vec![
            words.into(),
            seen(advice).into(),
            model(advice).into(),
            figure.into(),
        ],
        method,
        data: json!({ "advice": advice }),
    }
}
