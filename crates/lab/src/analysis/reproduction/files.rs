use pillion_stats::report::Figure;

use super::{Row, published_csv};

/// Names and texts of the files for papers: each figure as SVG and as CSV, and each table as CSV, by
/// the experiment's name and a number; and `published.csv`, with every published number beside ours.
pub fn files(rows: &[Row]) -> impl Iterator<Item = (String, String)> {
    let numbers = ("published.csv".to_owned(), published_csv(rows));
    std::iter::once(numbers).chain(rows.iter().flat_map(of_row))
}

fn of_row(row: &Row) -> impl Iterator<Item = (String, String)> {
    // The kind at the end: an experiment's name may end with anything else.
    let name = |number: usize, end: &str| format!("{}-{number}{end}", row.name);
    let figures = (1..)
        .zip(row.figures())
        .flat_map(move |(number, it): (_, Figure)| {
            [(".svg", it.to_svg()), (".csv", it.to_csv())]
                .map(|(end, text)| (name(number, end), text))
        });
    let tables = (1..).zip(row.tables());
    let tables = tables.map(move |(number, it)| (name(number, "-table.csv"), it.csv));
    figures.chain(tables)
}
