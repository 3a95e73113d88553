use std::ops::Range;

/// Something wrong in a file, and where.
#[derive(Debug)]
pub(crate) struct Mistake {
    /// In bytes from the file's beginning.
    pub(crate) span: Range<usize>,
    /// What it is; and after a semicolon, what to do.
    pub(crate) text: String,
}

impl Mistake {
    pub(crate) fn new(span: Range<usize>, text: impl Into<String>) -> Self {
        let text = text.into();
        Self { span, text }
    }

    /// What the parser found to be no TOML; `manual` has an example.
    pub(super) fn syntax(error: &toml::de::Error, manual: &str) -> Self {
        let what = error.message().replace('\n', ", ");
        Self::new(
            error.span().unwrap_or(0..0),
            format!("no TOML: {what}; {manual} has an example of every key"),
        )
    }
}

/// Line and column, both from 1, of a position given in bytes.
pub(super) fn locate(text: &str, position: usize) -> (usize, usize) {
    let before: String = text
        .char_indices()
        .take_while(|(start, _)| *start < position)
        .map(|(_, character)| character)
        .collect();
    let line = before.matches('\n').count() + 1;
    let column = before.chars().rev().take_while(|c| *c != '\n').count() + 1;
    (line, column)
}
