//! Tables, for the terminal, for HTML and for Markdown.

mod html;
mod markdown;
mod text;

pub use text::columns_of;

use crate::report::number::MISSING;

/// How the cells of a column line up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Align {
    /// Cells line up at the left, for words.
    Left,
    /// Cells line up at the right, for numbers.
    Right,
}

/// A column of a [`Table`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Column {
    /// What the column shows; may be empty.
    pub header: String,
    /// The unit of all its cells, shown after the header; empty where there is none.
    pub unit: String,
    /// How the column's header and cells line up.
    pub align: Align,
    /// Cells are verdicts: words that a page tells apart by colour as well.
    pub verdict: bool,
    /// In how many characters a terminal wraps cells; a page wraps them as it has room.
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

    /// The column, with this unit.
    pub fn unit(self, unit: impl Into<String>) -> Self {
        Self {
            unit: unit.into(),
            ..self
        }
    }

    /// The column, of verdicts: `near`, `changed`, `miss` and others.
    pub fn verdicts(self) -> Self {
        Self {
            verdict: true,
            ..self
        }
    }

    /// The column, whose cells may go on in the next line, after so many characters in a terminal.
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
    leads_on: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Row {
    Section(String),
    Cells(Vec<String>),
}

impl Table {
    /// A table without rows yet. The caption, which may be empty, is shown in HTML only.
    pub fn new(caption: impl Into<String>, columns: impl IntoIterator<Item = Column>) -> Self {
        Self {
            caption: caption.into(),
            note: String::new(),
            columns: columns.into_iter().collect(),
            rows: Vec::new(),
            leads_on: false,
        }
    }

    /// The table, with what there is to know of it below its caption, in HTML only.
    #[must_use]
    pub fn noted(self, note: impl Into<String>) -> Self {
        Self {
            note: note.into(),
            ..self
        }
    }

    /// The table, whose sections lead to headings of the page with the same titles.
    #[must_use]
    pub fn leading_on(self) -> Self {
        Self {
            leads_on: true,
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

    /// The table with so many of its columns, the first ones.
    #[must_use]
    pub fn narrowed(mut self, columns: usize) -> Self {
        self.columns.truncate(columns);
        for row in &mut self.rows {
            if let Row::Cells(cells) = row {
                cells.truncate(columns);
            }
        }
        self
    }

    /// Adds a line that heads the rows after it.
    pub fn section(&mut self, title: impl Into<String>) -> &mut Self {
        self.rows.push(Row::Section(title.into()));
        self
    }

    fn is_empty(&self) -> bool {
        !self.rows.iter().any(|row| matches!(row, Row::Cells(_)))
    }
}

const NO_DATA: &str = "no data";
