use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::Ordering;

use anyhow::{Context, Result, bail};
use pillion_analysis::reproduction::{DigestedRun, Row, page, published_csv, summary_table, which};
use pillion_lab::reproduction::{PUBLISHED, digest, row};
use pillion_lab::store::{Maker, Making};
use pillion_report::Fact;
use pillion_settings::BadInput;
use pillion_settings::experiment::{self, Experiment, Extent, Planned};

use super::board::Board;
use super::machine::MachineArgs;
use super::run::Campaign;
use super::run::in_kernel::Kernels;
use crate::exit::one_line;
use crate::output_file::OutputFile;
use crate::print::{print, print_line, say_line};
use crate::stop;

/// Reproduce published experiments, and set every number beside ours
///
/// Makes the runs of the published experiments on the virtual engine, as far as asked for, reads
/// their traces, judges each published number, and writes a report with the figures. Runs that are
/// there are not made again; an interrupted reproduction goes on where it was.
///
/// Verdicts: `near`, it holds on the kernel of today; `changed`, it does not, but where something
/// is as it was then, which the report names; `miss`, neither; `undecided`, more seeds would tell.
/// docs/reproduction.md has the rest.
#[derive(clap::Args)]
pub struct Args {
    /// Which experiments, or files of your own that reproduce something [default: all published]
    #[arg(value_name = "EXPERIMENT|FILE")]
    names: Vec<String>,

    /// Make a first look, within minutes: fewer seeds, shorter runs
    #[arg(long, conflicts_with = "full")]
    quick: bool,

    /// Make all that the papers varied, for as long as they did; hours
    #[arg(long)]
    full: bool,

    /// Where runs are kept
    #[arg(long, value_name = "FOLDER", default_value = "pillion-runs")]
    store: PathBuf,

    /// The report, one HTML file that needs nothing else
    #[arg(long, value_name = "FILE", default_value = "pillion-reproduction.html")]
    report: PathBuf,

    /// Write each figure as SVG, and the numbers of figures and tables as CSV, into a folder as well
    #[arg(long, value_name = "FOLDER")]
    figures: Option<PathBuf>,

    /// Make no runs, and judge by those that are there
    #[arg(long)]
    no_runs: bool,

    /// List the experiments instead, with the number of runs and how long they send
    #[arg(long)]
    list: bool,

    /// Runs at a time [default: one for each processor core]
    #[arg(long, value_name = "N")]
    jobs: Option<NonZeroUsize>,

    #[command(flatten)]
    machine: MachineArgs,
}

/// Columns of the summary that a terminal has room for; the report has the others.
const IN_TERMINAL: usize = 5;

/// An experiment, and where its runs are.
struct Chosen {
    name: String,
    /// Its file.
    text: String,
    experiment: Experiment,
    folder: PathBuf,
}

impl Args {
    pub fn execute(self) -> Result<ExitCode> {
        let chosen = self.chosen()?;
        if self.list {
            for it in &chosen {
                let runs = &it.experiment.runs;
                let seconds: f64 = runs.iter().map(|it| it.plan.duration.as_secs_f64()).sum();
                let title = it.experiment.title.as_deref().unwrap_or_default();
                let (name, count) = (&it.name, runs.len());
                print_line!("{name}: {title}; {count} runs, {seconds:.0} s")?;
            }
            return Ok(ExitCode::SUCCESS);
        }
        // What cannot be written is said before hours of work.
        let file = OutputFile::to("--report", &self.report)?;
        if let Some(folder) = &self.figures {
            fs::create_dir_all(folder)
                .with_context(|| format!("write --figures {}", folder.display()))?;
        }
        let whole = self.no_runs || self.make_runs(&chosen)?;
        let mut makers = BTreeSet::new();
        let rows = chosen.iter().map(|it| it.row(&mut makers));
        let rows: Vec<Row> = rows.collect::<Result<_>>()?;
        for row in &rows {
            for (doubt, runs) in row.doubts() {
                say_line!("pillion: {}: {runs}: doubtful: {doubt}", row.name);
            }
        }
        print(&summary_table(&rows).narrowed(IN_TERMINAL).to_text(false))?;
        for it in rows.iter().flat_map(Row::tables) {
            print(&format!("\n  {}\n{}", it.title, it.table.to_text(false)))?;
        }
        file.write(&page(&rows, method(&chosen, &makers)).to_html())?;
        if let Some(folder) = &self.figures {
            let count = write_figures(&rows, folder)?;
            print_line!("figures: {count} in {}", folder.display())?;
        }
        print_line!("report: {}", file.name().display())?;
        Ok(ExitCode::from(u8::from(!whole)))
    }

    fn chosen(&self) -> Result<Vec<Chosen>> {
        let names = match self.names.is_empty() {
            true => PUBLISHED.iter().map(|it| it.name.to_owned()).collect(),
            false => self.names.clone(),
        };
        let chosen: Vec<Chosen> = names
            .iter()
            .map(|name| self.choose(name))
            .collect::<Result<_>>()?;
        let mut known = BTreeSet::new();
        match chosen.iter().find(|it| !known.insert(&it.name)) {
            Some(Chosen { name, .. }) => Err(BadInput(format!(
                "two of these are called `{name}`, and runs and figures are kept by name; leave one out, or give its file another name"
            ))
            .into()),
            None => Ok(chosen),
        }
    }

