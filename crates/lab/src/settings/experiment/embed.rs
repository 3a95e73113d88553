//! Tables and lists that an experiment has in files of their own, taken into its runs, so that each of these
//! can be made anywhere and at any time.

use std::path::Path;

use crate::traffic::Table;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::settings::traffic::Writes;
use pillion_cli::settings::BadInput;
use pillion_cli::settings::document::Mistake;

/// Replaces every `table:FILE` and `file:FILE` by what the file says; files are sought from the experiment's
/// folder.
pub(super) fn tables(document: &mut DeTable, folder: &Path, mistakes: &mut Vec<Mistake>) {
    for (_, value) in document.iter_mut() {
        let span = value.span();
        match Spanned::get_mut(value) {
            DeValue::Table(table) => tables(table, folder, mistakes),
            DeValue::String(text) => {
                let table = |file| Table::read_csv(&folder.join(file));
                let table = |file| table(file).map_err(|error| BadInput(error.to_string()));
                let embedded = if let Some(file) = text.strip_prefix("table:") {
                    table(file).map(|table| table.to_text())
                } else if let Some(file) = text.strip_prefix("file:") {
                    Writes::read(&folder.join(file)).map(|writes| writes.to_string())
                } else {
                    continue;
                };
                match embedded {
                    Ok(embedded) => *text = embedded.into(),
                    Err(BadInput(why)) => mistakes.push(Mistake::new(span, why)),
                }
            }
            _ => {}
        }
    }
}
