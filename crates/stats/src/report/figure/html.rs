//! A figure in a page: its title, its caption, and a drawing for wide and one for narrow screens.

use super::Figure;
use super::layout::{NARROW, WIDE};
use crate::report::markup::{Attributes, Markup};

impl Figure {
    /// `id` must be unique in the document.
    pub(crate) fn to_html(&self, out: &mut Markup, id: &str) {
        self.to_html_with(out, id, &[]);
    }

    /// The same, with attributes besides.
    pub(crate) fn to_html_with(&self, out: &mut Markup, id: &str, more: &Attributes<'_>) {
        let attributes = [&[("id", id)], more].concat();
        out.raw("\n").open("figure", &attributes);
        out.raw("\n").open("figcaption", &[]);
        out.element("h2", &[], &self.title);
        if !self.caption.is_empty() {
            out.element("p", &[], &self.caption);
        }
        out.close().raw("\n").open("div", &[("class", "plot")]);
        for format in [WIDE, NARROW] {
            out.raw("\n").raw(&self.draw(format, id, false));
        }
        out.close().close();
    }
}
