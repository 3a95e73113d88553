//! The numbers behind a figure, for other tools.

use super::{Figure, Role};
use crate::report::csv::field;

impl Figure {
    /// Every point that is drawn, a line each: the curve's label, `data` or `reference`, x and y in
    /// the axes' units. Curves come in their order, so that those without a label, such as the ends
    /// of intervals, follow the one that they belong to.
    #[must_use]
    pub fn to_csv(&self) -> String {
        let mut text = format!(
            "curve,role,{},{}\n",
            field(&self.x.title()),
            field(&self.y.title())
        );
        for line in &self.lines {
            let role = match line.role {
                Role::Data => "data",
                Role::Reference => "reference",
            };
            for (x, y) in &line.points {
                text += &format!("{},{role},{x},{y}\n", field(&line.label));
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Axis, Line};
    use super::*;

    #[test]
    fn each_point_is_a_line() {
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
