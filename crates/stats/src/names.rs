//! User-controlled names (devices, processes, containers, cgroups) without characters that a
//! terminal or page interprets.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

/// Whether a terminal or page interprets a character instead of showing it. True for control
/// characters (Unicode category Cc), line and paragraph separators, and bidirectional controls
/// (Unicode Standard Annex 9, sections 2.1 to 2.6).
#[must_use]
pub fn is_terminal_control(character: char) -> bool {
    let turns = matches!(character, '\u{61c}' | '\u{200e}' | '\u{200f}')
        || matches!(character, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    let parts = matches!(character, '\u{2028}' | '\u{2029}');
    character.is_control() || turns || parts
}

/// Replaces each control character of a name by `?`.
#[must_use]
pub fn sanitized(name: &str) -> String {
    let plain = |it: char| if is_terminal_control(it) { '?' } else { it };
    name.chars().map(plain).collect()
}

/// A name as one printable word from which the bytes can be recovered. Invalid UTF-8 and control
/// characters become `\xNN`; a backslash is doubled.
#[must_use]
pub fn escaped(name: &OsStr) -> String {
    let mut text = String::with_capacity(name.len());
    for chunk in name.as_bytes().utf8_chunks() {
        for character in chunk.valid().chars() {
            match character {
                '\\' => text.push_str("\\\\"),
                character if is_terminal_control(character) => {
                    let mut bytes = [0; 4];
                    escape(&mut text, character.encode_utf8(&mut bytes).as_bytes());
                }
                character => text.push(character),
            }
        }
        escape(&mut text, chunk.invalid());
    }
    text
}

fn escape(text: &mut String, bytes: &[u8]) {
    for byte in bytes {
        text.push_str(&format!("\\x{byte:02x}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escaped_names_stay_distinct_without_control_characters() {
        let escape_bytes = |name: &[u8]| escaped(OsStr::from_bytes(name));
        assert_eq!(escape_bytes(b"eth0.7"), "eth0.7");
        assert_eq!(escape_bytes("grün".as_bytes()), "grün");
        assert_eq!(escape_bytes(b"B\xfc"), r"B\xfc");
        assert_eq!(escape_bytes(br"B\xfc"), r"B\\xfc");
        assert_eq!(escape_bytes(b"\x1b[2J"), r"\x1b[2J");
        assert_eq!(escape_bytes("\u{85}".as_bytes()), r"\xc2\x85");
        assert_eq!(escape_bytes("\u{202e}".as_bytes()), r"\xe2\x80\xae");
    }
}
