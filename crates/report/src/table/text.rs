//! A table for a terminal: aligned UTF-8 text.

use super::{Align, NO_DATA, Row, Table};

const INDENT: &str = "  ";
const GAP: &str = "   ";
const BOLD: &str = "\u{1b}[1m";
const DIM: &str = "\u{1b}[2m";
const PLAIN: &str = "\u{1b}[0m";

impl Table {
    /// Aligned UTF-8 text, each line ended by a newline and without trailing spaces. With `ansi`,
    /// headers are bold and rules dim. One character is taken for one column of the terminal;
    /// control characters are replaced, so a cell cannot steer the terminal.
    pub fn to_text(&self, ansi: bool) -> String {
        let paint = |style: &str, text: String| match ansi {
            true => format!("{style}{text}{PLAIN}\n"),
            false => text + "\n",
        };
        let headings = self.columns.iter().map(|c| printable(&c.heading()));
        let headings: Vec<String> = headings.collect();
        let rows = self.printable_rows();
        let widths: Vec<usize> = (0..self.columns.len())
            .map(|i| {
                let cells = rows.iter().map(|row| match row {
                    Row::Cells(cells) => cells[i].chars().count(),
                    Row::Section(_) => 0,
                });
                cells.max().unwrap_or(0).max(headings[i].chars().count())
            })
            .collect();

        let mut out = paint(BOLD, self.line(&headings, &widths));
        let ruled = widths.iter().sum::<usize>() + GAP.len() * widths.len().saturating_sub(1);
        out += &paint(DIM, format!("{INDENT}{}", "─".repeat(ruled)));
        for row in &rows {
            out += &match row {
                Row::Section(title) => paint(BOLD, format!("{INDENT}{title}")),
                Row::Cells(cells) => self.line(cells, &widths) + "\n",
            };
        }
        if self.is_empty() {
            out += &format!("{INDENT}{NO_DATA}\n");
        }
        out
    }

    /// The rows as they are printed, those below a section's title set in under it.
    fn printable_rows(&self) -> Vec<Row> {
        let mut indent = "";
        let print = |row: &Row| match row {
            Row::Section(title) => {
                indent = INDENT;
                Row::Section(printable(title))
            }
            Row::Cells(cells) => {
                let mut cells: Vec<String> = cells.iter().map(|c| printable(c)).collect();
                if let Some(name) = cells.first_mut() {
                    name.insert_str(0, indent);
                }
                Row::Cells(cells)
            }
        };
        self.rows.iter().map(print).collect()
    }

    fn line(&self, cells: &[String], widths: &[usize]) -> String {
        let aligned: Vec<String> = cells
            .iter()
            .zip(&self.columns)
            .zip(widths)
            .map(|((cell, column), width)| match column.align {
                Align::Left => format!("{cell:<width$}"),
                Align::Right => format!("{cell:>width$}"),
            })
            .collect();
        format!("{INDENT}{}", aligned.join(GAP).trim_end())
    }
}

/// Text with plain spaces, so that what is seen can be searched for, and no control characters.
fn printable(text: &str) -> String {
    text.chars()
        .map(|c| match c {
            '\u{a0}' => ' ',
            c if c.is_control() => '\u{fffd}',
            c => c,
        })
        .collect()
}
