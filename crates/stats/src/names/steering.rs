/// Whether a terminal or a page takes a character for an order rather than for a sign: it controls
/// (Unicode category Cc), parts lines or paragraphs, or turns the direction of the text around it
/// (Unicode Standard Annex 9, sections 2.1 to 2.6). A name that anybody can give may hold any.
#[must_use]
pub fn is_steering(character: char) -> bool {
    let turns = matches!(character, '\u{61c}' | '\u{200e}' | '\u{200f}')
        || matches!(character, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    let parts = matches!(character, '\u{2028}' | '\u{2029}');
    character.is_control() || turns || parts
}

/// A name without what a terminal or a page would take for something else than a name.
#[must_use]
pub fn without_steering(name: &str) -> String {
    let plain = |it: char| if is_steering(it) { '?' } else { it };
    name.chars().map(plain).collect()
}
