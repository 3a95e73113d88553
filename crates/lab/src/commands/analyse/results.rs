use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use pillion_cli::output_file::OutputFile;
use pillion_cli::print::{print, print_json};
use pillion_lab::analysis::{Choice, Chosen, Summary, Traces, report};
use pillion_trace::measure::{Meter, Options, write_tables};

use super::choice::all_found;
use super::files::{exit_code, observe};

/// What is to be measured, and where it is to go.
pub struct Wanted {
    pub options: Options,
    pub percentiles: Vec<f64>,
    pub choice: Choice,
    pub json: bool,
    pub csv: Option<PathBuf>,
    pub report: Option<PathBuf>,
}

impl Wanted {
    pub fn measure(self, traces: Traces) -> Result<ExitCode> {
        // What cannot be written is said before a long trace is read.
        let report = self.report.as_deref();
        let report = report.map(|file| OutputFile::page("--report", file));
        let report = report.transpose()?;
        if let Some(folder) = &self.csv {
            fs::create_dir_all(folder)
                .with_context(|| format!("write --csv {}", folder.display()))?;
        }
        let chosen = Chosen::new(self.choice, Meter::new(self.options));
        let observed = observe(traces, chosen);
        all_found(&observed.observer)?;
        let exit_code = exit_code(&observed);
        let meter = observed.observer.observer;
        let results = match &observed.finding {
            Some(finding) => meter.finish_pair(&finding.clock),
            None => meter.finish(),
        };
        let summary = Summary {
            results: &results,
            percentiles: &self.percentiles,
            traces: &observed.traces,
        };
        let mut said = String::new();
        if let Some(folder) = &self.csv {
            let written = write_tables(&results, folder)?;
            said += &format!("tables: {} files in {}\n", written.len(), folder.display());
        }
        if let Some(file) = report {
            file.write(&report::page(&summary).to_html())?;
            said += &format!("report: {}\n", file.name().display());
        }
        if self.json {
            print_json(&results)?;
        } else {
            print(&(summary.text() + &said))?;
        }
        Ok(exit_code)
    }
}
