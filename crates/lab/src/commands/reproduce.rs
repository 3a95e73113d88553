use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result, bail};
use nix::unistd::{AccessFlags, access};
use pillion_cli::VERSION;
use pillion_cli::exit::one_line;
use pillion_cli::output_file::OutputFile;
use pillion_cli::print::{print, print_line, say_line};
use pillion_cli::settings::BadInput;
use pillion_cli::stop;
use pillion_lab::analysis::reproduction::{Row, files, page, summary_table, which};
use pillion_lab::campaign::Campaign;
use pillion_lab::reproduction::{Chosen, PUBLISHED};
use pillion_lab::settings::experiment::{Extent, Planned, Selector};
use pillion_lab::store::{Maker, Making};
use pillion_stats::report::Fact;

use super::board::Board;
use super::boot::MachineArgs;
use super::store::StoreArgs;

/// Repeat published experiments, and compare each published number with the measured one
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

    /// Make only the runs whose names have these parts, as in `length=2-h,seed=1`; may be given
    /// several times. All that are there are judged
    #[arg(long, value_name = "RUNS", conflicts_with = "no_runs")]
    only: Vec<Selector>,

    #[command(flatten)]
    store: StoreArgs,

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

impl Args {
    pub fn execute(self) -> Result<ExitCode> {
        let chosen = self.chosen()?;
        if self.list {
            for it in &chosen {
                let title = it.experiment.title.as_deref().unwrap_or_default();
                let (name, count) = (&it.name, it.to_make.len());
                let seconds = it.sending_s();
                print_line!("{name}: {title}; {count} runs, {seconds:.0} s")?;
            }
            return Ok(ExitCode::SUCCESS);
        }
        // What cannot be written is said before hours of work.
        let file = OutputFile::page("--report", &self.report)?;
        if let Some(folder) = &self.figures {
            let failed = || format!("write --figures {}", folder.display());
            fs::create_dir_all(folder).with_context(failed)?;
            access(folder, AccessFlags::W_OK).with_context(failed)?;
        }
        let stop = stop::on_signal()?;
        let whole = self.no_runs || self.make_runs(&chosen, &stop)?;
        let (mut rows, mut makers) = (Vec::new(), BTreeSet::new());
        for it in &chosen {
            refuse_to_go_on(&stop)?;
            let (row, made_by) = it.judged()?;
            rows.push(row);
            makers.extend(made_by);
        }
        for row in &rows {
            for (doubt, runs) in row.doubts() {
                say_line!("pillion-lab: {}: {runs}: doubtful: {doubt}", row.name);
            }
        }
        print(&summary_table(&rows).narrowed(IN_TERMINAL).to_text())?;
        for it in rows.iter().flat_map(Row::tables) {
            print(&format!("\n  {}\n{}", it.title, it.table.to_text()))?;
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
            .map(|name| Chosen::find(name, self.extent(), self.store.folder()))
            .collect::<Result<_, _>>()?;
        let mut known = BTreeSet::new();
        match chosen.iter().find(|it| !known.insert(&it.name)) {
            Some(Chosen { name, .. }) => Err(BadInput(format!(
                "two of these are called `{name}`, and runs and figures are kept by name; leave one out, or give its file another name"
            ))
            .into()),
            None => self.narrowed(chosen),
        }
    }

    fn narrowed(&self, mut chosen: Vec<Chosen>) -> Result<Vec<Chosen>> {
        for only in &self.only {
            let mut runs = chosen.iter().flat_map(|it| &it.experiment.runs);
            let example = runs
                .clone()
                .next()
                .map_or("", |planned| planned.name.as_str());
            if only.parts().is_empty() || !runs.any(|planned| only.takes(&planned.name)) {
                return Err(BadInput(format!(
                    "--only `{only}` takes no run of this extent; name parts of their names, as of `{example}`"
                ))
                .into());
            }
        }
        if !self.only.is_empty() {
            chosen.iter_mut().for_each(|it| it.narrow(&self.only));
        }
        Ok(chosen)
    }

    fn extent(&self) -> Extent {
        match (self.quick, self.full) {
            (true, _) => Extent::Quick,
            (_, true) => Extent::Full,
            _ => Extent::Default,
        }
    }

    /// Makes the runs that are not there; whether all are then.
    fn make_runs(&self, chosen: &[Chosen], stop: &Arc<AtomicBool>) -> Result<bool> {
        let kernels = self.machine.kernels(self.jobs)?;
        let mut whole = true;
        for it in chosen.iter().filter(|it| !it.to_make.is_empty()) {
            let (making, _held) = Making::begin_held(it.making.folder(), &it.text)?;
            let maker = |planned: &Planned| kernels.maker(planned);
            let missing = making.missing(&it.to_make, maker)?;
            if !missing.is_empty() {
                let (to_make, all) = (missing.len(), it.to_make.len());
                say_line!("pillion-lab: {}: {to_make} of {all} runs to make", it.name);
            }
            let board = Board::new(&missing);
            let campaign = Campaign {
                version: VERSION,
                folder: making.folder(),
                progress: &board,
                stop,
                after: &|planned| it.keep_digest(planned),
            };
            let made = kernels.make_all(&missing, &campaign);
            board.finish();
            refuse_to_go_on(stop)?;
            let mut failed = BTreeMap::<String, Vec<&str>>::new();
            for (planned, result) in missing.iter().zip(made) {
                if let Err(error) = result {
                    let runs = failed.entry(one_line(&error.into())).or_default();
                    runs.push(planned.name.as_str());
                }
            }
            whole &= failed.is_empty();
            for (error, runs) in failed {
                let which = which(&runs);
                say_line!("pillion-lab: {}: {which}: {error}", it.name);
            }
        }
        Ok(whole)
    }
}

fn refuse_to_go_on(stop: &AtomicBool) -> Result<()> {
    match stop.load(Ordering::Relaxed) {
        true => bail!("stopped; the same command goes on where it was"),
        false => Ok(()),
    }
}

/// Writes figures and numbers into a folder; how many figures there are.
fn write_figures(rows: &[Row], folder: &Path) -> Result<usize> {
    let mut figures = 0;
    for (name, text) in files(rows) {
        figures += usize::from(name.ends_with(".svg"));
        OutputFile::to("--figures", &folder.join(name))?.write(&text)?;
    }
    Ok(figures)
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
