//! Whatever came from outside, made fit for a terminal: a log holds what strangers sent.

use std::path::Path;

/// At most so many bytes of `bytes`, with everything but printable ASCII written as `\xNN`.
#[must_use]
pub fn clean(bytes: &[u8], most: usize) -> String {
    let mut out = String::with_capacity(bytes.len().min(most));
    for &byte in bytes.iter().take(most) {
        if byte == b' ' || byte.is_ascii_graphic() {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("\\x{byte:02X}"));
        }
    }
    if bytes.len() > most {
        out.push_str("...");
    }
    out
}

/// A file's name: letters of any script stay, what moves the cursor or turns the writing direction does not.
#[must_use]
pub fn clean_path(path: &Path) -> String {
    let mut out = String::new();
    for c in path.to_string_lossy().chars() {
        let unseen =
            matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}');
        if c.is_control() || unseen {
            out.extend(c.escape_unicode());
        } else {
            out.push(c);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_a_terminal_obeys_comes_through() {
        assert_eq!(clean(b"/a\x1b[2J\x00\xff b\x7f", 100), "/a\\x1B[2J\\x00\\xFF b\\x7F");
        assert_eq!(clean(b"abcdef", 3), "abc...");
        assert_eq!(clean_path(Path::new("lög\u{1b}[31m\u{202e}.gz")), "lög\\u{1b}[31m\\u{202e}.gz");
    }
}
