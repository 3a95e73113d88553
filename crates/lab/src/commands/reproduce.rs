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
use pillion_cli::print::{print, print_line};
use pillion_cli::settings::BadInput;
use pillion_cli::stop;
use pillion_lab::analysis::reproduction::{
    ExperimentResult, files, page, runs_text, summary_table,
};
use pillion_lab::campaign::Campaign;
use pillion_lab::reproduction::{PUBLISHED, SelectedExperiment};
use pillion_lab::settings::experiment::{PlannedRun, RunScale, Selector};
use pillion_lab::store::{BatchFolder, Provenance};
use pillion_stats::report::Fact;

use super::boot::MachineArgs;
use super::progress_display::ProgressDisplay;
use super::store::StoreArgs;

/// Repeat published experiments and check each published statement
///
/// Makes the runs of the published experiments on the virtual engine, reads their traces, checks
/// each claim, and writes a report with the figures. Existing runs are reused, so an interrupted
/// reproduction continues with the same command.
///
/// Verdicts: `near`, the claim holds on the current kernel; `changed`, it holds only under a
/// condition that is documented for the published set-up; `hypothesis`, it holds only under an
/// undocumented condition; `miss`, none of these; `undecided`, more seeds are needed.
/// docs/evidence/reproduction.md has more.
#[derive(clap::Args)]
pub struct Args {
    /// Names of published experiments, or experiment files with [reproduction] [default: all
    /// published]
    #[arg(value_name = "EXPERIMENT|FILE")]
    names: Vec<String>,

    /// Make a few short runs, for first results within minutes
    #[arg(long, conflicts_with = "full")]
    quick: bool,

    /// Make all runs that the papers varied, at full length; takes hours
    #[arg(long)]
    full: bool,

    /// Make only the runs whose names have these parts, as in `length=2-h,seed=1`; may be repeated.
    /// All existing runs are judged
    #[arg(long, value_name = "RUNS", conflicts_with = "no_runs")]
    only: Vec<Selector>,

    #[command(flatten)]
    store: StoreArgs,

    /// Write the report to FILE, as self-contained HTML
    #[arg(long, value_name = "FILE", default_value = "pillion-reproduction.html")]
    html: PathBuf,

    /// Also write each figure as SVG, and its numbers as CSV, to FOLDER
    #[arg(long, value_name = "FOLDER")]
    figures: Option<PathBuf>,

    /// Make no runs; judge the existing ones
    #[arg(long)]
    no_runs: bool,

    /// List the experiments, with the number of runs and their total time of sending
    #[arg(long)]
    list: bool,

    /// Concurrent runs [default: one per processor core]
    #[arg(long, value_name = "N")]
    jobs: Option<NonZeroUsize>,

    #[command(flatten)]
    machine: MachineArgs,
}

impl Args {
    pub fn execute(self) -> Result<ExitCode> {
        let selected = self.selected()?;
        if self.list {
            for it in &selected {
                let title = it.experiment.title.as_deref().unwrap_or_default();
                let (name, count) = (&it.name, it.requested_runs.len());
                let seconds = it.sending_time_s();
                print_line!("{name}: {title}; {count} runs, {seconds:.0} s")?;
            }
            return Ok(ExitCode::SUCCESS);
        }
        // Check the output before hours of work.
        let file = OutputFile::page("--html", &self.html)?;
        if let Some(folder) = &self.figures {
            let failed = || format!("write --figures {}", folder.display());
            fs::create_dir_all(folder).with_context(failed)?;
            access(folder, AccessFlags::W_OK).with_context(failed)?;
        }
        let stop = stop::on_signal()?;
        let is_complete = self.no_runs || self.make_runs(&selected, &stop)?;
        let (mut results, mut provenances) = (Vec::new(), BTreeSet::new());
        for it in &selected {
            check_interrupt(&stop)?;
            let (result, made_by) = it.judge()?;
            results.push(result);
            provenances.extend(made_by);
        }
        for result in &results {
            for (warning, runs) in result.warnings() {
                log::warn!("{}: {runs}: {warning}", result.name);
            }
        }
        print(&summary_table(&results).to_text())?;
        for it in results.iter().flat_map(ExperimentResult::tables) {
            print(&format!("\n  {}\n{}", it.title, it.table.to_text()))?;
        }
        file.write(&page(&results, method(&selected, &provenances)).to_html())?;
        if let Some(folder) = &self.figures {
            let count = write_figures(&results, folder)?;
            print_line!("figures: {count} in {}", folder.display())?;
        }
        print_line!("report: {}", file.name().display())?;
        Ok(ExitCode::from(u8::from(!is_complete)))
    }

