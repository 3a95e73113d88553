//! Tables, for the terminal, for HTML and for Markdown.

use unicode_width::UnicodeWidthStr;

use super::markup::{Markup, anchor};
use super::number::MISSING;
use crate::names::is_terminal_control;

/// Alignment of a column's cells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Align {
    /// Left, for words.
    Left,
    /// Right, for numbers.
    Right,
}

/// A column of a [`Table`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Column {
    /// What the column shows; may be empty.
    pub header: String,
    /// The unit of all cells, shown after the header; may be empty.
    pub unit: String,
    /// Alignment of header and cells.
    pub align: Align,
    /// Cells are verdicts: words that a page also colours.
    pub verdict: bool,
    /// Width in characters at which a terminal wraps cells. A page wraps by its own width.
    pub wrap: Option<usize>,
}

impl Column {
    /// A column of words, without a unit.
    pub fn left(header: impl Into<String>) -> Self {
        Self::new(header, Align::Left)
    }

    /// A column of numbers, without a unit.
    pub fn right(header: impl Into<String>) -> Self {
        Self::new(header, Align::Right)
    }

    /// The column with this unit.
    pub fn unit(self, unit: impl Into<String>) -> Self {
        Self {
            unit: unit.into(),
            ..self
        }
    }

    /// The column as verdicts: `near`, `changed`, `miss` and others.
    pub fn verdicts(self) -> Self {
        Self {
            verdict: true,
            ..self
        }
    }

    /// The column with cells that wrap after this many characters in a terminal.
    pub fn wrapped(self, after: usize) -> Self {
        Self {
            wrap: Some(after),
            ..self
        }
    }

    fn new(header: impl Into<String>, align: Align) -> Self {
        Self {
            header: header.into(),
            unit: String::new(),
            align,
            verdict: false,
            wrap: None,
        }
    }

    fn heading(&self) -> String {
        match self.unit.as_str() {
            "" => self.header.clone(),
            unit => format!("{}, {unit}", self.header),
        }
    }
}

/// Rows of cells under headed columns. The first column names the row.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Table {
    caption: String,
    note: String,
    columns: Vec<Column>,
    rows: Vec<Row>,
    section_links: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Row {
    Section(String),
    Cells(Vec<String>),
}

impl Table {
    /// An empty table. The caption, which may be empty, appears in HTML only.
    pub fn new(caption: impl Into<String>, columns: impl IntoIterator<Item = Column>) -> Self {
        Self {
            caption: caption.into(),
            note: String::new(),
            columns: columns.into_iter().collect(),
            rows: Vec::new(),
            section_links: false,
        }
    }

    /// The table with a note below its caption, in HTML only.
    #[must_use]
    pub fn with_note(self, note: impl Into<String>) -> Self {
        Self {
            note: note.into(),
            ..self
        }
    }

    /// The table with links from its sections to page headings of the same title.
    #[must_use]
    pub fn with_section_links(self) -> Self {
        Self {
            section_links: true,
            ..self
        }
    }

    /// Adds a row. Missing and empty cells are shown as [`MISSING`]; cells beyond the last
    /// column are ignored.
    pub fn row<S: Into<String>>(&mut self, cells: impl IntoIterator<Item = S>) -> &mut Self {
        let given = cells.into_iter().map(Into::into);
        let padded = given.chain(std::iter::repeat(String::new()));
        let cells = padded
            .map(|cell: String| match cell.is_empty() {
                true => MISSING.into(),
                false => cell,
            })
            .take(self.columns.len())
            .collect();
        self.rows.push(Row::Cells(cells));
        self
    }

    /// Adds a heading row for the rows after it.
    pub fn section(&mut self, title: impl Into<String>) -> &mut Self {
        self.rows.push(Row::Section(title.into()));
        self
    }

    fn is_empty(&self) -> bool {
        !self.rows.iter().any(|row| matches!(row, Row::Cells(_)))
    }
}

const NO_DATA: &str = "no data";

const INDENT: &str = "  ";
const GAP: &str = "   ";

impl Table {
    /// Aligned UTF-8 text, each line ended by a newline and without trailing spaces. Control
    /// characters are replaced, so a cell cannot control the terminal.
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
                        lines.map(|line| display_width(&line)).max().unwrap_or(0)
                    }
                    Row::Section(_) => 0,
                });
                cells.max().unwrap_or(0).max(display_width(&headings[i]))
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
        // Plain spaces make the output searchable.
        out.replace('\u{a0}', " ")
    }

    /// The printable rows; rows below a section title are indented.
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

    /// The lines of a row; several if cells wrap.
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
                let rest = " ".repeat(width.saturating_sub(display_width(cell)));
                match column.align {
                    Align::Left => format!("{cell}{rest}"),
                    Align::Right => format!("{rest}{cell}"),
                }
            })
            .collect();
        format!("{INDENT}{}", aligned.join(GAP).trim_end())
    }
}

