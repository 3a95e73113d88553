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
