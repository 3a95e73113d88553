//! What tables look like in a terminal.

use pillion_stats::report::{Column, Table, number};

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
fn columns_line_up_and_missing_cells_are_dashes() {
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
fn long_cells_go_on_in_the_next_line_and_columns_can_be_left_out() {
    let columns = [Column::left("published").wrapped(16), Column::right("then")];
    let mut table = Table::new("", columns.into_iter().chain([Column::left("because")]));
    table.section("duration");
    table.row(["5 min: packets lost of thin streams", "3.2 %", "unknown"]);
    let expected = "
  published           then
  ────────────────────────
  duration
    5 min: packets   3.2 %
      lost of thin
      streams
";
    let text = table.narrowed(2).to_text();
    assert_eq!(format!("\n{text}"), expected);
}

#[test]
fn a_cell_cannot_steer_the_terminal() {
    let mut table = table();
    table.row(["\u{1b}[31mred\r\nder\u{202e}mag"]);
    let text = table.to_text();
    assert!(text.contains("red"), "{text}");
    assert!(!text.contains(['\u{1b}', '\r', '\u{202e}']), "{text}");
}

#[test]
fn a_table_without_rows_or_columns_says_so() {
    assert!(
        Table::new("", [Column::left("a")])
            .to_text()
            .ends_with("no data\n")
    );
    assert!(Table::default().to_text().ends_with("no data\n"));
    assert!(Table::default().to_html().contains("no data"));
}

#[test]
fn columns_stay_aligned_where_characters_take_two_columns_or_none() {
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