/// The width of a text on a terminal. Some characters take two columns or none.
#[must_use]
pub fn display_width(text: &str) -> usize {
    text.width()
}

/// Wraps a cell after this many characters and indents further lines. A longer word has its own
/// line.
fn wrapped(cell: &str, after: Option<usize>) -> Vec<String> {
    let Some(after) = after else {
        return vec![cell.to_owned()];
    };
    let text = cell.trim_start();
    let indent = &cell[..cell.len() - text.len()];
    let mut lines = Vec::new();
    let mut line = indent.to_owned();
    for (index, word) in text.split(' ').enumerate() {
        let is_first = index == 0;
        if !is_first && display_width(&line) + 1 + display_width(word) > after {
            lines.push(std::mem::replace(
                &mut line,
                format!("{indent}{INDENT}{word}"),
            ));
            continue;
        }
        if !is_first {
            line.push(' ');
        }
        line.push_str(word);
    }
    lines.push(line);
    lines
}

/// Replaces control characters.
fn printable(text: &str) -> String {
    let harmless = |c: char| {
        if is_terminal_control(c) {
            '\u{fffd}'
        } else {
            c
        }
    };
    text.chars().map(harmless).collect()
}

/// A column that wraps at this width or above contains sentences.
const SENTENCE: usize = 40;

impl Table {
    /// A `<table>` element, styled by the page.
    pub fn to_html(&self) -> String {
        let mut out = Markup::default();
        match self.has_verdicts() {
            true => out.open("table", &[("class", "judged")]),
            false => out.open("table", &[]),
        };
        if !self.caption.is_empty() {
            out.open("caption", &[]).text(&self.caption);
            if !self.note.is_empty() {
                out.element("p", &[], &self.note);
            }
            out.close();
        }
        out.raw("\n").open("thead", &[]).open("tr", &[]);
        for column in &self.columns {
            let class = class(column.align);
            let attributes = [("scope", "col"), ("class", class)];
            out.element("th", &attributes, &column.heading());
        }
        out.close().close().raw("\n").open("tbody", &[]);
        let span = self.columns.len().max(1).to_string();
        for row in &self.rows {
            out.open("tr", &[]);
            match row {
                Row::Section(title) => {
                    out.open("th", &[("colspan", &span), ("class", "section")]);
                    match self.section_links {
                        true => {
                            let to = format!("#{}", anchor(title));
                            out.element("a", &[("href", &*to)], title)
                        }
                        false => out.text(title),
                    };
                    out.close();
                }
                Row::Cells(cells) => self.cells(&mut out, cells),
            }
            out.close().raw("\n");
        }
        if self.is_empty() {
            out.open("tr", &[]);
            out.element("td", &[("colspan", &span)], NO_DATA).close();
        }
        out.finish()
    }

    /// Whether any column has verdicts. On a narrow page, such a table shows each cell on its own
    /// line with its heading.
    fn has_verdicts(&self) -> bool {
        self.columns.iter().any(|column| column.verdict)
    }

    fn cells(&self, out: &mut Markup, cells: &[String]) {
        for (i, (cell, column)) in cells.iter().zip(&self.columns).enumerate() {
            let mut class = class(column.align).to_owned();
            class += match column.wrap {
                Some(SENTENCE..) => " wrapped sentence",
                Some(_) => " wrapped",
                None => "",
            };
            if column.verdict {
                class += &format!(" verdict {}", cell.replace(' ', "-"));
            }
            let heading = column.heading();
            match i {
                0 => out.element("th", &[("scope", "row"), ("class", &class)], cell),
                _ if self.has_verdicts() => {
                    let attributes = [("class", &*class), ("data-heading", &*heading)];
                    out.element("td", &attributes, cell)
                }
                _ => out.element("td", &[("class", &class)], cell),
            };
        }
    }
}

fn class(align: Align) -> &'static str {
    match align {
        Align::Left => "left",
        Align::Right => "right",
    }
}

impl Table {
    /// A GitHub Flavored Markdown table, each line ended by a newline. Sections are separate rows;
    /// the caption is dropped. No-break spaces remain, so that numbers do not wrap.
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

/// Escapes cell text: a bar would end the cell, a line break the row.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace(['\r', '\n'], " ")
}

#[cfg(test)]
mod tests {
    use super::{Column, Table};

    #[test]
    fn markdown_table_has_headings_alignment_and_rows() {
        let columns = [Column::left(""), Column::right("p50").unit("ms")];
        let mut table = Table::new("caption", columns);
        table.section("loss").row(["plain | TCP", "75.1"]);
        assert_eq!(
            table.to_markdown(),
            "|  | p50, ms |\n| --- | ---: |\n| **loss** |\n| plain \\| TCP | 75.1 |\n"
        );
    }

    #[test]
    fn markdown_table_without_rows_shows_no_data() {
        let table = Table::new("", [Column::left("name")]);
        assert_eq!(table.to_markdown(), "| name |\n| --- |\n| no data |\n");
    }
}
