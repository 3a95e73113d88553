//! Output of a figure as SVG, HTML and CSV.

use super::drawing::{draw_axes, draw_lines};
use super::layout::{DrawingFormat, Layout, NARROW, WIDE};
use super::{Figure, Role, THEME};
use crate::report::csv_field;
use crate::report::markup::{Attributes, Markup};

impl Figure {
    /// A standalone SVG image, 900 by 470 units, light or dark by the reader's preference.
    pub fn to_svg(&self) -> String {
        self.draw(WIDE, "figure", true)
    }

    /// Draws the figure in a format. `id` must be unique in the document. A `standalone` drawing
    /// includes the theme.
    pub(crate) fn draw(&self, format: DrawingFormat, id: &str, standalone: bool) -> String {
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
        if standalone {
            out.open("style", &[]).raw(THEME).close();
        }
        draw_axes(&mut out, self, &layout);
        draw_lines(&mut out, self, &layout);
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

impl Figure {
    /// `id` must be unique in the document.
    pub(crate) fn to_html(&self, out: &mut Markup, id: &str) {
        self.to_html_with(out, id, &[]);
    }

    /// Like [`Self::to_html`], with more attributes.
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

impl Figure {
    /// All points as CSV, one per line: label, `data` or `reference`, x and y in the axes' units.
    /// Lines are in drawing order. Lines without a label, such as interval ends, follow the line
    /// that they belong to.
    #[must_use]
    pub fn to_csv(&self) -> String {
        let mut text = format!(
            "curve,role,{},{}\n",
            csv_field(&self.x.title()),
            csv_field(&self.y.title())
        );
        for line in &self.lines {
            let role = match line.role {
                Role::Data => "data",
                Role::Reference => "reference",
            };
            for (x, y) in &line.points {
                text += &format!("{},{role},{x},{y}\n", csv_field(&line.label));
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use crate::report::figure::{Axis, Line};

    use super::*;

    #[test]
    fn csv_has_one_line_per_point() {
        let figure = Figure {
            title: String::new(),
            caption: String::new(),
            x: Axis::linear("latency", "ms"),
            y: Axis::linear("share", ""),
            side: None,
            lines: vec![
                Line::straight("RDB, limit 1", vec![(1.0, 0.5), (2.5, 1.0)]),
                Line::straight("", vec![(3.0, 0.0)]).reference(),
            ],
        };
        let text = "curve,role,\"latency, ms\",share\n\"RDB, limit 1\",data,1,0.5\n\
                    \"RDB, limit 1\",data,2.5,1\n,reference,3,0\n";
        assert_eq!(figure.to_csv(), text);
    }
}
