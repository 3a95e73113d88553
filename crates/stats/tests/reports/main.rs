//! Checks of reports: HTML page, terminal tables, figures.

mod browser;
mod figures;

use pillion_stats::report::{
    Axis, Choice, Column, Fact, Figure, Page, Part, SortedSamples, Table, number,
};
use roxmltree::{Document, ParsingOptions};
use serde_json::json;

const HOSTILE: &str = "</script><img src=x onerror=alert(1)>&lt;\u{2028}'\"<!--";

fn page(text: &str) -> Page {
    let samples = SortedSamples::new((0..500).map(f64::from));
    let axis = Axis::linear(text, text);
    let mut table = Table::new(text, [Column::left(text), Column::right("b").unit(text)]);
    table.section(text).row([text, text]);
    Page {
        title: text.into(),
        lead: text.into(),
        parts: vec![
            Figure::ccdf(text, axis.clone(), text, &[(text, &samples)]).into(),
            Part::Heading(text.into(), text.into()),
            table.into(),
            Figure::cdf(text, axis.clone(), text, &[(text, &samples)]).into(),
            Choice {
                figures: ["a", "b"]
                    .map(|more| {
                        let figure = Figure::cdf(text, axis.clone(), text, &[(text, &samples)]);
                        (vec![text.to_owned(), more.to_owned()], figure)
                    })
                    .into(),
            }
            .into(),
        ],
        method: vec![Fact::new(text, text), Fact::verbatim(text, text)],
        data: json!({ text: [text, 1.5, null] }),
    }
}

/// The page without its own style and scripts, which are not XML.
fn markup(html: &str) -> String {
    let mut out = String::new();
    let mut rest = html;
    while let Some(start) = ["<style>", "<script>"]
        .iter()
        .filter_map(|t| rest.find(t))
        .min()
    {
        let end = start + rest[start..].find("</s").expect("closed");
        let inside = start + rest[start..].find('>').expect("a tag") + 1;
        out += &rest[..inside];
        rest = &rest[end..];
    }
    out + rest
}

fn parse(markup: &str) -> Document<'_> {
    let options = ParsingOptions {
        allow_dtd: true,
        ..ParsingOptions::default()
    };
    Document::parse_with_options(markup, options).expect("well-formed")
}

fn elements(html: &str) -> Vec<String> {
    let markup = markup(html);
    let document = parse(&markup);
    let elements = document.descendants().filter(roxmltree::Node::is_element);
    elements.map(|n| n.tag_name().name().to_string()).collect()
}

#[test]
fn page_text_never_adds_elements() {
    let count = |text| {
        let mut elements = elements(&page(text).to_html());
        // A long label may need a leader; everything other than that is equal.
        elements.retain(|name| name != "path");
        elements
    };
    assert_eq!(count(HOSTILE), count("harmless"));
}

#[test]
fn embedded_json_data_round_trips() {
    let page = page(HOSTILE);
    let html = page.to_html();
    let (_, rest) = html.split_once("id=\"data\">").expect("the data");
    let (data, _) = rest.split_once("</script>").expect("its end");
    assert_eq!(
        serde_json::from_str::<serde_json::Value>(data).ok(),
        Some(page.data)
    );
    assert!(!data.contains(['<', '>', '&']));
}

#[test]
fn page_loads_no_external_resources() {
    let html = page("harmless").to_html();
    let own = html
        .replace("http://www.w3.org/2000/svg", "")
        .replace("http-equiv", "")
        .replace("data:,", "");
    for outside in [
        "http", "//www", "src=", "url(", "@import", "fetch(", "XMLHttp", "import(",
    ] {
        assert!(!own.contains(outside), "{outside}");
    }
    assert!(html.contains("default-src &#39;none&#39;"));
    let markup = markup(&html);
    for node in parse(&markup).descendants() {
        assert!(node.attribute("href").is_none_or(|to| to == "data:,"));
    }
}

#[test]
fn page_element_ids_are_unique() {
    let html = page("harmless").to_html();
    let markup = markup(&html);
    let document = parse(&markup);
    let mut ids: Vec<_> = document
        .descendants()
        .filter_map(|n| n.attribute("id"))
        .collect();
    let all = ids.len();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), all);
    for node in document.descendants() {
        let named = node.attribute("aria-labelledby").unwrap_or_default();
        assert!(named.split_whitespace().all(|id| ids.contains(&id)));
    }
}

#[test]
fn page_without_data_shows_no_data() {
    assert!(
        Page::default()
            .to_html()
            .contains("There is no data to show.")
    );
    let mut page = page("harmless");
    let none = SortedSamples::default();
    let figure = Figure::ccdf("t", Axis::linear("x", "ms"), "y", &[("plain", &none)]);
    page.parts = vec![figure.into(), Table::new("t", [Column::left("a")]).into()];
    let html = page.to_html();
    assert!(html.contains(">no data: plain<") && html.contains(">no data</td>"));
}

#[test]
fn page_output_is_deterministic() {
    assert_eq!(page("harmless").to_html(), page("harmless").to_html());
}

fn table() -> Table {
    let mut table = Table::new(
        "side by side",
        [
            Column::left(""),
            Column::right("plain TCP"),
            Column::right("pillion"),
            Column::right("overhead").unit("%"),
        ],
    );
    table.row(["messages", &number::count(24_000), "7"]);
    table.section("delivery latency, ms");
    table.row([
        "p50".into(),
        number::millis(75.12),
        number::millis(f64::NAN),
    ]);
    table
}

#[test]
fn text_table_aligns_columns_and_shows_missing_as_dash() {
    let expected = "
             plain TCP   pillion   overhead, %
  ────────────────────────────────────────────
  messages      24 000         7             –
  delivery latency, ms
    p50           75.1         –             –
";
    assert_eq!(format!("\n{}", table().to_text()), expected);
}

#[test]
fn long_cells_wrap_and_columns_can_be_dropped() {
    let columns = [Column::left("published").wrapped(16), Column::right("then")];
    let mut table = Table::new("", columns);
    table.section("duration");
    table.row(["5 min: packets lost of thin streams", "3.2 %"]);
    let expected = "
  published           then
  ────────────────────────
  duration
    5 min: packets   3.2 %
      lost of thin
      streams
";
    let text = table.to_text();
    assert_eq!(format!("\n{text}"), expected);
}

#[test]
fn cell_control_characters_are_replaced() {
    let mut table = table();
    table.row(["\u{1b}[31mred\r\nder\u{202e}mag"]);
    let text = table.to_text();
    assert!(text.contains("red"), "{text}");
    assert!(!text.contains(['\u{1b}', '\r', '\u{202e}']), "{text}");
}

#[test]
fn text_table_without_rows_or_columns_shows_no_data() {
    assert!(
        Table::new("", [Column::left("a")])
            .to_text()
            .ends_with("no data\n")
    );
    assert!(Table::default().to_text().ends_with("no data\n"));
    assert!(Table::default().to_html().contains("no data"));
}

#[test]
fn wide_and_zero_width_characters_keep_alignment() {
    let mut table = Table::new("t", [Column::left("process"), Column::right("n")]);
    for name in ["游戏", "game", "e\u{301}t"] {
        table.row([name.to_owned(), "7".to_owned()]);
    }
    let text = table.to_text();
    let rows: Vec<&str> = text.lines().skip(2).collect();
    assert_eq!(
        rows,
        ["  游戏      7", "  game      7", "  e\u{301}t        7"]
    );
}
