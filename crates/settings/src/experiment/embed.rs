//! Tables that an experiment has in files of their own, taken into its runs, so that each of these
//! can be made anywhere and at any time.

use std::path::Path;

use pillion_traffic::Table;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::document::Mistake;

/// Replaces every `table:FILE` by what the file says; files are sought from the experiment's
/// folder.
pub(super) fn tables(document: &mut DeTable, folder: &Path, mistakes: &mut Vec<Mistake>) {
    for (_, value) in document.iter_mut() {
        let span = value.span();
        match Spanned::get_mut(value) {
            DeValue::Table(table) => tables(table, folder, mistakes),
            DeValue::String(text) => {
                let Some(file) = text.strip_prefix("table:") else {
                    continue;
                };
                match Table::read_csv(&folder.join(file)) {
                    Ok(table) => *text = table.to_text().into(),
                    Err(error) => mistakes.push(Mistake::new(span, error.to_string())),
                }
            }
            _ => {}
        }
    }
}
