//! A report as one self-contained HTML file.

use serde_json::{Value, json};

use super::figure::{SMALL, THEME};
use super::markup::{Markup, anchor};
use super::{Figure, Table};

const STYLE: &str = include_str!("page.css");
const SCRIPTS: [&str; 2] = [include_str!("hover.js"), include_str!("choice.js")];
/// Security policy of the page: the browser loads no external resources.
const POLICY: &str = "default-src 'none'; img-src data:; style-src 'unsafe-inline'; \
                      script-src 'unsafe-inline'";

/// A report.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Page {
    /// Subject of the measurement.
    pub title: String,
    /// The main result in one sentence, with its numbers.
    pub lead: String,
    /// Figures and tables, in order.
    pub parts: Vec<Part>,
    /// How the results were measured.
    pub method: Vec<Fact>,
    /// The data of the figures, embedded for programs.
    pub data: Value,
}

/// A part of a [`Page`].
#[derive(Debug, Clone, PartialEq)]
pub enum Part {
    /// A figure with its title and caption.
    Figure(Box<Figure>),
    /// A set of figures of which a reader shows one.
    Choice(Choice),
    /// A table with its caption.
    Table(Table),
    /// A heading for the following parts, and their subject.
    Heading(String, String),
    /// A heading, and an overview of parts of the page.
    Cards(String, Vec<Card>),
}

/// Entry of an overview: a link to the part of the page with this title, a small picture, a bar of
/// verdicts, and a sentence.
#[derive(Debug, Clone, PartialEq)]
pub struct Card {
    /// The title of the part's [`Part::Heading`].
    pub title: String,
    /// The subject in a sentence or two.
    pub text: String,
    /// The picture.
    pub figure: Option<Figure>,
    /// The counted things, in the plural.
    pub counted: String,
    /// Each verdict, as in columns of verdicts, with its number.
    pub verdicts: Vec<(&'static str, usize)>,
}

impl Card {
    fn to_html(&self, out: &mut Markup, id: &str) {
        let to = format!("#{}", anchor(&self.title));
        out.raw("\n").open("a", &[("class", "card"), ("href", &to)]);
        out.open("div", &[("class", "picture")]);
        if let Some(figure) = &self.figure {
            out.raw(&figure.draw(SMALL, id, false));
        }
        out.close().open("div", &[]);
        out.element("h3", &[], &self.title);
        let verdicts = self.verdicts.iter().filter(|(_, count)| *count > 0);
        out.open("div", &[("class", "bar"), ("aria-hidden", "true")]);
        for (verdict, count) in verdicts.clone() {
            let (class, share) = (verdict.replace(' ', "-"), format!("flex-grow: {count}"));
            out.element("span", &[("class", &class), ("style", &share)], "");
        }
        let counts: Vec<_> = verdicts
            .map(|(verdict, count)| format!("{count} {verdict}"))
            .collect();
        let counts = format!("{}: {}", self.counted, counts.join(", "));
        out.close().element("p", &[("class", "counts")], &counts);
        out.element("p", &[], &self.text).close().close();
    }
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

    /// Commands or a file, shown verbatim.
    pub fn verbatim(name: impl Into<String>, value: impl Into<String>) -> Self {
        Self {
            verbatim: true,
            ..Self::new(name, value)
        }
    }
}

impl Page {
    /// The whole HTML file. Works offline and from a `file:` address, and is complete without
    /// JavaScript. JavaScript adds a readout to figures and buttons to choices.
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
                Part::Cards(title, cards) => {
                    out.raw("\n").element("h2", &[], title);
                    for (number, card) in (1..).zip(cards) {
                        card.to_html(&mut out, &format!("card{}-{number}", i + 1));
                    }
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
        // Without it, the browser requests /favicon.ico from the server.
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
        for fact in self.method.iter().filter(|it| !it.value.is_empty()) {
            out.raw("\n").element("dt", &[], &fact.name);
            match fact.verbatim {
                true => out.open("dd", &[]).element("pre", &[], &fact.value).close(),
                false => out.element("dd", &[], &fact.value),
            };
        }
        out.close();
    }
}

/// JSON that cannot close its script element: HTML's special characters become escapes.
fn embedded(data: &Value) -> String {
    data.to_string()
        .replace('&', "\\u0026")
        .replace('<', "\\u003c")
        .replace('>', "\\u003e")
}

/// Figures of the same quantity under several conditions or scales. A page shows one of them and
/// buttons for the others. On paper and without JavaScript it shows all.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Choice {
    /// The figures, the default first. Each has one option name per condition, for example
    /// "current", "tail".
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
