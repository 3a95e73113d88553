//! Names: those that anybody can give (devices, processes, containers, cgroups), told so that no terminal
//! or page takes them for orders; and those of an experiment's runs.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

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

/// A name as one word for people, from which the bytes can be told: what is no UTF-8, and what
/// would steer a terminal, as `\xNN`, and a backslash twice.
#[must_use]
pub fn escaped(name: &OsStr) -> String {
    let mut text = String::with_capacity(name.len());
    for chunk in name.as_bytes().utf8_chunks() {
        for character in chunk.valid().chars() {
            match character {
                '\\' => text.push_str("\\\\"),
                character if is_steering(character) => {
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
    fn different_names_stay_different_and_none_steers_a_terminal() {
        let told = |name: &[u8]| escaped(OsStr::from_bytes(name));
        assert_eq!(told(b"eth0.7"), "eth0.7");
        assert_eq!(told("grün".as_bytes()), "grün");
        assert_eq!(told(b"B\xfc"), r"B\xfc");
        assert_eq!(told(br"B\xfc"), r"B\\xfc");
        assert_eq!(told(b"\x1b[2J"), r"\x1b[2J");
        assert_eq!(told("\u{85}".as_bytes()), r"\xc2\x85");
        assert_eq!(told("\u{202e}".as_bytes()), r"\xe2\x80\xae");
    }
}
