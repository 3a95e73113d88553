use std::path::Path;
use std::process::ExitCode;

use anyhow::{Result, anyhow};
use pillion_cli::exit::INCOMPLETE;
use pillion_cli::print::say_line;
use pillion_cli::settings::BadInput;
use pillion_lab::queue::{Reasons, Row};
use pillion_lab::records::{ReadError, read};

use super::Args;
use super::outputs::Outputs;

impl Args {
    /// Shows the measures of a file of packets. What comes before damage is measured all the same.
    pub fn show(&self, file: &Path) -> Result<ExitCode> {
        let name = file.display().to_string();
        let bad = |error: ReadError| BadInput(format!("{name}: {error}"));
        let rows = read::<Row>(file).map_err(bad)?;
        let mut outputs = Outputs::open(self)?;
        let mut reasons = Reasons::default();
        let mut code = ExitCode::SUCCESS;
        for (number, row) in rows.enumerate() {
            match row {
                Ok(row) => {
                    let event = row.event(&mut reasons);
                    outputs.take(&event, &reasons)?;
                }
                Err(ReadError::Io(error)) => {
                    return Err(anyhow!(error).context(format!("read {name}")));
                }
                Err(error) if number == 0 => return Err(bad(error).into()),
                Err(damage) => {
                    say_line!("pillion-lab: {name}: {damage}");
                    code = ExitCode::from(INCOMPLETE);
                }
            }
        }
        self.print(&outputs.finish(&reasons)?)?;
        Ok(code)
    }
}
