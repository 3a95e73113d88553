use std::ops::Range;

/// Something wrong in a file, and where.
#[derive(Debug)]
pub struct Mistake {
    /// In bytes from the file's beginning.
    pub span: Range<usize>,
    /// What it is; and after a semicolon, what to do.
    pub text: String,
}

impl Mistake {
    /// Of what the file says, control characters are told as Rust writes them: a mistake is one line,
    /// and a terminal obeys none of it.
    pub fn new(span: Range<usize>, text: impl Into<String>) -> Self {
        let mut text = text.into();
        if text.contains(char::is_control) {
            let told = |c: char| match c.is_control() {
                true => c.escape_default().to_string(),
                false => c.to_string(),
            };
            text = text.chars().map(told).collect();
        }
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
