//! A writer for XML and HTML that escapes its input.

use crate::names::is_terminal_control;

/// Escapes text for an element or a quoted attribute. Characters that XML forbids and control
/// characters become U+FFFD.
pub(crate) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            '\t' | '\n' => out.push(c),
            '\u{fffe}' | '\u{ffff}' => out.push('\u{fffd}'),
            c if is_terminal_control(c) => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

/// Attributes of an element: trusted names and arbitrary values.
pub(crate) type Attributes<'a> = [(&'a str, &'a str)];

/// A document under construction.
#[derive(Default)]
pub(crate) struct Markup {
    out: String,
    open: Vec<&'static str>,
}

impl Markup {
    pub(crate) fn open(&mut self, tag: &'static str, attributes: &Attributes<'_>) -> &mut Self {
        self.tag(tag, attributes, ">");
        self.open.push(tag);
        self
    }

    pub(crate) fn close(&mut self) -> &mut Self {
        if let Some(tag) = self.open.pop() {
            self.out.push_str(&format!("</{tag}>"));
        }
        self
    }

    /// An element without content, such as `<path/>`.
    pub(crate) fn empty(&mut self, tag: &'static str, attributes: &Attributes<'_>) -> &mut Self {
        self.tag(tag, attributes, "/>");
        self
    }

    /// An element that holds only text.
    pub(crate) fn element(
        &mut self,
        tag: &'static str,
        attributes: &Attributes<'_>,
        text: &str,
    ) -> &mut Self {
        self.open(tag, attributes).text(text).close()
    }

    pub(crate) fn text(&mut self, text: &str) -> &mut Self {
        self.out.push_str(&escape(text));
        self
    }

    /// Writes trusted markup or whitespace without escaping.
    pub(crate) fn raw(&mut self, markup: &str) -> &mut Self {
        self.out.push_str(markup);
        self
    }

    /// Closes all open elements and returns the document.
    pub(crate) fn finish(mut self) -> String {
        while !self.open.is_empty() {
            self.close();
        }
        self.out
    }

    fn tag(&mut self, tag: &str, attributes: &Attributes<'_>, end: &str) {
        self.out.push('<');
        self.out.push_str(tag);
        for (name, value) in attributes {
            self.out.push_str(&format!(" {name}=\"{}\"", escape(value)));
        }
        self.out.push_str(end);
    }
}

/// A heading's anchor: its title in lower-case letters, digits and hyphens.
pub(crate) fn anchor(title: &str) -> String {
    let words = title.split(|c: char| !c.is_ascii_alphanumeric());
    let words: Vec<String> = words
        .filter(|word| !word.is_empty())
        .map(str::to_ascii_lowercase)
        .collect();
    format!("to-{}", words.join("-"))
}
