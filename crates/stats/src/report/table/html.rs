//! A table for HTML.

use super::{Align, NO_DATA, Row, Table};
use crate::report::markup::Markup;
use crate::report::page::anchor;

/// Columns that a terminal wraps after so many characters or more have sentences in them.
const SENTENCE: usize = 40;

impl Table {
    /// A `<table>` element; its style is the page's.
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
                    match self.leads_on {
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

    /// A narrow page has each of its rows as lines of their own, with the columns' headings.
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
