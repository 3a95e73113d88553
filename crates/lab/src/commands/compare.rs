use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Result;
use pillion_cli::output_file::OutputFile;
use pillion_cli::print::{print, print_json, print_line};
use pillion_cli::settings::BadInput;
use pillion_lab::analysis::runs::{
    CompareError, Comparison, DELIVERY_LATENCY, Label, Pool, all_values_table, compare,
    comparison_page, differences_table, measure, pools, values_table,
};
use pillion_lab::store::{RunState, StoreEntry, StoredRun};

use super::store::StoreArgs;

/// Compare the variants of an experiment, with confidence intervals
///
/// Runs that differ only in their seed are combined. At each point of the experiment's grid, each
/// variant is compared with the baseline, group by group: the difference of each measure, with its
/// 95 % confidence interval. Intervals are a bootstrap over seeds and, within each run, over
/// streams. The same runs always give the same intervals.
///
/// Delivery latency is from one application's write to the other one's read, per message, and needs
/// runs with records. docs/lab/overview.md describes each measure.
#[derive(clap::Args)]
pub struct Args {
    /// Experiments (all complete runs) and runs, as for `pillion-lab show`
    #[arg(value_name = "NAME", required = true)]
    names: Vec<String>,

    /// Variant that the others are compared with [default: plain, or the first one]
    #[arg(long, value_name = "VARIANT")]
    baseline: Option<String>,

    /// Measures by their names in JSON, separated by commas [default: all]
    #[arg(long, value_name = "MEASURE", value_delimiter = ',')]
    measures: Vec<String>,

    #[command(flatten)]
    store: StoreArgs,

    /// Print JSON
    #[arg(long)]
    json: bool,

    /// Print values without differences, as one Markdown table
    #[arg(long, conflicts_with = "json")]
    markdown: bool,

    /// Also write a report with figures to FILE, as self-contained HTML
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

impl Args {
    pub fn execute(self) -> Result<ExitCode> {
        // Check the output and the names before many runs are read.
        let report = self.html.as_deref();
        let report = report.map(|file| OutputFile::page("--html", file));
        let report = report.transpose()?;
        let refused = |error: CompareError| BadInput(error.to_string());
        let measures = self.measures.iter().map(|name| measure(name));
        let measures: Vec<_> = measures.collect::<Result<_, _>>().map_err(refused)?;
        let pools = pools(label_runs(&self.runs()?)?);
        let mut comparison = compare(&pools, self.baseline.as_deref()).map_err(refused)?;
        if !measures.is_empty() {
            comparison.retain_measures(&measures);
        }
        if let Some(file) = &report {
            let page = comparison_page(&self.names.join(", "), &comparison, &pools);
            file.write(&page.to_html())?;
        }
        if self.json {
            print_json(&comparison)?;
        } else if self.markdown {
            print(&all_values_table(&comparison.sections).to_markdown())?;
        } else {
            print_comparison(&comparison, &pools)?;
            if let Some(file) = report {
                print_line!("report: {}", file.name().display())?;
            }
        }
        Ok(ExitCode::SUCCESS)
    }

    /// Returns all complete runs of these names, without duplicates.
    fn runs(&self) -> Result<Vec<StoredRun>> {
        let store = self.store.open();
        let mut runs: Vec<StoredRun> = Vec::new();
        for name in &self.names {
            let found = match store.find(name)? {
                StoreEntry::Batch(batch) => batch.runs,
                StoreEntry::Run(run) if run.state == RunState::Complete => vec![run],
                StoreEntry::Run(run) => {
                    let reason = format!("{} is incomplete and cannot be compared", run.name);
                    return Err(BadInput(reason).into());
                }
            };
            let complete = found
                .into_iter()
                .filter(|run| run.state == RunState::Complete);
            for run in complete {
                if runs.iter().all(|it| it.path != run.path) {
                    runs.push(run);
                }
            }
        }
        Ok(runs)
    }
}

type LabelledRuns = Vec<(Label, Vec<pillion_lab::analysis::runs::Group>)>;

/// Labels the runs. Runs of several experiments, or of several times of one, have these in their
/// labels.
fn label_runs(runs: &[StoredRun]) -> Result<LabelledRuns> {
    let first = runs.first().and_then(|run| run.path.parent());
    let is_one = runs.iter().all(|run| run.path.parent() == first);
    let with_labels = runs.iter().map(|run| {
        let mut label = Label::from_run_name(&run.name);
        if !is_one {
            let batch_name = batch_name(&run.path);
            label.variant = format!("{batch_name} {}", label.variant)
                .trim_end()
                .to_owned();
        }
        Ok((label, run.groups_with_messages()?))
    });
    with_labels.collect()
}

/// Returns the experiment and the time of a run, or the names of its parent folders.
fn batch_name(run: &Path) -> String {
    let folders = run.ancestors().skip(1).take(2);
    let mut names: Vec<_> = folders
        .filter_map(Path::file_name)
        .map(|name| name.to_string_lossy())
        .collect();
    names.reverse();
    names.join("/")
}

fn print_comparison(comparison: &Comparison, pools: &[Pool]) -> Result<()> {
    print_line!("delivery latency (p50 to max): {DELIVERY_LATENCY}")?;
    for section in &comparison.sections {
        let title = [&section.point, &section.group].map(String::as_str);
        print_line!("\n{}", title.join(" ").trim_start())?;
        print(&values_table(section).to_text())?;
        if let Some(differences) = differences_table(section, &comparison.baseline) {
            print(&format!("\n{}", differences.to_text()))?;
        }
    }
    for pool in pools {
        if let Some(missing_note) = pool.totals().missing_note() {
            print_line!("{}: {missing_note}", pool.name())?;
        }
    }
    let without_records = pools.iter().filter(|it| it.delivery_ms().next().is_none());
    for pool in without_records {
        print_line!("{}: no records, so no delivery latency", pool.name())?;
    }
    let repeated = pools.iter().filter(|pool| pool.repeats > 0);
    let repeated = repeated.map(|pool| format!("{} ({})", pool.name(), pool.repeats));
    let repeated: Vec<String> = repeated.collect();
    if !repeated.is_empty() {
        let repeated = repeated.join(", ");
        print_line!("\nomitted runs, which repeat another run in every message: {repeated}")?;
    }
    Ok(())
}
