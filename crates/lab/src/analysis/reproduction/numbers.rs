//! Every judged number as comma-separated values.

use pillion_stats::report::csv_field;

use super::{Claim, Estimate, Judged, Row, Statement};

const HEADING: &str = "experiment,what,source,measure,says,number,within,verdict,kernel,runs_named,\
                       mean,low,high,runs,holds\n";

/// Each published number: what is said of it, and ours today and with each cause, a line for each
/// (of an order, for each that is in it), with the ends of its interval.
#[must_use]
pub fn published_csv(rows: &[Row]) -> String {
    let mut text = HEADING.to_owned();
    for row in rows {
        for (claim, judged) in row.judged() {
            let ours = row.kernels().zip(judged.by_kernel());
            for ((kernel, _), (of, holds)) in ours {
                let holds = match holds {
                    Some(true) => "yes",
                    Some(false) => "no",
                    None => "",
                };
                for (place, subject) in claim.subjects().into_iter().enumerate() {
                    let named = subject.runs.to_string();
                    let ours = of.get(place);
                    text += &line(row, claim, &judged, [&kernel, &named, holds], ours);
                }
            }
        }
    }
    text
}

fn line(
    row: &Row,
    claim: &Claim,
    judged: &Judged,
    [kernel, named, holds]: [&str; 3],
    ours: Option<&Estimate>,
) -> String {
    let (says, number, within) = match claim.statement {
        Statement::Value(value, within) => ("value", value.to_string(), within.to_string()),
        Statement::AtMost(most) => ("at-most", most.to_string(), String::new()),
        Statement::AtLeast(least) => ("at-least", least.to_string(), String::new()),
        Statement::Ascending(_) => ("ascending", String::new(), String::new()),
    };
    let fields = [
        &row.name,
        &claim.what,
        &claim.source,
        claim.measure.as_str(),
        says,
        &number,
        &within,
        judged.verdict.word(),
        kernel,
        named,
    ];
    let fields = fields.map(csv_field).join(",");
    let ours = Estimate::csv(ours);
    format!("{fields},{ours},{holds}\n")
}
