/// The lines of a text, and where in them its bytes are.
pub(super) struct Lines<'a> {
    text: &'a str,
    /// In bytes from the text's beginning, in rising order.
    starts: Vec<usize>,
}

impl<'a> Lines<'a> {
    pub(super) fn of(text: &'a str) -> Self {
        let breaks = text.match_indices('\n').map(|(at, _)| at + 1);
        let starts = std::iter::once(0).chain(breaks).collect();
        Self { text, starts }
    }

    /// The line of a position given in bytes, from 1.
    pub(super) fn line(&self, position: usize) -> usize {
        self.starts.partition_point(|start| *start <= position)
    }

    /// Its line and its column, both from 1.
    pub(super) fn place(&self, position: usize) -> (usize, usize) {
        let line = self.line(position);
        let start = self.starts[line - 1];
        let before = self.text[start..].char_indices();
        let column = before.take_while(|(at, _)| start + at < position).count() + 1;
        (line, column)
    }
}

#[test]
fn columns_are_counted_in_characters() {
    let lines = Lines::of("ä = 1\n\nböse\n");
    let places = [0, 2, 3, 6, 7, 8, 11, 13, 99].map(|position| lines.place(position));
    let expected = [
        (1, 1),
        (1, 2),
        (1, 3),
        (1, 6),
        (2, 1),
        (3, 1),
        (3, 3),
        (3, 5),
        (4, 1),
    ];
    assert_eq!(places, expected);
}
