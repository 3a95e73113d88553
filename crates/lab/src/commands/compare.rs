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
use pillion_lab::store::{Found, State, StoredRun};

use super::store::StoreArgs;

/// Set runs side by side: what each variant of an experiment gave, and how surely they differ
///
/// Runs that differ in nothing but their seed are taken together. At each point of the experiment's
/// grid, each variant is compared with the baseline, group by group: the difference of each
/// measure, with an interval that holds it with 95 % of confidence. Intervals are by bootstrap over
/// seeds and, within each run, over streams; the same runs always give the same ones.
///
/// Delivery latency is from one application's write to the other one's read, of each message; it
/// takes runs with records. docs/lab.md explains each measure.
#[derive(clap::Args)]
pub struct Args {
    /// Experiments (all runs that are whole) and runs, as `pillion-lab show` takes them
    #[arg(value_name = "NAME", required = true)]
    names: Vec<String>,

    /// The variant that the others are compared with [default: plain, or else the first]
    #[arg(long, value_name = "VARIANT")]
    baseline: Option<String>,

    /// Measures, by their names in JSON, separated by commas [default: all]
    #[arg(long, value_name = "MEASURE", value_delimiter = ',')]
    measures: Vec<String>,

    #[command(flatten)]
    store: StoreArgs,

    /// Print JSON
    #[arg(long)]
    json: bool,

    /// Print the values, without differences, as one table in Markdown
    #[arg(long, conflicts_with = "json")]
    markdown: bool,

    /// Write a report with figures as well, one HTML file that needs nothing else
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
}

impl Args {
    pub fn execute(self) -> Result<ExitCode> {
        // What cannot be written, or is not known, is said before many runs are read.
        let report = self.report.as_deref();
        let report = report.map(|file| OutputFile::page("--report", file));
        let report = report.transpose()?;
        let refused = |error: CompareError| BadInput(error.to_string());
        let measures = self.measures.iter().map(|name| measure(name));
        let measures: Vec<_> = measures.collect::<Result<_, _>>().map_err(refused)?;
        let pools = pools(labelled(&self.runs()?)?);
        let mut comparison = compare(&pools, self.baseline.as_deref()).map_err(refused)?;
        if !measures.is_empty() {
            comparison.keep(&measures);
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

    /// All runs that are named and whole, each once.
    fn runs(&self) -> Result<Vec<StoredRun>> {
        let store = self.store.open();
        let mut runs: Vec<StoredRun> = Vec::new();
        for name in &self.names {
            let found = match store.find(name)? {
                Found::Made(made) => made.runs,
                Found::Run(run) if run.state == State::Whole => vec![run],
                Found::Run(run) => {
                    let mistake = format!("{} is not whole; it cannot be compared", run.name);
                    return Err(BadInput(mistake).into());
                }
            };
            let whole = found.into_iter().filter(|run| run.state == State::Whole);
            for run in whole {
                if runs.iter().all(|it| it.path != run.path) {
                    runs.push(run);
                }
            }
        }
        Ok(runs)
    }
}

type Labelled = Vec<(Label, Vec<pillion_lab::analysis::runs::Group>)>;

/// The runs with labels; runs of several experiments, or of several times of one, are told apart by
/// these as well.
fn labelled(runs: &[StoredRun]) -> Result<Labelled> {
    let first = runs.first().and_then(|run| run.path.parent());
    let is_one = runs.iter().all(|run| run.path.parent() == first);
    let labelled = runs.iter().map(|run| {
        let mut label = Label::of(&run.name);
        if !is_one {
            let made = made(&run.path);
            label.variant = format!("{made} {}", label.variant).trim_end().to_owned();
        }
        Ok((label, run.groups_with_messages()?))
    });
    labelled.collect()
}

/// Experiment and time of a run, or the folders that stand in their place.
fn made(run: &Path) -> String {
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
        if let Some(survivors) = pool.totals().survivors() {
            print_line!("{}: {survivors}", pool.name())?;
        }
    }
    let silent = pools.iter().filter(|it| it.delivery_ms().next().is_none());
    for pool in silent {
        print_line!("{}: no records, so no delivery latency", pool.name())?;
    }
    let repeated = pools.iter().filter(|pool| pool.repeats > 0);
    let repeated = repeated.map(|pool| format!("{} ({})", pool.name(), pool.repeats));
    let repeated: Vec<String> = repeated.collect();
    if !repeated.is_empty() {
        let repeated = repeated.join(", ");
        print_line!("\nruns left out, for their seed changed the fate of no message: {repeated}")?;
    }
    Ok(())
}