    fn choose(&self, name: &str) -> Result<Chosen> {
        let (extent, part) = match (self.quick, self.full) {
            (true, _) => (Extent::Quick, "quick"),
            (_, true) => (Extent::Full, "full"),
            _ => (Extent::Default, "default"),
        };
        let path = Path::new(name);
        let published = PUBLISHED.iter().find(|it| it.name == name);
        let (name, place, text, experiment) = match published {
            Some(it) => {
                let text = it.text.to_owned();
                (name.to_owned(), name.to_owned(), text, it.load(extent)?)
            }
            None if path.is_file() => {
                let text = fs::read_to_string(path).with_context(|| format!("read {name}"))?;
                let stem = path.file_stem().unwrap_or_default().to_string_lossy();
                // Of a published experiment by that name, its runs must not take the place.
                let place = format!("{stem}.toml");
                let experiment = experiment::load_part(path, extent)?;
                (stem.into_owned(), place, text, experiment)
            }
            None => {
                let known: Vec<_> = PUBLISHED.iter().map(|it| it.name).collect();
                let mistake = format!(
                    "no published experiment, and no file, is called `{name}`; there are {}",
                    known.join(", ")
                );
                return Err(BadInput(mistake).into());
            }
        };
        // What says nothing to be judged is told before hours of work.
        row(&name, &experiment, Vec::new())?;
        Ok(Chosen {
            folder: self.store.join(place).join(part),
            name,
            text,
            experiment,
        })
    }

    /// Makes the runs that are not there; whether all are then.
    fn make_runs(&self, chosen: &[Chosen]) -> Result<bool> {
        let kernels = Kernels::new(&self.machine, self.jobs)?;
        let stop = stop::on_signal()?;
        let mut whole = true;
        for it in chosen {
            let making = Making::begin(&it.folder, &it.text)?;
            let _held = making.hold()?;
            let maker = |planned: &Planned| kernels.maker(planned);
            let missing = making.missing(&it.experiment.runs, maker)?;
            if !missing.is_empty() {
                let (to_make, all) = (missing.len(), it.experiment.runs.len());
                say_line!("pillion: {}: {to_make} of {all} runs to make", it.name);
            }
            let board = Board::new(&missing);
            // It is kept in a file; what keeps it from being made is said when it is read.
            let keep = |planned: &Planned| {
                if let Ok(Some(run)) = making.made(planned) {
                    let _ = digest(&run, planned);
                }
            };
            let campaign = Campaign {
                folder: &it.folder,
                board: &board,
                stop: &stop,
                after: &keep,
            };
            let made = kernels.make_all(&missing, &campaign);
            board.finish();
            if stop.load(Ordering::Relaxed) {
                bail!("stopped; the same command goes on where it was");
            }
            let mut failed = BTreeMap::<String, Vec<&str>>::new();
            for (planned, result) in missing.iter().zip(made) {
                if let Err(error) = result {
                    let runs = failed.entry(one_line(&error)).or_default();
                    runs.push(&planned.name);
                }
            }
            whole &= failed.is_empty();
            for (error, runs) in failed {
                let which = which(&runs);
                say_line!("pillion: {}: {which}: {error}", it.name);
            }
        }
        Ok(whole)
    }
}

impl Chosen {
    /// What was run, judged; and what made it.
    fn row(&self, makers: &mut BTreeSet<Maker>) -> Result<Row> {
        let making = Making::of(&self.folder);
        let mut digested = Vec::new();
        for planned in &self.experiment.runs {
            if let Some(run) = making.made(planned)? {
                makers.insert(run.maker()?);
                let digest = digest(&run, planned)?;
                let name = planned.name.clone();
                digested.push(DigestedRun { name, digest });
            }
        }
        Ok(row(&self.name, &self.experiment, digested)?)
    }
}

/// Each figure as SVG and as CSV, by the experiment's name and a number; how many there are. Each
/// table as CSV, and all published numbers in `published.csv`.
fn write_figures(rows: &[Row], folder: &Path) -> Result<usize> {
    let file = folder.join("published.csv");
    fs::write(&file, published_csv(rows)).with_context(|| format!("write {}", file.display()))?;
    let mut count = 0;
    for row in rows {
        for (number, figure) in (1..).zip(row.figures()) {
            for (end, text) in [("svg", figure.to_svg()), ("csv", figure.to_csv())] {
                let file = folder.join(format!("{}-{number}.{end}", row.name));
                fs::write(&file, text).with_context(|| format!("write {}", file.display()))?;
            }
            count += 1;
        }
        for (number, table) in (1..).zip(row.tables()) {
            let file = folder.join(format!("{}-table-{number}.csv", row.name));
            fs::write(&file, table.csv).with_context(|| format!("write {}", file.display()))?;
        }
    }
    Ok(count)
}

fn method(chosen: &[Chosen], makers: &BTreeSet<Maker>) -> Vec<Fact> {
    let text = "Linux of today in virtual time, TCP as it is; where stated, with mechanisms of then \
                (docs/mechanisms.md). Numbers are means over seeds, intervals of 95 % by Student's t";
    let mut facts = vec![Fact::new("engine", text)];
    facts.extend(makers.iter().map(|it| {
        let kernel = it.lab_kernel.as_deref().unwrap_or("none of pillion's");
        let by = format!("pillion {}, lab kernel {kernel}", it.version);
        Fact::new("made by", by)
    }));
    facts.extend(chosen.iter().map(|it| Fact::verbatim(&*it.name, &*it.text)));
    facts
}
