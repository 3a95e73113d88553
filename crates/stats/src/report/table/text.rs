//! A table for a terminal: aligned UTF-8 text.

use crate::names::is_steering;
use unicode_width::UnicodeWidthStr;

use super::{Align, NO_DATA, Row, Table};

const INDENT: &str = "  ";
const GAP: &str = "   ";

impl Table {
    /// Aligned UTF-8 text, each line ended by a newline and without trailing spaces. Characters
    /// that steer are replaced, so a cell cannot steer the terminal.
    #[must_use]
    pub fn to_text(&self) -> String {
        let headings = self.columns.iter().map(|c| printable(&c.heading()));
        let headings: Vec<String> = headings.collect();
        let rows = self.printable_rows();
        let widths: Vec<usize> = (0..self.columns.len())
            .map(|i| {
                let cells = rows.iter().map(|row| match row {
                    Row::Cells(cells) => {
                        let lines = wrapped(&cells[i], self.columns[i].wrap).into_iter();
                        lines.map(|line| columns_of(&line)).max().unwrap_or(0)
                    }
                    Row::Section(_) => 0,
                });
                cells.max().unwrap_or(0).max(columns_of(&headings[i]))
            })
            .collect();

        let mut out = self.line(&headings, &widths) + "\n";
        let ruled = widths.iter().sum::<usize>() + GAP.len() * widths.len().saturating_sub(1);
        out += &format!("{INDENT}{}\n", "─".repeat(ruled));
        for row in &rows {
            out += &match row {
                Row::Section(title) => format!("{INDENT}{title}\n"),
                Row::Cells(cells) => self.lines(cells, &widths),
            };
        }
        if self.is_empty() {
            out += &format!("{INDENT}{NO_DATA}\n");
        }
        // Plain spaces, so that what is seen can be searched for.
        out.replace('\u{a0}', " ")
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

    /// The lines of a row, of which there are several where cells go on.
    fn lines(&self, cells: &[String], widths: &[usize]) -> String {
        let cells = cells.iter().zip(&self.columns);
        let cells = cells.map(|(cell, column)| wrapped(cell, column.wrap));
        let cells: Vec<Vec<String>> = cells.collect();
        let height = cells.iter().map(Vec::len).max().unwrap_or(0);
        let lines = (0..height).map(|row| {
            let line = cells.iter().map(|lines| lines.get(row).cloned());
            let line: Vec<String> = line.map(Option::unwrap_or_default).collect();
            self.line(&line, widths) + "\n"
        });
        lines.collect()
    }

    fn line(&self, cells: &[String], widths: &[usize]) -> String {
        let aligned: Vec<String> = cells
            .iter()
            .zip(&self.columns)
            .zip(widths)
            .map(|((cell, column), width)| {
                let rest = " ".repeat(width.saturating_sub(columns_of(cell)));
                match column.align {
                    Align::Left => format!("{cell}{rest}"),
                    Align::Right => format!("{rest}{cell}"),
                }
            })
            .collect();
        format!("{INDENT}{}", aligned.join(GAP).trim_end())
    }
}

/// The columns that a text takes on a terminal, where some characters take two or none.
#[must_use]
pub fn columns_of(text: &str) -> usize {
    text.width()
}

/// The lines of a cell that goes on after so many characters, set in where it does. A word that is
/// longer has a line of its own.
fn wrapped(cell: &str, after: Option<usize>) -> Vec<String> {
    let Some(after) = after else {
        return vec![cell.to_owned()];
    };
    let text = cell.trim_start();
    let indent = &cell[..cell.len() - text.len()];
    let mut lines = Vec::new();
    let mut line = indent.to_owned();
    for (place, word) in text.split(' ').enumerate() {
        let begins = place == 0;
        if !begins && columns_of(&line) + 1 + columns_of(word) > after {
            lines.push(std::mem::replace(
                &mut line,
                format!("{indent}{INDENT}{word}"),
            ));
            continue;
        }
        if !begins {
            line.push(' ');
        }
        line.push_str(word);
    }
    lines.push(line);
    lines
}

/// Text without characters that steer.
fn printable(text: &str) -> String {
    let harmless = |c: char| if is_steering(c) { '\u{fffd}' } else { c };
    text.chars().map(harmless).collect()
}
