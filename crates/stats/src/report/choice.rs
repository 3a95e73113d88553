//! Figures in one place of a page.

use serde_json::json;

use crate::report::Figure;
use crate::report::markup::Markup;

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
