//! A table for a Markdown document.

use super::{Align, Column, NO_DATA, Row, Table};

impl Table {
    /// A table of GitHub Flavored Markdown, each line ended by a newline. Sections are rows of
    /// their own; the caption is left out. No-break spaces stay, so that numbers do not wrap.
    pub fn to_markdown(&self) -> String {
        let headings = self.columns.iter().map(Column::heading);
        let rules = self.columns.iter().map(|column| match column.align {
            Align::Left => "---".to_owned(),
            Align::Right => "---:".to_owned(),
        });
        let mut out = line(headings) + &line(rules);
        for row in &self.rows {
            out += &match row {
                Row::Section(title) => line([format!("**{}**", cell(title))]),
                Row::Cells(cells) => line(cells.iter().map(|text| cell(text))),
            };
        }
        if self.is_empty() {
            out += &line([NO_DATA.to_owned()]);
        }
        out
    }
}

fn line(cells: impl IntoIterator<Item = String>) -> String {
    let cells: Vec<String> = cells.into_iter().collect();
    format!("| {} |\n", cells.join(" | "))
}

/// Text for a cell: a bar would end the cell, and a line break the row.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace(['\r', '\n'], " ")
}

#[cfg(test)]
mod tests {
    use crate::report::table::{Column, Table};

    #[test]
    fn a_table_has_headings_alignment_and_rows() {
        let columns = [Column::left(""), Column::right("p50").unit("ms")];
        let mut table = Table::new("caption", columns);
        table.section("loss").row(["plain | TCP", "75.1"]);
        assert_eq!(
            table.to_markdown(),
            "|  | p50, ms |\n| --- | ---: |\n| **loss** |\n| plain \\| TCP | 75.1 |\n"
        );
    }

    #[test]
    fn a_table_without_rows_says_so() {
        let table = Table::new("", [Column::left("name")]);
        assert_eq!(table.to_markdown(), "| name |\n| --- |\n| no data |\n");
    }
}
