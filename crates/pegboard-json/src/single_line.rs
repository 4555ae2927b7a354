//! JSON on one line, as in NDJSON.

use std::borrow::Cow;
use std::fmt::Write;

use crate::raw::RawJson;

impl RawJson {
    /// Returns the value on one line. Line breaks, which JSON has only between tokens, become spaces; characters in
    /// strings that some readers take for the end of a line are escaped.
    ///
    /// ```
    /// use pegboard_json::RawJson;
    ///
    /// let raw = RawJson::parse("{\r\n  \"a\":\r\"x\u{2028}y\\n\"\n}".into()).unwrap();
    /// assert_eq!(raw.single_line(), "{    \"a\": \"x\\u2028y\\n\" }");
    /// ```
    pub fn single_line(&self) -> Cow<'_, str> {
        let text = self.as_str();
        // The first bytes of U+0085, U+2028 and U+2029.
        let is_plain = |byte: u8| !matches!(byte, b'\n' | b'\r' | 0xc2 | 0xe2);
        if text.bytes().all(is_plain) {
            return text.into();
        }
        let mut line = String::with_capacity(text.len());
        for each in text.chars() {
            match each {
                '\n' | '\r' => line.push(' '),
                '\u{85}' | '\u{2028}' | '\u{2029}' => {
                    write!(line, "\\u{:04x}", u32::from(each)).expect("writing to a String cannot fail");
                }
                _ => line.push(each),
            }
        }
        line.into()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn a_single_line_has_the_same_value_and_no_line_break() {
        for text in [
            "{\"a\": \"plain\"}",
            "[\n1,\r2,\r\n3\n]",
            "{\"a\u{85}b\": \"\u{2028}\\n\u{2029}\\\\\u{2028}\u{a0}â\"}",
            "\"\\r\\n\"",
        ] {
            let raw = RawJson::parse(text.into()).unwrap();
            let line = raw.single_line();
            assert!(!line.contains(['\n', '\r', '\u{85}', '\u{2028}', '\u{2029}']), "{line:?}");
            assert_eq!(serde_json::from_str::<Value>(&line).unwrap(), raw.to_value(), "{text:?}");
        }
    }
}
