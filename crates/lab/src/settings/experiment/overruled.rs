//! Values that a later choice replaces in every run.

use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// A key within a file's tables, and where its value stands.
pub(super) struct Leaf {
    path: Vec<String>,
    pub(super) span: Range<usize>,
}

impl Leaf {
    /// All values that are no tables.
    pub(super) fn all_of(table: &DeTable) -> Vec<Self> {
        let mut all = Vec::new();
        collect(table, &mut Vec::new(), &mut all);
        all
    }

    pub(super) fn key(&self) -> String {
        self.path.join(".")
    }

    /// Whether a table that is merged behind it puts something in its place.
    pub(super) fn is_replaced_by(&self, table: &DeTable) -> bool {
        let mut table = table;
        for (place, key) in self.path.iter().enumerate() {
            match table.get(key.as_str()).map(Spanned::get_ref) {
                None => return false,
                Some(DeValue::Table(inner)) if place + 1 < self.path.len() => table = inner,
                Some(_) => return true,
            }
        }
        false
    }
}

fn collect(table: &DeTable, path: &mut Vec<String>, all: &mut Vec<Leaf>) {
    for (key, value) in table {
        path.push(key.get_ref().to_string());
        match value.get_ref() {
            DeValue::Table(inner) => collect(inner, path, all),
            _ => all.push(Leaf {
                path: path.clone(),
                span: value.span(),
            }),
        }
        path.pop();
    }
}
