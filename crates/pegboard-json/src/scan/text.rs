//! Decoding and comparison of JSON strings, without allocation where possible.

use std::borrow::Cow;

/// Decodes a JSON string literal (with its quotes); `None` if it is not one, or has a lone surrogate.
pub fn decode_string(string: &[u8]) -> Option<Cow<'_, str>> {
    let inner = inner(string)?;
    if inner.contains(&b'\\') {
        serde_json::from_slice(string).ok().map(Cow::Owned)
    } else {
        std::str::from_utf8(inner).ok().map(Cow::Borrowed)
    }
}

/// Returns `true` if a JSON string literal (with its quotes) decodes to `text`.
#[inline]
pub fn string_equals(string: &[u8], text: &str) -> bool {
    let text = text.as_bytes();
    // A literal is never shorter than its text, and is longer only if it has escapes.
    match string.len().checked_sub(text.len() + 2) {
        None => false,
        Some(0) => {
            string[0] == b'"'
                && &string[1..=text.len()] == text
                && string[text.len() + 1] == b'"'
                && !text.contains(&b'\\')
        }
        // Mostly the first character decides.
        Some(_) => {
            (string[1] == b'\\' || text.first().is_none_or(|first| string[1] == *first))
                && escaped_equals(string, text)
        }
    }
}

/// Compares a literal that may have escapes.
fn escaped_equals(string: &[u8], text: &[u8]) -> bool {
    let Some(inner) = inner(string) else { return false };
    // An escape takes at most six bytes for one.
    inner.len() <= 6 * text.len() && inner.contains(&b'\\') && unescaped_equals(inner, text)
}

/// Returns the content between the quotes.
fn inner(string: &[u8]) -> Option<&[u8]> {
    string.strip_prefix(b"\"")?.strip_suffix(b"\"")
}

fn unescaped_equals(mut inner: &[u8], mut text: &[u8]) -> bool {
    while let Some((&byte, rest)) = inner.split_first() {
        let mut buffer = [byte, 0, 0, 0];
        let decoded = if byte == b'\\' {
            let Some((character, behind)) = unescape(rest) else { return false };
            inner = behind;
            character.encode_utf8(&mut buffer).as_bytes()
        } else {
            inner = rest;
            &buffer[..1]
        };
        match text.strip_prefix(decoded) {
            Some(behind) => text = behind,
            None => return false,
        }
    }
    text.is_empty()
}

/// Decodes the escape behind a backslash; returns the character and the rest, or `None` for a lone surrogate.
fn unescape(escape: &[u8]) -> Option<(char, &[u8])> {
    let (kind, rest) = escape.split_first()?;
    let character = match kind {
        b'b' => '\u{8}',
        b'f' => '\u{c}',
        b'n' => '\n',
        b'r' => '\r',
        b't' => '\t',
        b'u' => {
            let (unit, rest) = unit(rest)?;
            if let Some(character) = char::from_u32(u32::from(unit)) {
                return Some((character, rest));
            }
            let (low, rest) = self::unit(rest.strip_prefix(b"\\u")?)?;
            let character = char::decode_utf16([unit, low]).next()?.ok()?;
            return Some((character, rest));
        }
        other => char::from(*other),
    };
    Some((character, rest))
}

fn unit(hex: &[u8]) -> Option<(u16, &[u8])> {
    let (digits, rest) = hex.split_at_checked(4)?;
    let unit = u16::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
    Some((unit, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_literal_equals_the_text_that_it_decodes_to() {
        let cases = [
            (r#""name""#, "name", true),
            (r#""name""#, "nam", false),
            (r#""name""#, "names", false),
            (r#""nbme""#, "name", false),
            (r#""n\u0061me""#, "name", true),
            (r#""\u006eame""#, "name", true),
            (r#""n\u0062me""#, "name", false),
            (r#""n\nme""#, "n\nme", true),
            // The bytes are the same, but the literal has an escape.
            (r#""n\nme""#, r"n\nme", false),
            (r#""n\\me""#, r"n\me", true),
            (r#""\ud83d\ude00""#, "😀", true),
            (r#""\ud83d""#, "😀", false),
            ("\"\"", "", true),
            (r#""a""#, "", false),
            (r#""\u0000""#, "", false),
            ("2.0", "2.0", false),
            ("[1,2]", "1,2", false),
            ("null", "ul", false),
            ("\"", "", false),
        ];
        for (literal, text, expected) in cases {
            assert_eq!(string_equals(literal.as_bytes(), text), expected, "{literal} and {text}");
        }
    }
}