    fn selected(&self) -> Result<Vec<SelectedExperiment>> {
        let names = match self.names.is_empty() {
            true => PUBLISHED.iter().map(|it| it.name.to_owned()).collect(),
            false => self.names.clone(),
        };
        let selected: Vec<SelectedExperiment> = names
            .iter()
            .map(|name| SelectedExperiment::find(name, self.scale(), self.store.folder()))
            .collect::<Result<_, _>>()?;
        let mut known = BTreeSet::new();
        match selected.iter().find(|it| !known.insert(&it.name)) {
            Some(SelectedExperiment { name, .. }) => Err(BadInput(format!(
                "duplicate name `{name}`: runs and figures are stored by name; remove one, or rename its file"
            ))
            .into()),
            None => self.apply_only(selected),
        }
    }

    fn apply_only(&self, mut selected: Vec<SelectedExperiment>) -> Result<Vec<SelectedExperiment>> {
        for only in &self.only {
            let mut runs = selected.iter().flat_map(|it| &it.experiment.runs);
            let example = runs
                .clone()
                .next()
                .map_or("", |planned| planned.name.as_str());
            if only.parts().is_empty() || !runs.any(|planned| only.matches(&planned.name)) {
                return Err(BadInput(format!(
                    "--only `{only}` matches no run of this scale; give parts of a name such as `{example}`"
                ))
                .into());
            }
        }
        if !self.only.is_empty() {
            selected
                .iter_mut()
                .for_each(|it| it.retain_requested(&self.only));
        }
        Ok(selected)
    }

    fn scale(&self) -> RunScale {
        match (self.quick, self.full) {
            (true, _) => RunScale::Quick,
            (_, true) => RunScale::Full,
            _ => RunScale::Default,
        }
    }

    /// Makes the missing runs; returns whether all exist now.
    fn make_runs(&self, selected: &[SelectedExperiment], stop: &Arc<AtomicBool>) -> Result<bool> {
        let kernels = self.machine.kernels(self.jobs)?;
        let mut is_complete = true;
        for it in selected.iter().filter(|it| !it.requested_runs.is_empty()) {
            let (batch, _held) = BatchFolder::open_locked(it.batch.folder(), &it.text)?;
            let provenance = |planned: &PlannedRun| kernels.provenance(planned);
            let missing = batch.missing(&it.requested_runs, provenance)?;
            if !missing.is_empty() {
                let (requested_runs, all) = (missing.len(), it.requested_runs.len());
                log::info!("{}: {requested_runs} of {all} runs to make", it.name);
            }
            let progress_display = ProgressDisplay::new(&missing);
            let campaign = Campaign {
                version: VERSION,
                folder: batch.folder(),
                progress: &progress_display,
                stop,
                after: &|planned| it.cache_measures(planned),
            };
            let made = kernels.make_all(&missing, &campaign);
            progress_display.finish();
            check_interrupt(stop)?;
            let mut failed = BTreeMap::<String, Vec<&str>>::new();
            for (planned, result) in missing.iter().zip(made) {
                if let Err(error) = result {
                    let runs = failed.entry(one_line(&error.into())).or_default();
                    runs.push(planned.name.as_str());
                }
            }
            is_complete &= failed.is_empty();
            for (error, runs) in failed {
                let runs_text = runs_text(&runs);
                log::error!("{}: {runs_text}: {error}", it.name);
            }
        }
        Ok(is_complete)
    }
}

fn check_interrupt(stop: &AtomicBool) -> Result<()> {
    match stop.load(Ordering::Relaxed) {
        true => bail!("interrupted; the same command continues"),
        false => Ok(()),
    }
}

/// Writes figures and numbers to a folder; returns the number of figures.
fn write_figures(results: &[ExperimentResult], folder: &Path) -> Result<usize> {
    let mut figures = 0;
    for (name, text) in files(results) {
        figures += usize::from(name.ends_with(".svg"));
        OutputFile::to("--figures", &folder.join(name))?.write(&text)?;
    }
    Ok(figures)
}

fn method(selected: &[SelectedExperiment], provenances: &BTreeSet<Provenance>) -> Vec<Fact> {
    let text = "Current Linux in virtual time; where stated, with older mechanisms (docs/lab/kernel.md). \
                Numbers are means over seeds, with 95 % intervals by Student's t";
    let mut facts = vec![Fact::new("engine", text)];
    facts.extend(provenances.iter().map(|it| {
        let kernel = it.lab_kernel.as_deref().unwrap_or("none");
        let by = format!("pillion {}, lab kernel {kernel}", it.version);
        Fact::new("made by", by)
    }));
    facts.extend(
        selected
            .iter()
            .map(|it| Fact::verbatim(&*it.name, &*it.text)),
    );
    facts
}
