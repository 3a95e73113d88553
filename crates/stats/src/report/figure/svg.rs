//! A figure as SVG.

use super::layout::{Format, Layout, WIDE};
use super::{Figure, THEME, axes, lines};
use crate::report::markup::Markup;

impl Figure {
    /// An SVG image of its own, light or dark as the reader prefers, 900 by 470 units.
    pub fn to_svg(&self) -> String {
        self.draw(WIDE, "figure", true)
    }

    /// The drawing in a format. `id` must be unique in the document; the theme is the document's
    /// unless the drawing stands `alone`.
    pub(crate) fn draw(&self, format: Format, id: &str, alone: bool) -> String {
        let layout = Layout::new(self, format);
        let title = format!("{id}-{}-title", format.name);
        let description = format!("{id}-{}-desc", format.name);
        let view_box = format!("0 0 {} {}", format.width, format.height);
        let mut out = Markup::default();
        out.open(
            "svg",
            &[
                ("xmlns", "http://www.w3.org/2000/svg"),
                ("class", &format!("figure {}", format.name)),
                ("viewBox", &view_box),
                ("role", "img"),
                ("aria-labelledby", &format!("{title} {description}")),
                ("data-x", &layout.x.describe()),
                ("data-y", &layout.y.describe()),
                ("data-unit", &self.x.unit),
                ("data-plot", &layout.edges().join(" ")),
            ],
        );
        out.element("title", &[("id", &title)], &self.title);
        out.element("desc", &[("id", &description)], &self.describe());
        if alone {
            out.open("style", &[]).raw(THEME).close();
        }
        axes::draw(&mut out, self, &layout);
        lines::draw(&mut out, self, &layout);
        out.finish()
    }

    fn describe(&self) -> String {
        let names: Vec<&str> = self.lines.iter().map(|l| l.label.as_str()).collect();
        format!(
            "Horizontal: {}. Vertical: {}. Lines: {}. {}",
            self.x.title(),
            self.y.title(),
            names.join("; "),
            self.caption
        )
    }
}

pub(super) fn text_at(
    out: &mut Markup,
    class: &str,
    at: (f64, f64),
    size: f64,
    anchor: &str,
    text: &str,
) {
    let attributes = [
        ("class", class),
        ("x", &place(at.0)),
        ("y", &place(at.1)),
        ("font-size", &size.to_string()),
        ("text-anchor", anchor),
    ];
    out.raw("\n").element("text", &attributes, text);
}

/// A coordinate, to a tenth of a unit.
pub(super) fn place(v: f64) -> String {
    ((v * 10.0).round() / 10.0).to_string()
}
