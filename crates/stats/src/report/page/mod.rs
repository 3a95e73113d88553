//! One HTML file that holds all of a report and asks for nothing else.

use serde_json::{Value, json};

use super::figure::THEME;
use super::markup::Markup;
use super::{Figure, Table};

const STYLE: &str = include_str!("page.css");
const SCRIPTS: [&str; 2] = [include_str!("hover.js"), include_str!("choice.js")];
/// The page's security policy: whatever the page holds, the browser then loads nothing from
/// elsewhere.
const POLICY: &str = "default-src 'none'; img-src data:; style-src 'unsafe-inline'; \
                      script-src 'unsafe-inline'";

/// A report.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Page {
    /// What was measured.
    pub title: String,
    /// The main result in a sentence, with its numbers.
    pub lead: String,
    /// Figures and tables, in order.
    pub parts: Vec<Part>,
    /// How the results were measured.
    pub method: Vec<Fact>,
    /// The numbers behind the figures, embedded for programs to read.
    pub data: Value,
}

/// A part of a [`Page`].
#[derive(Debug, Clone, PartialEq)]
pub enum Part {
    /// A figure with its title and caption.
    Figure(Box<Figure>),
    /// Figures in one place, of which a reader chooses one.
    Choice(Choice),
    /// A table with its caption.
    Table(Table),
    /// A heading for the parts after it, and what they are about.
    Heading(String, String),
}

impl From<Figure> for Part {
    fn from(figure: Figure) -> Self {
        Self::Figure(Box::new(figure))
    }
}

impl From<Choice> for Part {
    fn from(choice: Choice) -> Self {
        Self::Choice(choice)
    }
}

impl From<Table> for Part {
    fn from(table: Table) -> Self {
        Self::Table(table)
    }
}

/// A line of "How this was measured".
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fact {
    name: String,
    value: String,
    verbatim: bool,
}

impl Fact {
    /// A parameter and its value, for example "one-way delay", "75 ms".
    pub fn new(name: impl Into<String>, value: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            value: value.into(),
            verbatim: false,
        }
    }

    /// Commands or a file, shown as they are, line by line.
    pub fn verbatim(name: impl Into<String>, value: impl Into<String>) -> Self {
        Self {
            verbatim: true,
            ..Self::new(name, value)
        }
    }
}

impl Page {
    /// The whole HTML file. It works offline and from a `file:` address, and is complete without
    /// JavaScript, which adds a read-out to the figures, and buttons where there is a choice.
    pub fn to_html(&self) -> String {
        let mut out = Markup::default();
        out.raw("<!DOCTYPE html>\n").open("html", &[("lang", "en")]);
        self.head(&mut out);
        out.raw("\n").open("body", &[]).raw("\n").open("main", &[]);
        out.raw("\n").element("h1", &[], &self.title);
        if !self.lead.is_empty() {
            out.raw("\n").element("p", &[("class", "lead")], &self.lead);
        }
        if self.parts.is_empty() {
            out.raw("\n").element("p", &[], "There is no data to show.");
        }
        for (i, part) in self.parts.iter().enumerate() {
            match part {
                Part::Figure(figure) => figure.to_html(&mut out, &format!("figure{}", i + 1)),
                Part::Choice(choice) => choice.to_html(&mut out, &format!("figure{}", i + 1)),
                Part::Heading(title, text) => {
                    let attributes = [("class", "part"), ("id", &*anchor(title))];
                    out.raw("\n").element("h2", &attributes, title);
                    out.raw("\n").element("p", &[("class", "about")], text);
                }
                Part::Table(table) => {
                    out.raw("\n").open("div", &[("class", "table")]);
                    out.raw(&table.to_html()).close();
                }
            }
        }
        self.method(&mut out);
        out.raw("\n").close();
        out.raw("\n")
            .open("script", &[("type", "application/json"), ("id", "data")])
            .raw(&embedded(&self.data))
            .close();
        for script in SCRIPTS {
            out.raw("\n").open("script", &[]).raw(script).close();
        }
        out.finish() + "\n"
    }

    fn head(&self, out: &mut Markup) {
        out.raw("\n").open("head", &[]);
        out.empty("meta", &[("charset", "utf-8")]);
        let viewport = "width=device-width, initial-scale=1";
        out.empty("meta", &[("name", "viewport"), ("content", viewport)]);
        let policy = ("http-equiv", "Content-Security-Policy");
        out.empty("meta", &[policy, ("content", POLICY)]);
        // Without one, a page that is served makes the browser ask for /favicon.ico.
        out.empty("link", &[("rel", "icon"), ("href", "data:,")]);
        out.element("title", &[], &self.title);
        out.open("style", &[]).raw(THEME).raw(STYLE).close().close();
    }

    fn method(&self, out: &mut Markup) {
        if self.method.is_empty() {
            return;
        }
        out.raw("\n").element("h2", &[], "How this was measured");
        out.raw("\n").open("dl", &[]);
        for fact in &self.method {
            out.raw("\n").element("dt", &[], &fact.name);
            match fact.verbatim {
                true => out.open("dd", &[]).element("pre", &[], &fact.value).close(),
                false => out.element("dd", &[], &fact.value),
            };
        }
        out.close();
    }
}

/// A heading's place in the page: its title in small letters, digits and hyphens.
pub(crate) fn anchor(title: &str) -> String {
    let words = title.split(|c: char| !c.is_ascii_alphanumeric());
    let words: Vec<String> = words
        .filter(|word| !word.is_empty())
        .map(str::to_ascii_lowercase)
        .collect();
    format!("to-{}", words.join("-"))
}

/// JSON that cannot end the element around it: what HTML would see, JSON can write as escapes.
fn embedded(data: &Value) -> String {
    data.to_string()
        .replace('&', "\\u0026")
        .replace('<', "\\u003c")
        .replace('>', "\\u003e")
}

/// Figures that show the same under several conditions or at several scales. A page shows one of
/// them, and buttons for the others; on paper and without JavaScript it shows all.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Choice {
    /// The figures, the one to be shown first in front. Beside each stands which it is, in as many
    /// respects as all the others: for example "today", "tail".
    pub figures: Vec<(Vec<String>, Figure)>,
}

impl Choice {
    /// `id` must be unique in the document.
    pub(crate) fn to_html(&self, out: &mut Markup, id: &str) {
        out.raw("\n").open("div", &[("class", "choice")]);
        for (number, (options, figure)) in (1..).zip(&self.figures) {
            let options = ("data-options", &*json!(options).to_string());
            figure.to_html_with(out, &format!("{id}-{number}"), &[options]);
        }
        out.close();
    }
}
